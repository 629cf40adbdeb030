// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the benchmarks that judge instead of measuring.

mod violence;
