// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From packets of ETMv3 to what was executed: one range an instruction.
//!
//! An exception may cancel the instruction before it (7.4.4), so that the last one of each packet waits for the next packet.

use super::{Config, Packet};
use crate::Lost;
use crate::etm::address32::Isa32;
use crate::etm::element::{Context, Element, ElementSink, Gap, Range};
use crate::etm::image::{Image, Spaces};
use crate::etm::isa::{Isa, Kind};
use crate::etm::ptm::Reason;
use crate::etm::v4::Atoms;
use crate::etm::walk::{Walker, Waypoints};
use crate::etm::{At, Fault, Sink};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unsynchronised,
    /// An A-Sync came; the next I-Sync says where execution is.
    Synchronised,
    Running,
}

/// The execution flow of one processor.
pub struct Flow<S> {
    config: Config,
    sink: S,
    walker: Walker,
    progress: Progress,
    address: Option<u32>,
    isa: Isa32,
    /// The instruction that may be cancelled, and a return from an exception after it.
    waiting: [Option<(u64, Element)>; 2],
    non_secure: bool,
    hyp: bool,
    context_id: Option<u32>,
    vmid: Option<u32>,
}

impl<S: ElementSink> Flow<S> {
    /// The flow in a program with this image; elements are given to the sink.
    #[must_use]
    pub fn new(config: &Config, image: Image, sink: S) -> Self {
        Self {
            config: *config,
            sink,
            walker: Walker::new(image, Waypoints::default()),
            progress: Progress::Unsynchronised,
            address: None,
            isa: Isa32::Unknown,
            waiting: [None; 2],
            non_secure: false,
            hyp: false,
            context_id: None,
            vmid: None,
        }
    }

    /// Where elements go.
    pub fn sink(&mut self) -> &mut S {
        &mut self.sink
    }

    /// The sink, at the end.
    #[must_use]
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Other memory from now on.
    pub fn set_image(&mut self, image: Image) {
        self.walker.set_image(image);
    }

    /// What comes next does not continue what came before.
    pub fn reset(&mut self, offset: u64) {
        self.lose(offset, Gap::Discontinuity);
    }

    /// Ends the trace.
    pub fn finish(&mut self) {
        self.settle();
        self.progress = Progress::Unsynchronised;
    }

    fn lose(&mut self, offset: u64, gap: Gap) {
        self.settle();
        if self.progress == Progress::Running {
            self.sink.element(offset, &Element::Gap(gap));
        }
        self.progress = Progress::Unsynchronised;
        self.address = None;
    }

    /// What waits is sure.
    fn settle(&mut self) {
        for (offset, element) in self.waiting.iter_mut().filter_map(Option::take) {
            self.sink.element(offset, &element);
        }
    }

    fn context(&mut self, offset: u64) {
        let context = Context {
            level: self.hyp.then_some(2),
            is_64_bit: false,
            non_secure: self.non_secure,
            nse: false,
            context_id: self.context_id,
            vmid: self.vmid,
            isa: self.isa.known().unwrap_or(Isa::A32),
        };
        self.sink.element(offset, &Element::Context(context));
    }

    fn isync(&mut self, offset: u64, packet: &Packet) {
        let Packet::ISync { address, isa, reason, non_secure, hyp, cycles, context_id } = *packet else {
            return;
        };
        let first = self.progress != Progress::Running;
        self.progress = Progress::Running;
        if first || reason != Reason::Periodic {
            self.sink.element(offset, &Element::TraceOn { after_overflow: reason == Reason::Overflow });
        }
        (self.non_secure, self.hyp, self.isa) = (non_secure, hyp, isa);
        self.context_id = context_id.or(self.context_id);
        self.context(offset);
        if cycles.is_some() {
            self.sink.element(offset, &Element::Cycles(cycles));
        }
        if address.is_some() {
            self.address = address;
        }
    }

    fn running(&mut self, offset: u64, packet: &Packet) {
        if !matches!(packet, Packet::Branch { .. } | Packet::ExceptionReturn) {
            self.settle();
        }
        match *packet {
            Packet::ISync { .. } => self.isync(offset, packet),
            Packet::Branch { .. } => self.branch(offset, packet),
            Packet::Atoms { atoms, format, cycles } => self.atoms(offset, atoms, format, cycles),
            Packet::ExceptionReturn => self.exception_return(offset),
            Packet::Cycles(cycles) => self.sink.element(offset, &Element::Cycles(Some(cycles))),
            Packet::ContextId(id) => {
                self.context_id = Some(id);
                self.context(offset);
            }
            Packet::Vmid(id) => {
                self.vmid = Some(u32::from(id));
                self.context(offset);
            }
            Packet::Timestamp(value) => {
                self.sink.element(offset, &Element::Timestamp { value, cycles: None })
            }
            Packet::Trigger => self.sink.element(offset, &Element::Trigger),
            // Entries are marked in data trace; a branch packet has the exception.
            Packet::ExceptionEntry | Packet::Async | Packet::Ignore | Packet::Data(_) => {}
        }
    }

