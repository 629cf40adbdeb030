// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program that draws a whole screen, on a pseudo-terminal that is its own, and what a person would see of it.

use crate::process::patience;
use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

/// What is on a terminal of a fixed size: as much of its language as ratatui speaks.
#[derive(Clone)]
pub struct Drawn {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// The screen beside the one with the shell's lines is on.
    pub is_alternate: bool,
    /// The cursor is there.
    pub has_cursor: bool,
    /// Bytes of what is not complete yet.
    rest: Vec<u8>,
}

impl Drawn {
    fn new(columns: usize, rows: usize) -> Drawn {
        Drawn {
            cells: vec![vec![' '; columns]; rows],
            row: 0,
            column: 0,
            is_alternate: false,
            has_cursor: true,
            rest: Vec::new(),
        }
    }

    /// Its lines, without the blanks at their ends.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned()).collect()
    }

    /// The whole of it.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines().join("\n")
    }

    fn feed(&mut self, bytes: &[u8]) {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut at = 0;
        while let Some(length) = self.take(&all[at..]) {
            at += length;
        }
        self.rest = all.split_off(at);
    }

    /// One character or sequence from the beginning of these bytes; `None`: it is not complete.
    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        match *bytes {
            [] | [0x1b] => None,
            [0x1b, b'[', ref rest @ ..] => {
                let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte))?;
                self.sequence(&String::from_utf8_lossy(&rest[..end]), rest[end]);
                Some(end + 3)
            }
            [0x1b, _, ..] => Some(2),
            [b'\r', ..] => {
                self.column = 0;
                Some(1)
            }
            [b'\n', ..] => {
                self.row += 1;
                Some(1)
            }
            [byte, ..] if byte < 0x20 => Some(1),
            [byte, ..] => {
                let length = match byte {
                    0x00..0x80 => 1,
                    0x80..0xe0 => 2,
                    0xe0..0xf0 => 3,
                    _ => 4,
                };
                let text = String::from_utf8_lossy(bytes.get(..length)?).into_owned();
                self.put(text.chars().next()?);
                Some(length)
            }
        }
    }

    fn put(&mut self, character: char) {
        if let Some(cell) = self.cells.get_mut(self.row).and_then(|row| row.get_mut(self.column)) {
            *cell = character;
        }
        self.column += 1;
    }

    fn sequence(&mut self, arguments: &str, end: u8) {
        let numbers: Vec<usize> = arguments.split(';').map(|number| number.parse().unwrap_or(1)).collect();
        let number = |at: usize| numbers.get(at).copied().unwrap_or(1).max(1) - 1;
        match (arguments, end) {
            (_, b'H') => (self.row, self.column) = (number(0), number(1)),
            ("2", b'J') => self.cells.iter_mut().for_each(|row| row.fill(' ')),
            ("?1049", b'h' | b'l') => self.is_alternate = end == b'h',
            ("?25", b'h' | b'l') => self.has_cursor = end == b'h',
            _ => {}
        }
    }
}

impl std::fmt::Debug for Drawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Drawn { is_alternate, has_cursor, .. } = self;
        write!(f, "alternate screen: {is_alternate}, cursor: {has_cursor}\n{}", self.text())
    }
}

/// The program. Dropped, it is killed.
#[derive(Debug)]
pub struct OnTerminal {
    child: Child,
    /// `None`: the terminal is gone.
    end: Option<File>,
    terminal: File,
    before: Termios,
    drawn: Drawn,
}

