// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers `GET /metrics`, over HTTP/1.1, one request a connection.
//!
//! Not a library: this answers one request of one form, and what matters is what it refuses. A client has a few seconds and a few kilobytes,
//! there are at most a few clients at once, and further ones wait in the kernel's queue. All of it is one thread that polls.
//!
//! The numbers belong to the thread that asks for this (`is_asked`): it makes the text when somebody wants it, at its next look.

use super::text::CONTENT_TYPE;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Clients at once.
const CLIENTS: usize = 16;
/// How long one has for its request, our answer, and to read it.
const CLIENT_TIME: Duration = Duration::from_secs(5);
/// After a connection that could not be taken, for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The longest request.
const REQUEST_BYTES: usize = 8 << 10;

#[derive(Debug)]
struct Shared {
    is_asked: AtomicBool,
    is_ending: AtomicBool,
    text: Mutex<Option<String>>,
    wake: EventFd,
}

/// A server, until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// There; port 0: wherever there is place.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub fn start(address: SocketAddr) -> io::Result<MetricsServer> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let shared = Arc::new(Shared {
            is_asked: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            text: Mutex::new(None),
            wake,
        });
        let server = Server { shared: Arc::clone(&shared), listener, clients: Vec::new() };
        let thread =
            std::thread::Builder::new().name("rtscope-metrics".to_string()).spawn(move || server.work())?;
        Ok(MetricsServer { shared, address, thread: Some(thread) })
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Somebody waits for [`MetricsServer::answer`].
    #[must_use]
    pub fn is_asked(&self) -> bool {
        // ORDER: none; the flag stands for itself.
        self.shared.is_asked.load(Ordering::Relaxed)
    }

    /// The numbers of now, for all who wait.
    pub fn answer(&self, text: String) {
        // ORDER: none; the text goes by its lock.
        self.shared.is_asked.store(false, Ordering::Relaxed);
        *self.shared.text.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
        // Full means that the thread will wake anyhow.
        let _ = self.shared.wake.write(1);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // ORDER: none; the write that follows wakes the thread, and the kernel orders both.
        self.shared.is_ending.store(true, Ordering::Relaxed);
        let _ = self.shared.wake.write(1);
        // It panicked: its message is on standard error already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[derive(Debug)]
enum Step {
    /// What has come of the request.
    Reads(Vec<u8>),
    /// Whether only the head of the answer is wanted.
    Waits(bool),
    /// What is to be written, and how much of it is.
    Writes(Vec<u8>, usize),
    Done,
}

#[derive(Debug)]
struct Client {
    stream: TcpStream,
    until: Instant,
    step: Step,
}

impl Client {
    fn wants(&self) -> PollFlags {
        match self.step {
            Step::Reads(_) => PollFlags::POLLIN,
            // Only that it has gone.
            Step::Waits(_) | Step::Done => PollFlags::empty(),
            Step::Writes(..) => PollFlags::POLLOUT,
        }
    }

    fn go_on(&mut self) {
        match &mut self.step {
            Step::Reads(request) => {
                let mut bytes = [0; 1024];
                match self.stream.read(&mut bytes) {
                    Ok(0) => self.step = Step::Done,
                    Ok(length) => {
                        request.extend_from_slice(&bytes[..length]);
                        if let Some(step) = judged(request) {
                            self.step = step;
                            self.go_on();
                        }
                    }
                    Err(error) => self.failed(&error),
                }
            }
            Step::Writes(answer, written) => match self.stream.write(&answer[*written..]) {
                Ok(length) => {
                    *written += length;
                    if *written >= answer.len() {
                        // It may have gone already.
                        let _ = self.stream.shutdown(std::net::Shutdown::Write);
                        self.step = Step::Done;
                    }
                }
                Err(error) => self.failed(&error),
            },
            Step::Waits(_) | Step::Done => {}
        }
    }

    fn failed(&mut self, error: &io::Error) {
        if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
            self.step = Step::Done;
        }
    }
}

/// What is to be done about a request; `None`: its end has not come.
fn judged(request: &[u8]) -> Option<Step> {
    let ends = |end: &[u8]| request.windows(end.len()).any(|window| window == end);
    if !ends(b"\r\n\r\n") && !ends(b"\n\n") {
        return (request.len() > REQUEST_BYTES).then(|| error_answer("431 Request Header Fields Too Large"));
    }
    let first = request.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let words: Vec<&[u8]> = first.trim_ascii().split(|byte| *byte == b' ').collect();
    let [method, path, version] = words[..] else { return Some(error_answer("400 Bad Request")) };
    if !version.starts_with(b"HTTP/1.") {
        return Some(error_answer("505 HTTP Version Not Supported"));
    }
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    Some(match (method, path) {
        (b"GET", b"/metrics") => Step::Waits(false),
        (b"HEAD", b"/metrics") => Step::Waits(true),
        (b"GET" | b"HEAD", _) => error_answer("404 Not Found"),
        _ => error_answer("405 Method Not Allowed"),
    })
}

fn error_answer(status: &str) -> Step {
    let body = format!("{status}; rtscope has GET /metrics\n");
    Step::Writes(answer(status, "text/plain; charset=utf-8", &body, false), 0)
}

fn answer(status: &str, kind: &str, body: &str, only_head: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let body_length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {body_length}\r\n{allow}Connection: close\r\n\r\n"
    );
    if !only_head {
        text.push_str(body);
    }
    text.into_bytes()
}

