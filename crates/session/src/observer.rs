// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an engine says while it runs.

/// Hears what an engine says. It may be called from any of the engine's threads, also while the engine holds up nobody only if this is
/// quick: write and return.
pub trait Observer: Send + Sync {
    /// A remark for people: a sentence, without the program's name before it. Names of others in it are as they were found.
    fn note(&self, text: &str);
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ignore;

impl Observer for Ignore {
    fn note(&self, _: &str) {}
}
