// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a recording of programs knows only when it ends in order: its losses by cause, and what is to be said of programs.

use nix::errno::Errno;
use rtscope_event::counted;
use rtscope_programs::ProviderInfo;
use rtscope_programs::budget::Refusal;
use rtscope_programs::clock_watch::ClockReport;
use rtscope_programs::collector::{LossesByUser, PastProcesses, ProcessReport};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;

/// Remarks about programs of one user, and of all. A user could have any number of programs.
const REMARKS_OF_USER: usize = 16;
const REMARKS_MAX: usize = 1024;

/// Facts that are known only at an orderly end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEnd {
    /// CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// By ring: events that did not fit since the recording began, and records that were never finished. Of rings that were over before, the
    /// recorder has been told.
    #[serde(skip)]
    pub rings: Vec<(u32, u64, u64)>,
    /// The sums over all rings, once the recorder has added them up.
    pub lost: u64,
    /// As above.
    pub unfinished: u64,
    /// Events of threads that had no ring.
    pub lost_no_buffer: u64,
    /// Events larger than a record can be.
    pub lost_too_large: u64,
    /// How often threads waited for space (--blocking).
    #[serde(default)]
    pub waits: u64,
    /// Invalid records in rings that were converted while they were recorded.
    #[serde(default)]
    pub unreadable: u64,
    /// Events that were left out, since there was little room on the disk.
    #[serde(default)]
    pub left_out: u64,
    /// Programs that ran untraced: how many events they lost nobody knows.
    #[serde(default)]
    pub untraced: u64,
    /// Programs that were dropped because of one of their files: the same.
    #[serde(default)]
    pub dropped: u64,
    /// Whose these losses are: outside of rings, until the recorder has added those of rings.
    #[serde(default)]
    pub by_user: LossesByUser,
    /// Channels of an STM that threads got: their events are not in this trace.
    #[serde(default)]
    pub channels: u64,
    /// Programs from which nothing more was taken, and why; programs that ran untraced.
    pub remarks: Vec<String>,
    /// The kernel's clock, and what made times wrong.
    #[serde(default)]
    pub clock: ClockReport,
    /// What was left out of users, and why.
    #[serde(default)]
    pub refused: Vec<Refusal>,
}

impl UserEnd {
    /// From the reports of all programs, and what was left out of users.
    #[must_use]
    pub fn of(ended_ns: u64, reports: &[ProcessReport], refused: Vec<Refusal>) -> UserEnd {
        let mut end = UserEnd { ended_ns, refused, ..UserEnd::default() };
        let mut remarks = Remarks::default();
        for report in reports {
            let rings = report.rings.iter().filter(|ring| ring.lost > 0 || ring.unfinished > 0);
            end.rings.extend(rings.map(|ring| (ring.index, ring.lost, ring.unfinished)));
            let waits = report.rings.iter().map(|ring| ring.waits).chain([report.over.waits]);
            end.waits = waits.fold(end.waits, u64::saturating_add);
            let outside = report.lost_outside;
            let no_buffer = outside.lost().saturating_sub(outside.lost_too_large);
            end.lost_no_buffer = end.lost_no_buffer.saturating_add(no_buffer);
            end.lost_too_large = end.lost_too_large.saturating_add(outside.lost_too_large);
            end.channels = end.channels.saturating_add(outside.channels.into());
            end.untraced += u64::from(report.untraced.is_some());
            end.dropped += u64::from(report.dropped.is_some());
            end.by_user.entry(report.uid).or_default().add(report.outside());
            for remark in remarks_of(report) {
                remarks.push(report.uid, remark);
            }
        }
        end.remarks = remarks.finish();
        end
    }

    /// Adds programs without a report.
    #[must_use]
    pub fn and(mut self, past_by_user: &BTreeMap<u32, PastProcesses>) -> UserEnd {
        let mut past = PastProcesses::default();
        for (uid, of_user) in past_by_user {
            past.merge(of_user);
            self.by_user.entry(*uid).or_default().add(of_user.outside());
        }
        self.waits = self.waits.saturating_add(past.rings.waits);
        let no_buffer = past.lost_no_buffer.saturating_add(past.lost_without_file);
        self.lost_no_buffer = self.lost_no_buffer.saturating_add(no_buffer);
        self.lost_too_large = self.lost_too_large.saturating_add(past.lost_too_large);
        self.untraced += past.untraced;
        self.dropped += past.dropped;
        if past.lost_without_file > 0 {
            let lost = counted(past.lost_without_file, "event", "events");
            self.remarks.push(format!(
                "{lost} were lost of processes that could make no file (no room, another root or mount namespace, or confined): at most, since such a process cannot always \
                 tell what is asked for"
            ));
        }
        if past.processes > 0 {
            let text = counted(
                past.processes,
                "program that has ended is not reported by itself",
                "programs that have ended are not reported one by one",
            );
            self.remarks.push(text);
        }
        self
    }
}

