// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each capture of an Arm trace unit against OpenCSD: the same packets at the same places, each byte accounted for. A line
//! `CAPTURE:` for each is the table.

use super::decode;
use super::oracle;
use crate::captures::{capture, expected};

/// Directory of the capture, name of the oracle's listing.
const SNAPSHOTS: &[(&str, &str)] = &[
    ("opencsd/juno_r1_1", "juno_r1_1"),
    ("opencsd/juno-uname-001", "juno-uname-001"),
    ("opencsd/a57_single_step", "a57_single_step"),
    ("opencsd/init-short-addr", "init-short-addr"),
    ("opencsd/a55-test-tpiu", "a55-test-tpiu"),
    ("opencsd-ete/event_test", "ete.event_test"),
    ("opencsd-ete/ete-ite-instr", "ete.ete-ite-instr"),
    ("opencsd-ete/ts_marker", "ete.ts_marker"),
    ("opencsd-ete/infrastructure", "ete.infrastructure"),
    ("opencsd-ete/ete_spec_1", "ete.ete_spec_1"),
    ("opencsd-ete/src_addr", "ete.src_addr"),
    ("opencsd-ete/ete-bc-instr", "ete.ete-bc-instr"),
    ("opencsd-ete/tme_simple", "ete.tme_simple"),
    ("opencsd-ete/trace_file_cid_vmid", "ete.trace_file_cid_vmid"),
    ("opencsd-ete/ete_ip", "ete.ete_ip"),
    ("ricsec/branches-trace1", "ricsec-branches1"),
];

#[test]
fn captures_have_the_packets_of_the_oracle() {
    let folder = capture!("");
    let mut different = Vec::new();
    for (directory, name) in SNAPSHOTS {
        let listing = oracle::listing(&expected(&format!("opencsd-1.5.5/{name}.ppl.xz")));
        let found = decode::snapshot(&folder.join(directory), 0);
        let (mut packets, mut equal) = (0, true);
        for (id, expected) in &listing.packets {
            let ours = found.get(id).unwrap_or_else(|| panic!("{name}: no source {id:#x}"));
            packets += expected.len();
            if let Some(place) = first_difference(&ours.packets, expected) {
                equal = false;
                println!(
                    "{name} {id:#x}: packet {place}: {:?}, {:?}",
                    ours.packets.get(place),
                    expected.get(place)
                );
            }
            let unused = listing.unused.get(id).copied().unwrap_or(0);
            if ours.unused != unused {
                equal = false;
                println!("{name} {id:#x}: {} bytes without synchronisation, not {unused}", ours.unused);
            }
        }
        println!("CAPTURE: {{\"capture\":\"{name}\",\"packets\":{packets},\"equal\":{equal}}}");
        if !equal {
            different.push(*name);
        }
    }
    assert!(different.is_empty(), "{different:?}");
}

fn first_difference<T: PartialEq>(ours: &[T], others: &[T]) -> Option<usize> {
    if ours == others {
        return None;
    }
    let equal = ours.iter().zip(others).take_while(|(one, other)| one == other).count();
    Some(equal)
}
