// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kit behind `./x`.

fn main() {}
