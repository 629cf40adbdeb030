// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls among the records. They do not become an [`rtscope_event::Event`]: each call has its own fields, which the
//! kernel's formats describe, so they are written from the words as they are.

use crate::Frame;
use rtscope_abi as abi;
use rtscope_event::Tid;
use std::mem::size_of;

/// A call's entry or exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyscallRecord<'a> {
    /// Its number.
    pub number: u32,
    /// The calling thread.
    pub tid: Tid,
    /// Whether it is the exit; otherwise the entry.
    pub is_exit: bool,
    /// The arguments, six at most; of an exit: the result.
    pub values: &'a [u64],
}

impl<'a> SyscallRecord<'a> {
    /// The call of a record; `None` when it is of another kind, or too short or too long.
    #[must_use]
    #[inline]
    pub fn of(frame: &Frame<'a>) -> Option<SyscallRecord<'a>> {
        // Both structures begin alike; the result of an exit stands where an entry has its first argument.
        const HEAD: usize = size_of::<abi::rts_syscall_entry>() / 8;
        const CALL: usize = std::mem::offset_of!(abi::rts_syscall_entry, number) / 8;
        const _: () = assert!(std::mem::offset_of!(abi::rts_syscall_exit, ret) == HEAD * 8);
        let is_exit = match u32::from(frame.kind) {
            abi::RTS_SYSCALL_ENTRY => false,
            abi::RTS_SYSCALL_EXIT => true,
            _ => return None,
        };
        let (head, values) = frame.words().split_at_checked(HEAD)?;
        let fits =
            if is_exit { values.len() == 1 } else { values.len() <= abi::RTS_SYSCALL_ARGS_MAX as usize };
        let [a, b, c, d, e, f, g, h] = head[CALL].to_ne_bytes();
        let number = u32::from_ne_bytes([a, b, c, d]);
        let tid = Tid(u32::from_ne_bytes([e, f, g, h]));
        fits.then_some(SyscallRecord { number, tid, is_exit, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Slot, first_record};

    fn words(kind: u32, values: &[u64]) -> Vec<u64> {
        let length = 3 + values.len() as u64;
        let word = length | u64::from(kind) << 8 | u64::from(abi::RTS_COMMITTED) << 16 | 1 << 32;
        let call = u64::from_ne_bytes([1, 1, 0, 0, 7, 0, 0, 0]);
        [&[word, 99, call], values].concat()
    }

    fn read(words: &[u64]) -> Option<(u32, Tid, bool, Vec<u64>)> {
        let Slot::Record(frame) = first_record(words) else { return None };
        let call = SyscallRecord::of(&frame)?;
        Some((call.number, call.tid, call.is_exit, call.values.to_vec()))
    }

    #[test]
    fn entries_have_up_to_six_arguments_and_exits_have_a_result() {
        let number = u32::from_ne_bytes([1, 1, 0, 0]);
        let tid = Tid(u32::from_ne_bytes([7, 0, 0, 0]));
        for count in 0..=6 {
            let values: Vec<u64> = (1..=count).collect();
            assert_eq!(read(&words(abi::RTS_SYSCALL_ENTRY, &values)), Some((number, tid, false, values)));
        }
        assert_eq!(read(&words(abi::RTS_SYSCALL_ENTRY, &[0; 7])), None);
        assert_eq!(read(&words(abi::RTS_SYSCALL_EXIT, &[5])), Some((number, tid, true, vec![5])));
        assert_eq!(read(&words(abi::RTS_SYSCALL_EXIT, &[])), None);
        assert_eq!(read(&words(abi::RTS_SYSCALL_EXIT, &[1, 2])), None);
        assert_eq!(read(&words(abi::RTS_SCHED_SWITCH, &[1])), None);
    }
}
