// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program in an emulator that tells each instruction: what a processor's trace has to come out as.
//!
//! Single steps by ptrace take tens of microseconds in a virtual machine; QEMU's user-mode emulation, told to translate one
//! instruction at a time and to log each, takes one.

use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The emulator.
pub const QEMU: &str = "qemu-x86_64-static";

/// A program without shared libraries.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// What is executable in memory: address and bytes.
    pub code: Vec<(u64, Vec<u8>)>,
}

impl Program {
    /// Compiles `c/branches.c` into a directory.
    ///
    /// # Errors
    /// When gcc fails, or has no static C library.
    pub fn branches(directory: &Path) -> io::Result<Program> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/branches.c");
        let path = directory.join("branches");
        let mut command = Command::new("gcc");
        command.args(["-O2", "-static", "-no-pie", "-o"]).arg(&path).arg(source);
        let output = command.output()?;
        if !output.status.success() {
            return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let code =
            executable(&std::fs::read(&path)?).ok_or_else(|| io::Error::other("not as gcc writes it"))?;
        Ok(Program { path, code })
    }

    /// Runs it with an argument; tells the address of each instruction.
    ///
    /// # Errors
    /// When the emulator fails, or writes what it did not write before.
    pub fn run(&self, argument: &str, mut each: impl FnMut(u64)) -> io::Result<()> {
        let help = Command::new(QEMU).arg("-h").output()?;
        // The name since QEMU 8.1.
        let singly = if String::from_utf8_lossy(&help.stdout).contains("-one-insn-per-tb") {
            "-one-insn-per-tb"
        } else {
            "-singlestep"
        };
        let mut child = Command::new(QEMU)
            .args([singly, "-d", "exec,nochain"])
            .arg(&self.path)
            .arg(argument)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().ok_or_else(|| io::Error::other("no pipe"))?;
        let mut log = BufReader::with_capacity(1 << 20, log);
        let mut line = Vec::new();
        while log.read_until(b'\n', &mut line)? > 0 {
            if line.starts_with(b"Trace ") {
                each(address(&line).ok_or_else(|| io::Error::other("the log of QEMU has another form"))?);
            }
            line.clear();
        }
        let status = child.wait()?;
        if status.success() { Ok(()) } else { Err(io::Error::other(format!("{QEMU}: {status}"))) }
    }
}

/// Of `Trace 0: 0x7f… [base/address/flags/…] name`.
fn address(line: &[u8]) -> Option<u64> {
    let mut parts = line.split(|byte| *byte == b'/');
    parts.next()?;
    u64::from_str_radix(std::str::from_utf8(parts.next()?).ok()?, 16).ok()
}

/// The executable segments of a 64-bit ELF file.
fn executable(file: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
    let number = |at: usize, bytes: usize| {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(file.get(at..at + bytes)?);
        usize::try_from(u64::from_le_bytes(value)).ok()
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let mut code = Vec::new();
    for header in (0..count).map(|which| table + which * size) {
        let (kind, flags) = (number(header, 4)?, number(header + 4, 4)?);
        // PT_LOAD, PF_X.
        if kind == 1 && flags & 1 != 0 {
            let (offset, address, length) =
                (number(header + 8, 8)?, number(header + 16, 8)?, number(header + 32, 8)?);
            code.push((address as u64, file.get(offset..offset + length)?.to_vec()));
        }
    }
    Some(code)
}
