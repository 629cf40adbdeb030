// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The terminal: its modes, its keys, and a thread that draws. However it ends, the terminal is as it was before: when it is dropped, when a
//! thread panics, and when signals ask for the end.

use crate::exit::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use rtscope_session::StopHandle;
use rtscope_view::top::{TopAsked, TopView, take_keys};
use std::io::{self, BufWriter, Stdout, stdin, stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Between two looks at whether there is something new to draw. A key is seen at once.
const LOOK_MS: u8 = 50;

/// Whether the terminal is in the modes of a screen.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Of [`Shared::engine`]: it counts; it has ended, and what it counted is still looked at; there is nothing to look at any more.
const COUNTS: u8 = 0;
const STAYS: u8 = 1;
const LEAVES: u8 = 2;

/// What the engine's threads and the screen's share.
#[derive(Debug)]
pub struct Shared {
    view: Mutex<TopView>,
    has_changed: AtomicBool,
    engine: AtomicU8,
}

impl Shared {
    /// Nothing has been counted.
    pub fn new(view: TopView) -> Shared {
        Shared { view: Mutex::new(view), has_changed: AtomicBool::new(true), engine: AtomicU8::new(COUNTS) }
    }

    /// Changes what is shown.
    pub fn change<T>(&self, change: impl FnOnce(&mut TopView) -> T) -> T {
        let result = change(&mut self.view.lock().unwrap_or_else(PoisonError::into_inner));
        // ORDER: relaxed; a flag that stands for itself, what changed is under the lock.
        self.has_changed.store(true, Ordering::Relaxed);
        result
    }

    /// The engine counts no more.
    pub fn engine_ended(&self, stays: bool) {
        // ORDER: relaxed; it stands for itself.
        self.engine.store(if stays { STAYS } else { LEAVES }, Ordering::Relaxed);
    }
}

/// The thread.
#[derive(Debug)]
pub struct Screen(io::Result<JoinHandle<io::Result<()>>>);

impl Screen {
    /// Takes the terminal. When the screen ends, whyever, the engine is asked to.
    pub fn start(shared: Arc<Shared>, heard: Arc<OnceLock<StopHandle>>) -> Screen {
        restore_before_panics();
        let end = EndWithScreen(Arc::clone(&heard));
        let show = move || {
            let _end = end;
            // Somebody has closed its window: an end like others.
            let is_gone = |error: &io::Error| error.raw_os_error() == Some(Errno::EIO as i32);
            show(&shared, &heard).or_else(|error| if is_gone(&error) { Ok(()) } else { Err(error) })
        };
        Screen(std::thread::Builder::new().name("rtscope-screen".to_owned()).spawn(show))
    }

    /// Waits for its end.
    pub fn join(self) -> Result<(), Failure> {
        let failed = |error| Failure::doing("using the terminal", error);
        let ended = self.0.map_err(failed)?.join();
        // Its message is on standard error already.
        let died = |_| Failure::Failed("the thread that draws the screen has died".to_owned());
        ended.map_err(died)?.map_err(failed)
    }
}

/// Without a screen nobody could end the engine.
struct EndWithScreen(Arc<OnceLock<StopHandle>>);

impl Drop for EndWithScreen {
    fn drop(&mut self) {
        self.0.get().iter().for_each(|stop| stop.ask());
    }
}

fn show(shared: &Shared, heard: &OnceLock<StopHandle>) -> io::Result<()> {
    let mut taken = Taken::take()?;
    let mut typed = Vec::new();
    let mut drawn_size = taken.terminal.size()?;
    let is_asked = heard.get().map(StopHandle::flag).unwrap_or_default();
    loop {
        // Who panics gives the terminal back: what is drawn now would hide what it said.
        // ORDER: relaxed; it stands for itself.
        if !IS_TAKEN.load(Ordering::Relaxed) {
            return Ok(());
        }
        // ORDER: relaxed; see `change`.
        if shared.has_changed.swap(false, Ordering::Relaxed) {
            let mut view = shared.view.lock().unwrap_or_else(PoisonError::into_inner);
            taken.terminal.draw(|frame| view.draw(frame))?;
        }
        // ORDER: relaxed, both; they stand for themselves.
        match (shared.engine.load(Ordering::Relaxed), is_asked.load(Ordering::Relaxed)) {
            (LEAVES, _) | (STAYS, true) => return Ok(()),
            _ => {}
        }
        let Some(has_more) = read_keys(&mut typed)? else { return Ok(()) };
        for key in take_keys(&mut typed, !has_more) {
            if shared.change(|view| view.key(key)) == TopAsked::End {
                shared.change(|view| view.note("ending"));
                heard.get().iter().for_each(|stop| stop.ask());
            }
        }
        let size = taken.terminal.size()?;
        if std::mem::replace(&mut drawn_size, size) != size {
            shared.change(|_| ());
        }
    }
}

/// Waits until keys were pressed, or it is time to look. Whether there were any; `None`: the terminal is gone, and with it who looked.
fn read_keys(typed: &mut Vec<u8>) -> io::Result<Option<bool>> {
    let keyboard = stdin();
    let mut watched = [PollFd::new(keyboard.as_fd(), PollFlags::POLLIN)];
    match poll(&mut watched, PollTimeout::from(LOOK_MS)) {
        // One that a signal interrupted looks early.
        Ok(0) | Err(Errno::EINTR) => return Ok(Some(false)),
        Err(error) => return Err(error.into()),
        Ok(_) => {}
    }
    let mut bytes = [0; 64];
    // Not through the library's buffer, of which poll(2) knows nothing.
    match nix::unistd::read(&keyboard, &mut bytes) {
        Ok(0) | Err(Errno::EIO) => Ok(None),
        Ok(length) => {
            typed.extend_from_slice(&bytes[..length]);
            Ok(Some(true))
        }
        Err(Errno::EINTR) => Ok(Some(false)),
        Err(error) => Err(error.into()),
    }
}

/// The terminal in the modes of a screen, until it is dropped.
struct Taken {
    /// Never dropped: it would show the cursor, and where the terminal is gone panic since it cannot say so.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
}

impl Taken {
    fn take() -> io::Result<Taken> {
        enable_raw_mode()?;
        // ORDER: relaxed; it stands for itself.
        IS_TAKEN.store(true, Ordering::Relaxed);
        let terminal = execute!(stdout(), EnterAlternateScreen, Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(BufWriter::new(stdout()))));
        match terminal {
            Ok(terminal) => Ok(Taken { terminal: ManuallyDrop::new(terminal) }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal back as it was. Does something once.
fn restore() {
    // ORDER: relaxed; it stands for itself.
    if IS_TAKEN.swap(false, Ordering::Relaxed) {
        // A terminal that is gone needs nothing.
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// What a panic says would be gone with the screen.
fn restore_before_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtscope_testkit::screen::OnTerminal;
    use std::process::Command;
    use std::sync::mpsc::channel;

    const ASKED: &str = "RTSCOPE_TEST_PANICS";

    /// Does something only where the next one runs it, on a terminal of its own.
    #[test]
    fn one_thread_has_the_screen_and_another_one_panics() {
        if std::env::var_os(ASKED).is_none() {
            return;
        }
        restore_before_panics();
        let (has, taken) = channel();
        std::thread::spawn(move || {
            let _taken = Taken::take().expect("a terminal");
            has.send(()).expect("it waits");
            loop {
                std::thread::park();
            }
        });
        taken.recv().expect("it is taken");
        panic!("this is what the panic says");
    }

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_read_there() {
        if rtscope_testkit::skip::without_tool("setsid") {
            return;
        }
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args(["--nocapture", "one_thread_has_the_screen_and_another_one_panics"]).env(ASKED, "1");
        let mut screen = OnTerminal::start(&command, 120, 60).expect("it starts");
        assert_eq!(screen.finish().expect("it ends").code(), Some(101));
        let text = screen.drawn().text();
        assert!(screen.is_restored().expect("a terminal"), "{:?}", screen.drawn());
        assert!(text.contains("this is what the panic says"), "{text}");
    }
}
