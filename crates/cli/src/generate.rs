// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shell completions and man pages, from the same definitions as the help.

use crate::exit::Failure;
use crate::help::command;
use std::path::Path;

/// Prints completions.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "rtscope", &mut text);
    crate::output::result(&String::from_utf8_lossy(&text));
    Ok(())
}

/// Writes rtscope.1, rtscope-watch.1, rtscope-watch-response.1, ... into a directory.
pub fn man_pages(dir: &Path) -> Result<(), Failure> {
    let failed = |error| Failure::doing(format!("writing man pages into {}", dir.display()), error);
    std::fs::create_dir_all(dir).map_err(failed)?;
    clap_mangen::generate_to(command(), dir).map_err(failed)
}