    /// On processors other than Armv7-M, the instruction before it may be cancelled together with it.
    fn exception_return(&mut self, offset: u64) {
        if self.config.is_m_profile || self.waiting[1].is_some() {
            self.settle();
        }
        self.waiting[1] = Some((offset, Element::ExceptionReturn));
    }

    fn branch(&mut self, offset: u64, packet: &Packet) {
        let Packet::Branch { address, isa, exception } = *packet else { return };
        match exception {
            Some(exception) if exception.cancels => self.waiting = [None; 2],
            _ => self.settle(),
        }
        (self.address, self.isa) = (Some(address), isa);
        let Some(exception) = exception else { return };
        if let Some(non_secure) = exception.non_secure {
            if (non_secure, exception.hyp) != (self.non_secure, self.hyp) {
                (self.non_secure, self.hyp) = (non_secure, exception.hyp);
                self.context(offset);
            }
        }
        if exception.number != 0 || exception.deprecated {
            self.sink.element(offset, &Element::Exception { number: exception.number, return_address: None });
        }
    }

    fn atoms(&mut self, offset: u64, atoms: Atoms, format: u8, cycles: u32) {
        let accurate = self.config.is_cycle_accurate();
        if atoms.count == 0 {
            if accurate {
                self.sink.element(offset, &Element::Cycles(Some(cycles)));
            }
            return;
        }
        for place in 0..atoms.count {
            let left = u32::from(atoms.count - place);
            if self.address.is_none() {
                let rest = match format {
                    1 => left,
                    2 => u32::from(left > 1),
                    _ => cycles,
                };
                if accurate {
                    self.sink.element(offset, &Element::Cycles(Some(rest)));
                }
                return;
            }
            let own = match format {
                1 => 1,
                2 => u32::from(left > 1),
                _ => cycles,
            };
            self.settle();
            self.instruction(offset, atoms.bits >> place & 1 != 0, accurate.then_some(own));
        }
    }

    fn instruction(&mut self, offset: u64, taken: bool, cycles: Option<u32>) {
        let Some(address) = self.address.take() else { return };
        let start = u64::from(address);
        let spaces = if self.non_secure { Spaces::NON_SECURE } else { Spaces::SECURE };
        let last = self.isa.known().and_then(|isa| Some((isa, self.walker.instruction(spaces, isa, start)?)));
        let Some((isa, last)) = last else {
            self.sink.element(offset, &Element::NoMemory { address: start });
            if cycles.is_some() {
                self.sink.element(offset, &Element::Cycles(cycles));
            }
            return;
        };
        let end = start + u64::from(last.size);
        self.address = match last.kind {
            Kind::Direct if taken => Some(last.target as u32),
            Kind::Indirect if taken => None,
            _ => Some(end as u32),
        };
        if taken && last.kind == Kind::Direct {
            self.isa = match last.next {
                Isa::T32 => Isa32::T32,
                _ => Isa32::A32,
            };
        }
        let range = Range { start, end, instructions: 1, isa, taken, last, cycles };
        self.waiting[0] = Some((offset, Element::Range(range)));
    }
}

impl<S: ElementSink> Sink<Packet> for Flow<S> {
    fn packet(&mut self, at: At, packet: &Packet) {
        let offset = at.offset;
        match (self.progress, packet) {
            (Progress::Running, _) => self.running(offset, packet),
            (Progress::Unsynchronised, Packet::Async) => self.progress = Progress::Synchronised,
            (Progress::Synchronised, Packet::ISync { .. }) => self.isync(offset, packet),
            // Before an I-Sync there may be the time and cycles.
            (Progress::Synchronised, Packet::Timestamp(_)) => self.running(offset, packet),
            (Progress::Synchronised, Packet::Cycles(_) | Packet::Atoms { .. })
                if self.config.is_cycle_accurate() =>
            {
                self.running(offset, packet);
            }
            _ => {}
        }
    }

    fn lost(&mut self, lost: Lost, fault: Fault) {
        match fault {
            Fault::NotSynchronised => {}
            Fault::Incomplete => self.settle(),
            Fault::Reserved | Fault::NotConfigured | Fault::Sequence => {
                self.lose(lost.offset, Gap::BadPacket)
            }
        }
    }
}
