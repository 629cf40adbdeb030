// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A section of the kernel in which a CPU could not be had.

use serde::{Deserialize, Serialize};

/// A section in which a CPU took no other task, or no interrupt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Where in the kernel it ended, `function+0xoffset`, the innermost first; an address where the name is not known. Empty: in the program itself,
    /// or the kernel did not say.
    pub stack: Vec<String>,
    /// The time between two samples: it may have been so much longer than is reported. `None`: the time is exact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution_ns: Option<u64>,
}