impl OnTerminal {
    /// Starts a command, whose standard files and controlling terminal are a new terminal of this size.
    pub fn start(command: &Command, columns: u16, rows: u16) -> Result<OnTerminal> {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).context("a pseudo-terminal")?;
        // Held by the program, it would never see that its terminal is gone.
        fcntl(&pair.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        fcntl(&pair.slave, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        let terminal = File::from(pair.slave);
        let before = tcgetattr(&terminal)?;
        // Of util-linux and of busybox: it becomes the command, and keeps its number.
        let mut own = Command::new("setsid");
        own.arg("-c").arg(command.get_program()).args(command.get_args());
        own.env("TERM", "xterm-256color");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => own.env(name, value),
                None => own.env_remove(name),
            };
        }
        let file = || -> Result<Stdio> { Ok(terminal.try_clone()?.into()) };
        own.stdin(file()?).stdout(file()?).stderr(file()?);
        let child = own.spawn().context("setsid")?;
        let drawn = Drawn::new(columns.into(), rows.into());
        Ok(OnTerminal { child, end: Some(pair.master.into()), terminal, before, drawn })
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is on the screen, as far as it was read.
    #[must_use]
    pub fn drawn(&self) -> &Drawn {
        &self.drawn
    }

    /// Waits until the screen is so.
    pub fn wait_for(&mut self, what: &str, is_so: impl Fn(&Drawn) -> bool) -> Result<()> {
        let end = Instant::now() + patience();
        while !is_so(&self.drawn) {
            if Instant::now() >= end || !self.read_some()? && self.child.try_wait()?.is_some() {
                bail!("the screen does not show {what}:\n{}", self.drawn.text());
            }
        }
        Ok(())
    }

    /// Waits until it shows these words.
    pub fn wait_for_words(&mut self, words: &str) -> Result<()> {
        self.wait_for(words, |drawn| drawn.text().contains(words))
    }

    /// What it draws in the next 20 ms at most; whether that is anything.
    fn read_some(&mut self) -> Result<bool> {
        let Some(end) = &mut self.end else { return Ok(false) };
        let mut watched = [PollFd::new(end.as_fd(), PollFlags::POLLIN)];
        if poll(&mut watched, PollTimeout::from(20_u8))? == 0 {
            return Ok(false);
        }
        let mut bytes = [0; 4096];
        let length = end.read(&mut bytes)?;
        self.drawn.feed(&bytes[..length]);
        Ok(length > 0)
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> Result<()> {
        let end = self.end.as_mut().context("the terminal is gone")?;
        Ok(end.write_all(keys.as_bytes())?)
    }

    /// Makes the terminal larger or smaller.
    pub fn resize(&mut self, columns: u16, rows: u16) -> Result<()> {
        self.drawn.cells = vec![vec![' '; columns.into()]; rows.into()];
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let mut command = Command::new("stty");
        command.args(["cols", &columns, "rows", &rows]).stdin(self.terminal.try_clone()?);
        if !command.status().context("stty")?.success() {
            bail!("stty failed");
        }
        Ok(())
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(self.child.id().try_into()?), signal)?)
    }

    /// The terminal goes away, as when somebody closes its window.
    pub fn hang_up(&mut self) {
        self.end = None;
    }

    /// Waits until it ends.
    pub fn finish(&mut self) -> Result<ExitStatus> {
        let end = Instant::now() + patience();
        loop {
            let has_news = self.read_some()?;
            match self.child.try_wait()? {
                Some(status) if !has_news => return Ok(status),
                None if Instant::now() >= end => bail!("it does not end:\n{}", self.drawn.text()),
                _ => {}
            }
        }
    }

    /// Whether the terminal is as it was before the program: its modes, its screen, its cursor.
    pub fn is_restored(&self) -> Result<bool> {
        let modes = tcgetattr(&self.terminal)? == self.before;
        Ok(modes && !self.drawn.is_alternate && self.drawn.has_cursor)
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail only for a program that has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_is_what_was_drawn_last_wherever_the_bytes_were_cut() {
        let bytes = "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[2;3H\x1b[1mgrö\x1b[0mße\x1b[1;1Ha\r\nb".as_bytes();
        for cut in 0..bytes.len() {
            let mut drawn = Drawn::new(8, 3);
            drawn.feed(&bytes[..cut]);
            drawn.feed(&bytes[cut..]);
            assert_eq!(drawn.lines(), ["a", "b größe", ""], "cut at {cut}");
            assert!(drawn.is_alternate && !drawn.has_cursor);
        }
    }
}
