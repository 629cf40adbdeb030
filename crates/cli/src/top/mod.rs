// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope top`: an engine on this thread, and a screen on another one, which begins when the engine has something to show. So what cannot be
//! done is said on a terminal that nobody has touched.

pub mod options;
mod screen;

use crate::exit::Failure;
use crate::output::note;
use crate::{stop, terminal};
use options::TopOptions;
use rtscope_analyze::explain::Explanation;
use rtscope_event::{LateResponse, Names};
use rtscope_kernel::interrupts;
use rtscope_session::command::CommandEnd;
use rtscope_session::hist::{CountedKeys, HistKey};
use rtscope_session::top::{self, TopSettings};
use rtscope_session::watch::WatchStart;
use rtscope_session::watch::keep_one_pool;
use rtscope_session::{Observer, StopHandle, wall_clock};
use rtscope_store::trigger::TriggerFile;
use rtscope_view::clean;
use rtscope_view::top::{TopSubject, TopView};
use screen::{Screen, Shared};
use std::io::{IsTerminal, stdin, stdout};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Remarks that are kept for the end.
const NOTES_MOST: usize = 100;

/// Counts and shows, until somebody has seen enough.
pub fn run(options: TopOptions) -> Result<(), Failure> {
    has_terminal()?;
    keep_one_pool();
    let settings = options.settings()?;
    let heard = Arc::new(OnceLock::new());
    let stop = stop::on_signals_of_screen(Arc::clone(&heard))?;
    let watched = Arc::new(Watched::new(view(&settings)?, heard));
    let observer: Arc<dyn Observer> = Arc::clone(&watched) as Arc<dyn Observer>;
    let began = Instant::now();
    let result = top::run(&settings, &stop, &observer);
    let is_over =
        settings.hist.counted.duration_ns.is_some_and(|ns| began.elapsed() >= Duration::from_nanos(ns));
    let shown = watched.end(result.is_ok() && !stop.asked() && !is_over);
    watched.notes().iter().for_each(|text| note(&format!("rtscope: {}", clean(text))));
    result.and_then(|command| shown.and(command))
}

/// What a screen needs. Who has none is told what does the same without.
fn has_terminal() -> Result<(), Failure> {
    let refuse = |why: &str| {
        Err(Failure::Usage(format!(
            "top shows a screen, and {why}; rtscope hist counts the same for files and pipes"
        )))
    };
    if !stdout().is_terminal() {
        return refuse("standard output is no terminal");
    }
    if !stdin().is_terminal() {
        return refuse("standard input is no terminal");
    }
    match std::env::var("TERM").as_deref() {
        Ok("dumb") => refuse("this terminal has none (TERM=dumb)"),
        _ => Ok(()),
    }
}

fn view(settings: &TopSettings) -> Result<TopView, Failure> {
    let mut names = Names::default();
    interrupts().into_iter().for_each(|(irq, name)| names.add_irq(irq, name));
    let hist = &settings.hist;
    let subject = TopSubject {
        tracker: hist.tracker,
        by: hist.by.unwrap_or(HistKey::usual(hist.tracker)),
        between: hist.between.as_ref().map(ToString::to_string),
        target: hist.target_words(),
        threshold_ns: settings.threshold_ns,
        names,
        clock: Some(wall_clock::now()?),
    };
    Ok(TopView::new(subject, hist.order, terminal::style(false)))
}

/// Hears the engine, and shows it.
#[derive(Debug)]
struct Watched {
    shared: Arc<Shared>,
    /// What asks the engine to end.
    heard: Arc<OnceLock<StopHandle>>,
    /// Once there is something to show.
    screen: Mutex<Option<Screen>>,
    /// What people should also read when the screen is gone.
    notes: Mutex<Vec<String>>,
    command: OnceLock<CommandEnd>,
}

impl Watched {
    fn new(view: TopView, heard: Arc<OnceLock<StopHandle>>) -> Watched {
        Watched {
            shared: Arc::new(Shared::new(view)),
            heard,
            screen: Mutex::default(),
            notes: Mutex::default(),
            command: OnceLock::new(),
        }
    }

    /// The engine has ended. `stays`: by itself, so that people may go on looking.
    fn end(&self, stays: bool) -> Result<(), Failure> {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(screen) = screen else { return Ok(()) };
        if stays {
            let why = match self.command.get() {
                Some(CommandEnd { signal: Some(signal), .. }) => format!("COMMAND was ended by {signal}"),
                Some(CommandEnd { status, .. }) => format!("COMMAND has ended with status {status}"),
                None => "what was counted has ended".to_owned(),
            };
            self.shared.change(|view| view.ended(&format!("{why}; q ends")));
        }
        self.shared.engine_ended(stays);
        screen.join()
    }

    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Observer for Watched {
    fn note(&self, text: &str) {
        self.shared.change(|view| view.note(text));
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MOST {
            notes.push(text.to_owned());
        }
    }

    fn command_ended(&self, end: CommandEnd) {
        // Only the first one counts.
        let _ = self.command.set(end);
    }

    fn watching(&self, start: &WatchStart<'_>) {
        // The first one says what the title does.
        rtscope_view::watch_start_notes(start).iter().skip(1).for_each(|text| self.note(text));
    }

    fn counted(&self, counted: CountedKeys) {
        self.shared.change(|view| view.counted(counted));
        let mut screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if screen.is_none() {
            *screen = Some(Screen::start(Arc::clone(&self.shared), Arc::clone(&self.heard)));
        }
    }

    fn late(&self, late: &LateResponse) {
        self.shared.change(|view| view.late(late));
    }

    fn snapshot(&self, _trigger: &TriggerFile, explanations: &[Explanation], _saved: Option<&Path>) {
        self.explained(explanations);
    }

    fn explained(&self, explanations: &[Explanation]) {
        self.shared.change(|view| explanations.iter().for_each(|explanation| view.explained(explanation)));
    }
}
