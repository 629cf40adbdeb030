// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's end of the guest's second serial port: a device that makes interrupts when a test asks for them.
//!
//! A test in the guest writes a line `send 200 every 5 ms` to the port; the host answers with 200 bytes, one each 5 ms. For
//! the guest's kernel that is a device like any other. Its end of this is `rtscope_testkit::serial`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::Duration;

/// Answers until the other end is closed.
pub fn serve(stream: UnixStream) {
    let Ok(mut out) = stream.try_clone() else { return };
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Some((count, pause)) = request(&line) else { continue };
        for _ in 0..count {
            sleep(pause);
            // A guest that has gone wants no more.
            if out.write_all(b"x").is_err() {
                return;
            }
        }
    }
}

fn request(line: &str) -> Option<(u32, Duration)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["send", count, "every", pause_ms, "ms"] = words[..] else { return None };
    Some((count.parse().ok()?, Duration::from_millis(pause_ms.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn bytes_come_when_they_are_asked_for() {
        assert_eq!(request("send 3 every 5 ms\r"), Some((3, Duration::from_millis(5))));
        assert_eq!(request("send 3"), None);
        let (mut guest, host) = UnixStream::pair().expect("a pair of sockets");
        let server = std::thread::spawn(|| serve(host));
        guest.write_all(b"hello\nsend 3 every 0 ms\n").expect("it is open");
        let mut bytes = [0; 3];
        guest.read_exact(&mut bytes).expect("they come");
        assert_eq!(&bytes, b"xxx");
        drop(guest);
        server.join().expect("it ends");
    }
}
