// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event classes of a trace of programs. Processes with the same description share one; classes are numbered in the
//! order in which providers are found.

use super::filter::{ClassFilter, UserFilter};
use rtscope_abi::program as abi;
use rtscope_ctf::UserClass;
use rtscope_event::exact;
use rtscope_programs::description::{Descriptions, EventDescription, Field, FieldType, payload_bytes};
use rtscope_programs::{ProviderInfo, RingInfo};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

/// Remarks about a filter.
const REMARKS_MAX: usize = 16;

/// An event of a provider.
#[derive(Clone, Debug)]
pub(super) struct KnownEvent {
    pub(super) class: u32,
    /// Its number in its provider.
    index: u32,
    fields: Vec<Field>,
    /// Which of them are wanted, and the labels of fields that are enumerations, by place.
    filter: ClassFilter,
    labels: Vec<Vec<(i32, String)>>,
    /// The size of all payloads; `None`: the size depends on the content.
    pub(super) fixed_bytes: Option<usize>,
}

impl KnownEvent {
    /// How many bytes of a record's payload belong to the event; `None`: they do not match its fields.
    pub(super) fn payload_bytes(&self, payload: &[u8]) -> Option<usize> {
        match self.fixed_bytes {
            Some(bytes) => (bytes <= payload.len()).then_some(bytes),
            None => payload_bytes(&self.fields, payload),
        }
    }

    /// Whether an event with this payload is wanted, which matches its fields.
    pub(super) fn is_wanted(&self, payload: &[u8]) -> bool {
        self.filter.wants(&self.fields, payload, &self.labels)
    }

    /// Those that are simple; what has to be asked for is not.
    fn plain(&self) -> FixedSizeEvent {
        if !self.filter.is_all() {
            return FixedSizeEvent::NOT;
        }
        let bytes = self.fixed_bytes.and_then(|bytes| u32::try_from(bytes).ok());
        bytes.map_or(FixedSizeEvent::NOT, |bytes| FixedSizeEvent { class: self.class, bytes })
    }
}

/// The events of a provider, in the order of their ids.
#[derive(Debug, Default)]
struct ProviderClasses {
    events: Vec<KnownEvent>,
}

/// Ids of a process that one provider has.
#[derive(Clone, Debug)]
struct IdRange {
    /// The id after the last.
    end: u32,
    /// The id of the provider's event 0.
    first: u32,
    events: Arc<ProviderClasses>,
}

impl IdRange {
    fn event(&self, id: u32) -> Option<&KnownEvent> {
        let index = id - self.first;
        // Usually all events of a provider are recorded.
        let events = &self.events.events;
        let at_its_index = events.get(index as usize).filter(|event| event.index == index);
        at_its_index.or_else(|| events.get(events.binary_search_by_key(&index, |event| event.index).ok()?))
    }
}

/// All events of a process, by id. What it takes depends on what its providers describe, not on the ids that they claim.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessClasses {
    /// By the first id of each. They do not overlap.
    ranges: BTreeMap<u32, IdRange>,
    /// How often events have come that were asked for.
    pub(super) version: u64,
    /// Made when a ring wants it, for all of the process.
    plain: OnceLock<Arc<PlainEvents>>,
}

impl ProcessClasses {
    /// Gives these ids to a provider. Earlier providers, which had some of them, lose those.
    fn add(&mut self, first: u32, declared: u32, events: &Arc<ProviderClasses>) {
        self.plain = OnceLock::new();
        let end = first + declared;
        let overlapping = self.ranges.range(..end).filter(|(_, range)| range.end > first);
        let overlapping: Vec<u32> = overlapping.map(|(begin, _)| *begin).collect();
        for begin in overlapping {
            let Some(range) = self.ranges.remove(&begin) else { continue };
            if begin < first {
                self.ranges.insert(begin, IdRange { end: first, ..range.clone() });
            }
            if range.end > end {
                self.ranges.insert(end, range);
            }
        }
        if declared > 0 {
            self.ranges.insert(first, IdRange { end, first, events: Arc::clone(events) });
        }
    }

