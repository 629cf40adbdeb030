// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device from which a test can request interrupts: the second serial port of the virtual machines of `./x vm`.
//!
//! The other end is the host (xtask/src/vm/serial.rs). A test asks for bytes; each makes the port interrupt the guest.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::skip;

/// Set by the guest's first program: the port's device file.
const VARIABLE: &str = "RTSCOPE_VM_SERIAL";

/// The port, open: its interrupt has a handler as long as this lives.
#[derive(Debug)]
pub struct Serial {
    port: File,
    name: String,
}

impl Serial {
    /// Opens the port; `None` where there is none, which is everywhere but in `./x vm`.
    pub fn open() -> Result<Option<Serial>> {
        let Ok(path) = std::env::var(VARIABLE) else { return Ok(None) };
        let port = OpenOptions::new().read(true).write(true).open(&path).with_context(|| path.clone())?;
        raw(&port)?;
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Some(Serial { port, name }))
    }

    /// The beginning of a test that needs the port: `None`, and the reason reported, where there is none.
    pub fn for_test() -> Option<Serial> {
        let serial = Serial::open().expect("the port can be used");
        if serial.is_none() {
            skip::say("there is no serial port that a host feeds; ./x vm has one");
        }
        serial
    }

    /// Asks the host for bytes, one every `every` (whole milliseconds).
    pub fn ask(&mut self, bytes: u32, every: Duration) -> Result<()> {
        writeln!(self.port, "send {bytes} every {} ms", every.as_millis()).context("serial port")
    }

    /// The device file, for a task that reads it.
    pub fn port(&self) -> &File {
        &self.port
    }

    /// The number of its interrupt.
    pub fn irq(&self) -> Result<u32> {
        let file = format!("/sys/class/tty/{}/irq", self.name);
        let text = read_to_string(&file).with_context(|| file.clone())?;
        text.trim().parse().with_context(|| format!("{file}: {text}"))
    }
}

/// Bytes as they come: no lines, no echo, and a read returns at the first one.
fn raw(port: &File) -> Result<()> {
    // SAFETY: termios is plain numbers, for which zeros are valid values; tcgetattr fills it before it is used.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor belongs to `port`, which lives throughout; the pointer is to a local that is writable.
    let got = unsafe { libc::tcgetattr(port.as_raw_fd(), &raw mut settings) };
    ensure!(got == 0, "tcgetattr: {}", std::io::Error::last_os_error());
    // SAFETY: the function only changes fields of the local that tcgetattr has just filled.
    unsafe { libc::cfmakeraw(&raw mut settings) };
    // SAFETY: the descriptor belongs to `port`, which lives throughout; the settings are read and not kept.
    let set = unsafe { libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings) };
    ensure!(set == 0, "tcsetattr: {}", std::io::Error::last_os_error());
    Ok(())
}
