// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The listener's side of the flight recorder.
//!
//! No thread has to be awake in time: each CPU leaves its bank when the post-trigger window is over. The listener
//! sees that by polling a mapped word, copies the banks that were left, and gives them back.

use crate::snapshot::{Epoch, Snapshot};
use crate::stats::TrackerStats;
use crate::{late_response, monotonic_now};
use rtscope_event::{LateResponse, MonotonicNs};
use rtscope_kernel::Memory;
use rtscope_ring::{BankImage, Controls, TriggerState};
use std::ops::Range;

/// Reads the memory that eBPF programs and this process share.
#[derive(Debug)]
pub struct FlightRecorder {
    memory: Memory,
    started: MonotonicNs,
    /// Image buffers that came back, so that copying faults in no page.
    spare: Vec<BankImage>,
    /// Reports that could not be understood.
    unreadable_reports: u64,
}

impl FlightRecorder {
    /// Over the memory of eBPF programs that were switched on at `started`. Makes the private memory for a snapshot now.
    #[must_use]
    pub fn new(memory: Memory, started: MonotonicNs) -> FlightRecorder {
        let mut recorder = FlightRecorder { memory, started, spare: Vec::new(), unreadable_reports: 0 };
        if recorder.memory.banks.is_some() {
            // One copy of both banks of every CPU, touched, before the first trigger.
            for cpu in recorder.memory.bank_cpus.clone() {
                for bank in 0..2 {
                    let mut image = BankImage::default();
                    image.reserve(recorder.memory.bank_bytes);
                    recorder.copy(&mut image, cpu, bank);
                    recorder.spare.push(image);
                }
            }
        }
        recorder
    }

    /// Late responses since the last call. Without news: one load a CPU.
    pub fn late_responses(&mut self) -> Vec<LateResponse> {
        let raw = self.memory.late.drain(&self.memory.controls);
        let mut late: Vec<LateResponse> = raw.iter().filter_map(late_response).collect();
        self.unreadable_reports += (raw.len() - late.len()) as u64;
        late.sort_by_key(|late| late.end_ns);
        late
    }

    /// Reports that were taken but could not be understood; 0 unless the kernel side and we disagree.
    #[must_use]
    pub fn unreadable_reports(&self) -> u64 {
        self.unreadable_reports
    }

    /// The trigger, when its post window is over and the banks can be copied.
    #[must_use]
    pub fn ready(&self) -> Option<TriggerState> {
        let state = self.memory.trigger.state();
        (state.armed && monotonic_now().0 >= state.stop_at_ns).then_some(state)
    }

