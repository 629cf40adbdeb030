// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a record of one tracepoint becomes the payload of its event, decided once for the class.
//!
//! Most of a record is copied unchanged, so a plan is mostly a few runs of bytes to copy. A record comes from a file
//! that may be damaged, or from memory that another process may change: each offset is checked against the record, and one
//! outside makes the record unreadable (for a fixed field) or the field empty (for one whose offset is in the record).

/// Longest text that is written, without its NUL. Records are at most a sub-buffer long, which may be larger.
const TEXT_BYTES: usize = 4095;
/// The text for a missing one.
const NO_TEXT: &[u8] = b"?";

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Bytes as they are.
    Copy { at: u32, bytes: u32 },
    /// The text in an array: up to the first NUL.
    Text { at: u32, bytes: u32 },
    /// The text that a `__data_loc` (or `__rel_loc`) word at this place leads to.
    DynamicText { at: u32, relative: bool },
    /// The elements that such a word leads to: their number, then the elements.
    Dynamic { at: u32, relative: bool, element: u32 },
    /// The text from here to the end of the record.
    RestText { at: u32 },
    /// The elements from here to the end of the record: their number, then the elements.
    Rest { at: u32, element: u32 },
    /// A text that the caller provides, by its index in the class.
    GivenText { index: u8 },
    /// A priority: LTTng counts from the first that is not real-time.
    Priority { at: u32 },
    /// `prev_state` of a switch, in the form that tools understand.
    ShownState { at: u32 },
    /// A number of 4 bytes that the caller provides in the place of a text, by its index; -1 where it is unknown.
    GivenNumber { index: u8 },
    /// What a block request does, as LTTng's mask.
    RequestMask { at: u32, bytes: u32 },
    /// The same as the kernel's `task->__state`, and whether the task was preempted.
    RawState { at: u32 },
}

/// Texts of a class of which [`Plan::empty_texts`] tells whether they are empty: as many as a system call has arguments.
const TEXTS_TOLD_APART: usize = 6;

/// The steps of a class.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    steps: Vec<Step>,
    /// Those of the first texts.
    texts: Vec<Step>,
}

impl Plan {
    /// Adds a step; a run of bytes joins the one before it when it follows that in the record, too.
    pub(super) fn add(&mut self, step: Step) {
        if let (Some(Step::Copy { at: last, bytes }), Step::Copy { at, bytes: more }) =
            (self.steps.last_mut(), step)
        {
            if last.checked_add(*bytes) == Some(at) {
                *bytes += more;
                return;
            }
        }
        let is_text = matches!(
            step,
            Step::Text { .. } | Step::DynamicText { .. } | Step::RestText { .. } | Step::GivenText { .. }
        );
        if is_text && self.texts.len() < TEXTS_TOLD_APART {
            self.texts.push(step);
        }
        self.steps.push(step);
    }

    /// The exclusive upper limit of [`Plan::empty_texts`].
    pub(super) fn patterns(&self) -> u32 {
        1 << self.texts.len()
    }

    /// Which texts are empty: bit i for the i-th one of the first.
    #[inline]
    pub(super) fn empty_texts(&self, record: &[u8], texts: &[Option<&[u8]>]) -> u32 {
        let is_empty = |step: &Step| {
            let text = match *step {
                Step::Text { at, bytes } => slice(record, at, bytes),
                Step::DynamicText { at, relative } => located(record, at, relative).flatten(),
                Step::RestText { at } => record.get(at as usize..),
                Step::GivenText { index } => texts.get(usize::from(index)).copied().flatten(),
                _ => None,
            };
            text.is_some_and(|text| matches!(text, [] | [0, ..]))
        };
        self.texts.iter().zip(0..).fold(0, |sum, (step, bit)| sum | u32::from(is_empty(step)) << bit)
    }

