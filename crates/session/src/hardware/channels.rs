// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs have written into channels of an STM, as events: packets → messages → records of threads → a trace.
//!
//! A message is a record as rings have it (`include/rtscope/abi.h`, "Channels"), so what each thread wrote is put into the image of a ring,
//! and is converted by the same code as what a recorder takes from rings. Messages of one channel may stand within each other: that of
//! a signal handler within that of what it has interrupted. What is not whole is counted, by cause.

use super::WrittenTrace;
use crate::Failure;
use crate::record::channels::ChannelNotes;
use rtscope_abi::program as abi;
use rtscope_event::{MonotonicNs, counted};
use rtscope_hardware::stp::{Lost, Packet, Payload, Sink, Width};
use rtscope_programs::channels::Destination;
use rtscope_programs::collector::Snapshot;
use rtscope_programs::records::{Layout, Sync};
use rtscope_programs::{RingImage, RingInfo};
use rtscope_store::user::{UserEnd, UserFilter, write_snapshot};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::mem::offset_of;
use std::path::Path;

/// Messages within each other: more levels than a thread has, so the lowest one will never go on.
const LEVELS: usize = 16;
/// A ring image's records at most; what a thread wrote may take several.
const IMAGE_BYTES: usize = 128 << 20;
/// A time at the ends of a recording may be wrong by so much, where the kernel does not trust the programs' counter.
const AROUND_NS: u64 = 1_000_000_000;
/// Numbers of messages go up to this, and begin again.
const NUMBERS: u64 = 0x7f;
/// Messages of handlers within one that may be the first of a thread.
const UNDECIDED_MAX: usize = 1 << 12;
/// Words of a record.
const WORDS_MAX: u64 = 0x3ff;

/// What is no event, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChannelLosses {
    /// Messages that never came: their numbers are missing.
    pub(super) missing: u64,
    /// Messages whose end never came.
    pub(super) unfinished: u64,
    /// Messages that have fewer or more words than they say.
    pub(super) damaged: u64,
    /// Messages that were open where bytes of the stream are missing.
    pub(super) cut: u64,
    /// Events before anything said whose channel it is.
    pub(super) unknown: u64,
    /// Of PTWRITE: events after a loss, before their thread said again where it is, and what time counts from.
    pub(super) unplaced: u64,
    /// Events that threads themselves could not write.
    pub(super) unwritten: u64,
    /// Words in no message: other users of channels, or the rest of a message whose begin is not there.
    pub(super) stray_words: u64,
}

impl ChannelLosses {
    /// Without those that their threads have counted.
    fn unreadable(&self) -> u64 {
        self.missing + self.unfinished + self.damaged + self.cut + self.unknown + self.unplaced
    }

    fn messages(&self) -> u64 {
        self.unreadable().saturating_add(self.unwritten)
    }

    /// `of`: what they were written into.
    fn sentences(&self, of: &str) -> Vec<String> {
        let counts = [
            (self.missing, "never came: their numbers are missing"),
            (self.unfinished, "have no end"),
            (self.damaged, "are not as long as they say"),
            (self.cut, "were open where bytes of the stream are missing"),
            (self.unknown, "came before their thread said who it is"),
            (
                self.unplaced,
                "came after a loss, before their thread said again where it is and what their time counts from",
            ),
            (
                self.unwritten,
                "could not be written by their thread: too many of its signal handlers were in each other",
            ),
        ];
        let some = counts.iter().filter(|(count, _)| *count > 0);
        let mut all: Vec<String> =
            some.map(|(count, what)| format!("{} {what}", counted(*count, "event", "events"))).collect();
        if self.stray_words > 0 {
            let words = counted(self.stray_words, "word", "words");
            all.push(format!(
                "{words} in {of} belong to no event: the stream begins within one, or something is missing, or others use {of}, too"
            ));
        }
        all
    }
}

/// Threads whose events become a trace: each takes a mapping. A program can claim to have any number of threads, and takes no other's place.
const THREADS_MAX: usize = 50_000;

/// Whose a channel is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Thread {
    pub(super) pid: u32,
    pub(super) birth_ns: u64,
    tid: u32,
    pub(super) number: u32,
}

impl Thread {
    fn process(&self) -> (u32, u64) {
        (self.pid, self.birth_ns)
    }
}

/// What a thread has said last of itself.
#[derive(Clone, Debug)]
pub(super) struct Who {
    pub(super) thread: Thread,
    pub(super) sync: Sync,
    lost: u64,
}

