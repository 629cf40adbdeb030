// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The integration tests of this crate, one module for each subject.

mod held;
mod honest;
mod hostile;
mod liars;
mod shared;
