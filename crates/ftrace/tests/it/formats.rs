// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every tracepoint of the running kernel is understood.

use rtscope_ftrace::format::{EventFormat, FieldKind, Meaning};
use rtscope_testkit::{skip, tracepoints};
use std::fs;
use std::path::Path;

/// The fields of which only the bytes are known, and those that overlap others or leave gaps.
fn opaque_and_strange(format: &EventFormat) -> (Vec<String>, Vec<String>) {
    let opaque = |kind: &FieldKind| *kind == FieldKind::Opaque;
    let fields: Vec<_> = format.common.iter().chain(&format.fields).collect();
    let unknown = fields.iter().filter(|f| opaque(&f.kind));
    let unknown = unknown.map(|f| format!("{}:{} {}", format.system, format.name, f.declaration)).collect();
    let mut strange = Vec::new();
    let mut end = 0;
    for field in &fields {
        let in_place = match &field.kind {
            FieldKind::Scalar(scalar) => u32::from(scalar.size),
            FieldKind::Array { element, len } => u32::from(element.size) * len,
            FieldKind::Dynamic { .. } => 4,
            FieldKind::Opaque => field.size,
        };
        let argument = format.name.starts_with("sys_enter_") && in_place < field.size;
        if (in_place != field.size && !argument) || field.offset < end || field.offset - end > 7 {
            strange.push(format!("{}:{} {field:?}", format.system, format.name));
        }
        end = field.offset + field.size;
    }
    (unknown, strange)
}

// NEEDS: verifier
#[test]
fn root_every_tracepoint_of_the_running_kernel_is_understood() {
    let texts = tracepoints::of_this_kernel();
    if texts.len() < 100 {
        skip!("tracefs cannot be read");
    }
    let (mut unknown, mut strange, mut named) = (Vec::new(), Vec::new(), 0);
    for (system, text) in &texts {
        let format = EventFormat::parse(system, text).unwrap();
        assert_eq!(format.common.iter().map(|f| f.size).sum::<u32>(), 8, "{format:?}");
        assert_eq!(text.matches("field:").count(), format.common.len() + format.fields.len(), "{text}");
        named += format.fields.iter().filter(|f| format.symbols(&f.name).is_some()).count();
        let (bytes, odd) = opaque_and_strange(&format);
        unknown.extend(bytes);
        // The entries of ftrace itself overlap on purpose, and are not tracepoints.
        strange.extend(odd.into_iter().filter(|_| system != "ftrace"));
    }
    println!("{} tracepoints, {named} fields with names for numbers, opaque: {unknown:#?}", texts.len());
    assert!(strange.is_empty(), "{strange:#?}");
    assert!(unknown.len() * 100 < texts.len(), "{unknown:#?}");
    assert!(named > 100, "{named}");
}

fn sample(system: &str, name: &str) -> EventFormat {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats").join(format!("{name}.txt"));
    EventFormat::parse(system, &fs::read_to_string(path).expect("a committed file")).expect("a description")
}

#[test]
fn samples_have_the_expected_fields() {
    let switch = sample("sched", "sched_switch");
    let names: Vec<_> = switch.fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(
        names,
        ["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid", "next_prio"]
    );
    let raise = sample("irq", "softirq_raise");
    let symbols = raise.symbols("vec").unwrap();
    assert_eq!(symbols.names[1], (1, "TIMER".to_string()));
    let mask = sample("ipi", "ipi_send_cpumask");
    assert!(mask.fields.iter().any(
        |f| matches!(f.kind, FieldKind::Dynamic { element, .. } if element.meaning == Meaning::CpuMask)
    ));
    let issue = sample("block", "block_rq_issue");
    assert!(
        issue
            .fields
            .iter()
            .any(|f| f.name == "rwbs" && matches!(f.kind, FieldKind::Array { len: 8..=10, .. }))
    );
    let enter = sample("raw_syscalls", "sys_enter");
    assert!(matches!(enter.fields[1].kind, FieldKind::Array { len: 6, .. }), "{enter:?}");
}
