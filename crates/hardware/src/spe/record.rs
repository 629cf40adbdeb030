// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of SPE → records, one for each sampled operation.

use super::{AddressKind, CounterKind, Operation, Packet, Payload, Sink};
use crate::Lost;

/// What is known of a sampled operation. What is absent was not sampled, or the profiler may not see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its first packet, from the beginning of the stream.
    pub offset: u64,
    /// Ticks of the generic counter, at its end.
    pub ticks: Option<u64>,
    /// The instruction, without what the address's highest byte says.
    pub pc: Option<u64>,
    /// The target of a branch.
    pub branch_target: Option<u64>,
    /// The target of the branch before.
    pub previous_branch_target: Option<u64>,
    /// The address of data.
    pub data_virtual: Option<u64>,
    /// The same, physical.
    pub data_physical: Option<u64>,
    /// One bit each ([`Payload::Events`]).
    pub events: Option<u64>,
    /// Where data came from.
    pub data_source: Option<u64>,
    /// What it is.
    pub operation: Option<Operation>,
    /// CONTEXTIDR_EL1: mostly the thread.
    pub context: Option<u32>,
    /// Cycles from dispatch to completion.
    pub total_cycles: Option<u16>,
    /// Cycles from dispatch to issue.
    pub issue_cycles: Option<u16>,
    /// Cycles of address translation.
    pub translation_cycles: Option<u16>,
}

/// Makes records of packets, and hands them on.
#[derive(Debug)]
pub struct Records<F> {
    record: Option<Record>,
    damaged: bool,
    damaged_records: u64,
    give: F,
}

/// The address of an instruction: the highest byte has other things.
const ADDRESS: u64 = (1 << 56) - 1;

impl<F: FnMut(&Record)> Records<F> {
    /// Gives records to `give`.
    pub const fn new(give: F) -> Self {
        Self { record: None, damaged: false, damaged_records: 0, give }
    }

    /// Records of which a byte was lost, which are not given, and those without an end.
    pub const fn damaged_records(&self) -> u64 {
        self.damaged_records
    }

    /// The stream has ended.
    pub fn finish(&mut self) {
        self.damaged_records += u64::from(self.record.take().is_some() || self.damaged);
        self.damaged = false;
    }

    fn end(&mut self, ticks: Option<u64>, offset: u64) {
        let mut record = self.record.take().unwrap_or(Record { offset, ..Record::default() });
        record.ticks = ticks;
        if core::mem::take(&mut self.damaged) {
            self.damaged_records += 1;
        } else {
            (self.give)(&record);
        }
    }
}

impl<F: FnMut(&Record)> Sink for Records<F> {
    fn packet(&mut self, packet: &Packet) {
        match packet.payload {
            Payload::Padding => return,
            Payload::End => return self.end(None, packet.offset),
            Payload::Timestamp(ticks) => return self.end(Some(ticks), packet.offset),
            _ => {}
        }
        let offset = packet.offset;
        let record = self.record.get_or_insert(Record { offset, ..Record::default() });
        match packet.payload {
            Payload::Events { bits } => record.events = Some(bits),
            Payload::DataSource(source) => record.data_source = Some(source),
            Payload::Context { id, .. } => record.context = Some(id),
            Payload::Operation(operation) => record.operation = Some(operation),
            Payload::Address { kind, value } => match kind {
                AddressKind::Instruction => record.pc = Some(value & ADDRESS),
                AddressKind::BranchTarget => record.branch_target = Some(value & ADDRESS),
                AddressKind::PreviousBranchTarget => record.previous_branch_target = Some(value & ADDRESS),
                AddressKind::DataVirtual => record.data_virtual = Some(value),
                AddressKind::DataPhysical => record.data_physical = Some(value & ADDRESS),
                AddressKind::Other(_) => {}
            },
            Payload::Counter { kind, cycles } => match kind {
                CounterKind::Total => record.total_cycles = Some(cycles),
                CounterKind::Issue => record.issue_cycles = Some(cycles),
                CounterKind::Translation => record.translation_cycles = Some(cycles),
                CounterKind::Other(_) => {}
            },
            Payload::Padding | Payload::End | Payload::Timestamp(_) => {}
        }
    }

    fn lost(&mut self, _: &Lost) {
        self.damaged = true;
    }
}
