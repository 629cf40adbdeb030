// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A provider's file: its descriptions are copied and checked once; the words that enable its events are written.

use crate::budget::{Account, Cause, Charge};
use crate::channels::Channels;
use crate::description::{Defect, Descriptions};
use crate::directory::{FileKind, FileName, OpenFile};
use crate::look::Offsets;
use crate::memory::{CUT, Mapping};
use crate::patterns::RequestedEvents;
use crate::shelf::{Owner, Shelf};
use rtscope_abi::program as abi;
use rtscope_event::exact::low_half;
use serde::{Deserialize, Serialize};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A provider's description of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderInfo {
    /// Its number in its own PID namespace.
    pub pid: u32,
    /// When the process started, which tells processes of the same number apart.
    pub birth_ns: u64,
    /// 0: the program; else a library.
    pub number: u32,
    /// The user.
    pub uid: u32,
    /// Name of the main thread at the start.
    pub comm: String,
    /// Path of the program or library.
    pub object: String,
    /// In hexadecimal; empty: it has none.
    pub build_id: String,
    /// `enum rtu_clock`.
    pub clock: u32,
    /// The id of its first event; the others follow.
    pub first_id: u32,
    /// Its requested events. Programs with the same ones share them.
    pub descriptions: Arc<Descriptions>,
}

impl ProviderInfo {
    /// The build id, or else the path: tells apart event classes of the same name.
    #[must_use]
    pub fn origin(&self) -> String {
        if self.build_id.is_empty() {
            format!("file:{}", self.object)
        } else {
            format!("build-id:{}", self.build_id)
        }
    }

    /// What it takes in the metadata of a trace, at most.
    #[must_use]
    pub fn metadata_bytes(&self) -> usize {
        // The origin is in each event; any character may have to be escaped.
        let origins = self.descriptions.events.len().saturating_mul(2 * self.origin().len());
        self.descriptions.bytes().saturating_add(origins)
    }

    /// Whether a program's file can have said this: of what was in a file of ours since, which anybody may have changed.
    ///
    /// # Errors
    /// What no program's file says.
    pub fn check(&self) -> Result<(), Defect> {
        if u64::from(self.first_id) + u64::from(self.descriptions.declared) > u64::from(abi::RTU_EVENTS_MAX) {
            return Err("its numbers make no sense");
        }
        // A byte that is not text became a character of three.
        let is_shown = |text: &str, bytes: usize| text.len() <= 3 * bytes && !text.contains(char::is_control);
        if !is_shown(&self.comm, 16) || !is_shown(&self.object, 256) {
            return Err("its name cannot be shown");
        }
        if self.build_id.len() > 40 || !self.build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err("its build id is not one");
        }
        self.descriptions.check()
    }

    /// Whether any of its events was requested.
    #[must_use]
    pub fn is_asked_for(&self) -> bool {
        !self.descriptions.events.is_empty() || !self.descriptions.undescribed.is_empty()
    }
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) cause: Cause,
    pub(crate) why: String,
    /// The name of its process, as far as it is known.
    pub(crate) comm: String,
}

impl From<Cause> for Refused {
    fn from(cause: Cause) -> Refused {
        Refused { cause, ..Refused::from(cause.text()) }
    }
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused { cause: Cause::Invalid, why, comm: String::new() }
    }
}

impl From<&str> for Refused {
    fn from(why: &str) -> Refused {
        Refused::from(why.to_string())
    }
}

/// The file.
#[derive(Debug)]
pub(crate) struct Provider {
    mapping: Mapping,
    pub(crate) info: ProviderInfo,
    /// What its descriptions take in a trace.
    pub(crate) described_bytes: usize,
    pub(crate) pid_namespace: u64,
    /// Its seccomp mode when it started.
    pub(crate) seccomp: u32,
    /// Of include/rtscope.
    pub(crate) version: u32,
    /// What it says of its time namespace: the inode number (0: it does not know), and its offsets.
    pub(crate) time_namespace: (u64, Offsets),
    enabled_offset: usize,
    /// Which of its events somebody acts on is known.
    pub(crate) is_learned: bool,
    charge: Charge,
}

/// Counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCounters {
    /// Events of threads that have no ring.
    pub lost_no_ring: u64,
    /// Events of signal handlers while a ring was made.
    pub lost_in_setup: u64,
    /// Events larger than a record can be.
    pub lost_too_large: u64,
    /// Events of children that have no files of their own.
    pub lost_in_child: u64,
    /// Events of threads that were to have no ring, because nobody had emptied any for a while.
    #[serde(default)]
    pub lost_nobody: u64,
    /// Events of libraries and children whose file could not be made.
    #[serde(default)]
    pub lost_no_file: u64,
    /// Rings made.
    pub rings_made: u64,
    /// Rings that could not be made.
    pub rings_refused: u64,
    /// Why the last one could not be made.
    pub refused_errno: u32,
    /// Libraries that have no file, and so no events.
    #[serde(default)]
    pub objects_refused: u32,
    /// Why the last one has none.
    #[serde(default)]
    pub object_errno: u32,
    /// Events that were to go to a channel of an STM, of threads that have none.
    #[serde(default)]
    pub lost_no_channel: u64,
    /// Channels that threads got.
    #[serde(default)]
    pub channels: u32,
    /// Why the last thread that got none did not.
    #[serde(default)]
    pub channel_errno: u32,
}

impl Provider {
    /// Reads a provider. `Ok(None)`: it is not complete yet. `Err`: what is wrong with it.
    pub(crate) fn open(
        opened: &OpenFile,
        name: FileName,
        uid: u32,
        (account, shelf, owner): (&Arc<Account>, &mut Shelf, Owner),
    ) -> Result<Option<Provider>, Refused> {
        let FileKind::Provider(number) = name.kind else { return Err("it is not a provider".into()) };
        let bytes = opened.bytes;
        let header = u64::from(abi::RTU_PROVIDER_BYTES_1);
        if bytes < header {
            // The program makes the file before it fills it.
            return Ok(None);
        }
        if bytes > header + u64::from(abi::RTU_TEXT_BYTES_MAX) * 2 {
            return Err("its descriptions are too large".into());
        }
        let length = usize::try_from(bytes).map_err(|error| error.to_string())?;
        let charge = account.charge(bytes, bytes)?;
        let mapping = Mapping::of_program(&opened.file, length).map_err(|error| error.to_string())?;
        // ORDER: acquire; pairs with the program's store of `ready`: the descriptions are there.
        if mapping.half(offset_of!(abi::rtu_provider, ready)).load(Ordering::Acquire) == 0
            || opened.has_grown()
        {
            return Ok(None);
        }
        let mut copy = vec![0; length];
        // Read, not copied from the mapping: that would stop at holes, or fill them.
        opened.file.read_exact_at(&mut copy, 0).map_err(|_| Refused::from("its file was truncated"))?;
        let comm = text_at(&copy, offset_of!(abi::rtu_provider, comm), 16);
        let info = match read(&copy, name, number, uid, &shelf.wanted) {
            Ok(info) => info,
            Err(why) => return Err(Refused { cause: Cause::Invalid, why, comm }),
        };
        shelf.asked.saw(described(&copy).unwrap_or_default());
        let too_large = |why: &str| Refused { cause: Cause::TooMuchText, why: why.to_string(), comm };
        let info = shelf.keep(owner, info).map_err(too_large)?;
        let half = |offset: usize| u32_at(&copy, offset);
        let enabled_offset = half(offset_of!(abi::rtu_provider, enabled_offset)) as usize;
        let pid_namespace = u64_at(&copy, offset_of!(abi::rtu_provider, pid_namespace));
        let seccomp = half(offset_of!(abi::rtu_provider, seccomp));
        let version = half(offset_of!(abi::rtu_provider, abi_version));
        let of_version_2 = |offset: usize| if version >= 2 { u64_at(&copy, offset) } else { 0 };
        let time_namespace = of_version_2(offset_of!(abi::rtu_provider, time_namespace));
        let offsets = Offsets {
            monotonic_ns: of_version_2(offset_of!(abi::rtu_provider, monotonic_offset_ns)) as i64,
            boottime_ns: of_version_2(offset_of!(abi::rtu_provider, boottime_offset_ns)) as i64,
        };
        if mapping.is_cut() {
            return Err(CUT.into());
        }
        Ok(Some(Provider {
            mapping,
            described_bytes: info.descriptions.bytes(),
            info,
            pid_namespace,
            seccomp,
            version,
            time_namespace: (time_namespace, offsets),
            enabled_offset,
            is_learned: false,
            charge,
        }))
    }

