// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an event comes from: the tracepoint that an eBPF program is attached to, and what is lost without it.

use crate::VectorKind;

/// One eBPF program of a built-in event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Its function in the eBPF object.
    pub name: &'static str,
    /// Its tracepoint; BTF has a type `btf_trace_` + this when the kernel has it.
    pub tracepoint: &'static str,
    /// The subsystem that tracefs shows the tracepoint in.
    pub system: &'static str,
    /// The tracepoint fires with interrupts off, so nothing but an NMI can come between and be missed. `rtscope record`
    /// takes only these by eBPF, all others by ftrace; the flight recorder takes all by eBPF and counts the misses.
    pub interrupts_off: bool,
    /// rtscope cannot work without it.
    pub required: bool,
    /// The tracker needs it (else only the recorder does).
    pub tracks: bool,
    /// What is lost without it.
    pub lost: &'static str,
}

/// What an event comes from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A tracepoint, with the event's name in traces.
    Tracepoint(ProgramSpec, &'static str),
    /// The entries (0) or exits (1) of all vectors, which have a tracepoint and a class each.
    Vectors(usize),
    /// rtscope's own, of this name.
    Own(&'static str),
}

/// A tracepoint. It fires with interrupts off, both recorder and tracker use it, and rtscope works without it, unless said otherwise.
pub(super) const fn tracepoint(system: &'static str, name: &'static str, lost: &'static str) -> Origin {
    let (interrupts_off, required, tracks) = (true, false, true);
    let spec = ProgramSpec { name, tracepoint: name, system, interrupts_off, required, tracks, lost };
    Origin::Tracepoint(spec, name)
}

impl Origin {
    /// LTTng's name, where it is another.
    pub(super) const fn in_traces(self, trace_name: &'static str) -> Origin {
        match self {
            Origin::Tracepoint(spec, _) => Origin::Tracepoint(spec, trace_name),
            other => other,
        }
    }

    pub(super) const fn required(self) -> Origin {
        match self {
            Origin::Tracepoint(spec, name) => {
                Origin::Tracepoint(ProgramSpec { required: true, ..spec }, name)
            }
            other => other,
        }
    }

    pub(super) const fn only_recorded(self) -> Origin {
        match self {
            Origin::Tracepoint(spec, name) => Origin::Tracepoint(ProgramSpec { tracks: false, ..spec }, name),
            other => other,
        }
    }

    pub(super) const fn interrupts_on(self) -> Origin {
        match self {
            Origin::Tracepoint(spec, name) => {
                Origin::Tracepoint(ProgramSpec { interrupts_off: false, ..spec }, name)
            }
            other => other,
        }
    }

    /// What is lost when a record is: which vector it was is not known.
    pub(super) const fn lost_name(self) -> &'static str {
        match self {
            Origin::Vectors(0) => "irq_vectors entry",
            Origin::Vectors(_) => "irq_vectors exit",
            other => other.name(),
        }
    }

    /// The event's name in text.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Origin::Tracepoint(spec, _) => spec.tracepoint,
            Origin::Vectors(0) => "vector_entry",
            Origin::Vectors(_) => "vector_exit",
            Origin::Own(name) => name,
        }
    }

    fn programs(self) -> Vec<ProgramSpec> {
        match self {
            Origin::Tracepoint(spec, _) => vec![spec],
            Origin::Vectors(way) => {
                VectorKind::ALL.into_iter().map(|vector| vector_program(vector, way)).collect()
            }
            Origin::Own(_) => Vec::new(),
        }
    }
}

/// The subsystem of their tracepoints.
const VECTORS: &str = "irq_vectors";

fn vector_program(vector: VectorKind, way: usize) -> ProgramSpec {
    let (names, lost) = vector.tracepoints();
    let name = names[way];
    ProgramSpec {
        name,
        tracepoint: name,
        system: VECTORS,
        interrupts_off: true,
        required: false,
        tracks: true,
        lost,
    }
}

/// The name in traces of the built-in event that comes from a tracepoint.
#[must_use]
pub fn trace_name(system: &str, tracepoint: &str) -> Option<&'static str> {
    super::ENTRIES.iter().find_map(|entry| match entry.origin {
        Origin::Tracepoint(spec, name) => {
            (spec.system == system && spec.tracepoint == tracepoint).then_some(name)
        }
        Origin::Vectors(way) => {
            let is_it = |vector: &VectorKind| vector_program(*vector, way).tracepoint == tracepoint;
            let vector = VectorKind::ALL.into_iter().filter(|_| system == VECTORS).find(is_it)?;
            Some(vector.in_traces()[way])
        }
        Origin::Own(_) => None,
    })
}

/// The eBPF programs of all built-in events.
pub fn programs() -> impl Iterator<Item = ProgramSpec> {
    super::ENTRIES.iter().flat_map(|entry| entry.origin.programs())
}
