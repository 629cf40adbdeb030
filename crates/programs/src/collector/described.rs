// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the descriptions of a process's providers take in a trace: a plug-in that is loaded a thousand times describes its events once.

use crate::provider::Provider;
use std::collections::HashMap;
use std::sync::Arc;

/// What the live providers of a process take in a trace, which has equal descriptions once: a plug-in can be loaded any number of times. Counted as they
/// come and go, since there can be thousands.
#[derive(Debug, Default)]
pub(super) struct Described {
    /// By the address of what several have in common: how many, and its bytes.
    different: HashMap<usize, (usize, usize)>,
    pub(super) bytes: usize,
}

impl Described {
    fn key(provider: &Provider) -> usize {
        Arc::as_ptr(&provider.info.descriptions).addr()
    }

    /// With one more.
    pub(super) fn bytes_with(&self, new: &Provider) -> usize {
        let is_known = self.different.contains_key(&Described::key(new));
        self.bytes.saturating_add(if is_known { 0 } else { new.described_bytes })
    }

    pub(super) fn add(&mut self, new: &Provider) {
        self.bytes = self.bytes_with(new);
        self.different.entry(Described::key(new)).or_insert((0, new.described_bytes)).0 += 1;
    }

    pub(super) fn remove(&mut self, gone: &Provider) {
        let key = Described::key(gone);
        let Some((count, bytes)) = self.different.get_mut(&key) else { return };
        *count -= 1;
        if *count == 0 {
            self.bytes = self.bytes.saturating_sub(*bytes);
            self.different.remove(&key);
        }
    }
}
