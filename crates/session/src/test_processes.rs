// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processes for tests.

use std::io::Read;
use std::process::{Child, Command, Stdio};

/// A process whose name is no text. It waits for its end.
pub(crate) fn nameless() -> Child {
    let script = "printf 'a\\377' >/proc/$$/comm; echo; read line";
    let mut command = Command::new("sh");
    let mut child =
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
    let mut said = [0];
    child.stdout.as_mut().expect("it is piped").read_exact(&mut said).expect("it has its name");
    child
}