    fn events(&self) -> u32 {
        self.info.descriptions.declared
    }

    /// Whether the program can write into channels: its header is no older than they are.
    pub(crate) fn knows_channels(&self) -> bool {
        // In a file of version 1 something else is there, or its end.
        if self.version < 2 {
            return false;
        }
        let place = offset_of!(abi::rtu_provider, knows) & !3;
        // ORDER: relaxed; written before the file was ready. Both are halves of one word of 32 bits.
        let word = self.mapping.half(place).load(Ordering::Relaxed);
        word >> 16 & abi::RTU_KNOWS_CHANNELS != 0
    }

    /// Enables the events that a session requests (`None`: no event), those of `channels` to go there.
    pub(crate) fn enable(&self, wanted: Option<(u64, &RequestedEvents, Option<&Channels>)>) {
        let knows_channels = self.knows_channels();
        let mut kept = self.info.descriptions.events.iter().peekable();
        for index in 0..self.events() {
            // One that was not kept matches nothing, but an earlier collector may have enabled it.
            let event = kept.next_if(|event| event.index == index);
            let on =
                event.zip(wanted).filter(|(event, (_, wanted, _))| wanted.matches(&event.name, event.level));
            let word = on.map_or(0, |(event, (session, _, channels))| {
                let takes = knows_channels && channels.is_some_and(|channels| channels.takes(&event.name));
                enabled_word(session) | if takes { abi::RTU_TO_CHANNEL } else { 0 }
            });
            let place = self.enabled_offset + index as usize * 4;
            // ORDER: release; pairs with the acquire fence in rtscope__reserve_slowly(): a thread that finds its event enabled also
            // finds what set_session() wrote before.
            self.mapping.half(place).store(word, Ordering::Release);
        }
    }

    /// Whether events are enabled for another session than this one; and if so, whether any of them is wanted by this one, too. `leaders`: the session that
    /// its process has, as far as is known.
    pub(crate) fn left_by_others(
        &self,
        session: u64,
        leaders: u64,
        wanted: &RequestedEvents,
    ) -> Option<bool> {
        let ours = enabled_word(session);
        // A program of version 1 that has found a session by itself enables events with no number. Between that and its note of the session it is 0; one
        // that ends in order disables the events before.
        let is_unnumbered_ours = self.version < 2 && (leaders == session || leaders == 0);
        // ORDER: relaxed; of a recorder that is gone.
        let is_of_others = |index: u32| {
            let word = self.mapping.half(self.enabled_offset + index as usize * 4).load(Ordering::Relaxed);
            let word = word & !abi::RTU_TO_CHANNEL;
            word != 0 && word != ours && !(word == ENABLED_BY_VERSION_1 && is_unnumbered_ours)
        };
        if !(0..self.events()).any(is_of_others) {
            return None;
        }
        let events = &self.info.descriptions.events;
        Some(events.iter().any(|event| is_of_others(event.index) && wanted.matches(&event.name, event.level)))
    }