/// Remarks about programs, of each user no more than its share.
#[derive(Debug, Default)]
struct Remarks {
    all: Vec<String>,
    of_user: HashMap<u32, usize>,
    more: usize,
}

impl Remarks {
    /// Returns whether it is kept.
    fn push(&mut self, uid: u32, remark: String) -> bool {
        let of_user = self.of_user.entry(uid).or_default();
        *of_user += 1;
        let is_kept = *of_user <= REMARKS_OF_USER && self.all.len() < REMARKS_MAX;
        if is_kept {
            self.all.push(remark);
        } else {
            self.more += 1;
        }
        is_kept
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            let more = counted(self.more, "more remark about programs is", "more remarks about programs are");
            self.all.push(format!("{more} left out"));
        }
        self.all
    }
}

/// What is to be said of events that no trace can have: once for each program or library of a user.
#[derive(Debug, Default)]
pub(super) struct Undescribed {
    remarks: Remarks,
    told: HashSet<(u32, String)>,
}

impl Undescribed {
    /// Returns what is new, unless there is too much of it.
    pub(super) fn add(&mut self, provider: &ProviderInfo) -> Option<String> {
        let [first, others @ ..] = provider.descriptions.undescribed.as_slice() else { return None };
        if self.told.len() >= REMARKS_MAX || !self.told.insert((provider.uid, provider.origin())) {
            return None;
        }
        let ProviderInfo { comm, uid, object, .. } = provider;
        let more = match others.len() {
            0 => String::new(),
            others => format!(" (and {others} more of its events)"),
        };
        let (name, why) = (first.shown_name(), &first.why);
        let remark = format!("{comm} (user {uid}, {object}): {name}{more} is not recorded: {why}");
        self.remarks.push(*uid, remark.clone()).then_some(remark)
    }

    /// Whose programs have such events.
    pub(super) fn users(&self) -> BTreeSet<u32> {
        self.told.iter().map(|(uid, _)| *uid).collect()
    }

    pub(super) fn finish(self) -> Vec<String> {
        self.remarks.finish()
    }
}

/// What is to be said of one program.
fn remarks_of(report: &ProcessReport) -> Vec<String> {
    let who = format!("{} ({}, user {})", report.comm, report.who(), report.uid);
    let mut remarks = Vec::new();
    if let Some(why) = &report.dropped {
        remarks.push(format!("{who} was dropped: {why}"));
    }
    if let Some(errno) = report.untraced {
        let why = io::Error::from_raw_os_error(errno);
        remarks.push(format!("{} of user {} runs untraced: {why}", report.who(), report.uid));
    }
    let outside = report.lost_outside;
    if outside.objects_refused > 0 {
        let why = io::Error::from_raw_os_error(outside.object_errno as i32);
        remarks.push(format!(
            "{who}: {} untraced: {why}",
            counted(outside.objects_refused, "library runs", "libraries run")
        ));
    }
    if outside.lost_no_channel > 0 {
        let lost = counted(outside.lost_no_channel, "event was", "events were");
        remarks.push(format!(
            "{who}: {lost} lost of threads without a channel: {}",
            no_channel(outside.channel_errno)
        ));
    }
    if outside.rings_refused > 0 {
        let why = io::Error::from_raw_os_error(outside.refused_errno as i32);
        remarks.push(format!(
            "{who}: {} no buffer: {why}",
            counted(outside.rings_refused, "thread got", "threads got")
        ));
    }
    remarks
}

/// What it means that a thread could get no channel: what `open`, `STP_POLICY_ID_SET` and `mmap` say of an STM, or CPUID of PTWRITE.
fn no_channel(errno: u32) -> String {
    let errno = Errno::from_raw(i32::try_from(errno).unwrap_or(0));
    let why = match errno {
        Errno::EACCES => "the program may not open the device; give its user the right to read and write it",
        // Also what the kernel says where a container has not been given the device.
        Errno::EPERM => {
            "the program may do more than its user, and opens no device for him, or its container does not allow it; record as root, or give the container the device"
        }
        Errno::ENOENT | Errno::ENODEV | Errno::ENXIO => {
            "the device is not there, or was not when it was asked for"
        }
        Errno::EINVAL => {
            "the device's policy has no such name, or the device fewer channels than a mapping needs"
        }
        // The kernel makes no difference.
        Errno::ENOSPC => {
            "the channels of the policy are taken, or it has fewer together than a mapping needs; give it more, or record fewer threads"
        }
        Errno::ENOSYS => {
            "the processor has no PTWRITE, as CPUID says; --backend ptwrite,or-software uses their buffers"
        }
        Errno::EOPNOTSUPP => "channels of this device cannot be mapped",
        Errno::EMFILE => "the process has as many as it can have",
        Errno::ENOTTY => "what has the device's name is no device with channels",
        Errno::EAGAIN => "others of its process were making theirs for too long, or forked meanwhile",
        _ => "the system refused",
    };
    format!("{why} ({})", errno.desc())
}
