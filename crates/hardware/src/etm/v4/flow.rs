// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From packets of ETMv4 and ETE to what was executed.
//!
//! Elements wait in a queue until they are sure: a processor executes speculatively, and the unit says afterwards what of that
//! counted (IHI 0064, 4.4). Only P0 elements are counted there: atoms, exceptions, Q elements and source addresses; the others
//! wait for them, since they belong to places between them. A unit without speculation commits each P0 element at once.

use super::config::Config;
use super::packet::{Address, Atoms, Context, Packet};
use crate::Lost;
use crate::etm::element::{self, Element, ElementSink, Gap, Range, Transaction};
use crate::etm::image::{Image, Spaces};
use crate::etm::isa::{Instruction, Isa, Kind};
use crate::etm::returns::Returns;
use crate::etm::walk::{Block, Walker, Waypoints};
use crate::etm::{At, Fault, Sink};
use alloc::collections::VecDeque;

mod addresses;
mod speculation;

/// Elements that may wait. A unit with the greatest depth needs a few hundred; the trace of none has so many.
const MOST_WAITING: usize = 1 << 14;
/// In the place of a return address: a tail-chained exception of Armv8-M, which never returned to the program.
const TAIL_CHAIN: u64 = 0xFFFF_FFFE;

/// An element that is not sure yet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Waiting {
    /// Traced before the synchronisation.
    Unseen,
    Synchronised,
    TraceOn,
    Atoms(Atoms),
    /// With IS1 of the address before.
    Context(Context, bool),
    Address(Address),
    SourceAddress(Address),
    /// Number, whether its address is that of a branch, too.
    Exception(u16, bool),
    Reset,
    ExceptionReturn(bool),
    FunctionReturn,
    Q(Option<u32>, Option<Address>),
    Transaction(Transaction),
    /// What is reported as it is.
    Plain(Element),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Unsynchronised,
    Synchronised,
    Running,
}

/// The execution flow of one processor.
pub struct Flow<S> {
    config: Config,
    sink: S,
    walker: Walker,
    queue: VecDeque<(u64, Waiting)>,
    progress: Progress,
    /// P0 elements in the queue, and to be committed of them.
    depth: u32,
    commit: u32,
    /// An exception or a Q element counts only when its address has come.
    awaits_address: bool,
    needs_context: bool,
    needs_address: bool,
    /// The image had nothing at the address.
    no_memory: bool,
    address: u64,
    isa: Isa,
    spaces: Spaces,
    is_64_bit: bool,
    /// Those that the trace said last: a context has them only where they changed.
    context_id: Option<u32>,
    vmid: Option<u32>,
    last_is1: bool,
    returns: Returns,
    after_overflow: bool,
    seen_marker: bool,
}