    /// The session that it has; 0: none, or it is not its process's leader.
    pub(crate) fn session(&self) -> u64 {
        // ORDER: acquire; pairs with the release in set_session(), and with the program's store after it has enabled its events.
        self.mapping.word(offset_of!(abi::rtu_provider, session)).load(Ordering::Acquire)
    }

    /// What was lost so far is no loss of any recording to come.
    pub(crate) fn forgive(&self) {
        self.set_reported(&self.counters());
    }

    /// Number of enabled events.
    pub(crate) fn enabled(&self) -> u32 {
        // ORDER: relaxed; only shown to people.
        let on = |index: u32| {
            self.mapping.half(self.enabled_offset + index as usize * 4).load(Ordering::Relaxed) != 0
        };
        (0..self.events()).map(|index| u32::from(on(index))).sum()
    }

    /// Tells the program its session, and how to record.
    pub(crate) fn set_session(&self, session: u64, flags: u32, ring_bytes: u32) {
        // ORDER: relaxed, then release: a program that sees the session sees the rest.
        self.mapping.half(offset_of!(abi::rtu_provider, ring_bytes)).store(ring_bytes, Ordering::Relaxed);
        self.mapping.half(offset_of!(abi::rtu_provider, flags)).store(flags, Ordering::Relaxed);
        self.mapping.word(offset_of!(abi::rtu_provider, session)).store(session, Ordering::Release);
    }