    /// Appends the payload of `record`. `None`, with some of it appended, when the record is too short.
    pub(super) fn encode(&self, record: &[u8], texts: &[Option<&[u8]>], out: &mut Vec<u8>) -> Option<()> {
        for step in &self.steps {
            match *step {
                Step::Copy { at, bytes } => out.extend_from_slice(slice(record, at, bytes)?),
                Step::Text { at, bytes } => text(slice(record, at, bytes)?, out),
                Step::DynamicText { at, relative } => match located(record, at, relative)? {
                    Some(bytes) => text(bytes, out),
                    None => text(NO_TEXT, out),
                },
                Step::Dynamic { at, relative, element } => {
                    elements(located(record, at, relative)?.unwrap_or_default(), element, out);
                }
                Step::RestText { at } => text(record.get(at as usize..)?, out),
                Step::Rest { at, element } => elements(record.get(at as usize..)?, element, out),
                Step::GivenText { index } => {
                    text(texts.get(usize::from(index)).copied().flatten().unwrap_or(NO_TEXT), out);
                }
                Step::Priority { at } => {
                    let prio = i32::from_le_bytes(word(record, at)?).wrapping_sub(100);
                    out.extend_from_slice(&prio.to_le_bytes());
                }
                Step::ShownState { at } => {
                    let (state, preempted) = reported(record, at)?;
                    out.extend_from_slice(&shown(state, preempted).to_le_bytes());
                }
                Step::GivenNumber { index } => {
                    let given = texts.get(usize::from(index)).copied().flatten();
                    out.extend_from_slice(given.filter(|given| given.len() == 4).unwrap_or(&[0xff; 4]));
                }
                Step::RequestMask { at, bytes } => {
                    let mask = super::lttng::request_mask(slice(record, at, bytes)?);
                    out.extend_from_slice(&mask.to_le_bytes());
                }
                Step::RawState { at } => {
                    let (state, preempted) = reported(record, at)?;
                    out.extend_from_slice(&raw(state, preempted).to_le_bytes());
                    out.push(preempted.into());
                }
            }
        }
        Some(())
    }
}

#[inline]
fn slice(record: &[u8], at: u32, bytes: u32) -> Option<&[u8]> {
    record.get(at as usize..)?.get(..bytes as usize)
}

#[inline]
fn word(record: &[u8], at: u32) -> Option<[u8; 4]> {
    slice(record, at, 4)?.try_into().ok()
}

/// The bytes that a location word leads to; `Some(None)` when it leads out of the record.
fn located(record: &[u8], at: u32, relative: bool) -> Option<Option<&[u8]>> {
    let word = u32::from_le_bytes(word(record, at)?);
    let from = (word & 0xffff) as usize + if relative { at as usize + 4 } else { 0 };
    Some(record.get(from..).and_then(|rest| rest.get(..(word >> 16) as usize)))
}

fn text(bytes: &[u8], out: &mut Vec<u8>) {
    let bytes = &bytes[..bytes.len().min(TEXT_BYTES)];
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    out.extend_from_slice(&bytes[..length]);
    out.push(0);
}

/// Bytes after the last whole element are dropped.
fn elements(bytes: &[u8], element: u32, out: &mut Vec<u8>) {
    let count = bytes.len() / element.max(1) as usize;
    out.extend_from_slice(&rtscope_event::exact::count(count).to_le_bytes());
    out.extend_from_slice(&bytes[..count * element.max(1) as usize]);
}

/// `prev_state` as the tracepoint reports it: one bit of TASK_REPORT, or TASK_REPORT_MAX for a task that was preempted.
fn reported(record: &[u8], at: u32) -> Option<(u32, bool)> {
    const REPORT_MAX: u32 = 0x100;
    let state = u32::from_le_bytes(word(record, at)?);
    Some((state & (REPORT_MAX - 1), state & REPORT_MAX != 0))
}

/// By the same rule as for built-in events.
fn shown(state: u32, preempted: bool) -> i64 {
    rtscope_event::TaskState(raw(state, preempted)).shown(preempted)
}

