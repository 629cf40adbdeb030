// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of a flight recorder as they come, while they stay in the rings.

use super::Programs;
use super::process::Process;
use crate::description::{Descriptions, EventDescription};
use crate::memory::let_bus_errors_through;
use crate::provider::{Provider, ProviderInfo};
use crate::ring::{Arrivals, RingInfo};
use rtscope_abi::program as abi;
use std::sync::Arc;

/// An event that has come.
#[derive(Clone, Copy, Debug)]
pub struct NewEvent<'a> {
    /// The user whose account its program is on: the owner of the ring's file, or who has made its container. No program can say another one.
    pub account: u32,
    /// The ring of its thread.
    pub ring: &'a RingInfo,
    /// The descriptions of its provider.
    pub descriptions: &'a Arc<Descriptions>,
    /// What it is.
    pub event: &'a EventDescription,
    /// The time, by the program's clock.
    pub counter: u64,
    /// The CPU, where known.
    pub cpu: Option<u32>,
    /// Its fields, with padding. It may be anything.
    pub payload: &'a [u8],
}

/// Wants some of them. Those of one thread come in the order in which it wrote them.
pub trait NewEvents {
    /// Whether events of this name are wanted. It is asked once for each description.
    fn wants(&self, name: &str) -> bool;

    /// One has come.
    fn event(&mut self, event: &NewEvent<'_>);

    /// Events of this thread, of a program on this user's account, were overwritten before they were looked at, or are damaged.
    fn missed(&mut self, account: u32, ring: &RingInfo);
}

/// A wanted event of a process.
#[derive(Debug)]
struct WantedEvent {
    id: u32,
    descriptions: Arc<Descriptions>,
    /// Its place there.
    place: usize,
}

/// Those of a process, by id.
#[derive(Debug, Default)]
pub(super) struct WantedEvents {
    /// Of how many changes of its providers they are.
    version: Option<u64>,
    ids: Vec<u32>,
    events: Vec<WantedEvent>,
}

impl WantedEvents {
    fn of(providers: &[&ProviderInfo], version: u64, sink: &dyn NewEvents) -> WantedEvents {
        let mut events: Vec<WantedEvent> = Vec::new();
        for info in providers {
            let described = info.descriptions.events.iter().enumerate();
            let wanted =
                described.filter(|(_, event)| sink.wants(&event.name)).map(|(place, event)| WantedEvent {
                    id: info.first_id.saturating_add(event.index),
                    descriptions: Arc::clone(&info.descriptions),
                    place,
                });
            events.extend(wanted);
        }
        // Of two with one id the first counts: libraries that are there go before those that are gone.
        events.sort_by_key(|event| event.id);
        events.dedup_by_key(|event| event.id);
        let ids = events.iter().map(|event| event.id).collect();
        WantedEvents { version: Some(version), ids, events }
    }
}

impl Process {
    /// Gives the wanted events that have come since the last time. `is_new`: also the first ones of rings that were not looked at before.
    pub(super) fn new_events(
        &mut self,
        account: u32,
        is_new: bool,
        arrivals: &mut Arrivals,
        sink: &mut dyn NewEvents,
    ) {
        if self.wanted.version != Some(self.providers_changed) {
            let here = self.providers.values().map(|provider: &Provider| &provider.info);
            let all: Vec<&ProviderInfo> =
                here.chain(self.gone_providers.iter().map(|(info, _)| info)).collect();
            self.wanted = WantedEvents::of(&all, self.providers_changed, sink);
        }
        let WantedEvents { ids, events, .. } = &self.wanted;
        for (_, ring) in &mut self.rings {
            // Read before the ring: records written before the end are then seen.
            let is_last = self.dead || ring.has_ended();
            ring.arrivals(ids, (is_new, is_last), arrivals);
            if arrivals.has_missed && !ids.is_empty() {
                sink.missed(account, &ring.info);
            }
            for record in &arrivals.records {
                let found = ids.binary_search(&record.id).ok().and_then(|place| events.get(place));
                let Some(WantedEvent { descriptions, place, .. }) = found else { continue };
                let Some(event) = descriptions.events.get(*place) else { continue };
                let cpu = Some(record.cpu).filter(|cpu| *cpu != abi::RTU_CPU_UNKNOWN);
                let payload = arrivals.payload(record);
                sink.event(&NewEvent {
                    account,
                    ring: &ring.info,
                    descriptions,
                    event,
                    counter: record.counter,
                    cpu,
                    payload,
                });
            }
        }
    }
}

impl Programs {
    /// For flight recorders: gives the wanted events that have come since the last time. The first time only finds what there is already.
    pub fn new_events(&mut self, sink: &mut dyn NewEvents) {
        let_bus_errors_through();
        let is_new = std::mem::replace(&mut self.has_read, true);
        let mut arrivals = Arrivals::default();
        let users = self.users.values_mut().filter(|user| user.served.is_some());
        for user in users {
            let account = user.account;
            for process in user.processes.values_mut() {
                process.new_events(account, is_new, &mut arrivals, sink);
            }
        }
    }
}
