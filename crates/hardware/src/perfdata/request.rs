// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `perf_event_attr` as it is given to the kernel, and stored with what the event recorded.

use super::attribute::sample_type;

/// Its fifth version, which every kernel that has AUX areas for tracing knows.
pub const ATTRIBUTE_BYTES: usize = 112;

/// The kind of software events, and its event that counts nothing: it has the records of what tasks do.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;

/// Where and when, behind each record, in the order of [`SampleId`](super::SampleId).
pub(super) const WHERE_AND_WHEN: u64 =
    sample_type::TID | sample_type::TIME | sample_type::CPU | sample_type::IDENTIFIER;

/// Flags behind `read_format`.
mod flag {
    pub(super) const DISABLED: u64 = 1 << 0;
    pub(super) const INHERIT: u64 = 1 << 1;
    pub(super) const EXCLUDE_USER: u64 = 1 << 4;
    pub(super) const EXCLUDE_KERNEL: u64 = 1 << 5;
    pub(super) const EXCLUDE_HV: u64 = 1 << 6;
    pub(super) const MMAP: u64 = 1 << 8;
    pub(super) const COMM: u64 = 1 << 9;
    pub(super) const ENABLE_ON_EXEC: u64 = 1 << 12;
    pub(super) const TASK: u64 = 1 << 13;
    pub(super) const WATERMARK: u64 = 1 << 14;
    pub(super) const SAMPLE_ID_ALL: u64 = 1 << 18;
    pub(super) const MMAP2: u64 = 1 << 23;
    pub(super) const COMM_EXEC: u64 = 1 << 24;
    pub(super) const CONTEXT_SWITCH: u64 = 1 << 26;
    pub(super) const WRITE_BACKWARD: u64 = 1 << 27;
}

/// What an event is asked to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRequest {
    /// The number of the PMU.
    pub pmu: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
    /// Without user space.
    pub exclude_user: bool,
    /// Without the kernel.
    pub exclude_kernel: bool,
    /// Also what tasks do: mappings, names, forks, exits, switches. (The mappings of code only.)
    pub tasks: bool,
    /// Also tasks that those which are traced start.
    pub inherit: bool,
    /// Off until the task executes a program.
    pub from_exec: bool,
    /// The ring of records overwrites what is old.
    pub overwrites: bool,
    /// Bytes of records after which a reader is woken.
    pub watermark: u32,
    /// Bytes of AUX data after which a reader is woken; 0: half of the area.
    pub aux_watermark: u32,
}

impl EventRequest {
    /// The event that has what tasks do, and nothing else.
    #[must_use]
    pub fn of_tasks(unit: &EventRequest) -> EventRequest {
        EventRequest {
            pmu: SOFTWARE,
            config: [DUMMY, 0, 0],
            // Switches and mappings are the kernel's doing, but may be seen by whoever may see the task.
            exclude_user: false,
            tasks: true,
            aux_watermark: 0,
            ..*unit
        }
    }

    /// The structure.
    #[must_use]
    pub fn bytes(&self) -> [u8; ATTRIBUTE_BYTES] {
        let mut bytes = [0; ATTRIBUTE_BYTES];
        let mut at = 0;
        let mut put = |value: &[u8]| {
            bytes[at..at + value.len()].copy_from_slice(value);
            at += value.len();
        };
        put(&self.pmu.to_le_bytes());
        put(&u32::to_le_bytes(ATTRIBUTE_BYTES as u32));
        // Behind the configuration: no period, then the fields of samples, no read format. There are no samples, but perf script refuses a
        // recording whose samples have no address.
        for word in [self.config[0], 0, WHERE_AND_WHEN | sample_type::IP, 0, self.flags()] {
            put(&word.to_le_bytes());
        }
        put(&self.watermark.to_le_bytes());
        put(&[0; 4]);
        put(&self.config[1].to_le_bytes());
        put(&self.config[2].to_le_bytes());
        // Branch stack, registers, stack, clock, registers at an interrupt.
        put(&[0; 32]);
        put(&self.aux_watermark.to_le_bytes());
        bytes
    }

    fn flags(&self) -> u64 {
        // MMAP2 is the form of the records. Without MMAP the kernel makes none, and sets no address comparator to a file that is mapped, unless another
        // event of the system has it (nr_mmap_events in kernel/events/core.c).
        let tasks =
            flag::MMAP | flag::COMM | flag::COMM_EXEC | flag::TASK | flag::MMAP2 | flag::CONTEXT_SWITCH;
        [
            (self.tasks, tasks),
            (self.inherit, flag::INHERIT),
            (self.from_exec, flag::ENABLE_ON_EXEC),
            (self.exclude_user, flag::EXCLUDE_USER),
            (self.exclude_kernel, flag::EXCLUDE_KERNEL),
            (self.overwrites, flag::WRITE_BACKWARD),
            (self.watermark > 0, flag::WATERMARK),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(flag::DISABLED | flag::EXCLUDE_HV | flag::SAMPLE_ID_ALL, |all, (_, flags)| all | flags)
    }
}
