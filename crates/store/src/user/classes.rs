// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event classes of a trace of programs. Processes with the same description share one; numbers are given in the order
//! in which providers are found, which is that of the spool: so they are the same whoever counts.

use rtscope_abi::program as abi;
use rtscope_ctf::UserClass;
use rtscope_event::exact;
use rtscope_user::description::{EventDescription, Field, FieldType, payload_bytes};
use rtscope_user::{ProviderInfo, RingInfo};
use std::collections::{BTreeMap, HashMap, HashSet};

/// More are a lie: each takes memory as long as it is recorded. Their events are not readable.
const CLASSES_MAX: usize = 1 << 17;

/// An event id of a process: its class, and what its payload has.
#[derive(Clone, Debug)]
pub(super) struct KnownEvent {
    pub(super) class: u32,
    fields: Vec<Field>,
    /// All payloads have this size; else they have to be looked at.
    fixed_bytes: Option<usize>,
}

impl KnownEvent {
    /// How much of a record's payload the event has; `None`: it does not fit.
    pub(super) fn payload_bytes(&self, payload: &[u8]) -> Option<usize> {
        match self.fixed_bytes {
            Some(bytes) => (bytes <= payload.len()).then_some(bytes),
            None => payload_bytes(&self.fields, payload),
        }
    }
}

/// All events of a process, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessClasses {
    pub(super) all: Vec<Option<KnownEvent>>,
    /// The same for those whose payloads have one size.
    pub(super) plain: Vec<FixedSizeEvent>,
}

/// An event id whose payloads have one size. Small, since each event looks here.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedSizeEvent {
    pub(super) class: u32,
    /// More than a record can have: the payloads do not have one size, or there is no such event.
    pub(super) bytes: u32,
}

impl FixedSizeEvent {
    const NOT: FixedSizeEvent = FixedSizeEvent { class: 0, bytes: u32::MAX };
}

/// What the values of enumerations are called, by their names.
type Labels = BTreeMap<String, Vec<(i32, String)>>;

/// All classes.
#[derive(Debug, Default)]
pub(super) struct Classes {
    pub(super) all: Vec<UserClass>,
    numbers: HashMap<(EventDescription, Labels), u32>,
    /// By user, process and its birth.
    known: HashMap<(u32, u32, u64), ProcessClasses>,
}

impl Classes {
    /// Those of a provider.
    pub(super) fn add(&mut self, provider: &ProviderInfo) {
        let of_process = self.known.entry((provider.uid, provider.pid, provider.birth_ns)).or_default();
        let first = provider.first_id as usize;
        let end = first + provider.descriptions.events.len();
        if end > abi::RTU_EVENTS_MAX as usize || self.all.len() >= CLASSES_MAX {
            return;
        }
        let room = of_process.all.len().max(end);
        of_process.all.resize(room, None);
        of_process.plain.resize(room, FixedSizeEvent::NOT);
        for (event, id) in provider.descriptions.events.iter().zip(first..) {
            let class = class_of(provider, event);
            let same = (class.event.clone(), class.labels.clone());
            let classes = &mut self.all;
            let number = *self.numbers.entry(same).or_insert_with(|| {
                classes.push(class);
                exact::count(classes.len()) - 1
            });
            let fields = event.fields.clone();
            let known = KnownEvent { class: number, fixed_bytes: fixed_bytes(&fields), fields };
            let bytes = known.fixed_bytes.and_then(|bytes| u32::try_from(bytes).ok());
            of_process.plain[id] =
                bytes.map_or(FixedSizeEvent::NOT, |bytes| FixedSizeEvent { class: number, bytes });
            of_process.all[id] = Some(known);
        }
    }

    /// How many have described something.
    pub(super) fn processes(&self) -> usize {
        self.known.len()
    }

    /// Forgets what processes have, but for those of these rings. Classes keep their numbers.
    pub(super) fn forget_others<'a>(&mut self, rings: impl Iterator<Item = &'a RingInfo>) {
        let processes: HashSet<(u32, u32, u64)> =
            rings.map(|ring| (ring.uid, ring.pid, ring.birth_ns)).collect();
        self.known.retain(|process, _| processes.contains(process));
    }

    /// Those of a ring's process; `None`: it has described nothing.
    pub(super) fn of(&self, ring: &RingInfo) -> Option<&ProcessClasses> {
        self.known.get(&(ring.uid, ring.pid, ring.birth_ns))
    }
}

fn class_of(provider: &ProviderInfo, event: &EventDescription) -> UserClass {
    let mut labels = BTreeMap::new();
    for field in &event.fields {
        if let FieldType::Enumeration(name) = &field.kind {
            let known = provider.descriptions.enumeration(name);
            labels.insert(name.clone(), known.map(|known| known.labels.clone()).unwrap_or_default());
        }
    }
    let origin = if provider.build_id.is_empty() {
        format!("file:{}", provider.object)
    } else {
        format!("build-id:{}", provider.build_id)
    };
    UserClass { event: event.clone(), labels, origin }
}

fn fixed_bytes(fields: &[Field]) -> Option<usize> {
    let varies = |field: &Field| matches!(field.kind, FieldType::Text | FieldType::Sequence(_));
    static LARGEST: [u8; abi::RTU_RECORD_BYTES_MAX as usize] = [0; abi::RTU_RECORD_BYTES_MAX as usize];
    if fields.iter().any(varies) { None } else { payload_bytes(fields, &LARGEST) }
}
