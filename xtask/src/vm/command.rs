// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `./x vm --run COMMAND`: a command in the guests instead of tests, for what people look at: `rtscope shield table` on a kernel that
//! has all of its rows, in virtual time.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::boot::{self, Ended, Limits, Machine};
use super::kernels::{Image, Kernel};
use super::options::Options;
use super::suite::Suite;
use crate::build::Build;

/// What the guest prints before and after it (init.sh); the latter with its status.
const BEGINS: &str = "RTSCOPE-VM run";
const ENDED: &str = "RTSCOPE-VM ran ";
/// A guest may run for this long.
const LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Boots one kernel after the other and shows what the command prints.
pub fn run(command: &str, options: &Options, build: &Build) -> Result<ExitCode> {
    let (images, busybox) = super::fetch(options)?;
    let suite = Suite::programs(build)?;
    let base = suite.pack(&busybox)?;
    let mut all_well = true;
    for (kernel, image) in &images {
        let archive = suite.with_command(&base, kernel.name, &image.modules, command)?;
        let status = in_guest(kernel, image, &archive, options)?;
        std::fs::remove_file(archive)?;
        if let Err(why) = &status {
            println!("{}: {why}", kernel.name);
        }
        all_well &= status.is_ok();
    }
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why it was no success.
fn in_guest(
    kernel: &Kernel,
    image: &Image,
    archive: &std::path::Path,
    options: &Options,
) -> Result<Result<(), String>> {
    let machine = Machine { cpus: options.cpus.unwrap_or(2), virtual_time: options.virtual_time };
    // Only the user knows how long the command may print nothing.
    let limits = Limits { end: Instant::now() + LIMIT, silence: LIMIT };
    let (mut runs, mut status) = (false, None);
    let mut last = String::new();
    let qemu = super::emulator(machine)?;
    let ended = boot::boot(&qemu, &image.path, kernel.append, archive, machine, limits, |line| {
        if let Some((_, code)) = line.split_once(ENDED) {
            (runs, status) = (false, code.trim().parse::<i32>().ok());
        } else if line.contains(BEGINS) {
            runs = true;
        } else if runs {
            println!("{}", last_of(line));
        } else if options.verbose {
            eprintln!("[{}] {line}", kernel.name);
        }
        line.clone_into(&mut last);
    })?;
    Ok(match (status, ended) {
        (Some(0), _) => Ok(()),
        (Some(code), _) => Err(format!("the command ended with status {code}")),
        (None, Ended::PowerOff) => Err(format!("the guest ended before the command did: {last}")),
        (None, Ended::Hung | Ended::OutOfTime) => Err(format!("its {} s were over", LIMIT.as_secs())),
        (None, Ended::Qemu(words)) => Err(format!("QEMU: {words}")),
    })
}

/// What stands in a line at its end, where progress was written over and over.
fn last_of(line: &str) -> &str {
    line.rsplit("\r\x1b[K").next().unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_progress_nothing_is_left() {
        assert_eq!(last_of("\r\x1b[Krow: 1 of 2\r\x1b[Krow: 2 of 2\r\x1b[Kthe table"), "the table");
        assert_eq!(last_of("50 %"), "50 %");
    }
}
