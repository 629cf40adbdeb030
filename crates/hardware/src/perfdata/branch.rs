// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An entry of a branch stack (`struct perf_branch_entry`): what Intel's LBR, AMD's BRS and LbrExtV2 and Arm's BRBE become.

use super::bytes::Cursor;

/// A branch that was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// Where it is.
    pub from: u64,
    /// Where it led.
    pub to: u64,
    /// The flags as they are in the record.
    pub flags: u64,
}

impl Branch {
    pub(super) const BYTES: usize = 24;

    pub(super) fn parse(bytes: &[u8]) -> Option<Branch> {
        let mut cursor = Cursor(bytes);
        Some(Branch { from: cursor.u64()?, to: cursor.u64()?, flags: cursor.u64()? })
    }

    fn bits(&self, first: u32, count: u32) -> u64 {
        self.flags >> first & ((1 << count) - 1)
    }

    /// Whether the processor had predicted it; `None`: it does not say.
    #[must_use]
    pub fn predicted(&self) -> Option<bool> {
        match (self.bits(0, 1), self.bits(1, 1)) {
            (1, _) => Some(false),
            (0, 1) => Some(true),
            _ => None,
        }
    }

    /// Within a transaction.
    #[must_use]
    pub fn in_transaction(&self) -> bool {
        self.bits(2, 1) != 0
    }

    /// It is the abort of a transaction.
    #[must_use]
    pub fn is_abort(&self) -> bool {
        self.bits(3, 1) != 0
    }

    /// Cycles since the branch before, 0 where the processor does not count them.
    #[must_use]
    pub fn cycles(&self) -> u16 {
        u16::try_from(self.bits(4, 16)).unwrap_or(u16::MAX)
    }

    /// Its kind, by the names of perf; `None` where the record does not say.
    #[must_use]
    pub fn kind(&self) -> Option<&'static str> {
        const KINDS: [&str; 15] = [
            "",
            "COND",
            "UNCOND",
            "IND",
            "CALL",
            "IND_CALL",
            "RET",
            "SYSCALL",
            "SYSRET",
            "COND_CALL",
            "COND_RET",
            "ERET",
            "IRQ",
            "SERROR",
            "NO_TX",
        ];
        let kind = usize::try_from(self.bits(20, 4)).unwrap_or(0);
        KINDS.get(kind).copied().filter(|name| !name.is_empty())
    }

    /// What became of its speculation, by the names of perf; `None` where the record does not say.
    #[must_use]
    pub fn speculation(&self) -> Option<&'static str> {
        match self.bits(24, 2) {
            1 => Some("SPEC_WRONG_PATH"),
            2 => Some("NON_SPEC_CORRECT_PATH"),
            3 => Some("SPEC_CORRECT_PATH"),
            _ => None,
        }
    }
}