    /// A sign of life of this collector, for threads that wait for space.
    pub(crate) fn beat(&self) {
        let place = self.mapping.word(offset_of!(abi::rtu_provider, beat));
        // ORDER: relaxed; a number that only has to change. A program that misuses it harms only itself.
        place.store(place.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Unmaps it: what remains is the description, which its user's account still has.
    pub(crate) fn into_description(self) -> (ProviderInfo, Charge) {
        (self.info, self.charge)
    }

    /// Reads the flags, `enum rtu_flag`.
    pub(crate) fn flags(&self) -> u32 {
        // ORDER: relaxed; written by this process.
        self.mapping.half(offset_of!(abi::rtu_provider, flags)).load(Ordering::Relaxed)
    }

    /// Writes all flags, `enum rtu_flag`.
    pub(crate) fn set_flags(&self, flags: u32) {
        // ORDER: relaxed; the program reads them now and then.
        self.mapping.half(offset_of!(abi::rtu_provider, flags)).store(flags, Ordering::Relaxed);
    }

    /// Whether its library has been unloaded.
    pub(crate) fn is_unloaded(&self) -> bool {
        // ORDER: acquire; the program does not use the file afterwards.
        self.mapping.half(offset_of!(abi::rtu_provider, ready)).load(Ordering::Acquire) == 2
    }

    /// Whether its file was truncated or has lost memory while mapped.
    pub(crate) fn is_cut(&self) -> bool {
        self.mapping.is_cut()
    }

    /// Losses that are in earlier recordings already, by cause.
    pub(crate) fn reported(&self) -> ProcessCounters {
        // ORDER: relaxed; written by an earlier collector.
        let word = |cause: u32| self.mapping.word(reported_at(cause)).load(Ordering::Relaxed);
        let mut told = ProcessCounters {
            lost_no_ring: word(abi::RTU_LOST_NO_RING),
            lost_in_setup: word(abi::RTU_LOST_IN_SETUP),
            lost_too_large: word(abi::RTU_LOST_TOO_LARGE),
            lost_in_child: word(abi::RTU_LOST_IN_CHILD),
            ..ProcessCounters::default()
        };
        if self.version >= 2 {
            told.lost_nobody = word(abi::RTU_LOST_NOBODY);
            told.lost_no_file = word(abi::RTU_LOST_NO_FILE);
            told.lost_no_channel = word(abi::RTU_LOST_NO_CHANNEL);
            // ORDER: as above.
            told.objects_refused =
                self.mapping.half(offset_of!(abi::rtu_provider, refused_told)).load(Ordering::Relaxed);
        }
        told
    }

    /// Notes that these losses are in a recording: a later collector need not report them again.
    pub(crate) fn set_reported(&self, counters: &ProcessCounters) {
        let all = [
            (abi::RTU_LOST_NO_RING, counters.lost_no_ring),
            (abi::RTU_LOST_IN_SETUP, counters.lost_in_setup),
            (abi::RTU_LOST_TOO_LARGE, counters.lost_too_large),
            (abi::RTU_LOST_IN_CHILD, counters.lost_in_child),
            (abi::RTU_LOST_NOBODY, counters.lost_nobody),
            (abi::RTU_LOST_NO_FILE, counters.lost_no_file),
            (abi::RTU_LOST_NO_CHANNEL, counters.lost_no_channel),
        ];
        let causes = if self.version >= 2 { all.len() } else { abi::RTU_LOST_CAUSES as usize };
        for (cause, count) in &all[..causes] {
            // ORDER: relaxed; as above.
            self.mapping.word(reported_at(*cause)).store(*count, Ordering::Relaxed);
        }
        if self.version >= 2 {
            let told = self.mapping.half(offset_of!(abi::rtu_provider, refused_told));
            // ORDER: relaxed; as above.
            told.store(counters.objects_refused, Ordering::Relaxed);
        }
    }

    /// Losses of the process outside its rings.
    pub(crate) fn counters(&self) -> ProcessCounters {
        // ORDER: relaxed; numbers that only grow.
        let word = |offset: usize| self.mapping.word(offset).load(Ordering::Relaxed);
        let half = |offset: usize| self.mapping.half(offset).load(Ordering::Relaxed);
        let lost = |cause: u32| word(lost_at(cause));
        let mut counters = ProcessCounters {
            lost_no_ring: lost(abi::RTU_LOST_NO_RING),
            lost_in_setup: lost(abi::RTU_LOST_IN_SETUP),
            lost_too_large: lost(abi::RTU_LOST_TOO_LARGE),
            lost_in_child: lost(abi::RTU_LOST_IN_CHILD),
            rings_made: word(offset_of!(abi::rtu_provider, rings_made)),
            rings_refused: word(offset_of!(abi::rtu_provider, rings_refused)),
            refused_errno: half(offset_of!(abi::rtu_provider, refused_errno)),
            ..ProcessCounters::default()
        };
        if self.version >= 2 {
            counters.lost_nobody = lost(abi::RTU_LOST_NOBODY);
            counters.lost_no_file = lost(abi::RTU_LOST_NO_FILE);
            counters.objects_refused = half(offset_of!(abi::rtu_provider, objects_refused));
            counters.object_errno = half(offset_of!(abi::rtu_provider, object_errno));
            counters.lost_no_channel = lost(abi::RTU_LOST_NO_CHANNEL);
            counters.channels = half(offset_of!(abi::rtu_provider, channels));
            counters.channel_errno = half(offset_of!(abi::rtu_provider, channel_errno)) & 0xffff;
        }
        counters
    }
}

/// What a program of version 1 writes into the word of an event that a session requests.
const ENABLED_BY_VERSION_1: u32 = 1;

/// RTU_ENABLED(session).
pub(crate) fn enabled_word(session: u64) -> u32 {
    low_half(session >> 16) | 1
}

fn lost_at(cause: u32) -> usize {
    match cause.checked_sub(abi::RTU_LOST_CAUSES) {
        Some(more) => offset_of!(abi::rtu_provider, more_lost) + more as usize * 8,
        None => offset_of!(abi::rtu_provider, lost) + cause as usize * 8,
    }
}

fn reported_at(cause: u32) -> usize {
    match cause.checked_sub(abi::RTU_LOST_CAUSES) {
        Some(more) => offset_of!(abi::rtu_provider, more_told) + more as usize * 8,
        None => offset_of!(abi::rtu_provider, lost_told) + cause as usize * 8,
    }
}

pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..offset + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..offset + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// Text up to a NUL; bytes that are not text are replaced.
pub(crate) fn text_at(bytes: &[u8], offset: usize, length: usize) -> String {
    let field = bytes.get(offset..offset + length).unwrap_or_default();
    let end = memchr::memchr(0, field).unwrap_or(field.len());
    String::from_utf8_lossy(&field[..end]).replace(char::is_control, "?")
}

/// The texts that describe its events and enumerations.
fn described(copy: &[u8]) -> Option<&[u8]> {
    let half = |offset: usize| u32_at(copy, offset) as usize;
    let begin = half(offset_of!(abi::rtu_provider, text_offset));
    copy.get(begin..begin.checked_add(half(offset_of!(abi::rtu_provider, text_bytes)))?)
}

/// Reads a copy of the file.
pub(crate) fn read(
    copy: &[u8],
    name: FileName,
    number: u32,
    uid: u32,
    wanted: &RequestedEvents,
) -> Result<ProviderInfo, String> {
    let half = |offset: usize| u32_at(copy, offset);
    let word = |offset: usize| u64_at(copy, offset);
    if word(offset_of!(abi::rtu_provider, magic)) != abi::RTU_PROVIDER_MAGIC {
        return Err("it does not begin as a provider's file does".to_string());
    }
    let version = half(offset_of!(abi::rtu_provider, abi_version));
    if version == 0 || version > abi::RTU_ABI_VERSION {
        let ours = abi::RTU_ABI_VERSION;
        let name = text_at(copy, offset_of!(abi::rtu_provider, comm), 16);
        return Err(format!(
            "'{name}' was built with version {version} of include/rtscope, this rtscope knows 1 to {ours}"
        ));
    }
    let (pid, birth_ns) =
        (half(offset_of!(abi::rtu_provider, pid)), word(offset_of!(abi::rtu_provider, birth_ns)));
    if (pid, birth_ns) != (name.process.pid, name.process.birth_ns) {
        return Err("its name and its content disagree".to_string());
    }
    let events = half(offset_of!(abi::rtu_provider, events));
    let first_id = half(offset_of!(abi::rtu_provider, first_id));
    let clock = half(offset_of!(abi::rtu_provider, clock));
    if u64::from(first_id) + u64::from(events) > u64::from(abi::RTU_EVENTS_MAX) {
        return Err("its numbers make no sense".to_string());
    }
    if !crate::clock::is_known(clock) {
        return Err("its clock is not this machine's, as in an emulator; with RTSCOPE_CLOCK=monotonic it uses the kernel's".to_string());
    }
    let enabled = half(offset_of!(abi::rtu_provider, enabled_offset)) as usize;
    let header =
        if version == 1 { abi::RTU_PROVIDER_BYTES_1 as usize } else { size_of::<abi::rtu_provider>() };
    if enabled % 4 != 0 || enabled < header || enabled + events as usize * 4 > copy.len() {
        return Err("its parts lie outside of it".to_string());
    }
    let text = described(copy).ok_or("its parts lie outside of it")?;
    let enumerations = half(offset_of!(abi::rtu_provider, enumerations));
    let descriptions = Descriptions::parse(text, events, enumerations, wanted)?;
    let id_bytes = half(offset_of!(abi::rtu_provider, build_id_bytes)).min(20) as usize;
    let id = offset_of!(abi::rtu_provider, build_id);
    let build_id = copy[id..id + id_bytes].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(ProviderInfo {
        pid,
        birth_ns,
        number,
        uid,
        comm: text_at(copy, offset_of!(abi::rtu_provider, comm), 16),
        object: text_at(copy, offset_of!(abi::rtu_provider, object), 256),
        build_id,
        clock,
        first_id,
        descriptions: Arc::new(descriptions),
    })
}