    fn range(&self, id: u32) -> Option<(u32, &IdRange)> {
        let (begin, range) = self.ranges.range(..=id).next_back()?;
        (id < range.end).then_some((*begin, range))
    }

    /// The event of an id.
    pub(super) fn event(&self, id: u32) -> Option<&KnownEvent> {
        self.range(id)?.1.event(id)
    }

    /// Whether an id is known to be of an event that is not recorded: nobody asks for it (a recorder that was killed did, and left it in the
    /// ring), or no trace can have it, which is told once for the event.
    pub(super) fn is_left_out(&self, id: u32) -> bool {
        self.range(id).is_some_and(|(_, range)| range.event(id).is_none())
    }

    /// Whether nobody asks for any of its events.
    pub(super) fn is_unasked(&self, unasked: &Classes) -> bool {
        self.ranges.values().all(|range| Arc::ptr_eq(&range.events, &unasked.unasked))
    }

    /// The events whose payloads have one size.
    pub(super) fn plain(&self) -> &Arc<PlainEvents> {
        self.plain.get_or_init(|| Arc::new(self.find_plain()))
    }

    fn find_plain(&self) -> PlainEvents {
        let of_range = |(begin, range): (&u32, &IdRange)| {
            let (begin, end, first) = (*begin, range.end, range.first);
            let events = range.events.events.iter().map(move |event| (first + event.index, event.plain()));
            events.filter(move |(id, _)| (begin..end).contains(id)).collect::<Vec<_>>()
        };
        let all: Vec<(u32, FixedSizeEvent)> = self.ranges.iter().flat_map(of_range).collect();
        let first = all.first().map_or(0, |(id, _)| *id);
        let length = all.last().map_or(0, |(id, _)| (*id - first) as usize + 1);
        let mut events = vec![FixedSizeEvent::NOT; length];
        for (id, event) in all {
            if let Some(place) = events.get_mut((id - first) as usize) {
                *place = event;
            }
        }
        PlainEvents { first, events }
    }
}

/// Events whose payloads have one size, by id.
#[derive(Clone, Debug, Default)]
pub(super) struct PlainEvents {
    first: u32,
    events: Vec<FixedSizeEvent>,
}

impl PlainEvents {
    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<FixedSizeEvent> {
        self.events.get(id.wrapping_sub(self.first) as usize).copied()
    }
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

/// All classes. There are only as many as the collector keeps descriptions of, which it limits for each user.
#[derive(Debug, Default)]
pub(super) struct Classes {
    pub(super) all: Vec<UserClass>,
    numbers: HashMap<UserClass, u32>,
    /// By user, process and its birth.
    known: HashMap<(u32, u32, u64), ProcessClasses>,
    filter: UserFilter,
    /// What is known of providers of whose events nobody asks for any.
    unasked: Arc<ProviderClasses>,
    /// What is to be said of the filter: of each event once.
    remarks: BTreeSet<String>,
    /// The same descriptions, by their place in memory and their origin, are read once. They are held: no others are ever in that place.
    read: HashMap<(usize, String), (Arc<Descriptions>, Arc<ProviderClasses>)>,
}

impl Classes {
    pub(super) fn new(filter: UserFilter) -> Classes {
        Classes { filter, ..Classes::default() }
    }

    /// Whether the events of a ring are wanted.
    pub(super) fn wants(&self, ring: &RingInfo) -> bool {
        self.filter.wants(ring)
    }

    /// Whether this user's programs are asked for.
    pub(super) fn wants_user(&self, uid: u32) -> bool {
        self.filter.wants_user(uid)
    }

    /// What is to be said of the filter.
    pub(super) fn remarks(&self) -> Vec<String> {
        let of_threads = self.filter.threads.iter().filter_map(|choice| choice.remark());
        self.remarks.iter().cloned().chain(of_threads).collect()
    }