impl<S: ElementSink> Flow<S> {
    /// The flow in a program with this image; elements are given to the sink.
    #[must_use]
    pub fn new(config: &Config, image: Image, sink: S) -> Self {
        let waypoints = Waypoints {
            data_barriers: false,
            waits: config.waits_are_branches(),
            transactions: config.is_ete(),
        };
        Self {
            config: *config,
            sink,
            walker: Walker::new(image, waypoints),
            queue: VecDeque::new(),
            progress: Progress::Unsynchronised,
            depth: 0,
            commit: 0,
            awaits_address: false,
            needs_context: true,
            needs_address: true,
            no_memory: false,
            address: 0,
            isa: Isa::A64,
            spaces: Spaces::ANY,
            is_64_bit: false,
            context_id: None,
            vmid: None,
            last_is1: false,
            returns: Returns::new(config.return_stack()),
            after_overflow: false,
            seen_marker: false,
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

    /// Ends the trace: what is not sure is dropped, but for times and events before it.
    pub fn finish(&mut self) {
        while let Some((offset, waiting)) = self.queue.pop_front() {
            match waiting {
                Waiting::Plain(element) => self.plain(offset, element),
                Waiting::Transaction(Transaction::Commit | Transaction::Fail) if self.depth == 0 => {
                    self.one(offset, waiting);
                }
                Waiting::Address(_) | Waiting::Context(..) | Waiting::Synchronised => {}
                Waiting::Transaction(_) if !self.config.transaction_start_is_p0() => {}
                _ => break,
            }
        }
        self.queue.clear();
        self.progress = Progress::Unsynchronised;
    }

    fn lose(&mut self, offset: u64, gap: Gap) {
        if self.progress != Progress::Unsynchronised {
            self.sink.element(offset, &Element::Gap(gap));
        }
        self.queue.clear();
        self.progress = Progress::Unsynchronised;
        (self.depth, self.commit) = (0, 0);
        (self.needs_address, self.needs_context) = (true, true);
        self.awaits_address = false;
        self.no_memory = false;
        self.after_overflow = false;
        self.seen_marker = false;
        self.is_64_bit = false;
        (self.context_id, self.vmid) = (None, None);
        self.last_is1 = false;
    }

    fn start(&mut self, offset: u64, packet: &Packet) {
        match (self.progress, packet) {
            (Progress::Unsynchronised, Packet::Async) => self.progress = Progress::Synchronised,
            (Progress::Synchronised, Packet::TraceInfo(info)) => {
                self.progress = Progress::Running;
                (self.needs_address, self.needs_context) = (true, true);
                self.returns.clear();
                self.depth = info.speculation.min(MOST_WAITING as u32 / 2);
                for _ in 0..self.depth {
                    self.queue.push_back((offset, Waiting::Unseen));
                }
                self.queue.push_back((offset, Waiting::Synchronised));
                if info.info & 1 << 6 != 0 {
                    self.queue.push_back((offset, Waiting::Transaction(Transaction::Within)));
                }
            }
            // An ETE may report events before the first trace info (D6).
            (Progress::Synchronised, Packet::Event(_)) if self.config.is_ete() => {
                self.enqueue(offset, packet)
            }
            _ => {}
        }
    }

    /// Takes a packet into the queue, and says how many P0 elements it adds.
    fn enqueue(&mut self, offset: u64, packet: &Packet) {
        let mut added = 0;
        let waiting = match *packet {
            Packet::TraceInfo(_) => Waiting::Synchronised,
            Packet::TraceOn => Waiting::TraceOn,
            Packet::Atoms { atoms, .. } => {
                added = u32::from(atoms.count);
                Waiting::Atoms(atoms)
            }
            Packet::Context(Some(context)) => Waiting::Context(context, self.last_is1),
            Packet::AddressContext(address, context) => {
                self.queue.push_back((offset, Waiting::Context(context, address.is1)));
                added = self.address_came(&address);
                Waiting::Address(address)
            }
            Packet::Address(address) => {
                added = self.address_came(&address);
                Waiting::Address(address)
            }
            Packet::SourceAddress(address) => {
                added = 1;
                Waiting::SourceAddress(address)
            }
            Packet::Exception { number, address, .. } => {
                self.awaits_address = true;
                Waiting::Exception(number, address == 2)
            }
            Packet::Reset => {
                added = 1;
                Waiting::Reset
            }
            Packet::ExceptionReturn => {
                // Armv7-M counts it as P0; there is no ETMv4 for Armv7-M but that of the Cortex-M7.
                Waiting::ExceptionReturn(false)
            }
            Packet::FunctionReturn => {
                added = 1;
                Waiting::FunctionReturn
            }
            Packet::Q { count, address } => {
                match address {
                    Some(_) => added = 1,
                    None => self.awaits_address = true,
                }
                Waiting::Q(count, address)
            }
            Packet::TransactionStart => {
                added = u32::from(self.config.transaction_start_is_p0());
                Waiting::Transaction(Transaction::Start)
            }
            Packet::TransactionCommit => Waiting::Transaction(Transaction::Commit),
            Packet::TransactionFailed => Waiting::Transaction(Transaction::Fail),
            ref other => match self.reported(other) {
                Some(element) => Waiting::Plain(element),
                None => return,
            },
        };
        self.queue.push_back((offset, waiting));
        self.depth += added;
    }

    fn reported(&self, packet: &Packet) -> Option<Element> {
        Some(match *packet {
            Packet::Timestamp { value, cycles } => {
                Element::Timestamp { value, cycles: if self.config.counts_cycles() { cycles } else { None } }
            }
            Packet::TimestampMarker => Element::TimestampMarker,
            Packet::Cycles { cycles, .. } => Element::Cycles(cycles),
            Packet::Event(event) => Element::Event(u16::from(event)),
            Packet::Instrumentation { level, value } => Element::Instrumentation { level, value },
            _ => return None,
        })
    }

    fn address_came(&mut self, address: &Address) -> u32 {
        self.last_is1 = address.is1;
        u32::from(core::mem::take(&mut self.awaits_address))
    }

    /// What a packet says of elements that came before: how many to commit, to cancel, to turn.
    fn resolve(&mut self, offset: u64, packet: &Packet) {
        let mut cancel = 0;
        let mut mispredict = false;
        let mut explicit = 0;
        match *packet {
            Packet::Commit(elements) => explicit = elements,
            Packet::Cycles { commit, .. } => explicit = commit.unwrap_or(0),
            Packet::Mispredict(atoms) => {
                self.add_atoms(offset, atoms);
                mispredict = true;
            }
            Packet::Cancel { elements, mispredict: turn, atoms, .. } => {
                self.add_atoms(offset, atoms);
                (cancel, mispredict) = (elements, turn);
            }
            _ => {}
        }
        // What is beyond the greatest depth is sure without being said.
        let most = self.config.max_speculation();
        self.commit = if self.depth > most { self.depth - most } else { explicit };
        if self.commit > 0 {
            self.commit_elements(offset);
        }
        if cancel > 0 && self.progress == Progress::Running {
            self.cancel(offset, cancel);
        }
        if mispredict && self.progress == Progress::Running {
            self.mispredict(offset);
        }
    }

    fn add_atoms(&mut self, offset: u64, atoms: Atoms) {
        if atoms.count > 0 {
            self.queue.push_back((offset, Waiting::Atoms(atoms)));
            self.depth += u32::from(atoms.count);
        }
    }

    fn commit_elements(&mut self, here: u64) {
        let wanted = self.commit;
        while self.commit > 0 && self.progress == Progress::Running {
            let Some((offset, waiting)) = self.queue.pop_front() else {
                self.lose(here, Gap::BadPacket);
                return;
            };
            if let Waiting::Atoms(atoms) = waiting {
                self.atoms(offset, atoms);
            } else {
                self.one(offset, waiting);
            }
        }
        self.depth = self.depth.saturating_sub(wanted - self.commit);
    }

    /// As many atoms as are to be committed.
    fn atoms(&mut self, offset: u64, mut atoms: Atoms) {
        while atoms.count > 0 && self.commit > 0 {
            if !self.take_return(offset) {
                return;
            }
            let taken = atoms.bits & 1 != 0;
            atoms.bits >>= 1;
            atoms.count -= 1;
            if !self.needs_context && !self.needs_address {
                self.atom(offset, taken);
            }
            self.commit -= 1;
        }
        if atoms.count > 0 {
            self.queue.push_front((offset, Waiting::Atoms(atoms)));
        }
    }

    fn one(&mut self, offset: u64, waiting: Waiting) {
        match waiting {
            Waiting::Unseen | Waiting::FunctionReturn => self.commit -= 1,
            Waiting::Synchronised => self.returns.synchronise(),
            Waiting::TraceOn => {
                let after_overflow = core::mem::take(&mut self.after_overflow);
                self.sink.element(offset, &Element::TraceOn { after_overflow });
                self.returns.clear();
            }
            Waiting::Context(context, is1) => self.context(offset, &context, is1),
            Waiting::Address(address) => {
                self.returns.address();
                self.go(address.value, self.isa_of(address.is1));
            }
            Waiting::SourceAddress(address) => {
                self.source_address(offset, &address);
                self.commit = self.commit.saturating_sub(1);
            }
            Waiting::Exception(number, branch) => {
                if self.take_return(offset) {
                    self.exception(offset, number, branch);
                    self.commit = self.commit.saturating_sub(1);
                }
            }
            Waiting::Reset => {
                self.sink.element(offset, &Element::Exception { number: 0, return_address: None });
                self.commit -= 1;
            }
            Waiting::ExceptionReturn(is_p0) => {
                self.sink.element(offset, &Element::ExceptionReturn);
                self.commit -= u32::from(is_p0);
            }
            Waiting::Q(count, address) => {
                self.q(offset, count, address);
                self.commit = self.commit.saturating_sub(1);
            }
            Waiting::Transaction(transaction) => {
                self.sink.element(offset, &Element::Transaction(transaction));
                if transaction == Transaction::Start && self.config.transaction_start_is_p0() {
                    self.commit = self.commit.saturating_sub(1);
                }
            }
            Waiting::Plain(element) => self.plain(offset, element),
            Waiting::Atoms(_) => {}
        }
    }

    fn plain(&mut self, offset: u64, element: Element) {
        match element {
            Element::TimestampMarker => self.seen_marker = true,
            // Without the marker nobody knows of which place it is (D6).
            Element::Timestamp { .. } if self.config.has_timestamp_markers() && !self.seen_marker => return,
            _ => {}
        }
        self.sink.element(offset, &element);
    }

    fn isa_of(&self, is1: bool) -> Isa {
        match (is1, self.is_64_bit) {
            (true, _) => Isa::T32,
            (false, true) => Isa::A64,
            (false, false) => Isa::A32,
        }
    }

    fn go(&mut self, address: u64, isa: Isa) {
        (self.address, self.isa) = (address, isa);
        self.needs_address = false;
        self.no_memory = false;
    }

    fn context(&mut self, offset: u64, context: &Context, is1: bool) {
        self.is_64_bit = context.is_64_bit;
        self.spaces = Spaces::of(context.level, context.non_secure, context.nse);
        self.isa = self.isa_of(is1);
        self.needs_context = false;
        self.context_id = context.context_id.or(self.context_id);
        self.vmid = context.vmid.or(self.vmid);
        let context = element::Context {
            level: Some(context.level),
            is_64_bit: context.is_64_bit,
            non_secure: context.non_secure,
            nse: context.nse,
            context_id: self.context_id,
            vmid: self.vmid,
            isa: self.isa,
        };
        self.sink.element(offset, &Element::Context(context));
    }

    /// Where an indirect branch without an address led.
    fn take_return(&mut self, offset: u64) -> bool {
        if self.returns.is_pending() {
            let Some((address, isa)) = self.returns.pop() else {
                self.lose(offset, Gap::BadPacket);
                return false;
            };
            self.go(address, isa);
        }
        true
    }

    /// Instructions up to a waypoint.
    fn atom(&mut self, offset: u64, taken: bool) {
        let start = self.address;
        let block = self.walker.block(self.spaces, self.isa, start);
        if !block.complete {
            self.without_memory(offset, start, &block);
            return;
        }
        let (isa, last) = (self.isa, block.last);
        self.address = block.end;
        if taken {
            self.take(&last, isa);
        }
        self.range(offset, start, isa, taken, &block);
        if taken && last.is_exception_return && self.config.is_ete() {
            // An ETE has no packet for it (D6).
            self.sink.element(offset, &Element::ExceptionReturn);
        }
    }

    /// Goes where the instruction before this address leads if it is a branch and is taken.
    fn take(&mut self, last: &Instruction, isa: Isa) {
        if last.link {
            self.returns.push(self.address, isa);
        }
        match last.kind {
            Kind::Direct => self.address = last.target,
            Kind::Indirect => {
                self.needs_address = true;
                self.returns.indirect();
            }
            _ => {}
        }
        self.isa = last.next;
    }

    fn range(&mut self, offset: u64, start: u64, isa: Isa, taken: bool, block: &Block) {
        let (end, instructions, last) = (block.end, block.instructions, block.last);
        let range = Range { start, end, instructions, isa, taken, last, cycles: None };
        self.sink.element(offset, &Element::Range(range));
    }

    fn without_memory(&mut self, offset: u64, start: u64, block: &Block) {
        self.needs_address = true;
        self.no_memory = true;
        if block.instructions > 0 {
            self.range(offset, start, self.isa, true, block);
        }
        self.address = block.end;
        self.sink.element(offset, &Element::NoMemory { address: block.end });
    }
}

fn waiting_atoms(atoms: Atoms) -> Waiting {
    Waiting::Atoms(atoms)
}

impl<S: ElementSink> Sink<Packet> for Flow<S> {
    fn packet(&mut self, at: At, packet: &Packet) {
        if self.progress != Progress::Running {
            self.start(at.offset, packet);
            return;
        }
        // Without speculation, and with nothing that waits, atoms and addresses are sure at once: most of a stream.
        let at_once = self.config.max_speculation() == 0 && self.queue.is_empty() && !self.awaits_address;
        match packet {
            Packet::Atoms { atoms, .. } if at_once => {
                self.commit = u32::from(atoms.count);
                self.atoms(at.offset, *atoms);
            }
            Packet::Address(address) if at_once => {
                self.last_is1 = address.is1;
                self.one(at.offset, Waiting::Address(*address));
            }
            Packet::Discard => self.discard(at.offset, false),
            Packet::Overflow => self.discard(at.offset, true),
            _ => {
                self.enqueue(at.offset, packet);
                self.resolve(at.offset, packet);
            }
        }
        if self.queue.len() > MOST_WAITING {
            self.lose(at.offset, Gap::BadPacket);
        }
    }

    fn lost(&mut self, lost: Lost, fault: Fault) {
        match fault {
            Fault::NotSynchronised => {}
            Fault::Incomplete => self.finish(),
            Fault::Reserved | Fault::NotConfigured | Fault::Sequence => {
                self.lose(lost.offset, Gap::BadPacket)
            }
        }
    }
}
