// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event classes of a trace of programs. Processes with the same description share one; classes are numbered in the
//! order in which providers are found, which is that of the spool: so every conversion gives the same numbers.

use rtscope_abi::program as abi;
use rtscope_ctf::UserClass;
use rtscope_event::exact;
use rtscope_user::description::{EventDescription, Field, FieldType, payload_bytes};
use rtscope_user::{ProviderInfo, RingInfo};
use std::collections::{BTreeMap, HashMap, HashSet};

/// More are not genuine; each takes memory during the whole recording. Events of further classes are unreadable.
const CLASSES_MAX: usize = 1 << 17;

/// An event id of a process: its class, and the fields of its payload.
#[derive(Clone, Debug)]
pub(super) struct KnownEvent {
    pub(super) class: u32,
    fields: Vec<Field>,
    /// The size of all payloads; `None`: the size depends on the content.
    fixed_bytes: Option<usize>,
}

impl KnownEvent {
    /// How many bytes of a record's payload belong to the event; `None`: they do not match its fields.
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
    /// The same for events whose payloads have one size.
    pub(super) plain: Vec<FixedSizeEvent>,
}

/// An event id whose payloads have one size. Small, since it is read for each event.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedSizeEvent {
    pub(super) class: u32,
    /// More than a record can have: the payloads do not have one size, or there is no such event.
    pub(super) bytes: u32,
}

impl FixedSizeEvent {
    const NOT: FixedSizeEvent = FixedSizeEvent { class: 0, bytes: u32::MAX };
}

/// Labels of enumerations, by their names.
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
    /// Adds the classes of a provider.
    pub(super) fn add(&mut self, provider: &ProviderInfo) {
        let of_process = self.known.entry((provider.uid, provider.pid, provider.birth_ns)).or_default();
        let first = provider.first_id as usize;
        let end = first + provider.descriptions.events.len();
        if end > abi::RTU_EVENTS_MAX as usize || self.all.len() >= CLASSES_MAX {
            return;
        }
        let length = of_process.all.len().max(end);
        of_process.all.resize(length, None);
        of_process.plain.resize(length, FixedSizeEvent::NOT);
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

    /// Number of processes that have described events.
    pub(super) fn processes(&self) -> usize {
        self.known.len()
    }

    /// Drops the event ids of all processes but those of these rings. Classes retain their numbers.
    pub(super) fn forget_others<'a>(&mut self, rings: impl Iterator<Item = &'a RingInfo>) {
        let processes: HashSet<(u32, u32, u64)> =
            rings.map(|ring| (ring.uid, ring.pid, ring.birth_ns)).collect();
        self.known.retain(|process, _| processes.contains(process));
    }

    /// The event ids of a ring's process; `None`: it has described no events.
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