    /// Adds the classes of a provider.
    pub(super) fn add(&mut self, provider: &ProviderInfo) {
        let declared = provider.descriptions.declared;
        if u64::from(provider.first_id) + u64::from(declared) > u64::from(abi::RTU_EVENTS_MAX) {
            return;
        }
        let is_asked_for = provider.is_asked_for();
        // Any number of others may come, each with another origin: only their ids are known.
        let events = if is_asked_for { self.read(provider) } else { Arc::clone(&self.unasked) };
        let of_process = self.known.entry((provider.uid, provider.pid, provider.birth_ns)).or_default();
        of_process.add(provider.first_id, declared, &events);
        of_process.version += u64::from(is_asked_for);
    }

    fn read(&mut self, provider: &ProviderInfo) -> Arc<ProviderClasses> {
        let key = (Arc::as_ptr(&provider.descriptions) as usize, provider.origin());
        if let Some((_, events)) = self.read.get(&key) {
            return Arc::clone(events);
        }
        let origin: Arc<str> = key.1.as_str().into();
        let events =
            provider.descriptions.events.iter().filter(|event| event.index < provider.descriptions.declared);
        let events = events.map(|event| {
            let filter = self.filter.of_class(event);
            if self.remarks.len() < REMARKS_MAX {
                self.remarks.extend(self.filter.remark(event));
            }
            let labels = labels_of(provider, event);
            if matches!(filter, ClassFilter::None) {
                // The trace need not know of it.
                let fields = event.fields.clone();
                return KnownEvent {
                    class: u32::MAX,
                    index: event.index,
                    fixed_bytes: None,
                    fields,
                    filter,
                    labels,
                };
            }
            let class = class_of(provider, event, &origin);
            let number = match self.numbers.get(&class) {
                Some(number) => *number,
                None => {
                    let number = exact::count(self.all.len());
                    self.all.push(class.clone());
                    self.numbers.insert(class, number);
                    number
                }
            };
            let fields = event.fields.clone();
            KnownEvent {
                class: number,
                index: event.index,
                fixed_bytes: fixed_bytes(&fields),
                fields,
                filter,
                labels,
            }
        });
        let events = Arc::new(ProviderClasses { events: events.collect() });
        self.read.insert(key, (Arc::clone(&provider.descriptions), Arc::clone(&events)));
        events
    }

    /// Drops the event ids of a process (its user, number and birth). Classes retain their numbers.
    pub(super) fn forget(&mut self, process: (u32, u32, u64)) {
        self.known.remove(&process);
    }

    /// The event ids of a ring's process; `None`: it has described no events.
    pub(super) fn of(&self, ring: &RingInfo) -> Option<&ProcessClasses> {
        self.known.get(&(ring.uid, ring.pid, ring.birth_ns))
    }
}

/// Labels of fields that are enumerations, by place.
fn labels_of(provider: &ProviderInfo, event: &EventDescription) -> Vec<Vec<(i32, String)>> {
    let of_field = |field: &Field| match &field.kind {
        FieldType::Enumeration(name) => {
            provider.descriptions.enumeration(name).map(|known| known.labels.clone())
        }
        _ => None,
    };
    event.fields.iter().map(|field| of_field(field).unwrap_or_default()).collect()
}

fn class_of(provider: &ProviderInfo, event: &EventDescription, origin: &Arc<str>) -> UserClass {
    let mut labels = Labels::new();
    for field in &event.fields {
        if let FieldType::Enumeration(name) = &field.kind {
            let known = provider.descriptions.enumeration(name);
            labels.insert(name.clone(), known.map(|known| known.labels.clone()).unwrap_or_default());
        }
    }
    UserClass { event: EventDescription { index: 0, ..event.clone() }, labels, origin: Arc::clone(origin) }
}

fn fixed_bytes(fields: &[Field]) -> Option<usize> {
    use FieldType::{FloatSequence, Sequence, Text};
    let varies = |field: &Field| matches!(field.kind, Text | Sequence(_) | FloatSequence(_));
    static LARGEST: [u8; abi::RTU_RECORD_BYTES_MAX as usize] = [0; abi::RTU_RECORD_BYTES_MAX as usize];
    if fields.iter().any(varies) { None } else { payload_bytes(fields, &LARGEST) }
}
