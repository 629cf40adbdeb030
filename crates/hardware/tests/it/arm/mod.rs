// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm's trace units.

mod captures;
mod decode;
mod encoded;
mod hostile;
mod names;
mod oracle;
mod others;
mod program;