struct Server {
    shared: Arc<Shared>,
    listener: TcpListener,
    clients: Vec<Client>,
}

impl Server {
    fn work(mut self) {
        // ORDER: none; see the store.
        while !self.shared.is_ending.load(Ordering::Relaxed) {
            self.wait();
            // Nothing to be read: it was a client.
            let _ = self.shared.wake.read();
            self.give_text();
            self.clients.iter_mut().for_each(Client::go_on);
            let now = Instant::now();
            self.clients.retain(|client| !matches!(client.step, Step::Done) && now < client.until);
            self.accept();
            if self.clients.iter().any(|client| matches!(client.step, Step::Waits(_))) {
                // ORDER: none; the flag stands for itself.
                self.shared.is_asked.store(true, Ordering::Relaxed);
            }
        }
    }

    fn wait(&mut self) {
        let mut all = vec![PollFd::new(self.shared.wake.as_fd(), PollFlags::POLLIN)];
        // While all places have a question, a client that comes waits in the kernel.
        let has_place = self.clients.len() < CLIENTS || self.silent().is_some();
        let accepts = if has_place { PollFlags::POLLIN } else { PollFlags::empty() };
        all.push(PollFd::new(self.listener.as_fd(), accepts));
        all.extend(self.clients.iter().map(|client| PollFd::new(client.stream.as_fd(), client.wants())));
        let first = self.clients.iter().map(|client| client.until).min();
        let limit = first.map(|until| until.saturating_duration_since(Instant::now()).as_millis() + 1);
        let limit =
            limit.map_or(PollTimeout::NONE, |ms| PollTimeout::from(u16::try_from(ms).unwrap_or(u16::MAX)));
        // Interrupted, it looks again.
        let _ = poll(&mut all, limit);
        let has_gone = |poll: &PollFd<'_>| {
            poll.revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
        };
        let gone: Vec<bool> = all[2..].iter().map(has_gone).collect();
        drop(all);
        // Those that write find out by themselves.
        for (client, _) in self.clients.iter_mut().zip(gone).filter(|(_, has_gone)| *has_gone) {
            if matches!(client.step, Step::Waits(_)) {
                client.step = Step::Done;
            }
        }
    }

    fn give_text(&mut self) {
        let text = self.shared.text.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(text) = text else { return };
        for client in &mut self.clients {
            if let Step::Waits(only_head) = client.step {
                client.step = Step::Writes(answer("200 OK", CONTENT_TYPE, &text, only_head), 0);
            }
        }
    }

    /// The client that has been here for longest without a whole question.
    fn silent(&self) -> Option<usize> {
        let reads =
            self.clients.iter().enumerate().filter(|(_, client)| matches!(client.step, Step::Reads(_)));
        reads.min_by_key(|(_, client)| client.until).map(|(place, _)| place)
    }

    fn accept(&mut self) {
        // At most as many at a time: those that are here have to be read in between.
        for _ in 0..CLIENTS {
            let silent = self.silent();
            if self.clients.len() >= CLIENTS && silent.is_none() {
                return;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Without descriptors or memory the connection stays, and would be announced again at once.
                Err(_) => return std::thread::sleep(ACCEPT_PAUSE),
            };
            if let Some(silent) = silent.filter(|_| self.clients.len() >= CLIENTS) {
                self.clients.swap_remove(silent);
            }
            if stream.set_nonblocking(true).is_ok() {
                let until = Instant::now() + CLIENT_TIME;
                self.clients.push(Client { stream, until, step: Step::Reads(Vec::new()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn start() -> MetricsServer {
        MetricsServer::start(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
    }

    fn connect(server: &MetricsServer) -> TcpStream {
        let stream = TcpStream::connect(server.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Answers whoever asks until `over`.
    fn asked<T: Send>(server: &MetricsServer, over: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let asking = scope.spawn(over);
            while !asking.is_finished() {
                if server.is_asked() {
                    server.answer("x 1\n# EOF\n".to_string());
                }
                std::thread::yield_now();
            }
            asking.join().unwrap()
        })
    }

    fn request(server: &MetricsServer, text: &[u8]) -> String {
        asked(server, || {
            let mut stream = connect(server);
            // Refused in the middle of what is too long.
            let _ = stream.write_all(text);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        })
    }

    #[test]
    fn who_asks_for_metrics_gets_those_of_now_and_nobody_else_anything() {
        let server = start();
        let answer = request(&server, b"GET /metrics?x=y HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(CONTENT_TYPE), "{answer}");
        assert!(answer.ends_with("\r\n\r\nx 1\n# EOF\n"), "{answer}");
        let head = request(&server, b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/2.0\r\n\r\n", "505"),
            ("GET\r\n\r\n", "400"),
            ("\x16\x03\x01 tls\r\n\r\n", "400"),
        ] {
            let answer = request(&server, text.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text}: {answer}");
        }
        let long = [b"GET /".to_vec(), vec![b'x'; 1 << 20]].concat();
        let answer = request(&server, &long);
        // It may be cut off by what was left unread.
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }

    #[test]
    fn those_who_say_nothing_do_not_keep_others_out_for_long() {
        let server = start();
        let silent: Vec<TcpStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
        let begun = Instant::now();
        let answer = request(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(begun.elapsed() < CLIENT_TIME * 3, "{:?}", begun.elapsed());
        drop(silent);
    }
}
