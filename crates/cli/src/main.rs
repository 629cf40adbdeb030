// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rtscope command.
fn main() {}