/// The tracepoint folds an idle wait (TASK_UNINTERRUPTIBLE | TASK_NOLOAD) into a bit that means TASK_DEAD in `__state`.
fn raw(state: u32, preempted: bool) -> u32 {
    const REPORT_IDLE: u32 = 0x80;
    const TASK_IDLE: u32 = 0x402;
    match state {
        _ if preempted => 0,
        REPORT_IDLE => TASK_IDLE,
        state => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(steps: &[Step], record: &[u8]) -> Option<Vec<u8>> {
        let mut plan = Plan::default();
        steps.iter().for_each(|step| plan.add(*step));
        let mut out = Vec::new();
        plan.encode(record, &[Some(b"/etc/passwd"), None], &mut out).map(|()| out)
    }

    #[test]
    fn runs_that_follow_each_other_are_one() {
        let mut plan = Plan::default();
        for (at, bytes) in [(2, 2), (4, 4), (8, 8), (20, 4)] {
            plan.add(Step::Copy { at, bytes });
        }
        assert_eq!(plan.steps, [Step::Copy { at: 2, bytes: 14 }, Step::Copy { at: 20, bytes: 4 }]);
    }

    #[test]
    fn texts_end_at_their_nul_or_where_their_place_ends() {
        let text = |record: &[u8]| encode(&[Step::Text { at: 1, bytes: 4 }], record);
        assert_eq!(text(b"xab\0cd").unwrap(), b"ab\0");
        assert_eq!(text(b"xabcdef").unwrap(), b"abcd\0");
        assert_eq!(text(b"x\0\0\0\0").unwrap(), b"\0");
        assert_eq!(text(b"xab"), None);
        assert_eq!(encode(&[Step::RestText { at: 2 }], b"xxhello").unwrap(), b"hello\0");
        assert_eq!(encode(&[Step::GivenText { index: 0 }], b"").unwrap(), b"/etc/passwd\0");
        assert_eq!(
            encode(&[Step::GivenText { index: 1 }, Step::GivenText { index: 9 }], b"").unwrap(),
            b"?\0?\0"
        );
        let long = [b'a'; 70_000];
        assert_eq!(encode(&[Step::RestText { at: 0 }], &long).unwrap().len(), TEXT_BYTES + 1);
    }

    #[test]
    fn a_location_is_believed_inside_the_record_only() {
        let dynamic = |word: u32, relative| {
            let record = [&word.to_le_bytes()[..], &[1, 0, 2, 0, 3]].concat();
            encode(&[Step::Dynamic { at: 0, relative, element: 2 }], &record).unwrap()
        };
        assert_eq!(dynamic(4 << 16 | 4, false), [2, 0, 0, 0, 1, 0, 2, 0]);
        assert_eq!(dynamic(5 << 16, true), [2, 0, 0, 0, 1, 0, 2, 0]);
        assert_eq!(dynamic(0, false), [0, 0, 0, 0]);
        assert_eq!(dynamic(6 << 16 | 4, false), [0, 0, 0, 0]);
        assert_eq!(dynamic(u32::MAX, true), [0, 0, 0, 0]);
        let text = |word: u32| {
            let record = [&word.to_le_bytes()[..], b"abc\0"].concat();
            encode(&[Step::DynamicText { at: 0, relative: false }], &record).unwrap()
        };
        assert_eq!(text(4 << 16 | 4), b"abc\0");
        assert_eq!(text(2 << 16 | 4), b"ab\0");
        assert_eq!(text(0), b"\0");
        assert_eq!(text(40 << 16 | 4), b"?\0");
    }

    #[test]
    fn states_and_priorities_are_those_of_our_own_records() {
        let state = |value: u32| {
            encode(&[Step::ShownState { at: 0 }, Step::RawState { at: 0 }], &u64::from(value).to_le_bytes())
                .unwrap()
        };
        let expected = |shown: u64, raw: u32, preempted: u8| {
            [&shown.to_le_bytes()[..], &raw.to_le_bytes(), &[preempted]].concat()
        };
        assert_eq!(state(0), expected(0, 0, 0));
        assert_eq!(state(1), expected(1, 1, 0));
        assert_eq!(state(2), expected(2, 2, 0));
        assert_eq!(state(0x100), expected(0, 0, 1));
        assert_eq!(state(0x10), expected(64, 0x10, 0));
        assert_eq!(state(0x80), expected(2, 0x402, 0));
        let prio = encode(&[Step::Priority { at: 0 }], &120_i32.to_le_bytes()).unwrap();
        assert_eq!(prio, 20_i32.to_le_bytes());
        assert_eq!(encode(&[Step::Priority { at: 1 }], &[0; 4]), None);
    }
}
