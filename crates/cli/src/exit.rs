// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exit codes: the one place where errors become numbers. `rtscope --help` lists them.

pub use rtscope_session::Failure;
use std::process::ExitCode;

/// The exit code of a failure.
fn code(failure: &Failure) -> u8 {
    match failure {
        Failure::Failed(_) => 1,
        Failure::Usage(_) => 2,
        Failure::Missing(_) => 3,
        Failure::Late(_) | Failure::ChecksFailed(_) | Failure::Limit(_) => 4,
        Failure::Damaged(_) => 5,
        Failure::Lost(_) => 6,
        Failure::Unmeasured(_) => 7,
        Failure::Command { status, .. } => *status,
        Failure::NoCommand(_) => 127,
    }
}

/// The exit codes for `--help`, after a command's own examples. A macro, since only literals can be joined at compile time.
macro_rules! help {
    ($examples:literal) => {
        concat!(
            $examples,
            "\n
Exit codes:
  0    success
  1    something failed at run time (also: a full disk)
  2    an argument cannot be used
  3    a kernel feature or a privilege is missing (rtscope caps lists them)
  4    late responses were found (--fail-if-late), a limit was exceeded (--fail-if), or a check of
       rtscope shield verify failed
  5    a trace is damaged, or its recorder was killed; the readable part was shown
  6    events were lost: more than --fail-if-lost allows, or more than half of a recording
  7    what was to be judged was not measured: the target never appeared, or too few samples
  127  COMMAND could not be started
  else the exit status of COMMAND, or 128 and the number of the signal that ended it
  130  a second Ctrl-C ended it at once"
        )
    };
}
pub(crate) use help;

/// Prints the error, if any, and gives the code.
pub fn report(result: Result<(), Failure>) -> ExitCode {
    let printed = || match crate::output::failure() {
        Some((error, doing)) => Err(Failure::system(doing, error)),
        None => Ok(()),
    };
    match result.and_then(|()| printed()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // Nothing more can be done when standard error is closed.
            let _ =
                crate::output::try_note(&format!("rtscope: {}", rtscope_view::clean(&failure.to_string())));
            ExitCode::from(code(&failure))
        }
    }
}
