// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names and versions of the summaries of recordings: here, since measurements read them too (docs/json.md).

/// Of a recording of the kernel.
pub const RECORD: &str = "rtscope.record/1";
/// Of a recording of programs.
pub const RECORD_USER: &str = "rtscope.record.user/1";
/// Of places that a trace unit found.
pub const RECORD_PLACES: &str = "rtscope.record.places/1";