    /// A late response has pulled the trigger and its snapshot has not been taken yet.
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.memory.trigger.state().armed
    }

    /// Asks for a snapshot of what is there up to `post_ns` from now, in place of the tracker, which must not be there. Returns its number; `None`
    /// while another one is under way.
    pub fn pull(&mut self, post_ns: u64) -> Option<u64> {
        let now = monotonic_now();
        self.memory.trigger.pull(now.0, now.plus(post_ns).0)
    }

    /// Copies the frozen banks and gives them back. `wanted_since`: how far back the caller wants to see; the bank of the
    /// epoch before is copied only when that is needed.
    pub fn take(&mut self, trigger: TriggerState, wanted_since: MonotonicNs) -> Snapshot {
        let epochs = self.copy_all(Some(trigger.generation as u32), wanted_since);
        self.memory.trigger.re_arm();
        Snapshot {
            generation: trigger.generation,
            detected: MonotonicNs(trigger.detected_ns),
            copied_ns: monotonic_now().0.saturating_sub(trigger.stop_at_ns),
            until: MonotonicNs(trigger.stop_at_ns),
            started: self.started,
            epochs,
        }
    }

    /// Copies what is there now, without a trigger and without stopping anything: for tests and state dumps.
    pub fn peek(&mut self, wanted_since: MonotonicNs) -> Snapshot {
        let now = monotonic_now();
        let epochs = self.copy_all(None, wanted_since);
        Snapshot {
            generation: 0,
            detected: now,
            copied_ns: monotonic_now().since(now),
            until: now,
            started: self.started,
            epochs,
        }
    }

    /// Takes back the memory of a snapshot that is no longer needed.
    pub fn recycle(&mut self, snapshot: Snapshot) {
        self.spare.extend(snapshot.epochs.into_iter().flatten().map(|epoch| epoch.image));
        // One snapshot may be written while the next is taken; more is not retained.
        self.spare.truncate(self.memory.bank_cpus.len() * 4);
    }

    /// An instance's statistics; what belongs to no instance is counted with the first.
    #[must_use]
    pub fn stats(&self, instance: usize) -> TrackerStats {
        TrackerStats::read(&self.memory, instance)
    }

    /// What is shared with the kernel's side, for whoever reads more of it.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Bytes recorded since the start, and the time since then: the rate from which the held history follows.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        let controls = &self.memory.controls;
        (0..controls.cpus()).map(|cpu| controls.head(cpu, 0) + controls.head(cpu, 1)).collect()
    }

    /// When the recorder was started.
    #[must_use]
    pub fn started(&self) -> MonotonicNs {
        self.started
    }

    fn copy(&self, image: &mut BankImage, cpu: usize, bank: usize) {
        if let Some(banks) = &self.memory.banks {
            let place = cpu - self.memory.bank_cpus.start;
            image.copy_from(banks, &self.memory.controls, (cpu, place), bank, self.memory.bank_bytes);
        }
    }

    /// All CPUs; the frozen banks first, since those are waited for.
    fn copy_all(&mut self, generation: Option<u32>, wanted_since: MonotonicNs) -> Vec<Vec<Epoch>> {
        let cpus = self.memory.controls.cpus();
        let bank_cpus = self.memory.bank_cpus.clone();
        let newest = |cpu| bank_cpus.contains(&cpu).then(|| self.copy_newest(cpu, generation));
        let mut all: Vec<Vec<Epoch>> = (0..cpus).map(newest).map(Vec::from_iter).collect();
        for (cpu, epochs) in all.iter_mut().enumerate() {
            let Some(newest) = epochs.first() else { continue };
            if newest.began > wanted_since && newest.image.holds(newest.positions.start) {
                let older = self.copy_older(cpu, newest.began);
                epochs.extend(older);
            }
        }
        all
    }

    /// The epoch that the trigger ended; on a CPU that has had no event since, the one that still goes on.
    fn copy_newest(&mut self, cpu: usize, generation: Option<u32>) -> Epoch {
        self.copy_consistently(cpu, |controls, active, flipped| {
            let bank = if generation == Some(flipped) { active ^ 1 } else { active };
            let (start, began) = controls.start(cpu, bank);
            Some((bank, start..u64::MAX, began))
        })
        .unwrap_or_default()
    }

    /// The epoch before the one that began at `before`, in the other bank; that bank may be written again by now.
    fn copy_older(&mut self, cpu: usize, before: MonotonicNs) -> Option<Epoch> {
        self.copy_consistently(cpu, |controls, _, _| {
            let bank = (0..2).find(|bank| controls.start(cpu, *bank).1 != before.0)?;
            let (start, began) = controls.start(cpu, bank);
            if began < before.0 {
                return Some((bank, start..u64::MAX, began));
            }
            let (previous, previous_began) = controls.previous_start(cpu, bank);
            Some((bank, previous..start, previous_began))
        })
    }

    /// Copies the bank that `choose` picks from the control words, again if the CPU flipped during the copy: then the words that
    /// were read need not belong together, and an epoch could seem whole that is not.
    fn copy_consistently(
        &mut self,
        cpu: usize,
        choose: impl Fn(&Controls, usize, u32) -> Option<(usize, Range<u64>, u64)>,
    ) -> Option<Epoch> {
        let mut image = self.spare.pop().unwrap_or_default();
        loop {
            let controls = &self.memory.controls;
            let word = controls.active(cpu);
            let Some((bank, positions, began)) = choose(controls, word.0, word.1) else {
                // Dropped, the next snapshot would have to make another one, in the middle of the watch.
                self.spare.push(image);
                return None;
            };
            self.copy(&mut image, cpu, bank);
            if controls.active(cpu) == word {
                let positions = positions.start..positions.end.min(image.head());
                return Some(Epoch { image, positions, began: MonotonicNs(began) });
            }
        }
    }
}
