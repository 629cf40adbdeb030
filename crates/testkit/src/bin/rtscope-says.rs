// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Rust program says by `printf!`, and its spans, for crates/cli/tests/it/programs/fields.rs.

use rtscope_probe::{printf, span};

fn step<T: Into<f64>>(number: i32, value: T) {
    let _span = span!(test, step, number: i32 = number);
    printf!(test, stepped, "step %d to %.2f (%s)", number: i32 = number, to: f64 = value.into(), why: str = "by hand");
}

fn main() {
    let _whole = span!(test, whole);
    step(1, 0.5);
    step(2, 3_u8);
    printf!(test, done, "done, 100 %%");
}
