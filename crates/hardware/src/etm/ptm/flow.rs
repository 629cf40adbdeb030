// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From packets of PTM to what was executed.

use super::{Config, Packet, Reason};
use crate::Lost;
use crate::etm::address32::Isa32;
use crate::etm::element::{Context, Element, ElementSink, Gap, Range};
use crate::etm::image::{Image, Spaces};
use crate::etm::isa::{Isa, Kind};
use crate::etm::returns::Returns;
use crate::etm::walk::{Block, Walker, Waypoints};
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
    sink: S,
    walker: Walker,
    returns: Returns,
    return_stack: bool,
    progress: Progress,
    /// Where execution is, if known.
    address: Option<(u32, Isa)>,
    isa: Isa,
    non_secure: bool,
    context_id: Option<u32>,
    vmid: Option<u32>,
}

impl<S: ElementSink> Flow<S> {
    /// The flow in a program with this image; elements are given to the sink.
    #[must_use]
    pub fn new(config: &Config, image: Image, sink: S) -> Self {
        let waypoints =
            Waypoints { data_barriers: config.data_barriers_are_waypoints(), ..Waypoints::default() };
        Self {
            sink,
            walker: Walker::new(image, waypoints),
            returns: Returns::new(config.return_stack()),
            return_stack: config.return_stack(),
            progress: Progress::Unsynchronised,
            address: None,
            isa: Isa::A32,
            non_secure: false,
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

    fn lose(&mut self, offset: u64, gap: Gap) {
        if self.progress == Progress::Running {
            self.sink.element(offset, &Element::Gap(gap));
        }
        self.progress = Progress::Unsynchronised;
        self.address = None;
        self.returns.clear();
    }

    fn spaces(&self) -> Spaces {
        if self.non_secure { Spaces::NON_SECURE } else { Spaces::SECURE }
    }

    fn context(&mut self, offset: u64) {
        let context = Context {
            level: None,
            is_64_bit: false,
            non_secure: self.non_secure,
            nse: false,
            context_id: self.context_id,
            vmid: self.vmid,
            isa: self.isa,
        };
        self.sink.element(offset, &Element::Context(context));
    }

    fn go(&mut self, address: u32, isa: Isa32) {
        self.address = isa.known().map(|isa| (address, isa));
        if let Some(isa) = isa.known() {
            self.isa = isa;
        }
    }

    fn isync(&mut self, offset: u64, packet: &Packet) {
        let Packet::ISync { address, isa, isa_changed, reason, non_secure, cycles, context_id, .. } = *packet
        else {
            return;
        };
        let first = self.progress != Progress::Running;
        self.progress = Progress::Running;
        self.go(address, isa);
        self.non_secure = non_secure;
        let changed = isa_changed || context_id.is_some();
        self.context_id = context_id.or(self.context_id);
        if first || reason != Reason::Periodic {
            self.sink.element(offset, &Element::TraceOn { after_overflow: reason == Reason::Overflow });
            if cycles.is_some() {
                self.sink.element(offset, &Element::Cycles(cycles));
            }
            if changed {
                self.context(offset);
            }
        }
        self.returns.clear();
    }

    fn running(&mut self, offset: u64, packet: &Packet) {
        match *packet {
            Packet::ISync { .. } => self.isync(offset, packet),
            Packet::Branch { address, isa, exception, cycles, non_secure } => {
                match exception {
                    Some(number) => {
                        let return_address = self.address.map(|(address, _)| u64::from(address));
                        self.sink.element(offset, &Element::Exception { number, return_address });
                        if cycles.is_some() {
                            self.sink.element(offset, &Element::Cycles(cycles));
                        }
                        let _ = non_secure;
                    }
                    None => self.atom(offset, true, cycles, None, false),
                }
                self.go(address, isa);
            }
            Packet::WaypointUpdate { address, .. } => self.atom(offset, true, None, Some(address), false),
            Packet::Atoms { atoms, cycles } => {
                for place in 0..atoms.count {
                    self.atom(offset, atoms.bits >> place & 1 != 0, cycles, None, true);
                }
            }
            Packet::ContextId(id) => {
                if self.context_id != Some(id) {
                    self.context_id = Some(id);
                    self.context(offset);
                }
            }
            Packet::Vmid(id) => {
                if self.vmid != Some(u32::from(id)) {
                    self.vmid = Some(u32::from(id));
                    self.context(offset);
                }
            }
            Packet::Trigger => self.sink.element(offset, &Element::Trigger),
            Packet::ExceptionReturn => self.sink.element(offset, &Element::ExceptionReturn),
            Packet::Timestamp { value, cycles } => {
                self.sink.element(offset, &Element::Timestamp { value, cycles })
            }
            Packet::Async | Packet::Ignore => {}
        }
    }

    /// Instructions up to a waypoint, or up to and with that at an address.
    fn atom(&mut self, offset: u64, taken: bool, cycles: Option<u32>, to: Option<u32>, is_atom: bool) {
        let Some((address, isa)) = self.address else { return };
        let start = u64::from(address);
        let spaces = self.spaces();
        let block = match to {
            None => self.walker.block(spaces, isa, start),
            Some(to) => {
                let last = self.walker.instruction(spaces, isa, u64::from(to));
                let end = u64::from(to) + last.map_or(0, |last| u64::from(last.size));
                self.walker.to(spaces, isa, start, end)
            }
        };
        if !block.complete {
            self.without_memory(offset, start, isa, &block);
            return;
        }
        let last = block.last;
        let (mut next, mut next_isa) = (block.end as u32, last.next);
        self.address = Some((next, next_isa));
        match last.kind {
            Kind::Direct if taken => {
                next = last.target as u32;
                if last.link {
                    self.returns.push(block.end, isa);
                }
                self.address = Some((next, next_isa));
            }
            Kind::Indirect if taken => {
                self.address = None;
                if self.return_stack && is_atom {
                    // A branch packet would have had the address; this is an atom, so it was foreseen (4.4).
                    let Some((address, isa)) = self.returns.pop() else {
                        self.lose(offset, Gap::BadPacket);
                        return;
                    };
                    (next, next_isa) = (address as u32, isa);
                    self.address = Some((next, next_isa));
                }
                if last.link {
                    self.returns.push(block.end, isa);
                }
            }
            // The next set is that of the target; it was not taken.
            Kind::Direct | Kind::Indirect => self.address = Some((next, isa)),
            _ => {}
        }
        self.isa = next_isa;
        self.range(offset, start, isa, taken, &block, cycles);
    }

    fn range(&mut self, offset: u64, start: u64, isa: Isa, taken: bool, block: &Block, cycles: Option<u32>) {
        let (end, instructions, last) = (block.end, block.instructions, block.last);
        self.sink
            .element(offset, &Element::Range(Range { start, end, instructions, isa, taken, last, cycles }));
    }

    fn without_memory(&mut self, offset: u64, start: u64, isa: Isa, block: &Block) {
        self.address = None;
        if block.instructions > 0 {
            self.range(offset, start, isa, true, block, None);
        }
        self.sink.element(offset, &Element::NoMemory { address: block.end });
    }
}

impl<S: ElementSink> Sink<Packet> for Flow<S> {
    fn packet(&mut self, at: At, packet: &Packet) {
        match (self.progress, packet) {
            (Progress::Running, _) => self.running(at.offset, packet),
            (Progress::Unsynchronised, Packet::Async) => self.progress = Progress::Synchronised,
            (Progress::Synchronised, Packet::ISync { .. }) => self.isync(at.offset, packet),
            _ => {}
        }
    }

    fn lost(&mut self, lost: Lost, fault: Fault) {
        match fault {
            Fault::NotSynchronised | Fault::Incomplete => {}
            Fault::Reserved | Fault::NotConfigured | Fault::Sequence => {
                self.lose(lost.offset, Gap::BadPacket)
            }
        }
    }
}