impl Who {
    /// A message after it, if that is an event's.
    pub(super) fn event(&self, words: &[u64]) -> Option<ThreadEvent> {
        let (first, payload) = words.split_first()?;
        let id = (first & 0xffff) as u32;
        let counter = self.sync.complete(first >> abi::RTU_TIME_SHIFT);
        let event =
            ThreadEvent { counter, cpu: self.sync.cpu, lost: self.lost, id, payload: payload.to_vec() };
        (id < abi::RTU_EVENTS_MAX).then_some(event)
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) who: Who,
    clock: u32,
    comm: String,
}

impl Said {
    /// Of a `struct rtu_who`. `None`: it is none of this version.
    pub(super) fn read(words: &[u64]) -> Option<Said> {
        let word = |at: usize| words.get(at / 8).copied().unwrap_or(0);
        let half = |at: usize| (word(at) >> (at % 8 * 8)) as u32;
        if size_of_val(words) != size_of::<abi::rtu_who>()
            || half(offset_of!(abi::rtu_who, version)) != abi::RTU_CHANNEL_VERSION
        {
            return None;
        }
        let thread = Thread {
            pid: half(offset_of!(abi::rtu_who, pid)),
            birth_ns: word(offset_of!(abi::rtu_who, birth_ns)),
            tid: half(offset_of!(abi::rtu_who, tid)),
            number: half(offset_of!(abi::rtu_who, number)),
        };
        let sync =
            Sync { counter: word(offset_of!(abi::rtu_who, time)), cpu: half(offset_of!(abi::rtu_who, cpu)) };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let comm = bytes.get(offset_of!(abi::rtu_who, comm)..).unwrap_or_default();
        let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
        Some(Said {
            who: Who { thread, sync, lost: word(offset_of!(abi::rtu_who, lost)) },
            clock: half(offset_of!(abi::rtu_who, clock)),
            comm: String::from_utf8_lossy(&comm[..end]).replace(char::is_control, "?"),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct ThreadEvent {
    counter: u64,
    cpu: u32,
    lost: u64,
    id: u32,
    payload: Vec<u64>,
}

#[derive(Debug, Default)]
struct ThreadEvents {
    comm: String,
    clock: u32,
    lost: u64,
    events: Vec<ThreadEvent>,
}

/// A message whose end has not come.
#[derive(Debug)]
struct Open {
    words: Vec<u64>,
    who: Option<Who>,
    /// It may be the first one of a thread.
    may_be_first: bool,
}

impl Open {
    fn wanted(&self) -> u64 {
        self.words.first().map_or(0, |word| word >> 24 & WORDS_MAX)
    }
}

#[derive(Debug, Default)]
struct Channel {
    open: Vec<Open>,
    /// What was said last, with the number of the message: of a handler's that has overtaken others, theirs is one before.
    who: Vec<(u64, Who)>,
    numbers: Numbers,
    /// A message that may be the first one of a thread is open: what numbers were expected before, and those that have come since, beginning with its own.
    undecided: Option<(Numbers, Vec<u64>)>,
}

/// Which numbers of messages have come.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Of the next message; `None`: any.
    next: Option<u64>,
    /// The last ones that were passed over: they may still come.
    absent: Vec<u64>,
}

impl Numbers {
    /// A message with this one has come. Returns how many more are missing than before.
    fn come(&mut self, number: u64) -> i64 {
        let gap = self.next.map_or(0, |next| number.wrapping_sub(next) & NUMBERS);
        if gap > NUMBERS - LEVELS as u64 {
            // A handler has come between its number and its first word, and has sent its own: it was missing until now.
            let absent = self.absent.iter().position(|absent| *absent == number);
            return absent.map_or(0, |place| {
                self.absent.remove(place);
                -1
            });
        }
        self.absent.extend((1..=gap).rev().map(|before| number.wrapping_sub(before) & NUMBERS));
        self.absent.drain(..self.absent.len().saturating_sub(LEVELS));
        self.next = Some((number + 1) & NUMBERS);
        i64::try_from(gap).unwrap_or_default()
    }
}

/// Whether a message says who its thread is.
pub(super) fn is_who(words: &[u64]) -> bool {
    words.first().is_some_and(|word| word & 0xffff == u64::from(abi::RTU_ID_WHO))
}

/// Packets become events of threads.
#[derive(Debug, Default)]
pub(super) struct ChannelEvents {
    channels: BTreeMap<(u16, u16), Channel>,
    threads: BTreeMap<Thread, ThreadEvents>,
    pub(super) losses: ChannelLosses,
}

impl Channel {
    fn begin(&mut self, word: u64, losses: &mut ChannelLosses) {
        let number = word >> 16 & NUMBERS;
        // A thread that begins counts from 0, and says who it is. So may one that has said that before: its number is 0 again, or its handlers have come
        // between its first number and its first word.
        let may_be_first = word & 0xffff == u64::from(abi::RTU_ID_WHO) && number == 0;
        if may_be_first {
            self.decide(false, losses);
            self.undecided = Some((self.numbers.clone(), Vec::new()));
        }
        match &mut self.undecided {
            Some((_, numbers)) if numbers.len() < UNDECIDED_MAX => numbers.push(number),
            Some(_) => {
                self.decide(false, losses);
                self.come(&[number], losses);
            }
            None => self.come(&[number], losses),
        }
        if self.open.len() == LEVELS {
            self.open.remove(0);
            losses.unfinished += 1;
        }
        let who = self.who.iter().rev().find(|(said, _)| number.wrapping_sub(*said) & NUMBERS < 0x70);
        self.open.push(Open { words: vec![word], who: who.map(|(_, who)| who.clone()), may_be_first });
    }

    fn come(&mut self, numbers: &[u64], losses: &mut ChannelLosses) {
        for number in numbers {
            losses.missing = losses.missing.saturating_add_signed(self.numbers.come(*number));
        }
    }

    /// The message that may be the first one of a thread is of the thread that had the channel before, or of another.
    fn decide(&mut self, is_same: bool, losses: &mut ChannelLosses) {
        let Some((before, numbers)) = self.undecided.take() else { return };
        self.numbers = if is_same { before } else { Numbers { next: Some(0), absent: Vec::new() } };
        self.come(&numbers, losses);
    }

    fn say(&mut self, number: u64, who: Who) {
        // Those of another thread, which had the channel before.
        self.who.retain(|(_, before)| before.thread == who.thread);
        if self.who.len() == LEVELS {
            self.who.remove(0);
        }
        self.who.push((number, who));
    }
}

impl ChannelEvents {
    /// A message is whole.
    fn end(&mut self, place: (u16, u16), message: Open) {
        if message.wanted() == message.words.len() as u64 && is_who(&message.words) {
            self.who(place, &message);
            return;
        }
        if message.may_be_first {
            self.channels.entry(place).or_default().decide(false, &mut self.losses);
        }
        if message.wanted() != message.words.len() as u64 {
            self.losses.damaged += 1;
            return;
        }
        let event = message.who.as_ref().and_then(|who| Some((who, who.event(&message.words)?)));
        match event {
            Some((who, event)) => self.event(&who.thread, event),
            None => self.losses.unknown += 1,
        }
    }

    /// A thread says who it is.
    fn who(&mut self, place: (u16, u16), message: &Open) {
        let Some(said) = Said::read(&message.words) else {
            if message.may_be_first {
                self.channels.entry(place).or_default().decide(false, &mut self.losses);
            }
            self.losses.damaged += 1;
            return;
        };
        self.say(&said);
        let channel = self.channels.entry(place).or_default();
        if message.may_be_first {
            let is_same = channel.who.last().is_some_and(|(_, before)| before.thread == said.who.thread);
            channel.decide(is_same, &mut self.losses);
        }
        channel.say(message.words[0] >> 16 & NUMBERS, said.who);
    }

    /// First payloads and CPUs of a thread's events.
    #[cfg(test)]
    pub(super) fn of(&self, thread: &Thread) -> Vec<(u64, u32)> {
        let events = self.threads.get(thread).map(|known| &known.events);
        events.into_iter().flatten().map(|event| (event.payload[0], event.cpu)).collect()
    }

    /// Notes what a thread says of itself.
    pub(super) fn say(&mut self, said: &Said) {
        let Who { thread, lost, .. } = &said.who;
        let known = self.threads.entry(thread.clone()).or_default();
        known.comm.clone_from(&said.comm);
        known.clock = said.clock;
        // Any number, by anybody.
        self.losses.unwritten = self.losses.unwritten.saturating_add(lost.saturating_sub(known.lost));
        known.lost = known.lost.max(*lost);
    }

    /// Notes an event of a thread.
    pub(super) fn event(&mut self, thread: &Thread, event: ThreadEvent) {
        self.threads.entry(thread.clone()).or_default().events.push(event);
    }

    fn finish(&mut self) {
        for channel in self.channels.values_mut() {
            channel.decide(false, &mut self.losses);
            self.losses.unfinished += channel.open.len() as u64;
            channel.open.clear();
        }
    }
}

impl Sink for ChannelEvents {
    fn packet(&mut self, packet: &Packet) {
        let place = (packet.master, packet.channel);
        match packet.payload {
            Payload::Data { value, width: Width::D64, marked: true } => {
                self.channels.entry(place).or_default().begin(value, &mut self.losses);
            }
            Payload::Data { value, width, .. } => {
                let open = self.channels.get_mut(&place).and_then(|channel| channel.open.last_mut());
                match open.filter(|open| width == Width::D64 && (open.words.len() as u64) < WORDS_MAX) {
                    Some(open) => open.words.push(value),
                    None => self.losses.stray_words += 1,
                }
            }
            Payload::Flag => {
                let open = self.channels.get_mut(&place).and_then(|channel| channel.open.pop());
                if let Some(open) = open {
                    self.end(place, open);
                }
            }
            // The unit could not write what was sent.
            Payload::MasterError(_) | Payload::GlobalError(_) => self.cut(),
            _ => {}
        }
    }

    fn lost(&mut self, _: &Lost) {
        self.cut();
    }
}

impl ChannelEvents {
    fn cut(&mut self) {
        for channel in self.channels.values_mut() {
            channel.decide(false, &mut self.losses);
            self.losses.cut += channel.open.len() as u64;
            channel.open.clear();
        }
    }
}

/// Records as a ring has them, of one lap.
#[derive(Debug, Default)]
struct Image {
    bytes: Vec<u8>,
    /// Time, CPU and losses of the newest sync record.
    sync: Option<(u64, u32, u64)>,
}

impl Image {
    /// Parts that no record crosses.
    const SUB_BYTES: usize = 16 << 10;

    fn record(&mut self, id: u32, time: u64, payload: &[u64]) {
        let bytes = 8 + payload.len() * 8;
        let room = Image::SUB_BYTES - self.bytes.len() % Image::SUB_BYTES;
        let word = |id: u32, words: usize| u64::from(id) | (words as u64) << 24 | time << abi::RTU_TIME_SHIFT;
        if bytes > room {
            self.bytes.extend(word(abi::RTU_ID_PADDING, 1).to_le_bytes());
            self.bytes.resize(self.bytes.len() + room - 8, 0);
        }
        self.bytes.extend(word(id, 1 + payload.len()).to_le_bytes());
        payload.iter().for_each(|word| self.bytes.extend(word.to_le_bytes()));
    }

    fn event(&mut self, event: &ThreadEvent) {
        let is_near = |(time, cpu, lost): (u64, u32, u64)| {
            cpu == event.cpu && lost == event.lost && (event.counter - time) >> abi::RTU_TIME_BITS == 0
        };
        if !self.sync.is_some_and(is_near) {
            let ThreadEvent { counter, cpu, lost, .. } = *event;
            self.record(abi::RTU_ID_SYNC, counter, &[counter, lost, cpu.into()]);
            self.sync = Some((counter, cpu, lost));
        }
        self.record(event.id, event.counter, &event.payload);
    }

    fn layout(&self) -> Layout {
        let least = (self.bytes.len() + Image::SUB_BYTES).max(abi::RTU_RING_BYTES_MIN as usize);
        Layout { ring_bytes: least.next_power_of_two() as u64, sub_bytes: Image::SUB_BYTES as u64, key: 0 }
    }
}

/// What threads wrote, as rings; and how many events of which kind are not in them.
fn snapshot(mut events: ChannelEvents, notes: &ChannelNotes) -> io::Result<(Snapshot, LeftOut)> {
    let mut snapshot = Snapshot { providers: notes.providers.clone(), ..Snapshot::default() };
    let mut left_out = LeftOut::default();
    let users = notes.providers.iter().rev().map(|one| ((one.pid, one.birth_ns), one.uid));
    let users: HashMap<(u32, u64), u32> = users.collect();
    let mut processes: HashMap<(u32, u64), usize> = HashMap::new();
    for thread in events.threads.keys().filter(|thread| users.contains_key(&thread.process())) {
        *processes.entry(thread.process()).or_default() += 1;
    }
    let share = share(processes.into_values().collect(), THREADS_MAX);
    let mut taken: HashMap<(u32, u64), usize> = HashMap::new();
    for (thread, known) in &mut events.threads {
        let found = known.events.len() as u64;
        let Some(uid) = users.get(&thread.process()) else {
            left_out.of_strangers += found;
            continue;
        };
        let taken = taken.entry(thread.process()).or_default();
        *taken += 1;
        if *taken > share {
            left_out.of_too_many += found;
            continue;
        }
        // A handler's event comes before that of what it has interrupted, though its time is later.
        known.events.sort_by_key(|event| event.counter);
        let mut images = vec![Image::default()];
        for event in &known.events {
            if images.last().is_some_and(|image| image.bytes.len() > IMAGE_BYTES) {
                images.push(Image::default());
            }
            images.iter_mut().last().into_iter().for_each(|image| image.event(event));
        }
        for image in images {
            let info = RingInfo {
                pid: thread.pid,
                host_pid: None,
                birth_ns: thread.birth_ns,
                uid: *uid,
                tid: thread.tid,
                number: thread.number,
                comm: known.comm.clone(),
                clock: known.clock,
                layout: image.layout(),
                sync: None,
                lost_before: 0,
                clock_offset_ns: 0,
                left_until: 0,
                drops_earlier: false,
                choice: rtscope_programs::ThreadChoice::default(),
            };
            let image = RingImage::of_records(info.layout, &[&image.bytes])?;
            snapshot.rings.push((info, image));
        }
    }
    Ok((snapshot, left_out))
}

/// Events that no ring has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LeftOut {
    /// Of processes that the recording does not know.
    of_strangers: u64,
    /// Of threads beyond a process's share.
    of_too_many: u64,
}

/// How many each can have of `total`, where those who want fewer leave the rest to the others.
fn share(mut wanted: Vec<usize>, total: usize) -> usize {
    wanted.sort_unstable();
    let (mut left, mut others) = (total, wanted.len());
    for one in wanted {
        let share = left / others;
        if one > share {
            return share;
        }
        (left, others) = (left - one, others - 1);
    }
    total
}

/// Writes the trace. Also gives what is to be said.
pub(super) fn write(
    mut events: ChannelEvents,
    notes: &ChannelNotes,
    target: &Path,
) -> Result<(WrittenTrace, Vec<String>), Failure> {
    events.finish();
    let (losses, threads) = (events.losses, events.threads.len());
    let found: u64 = events.threads.values().map(|thread| thread.events.len() as u64).sum();
    let (snapshot, LeftOut { of_strangers, of_too_many }) =
        snapshot(events, notes).map_err(|error| Failure::doing("making events of messages", &error))?;
    let ended_ns = if notes.ended_ns > 0 { notes.ended_ns } else { u64::MAX };
    // Processes that another recording has followed, too, have events of its time in the same stream.
    let begin_ns = notes.session.started_ns.saturating_sub(AROUND_NS);
    let window = (MonotonicNs(begin_ns), MonotonicNs(ended_ns.saturating_add(AROUND_NS)));
    let end =
        UserEnd { ended_ns, unreadable: losses.unreadable(), lost: losses.unwritten, ..UserEnd::default() };
    let filter = UserFilter::default();
    let summary = write_snapshot(&notes.session, &snapshot, &notes.clock, window, &end, (target, &filter))?;
    let into = match notes.device {
        Destination::Stm(_) => "channels",
        Destination::Ptwrite => "PTWRITE",
    };
    let mut said = losses.sentences(into);
    if of_strangers > 0 {
        let events = counted(of_strangers, "event is", "events are");
        said.push(format!("{events} left out, of programs that this recording has not met"));
    }
    if of_too_many > 0 {
        let events = counted(of_too_many, "event is", "events are");
        said.push(format!(
            "{events} left out, of programs with so many threads that there is no room for all of them"
        ));
    }
    let rest = found - of_strangers - of_too_many;
    if summary.events < rest {
        let events = counted(rest - summary.events, "event is", "events are");
        said.push(format!("{events} left out: from before or after the recording, or not described by it"));
    }
    said.extend(summary.remarks.iter().cloned());
    let trace = WrittenTrace {
        path: target.display().to_string(),
        events: summary.events,
        streams: threads as u64,
        losses: losses.messages().saturating_add(of_too_many),
        untimed: 0,
        moved: summary.moved,
        moved_ns: 0,
        first_ns: None,
        last_ns: None,
    };
    Ok((trace, said))
}

#[cfg(test)]
mod tests;
