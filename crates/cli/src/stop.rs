// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Signals that end a watch or a recording. The first one ends it in order (a snapshot under way is finished); a Ctrl-C after that ends
//! it at once. The others may come more than once for one reason: SIGHUP from the terminal and from the shell, and SIGTERM as the
//! signal that tells of a parent's death, which comes once for each of its threads.

use crate::exit::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked us to stop.
#[derive(Debug)]
pub struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// From now on.
    pub fn on_signals() -> Result<Stop, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let failed = |error| Failure::doing("installing signal handlers", error);
        // Before the next: a second Ctrl-C finds the flag set and ends the process.
        flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&asked)).map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, Arc::clone(&asked)).map_err(failed)?;
        }
        // A file that may grow no more (ulimit -f) would end the process there and then, with all that it has switched on: the write shall
        // fail, as on a full disk. A handler and not SIG_IGN, which programs that are started would inherit. Nobody asks for the flag.
        flag::register(SIGXFSZ, Arc::default()).map_err(failed)?;
        Ok(Stop { asked })
    }

    /// The flag itself, for a loop that is not ours.
    pub fn flag(&self) -> &AtomicBool {
        &self.asked
    }

    /// The question.
    pub fn asked(&self) -> bool {
        // ORDER: relaxed; the flag stands for itself, nothing is read because of it.
        self.asked.load(Ordering::Relaxed)
    }
}
