// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What OpenCSD's `trc_pkt_lister` said of a capture.

use std::collections::BTreeMap;

/// One line: where, of which source, what.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Packets: offset and name, by source.
    pub packets: BTreeMap<u8, Vec<(u64, String)>>,
    /// Bytes that it could not use, by source.
    pub unused: BTreeMap<u8, u64>,
    /// Elements, as text without what both decoders say in words of their own.
    pub elements: BTreeMap<u8, Vec<String>>,
}

/// Names under which bytes are listed that are in no packet.
const UNSYNCHRONISED: [&str; 2] = ["I_NOT_SYNC", "NOTSYNC"];

pub fn listing(text: &str) -> Listing {
    let mut listing = Listing::default();
    for line in text.lines() {
        let Some((offset, rest)) = line.strip_prefix("Idx:").and_then(|line| line.split_once("; ID:")) else {
            continue;
        };
        let offset: u64 = offset.parse().unwrap();
        let (id, rest) = rest.split_once(';').unwrap();
        let id = u8::from_str_radix(id, 16).unwrap();
        if let Some((_, element)) = rest.split_once("OCSD_GEN_TRC_ELEM_") {
            listing.elements.entry(id).or_default().extend(super::names::oracle_element(element));
            continue;
        }
        let (bytes, packet) = rest.split_once('\t').unwrap();
        let name = packet.split(" : ").next().unwrap().trim();
        if UNSYNCHRONISED.contains(&name) {
            *listing.unused.entry(id).or_default() += bytes.matches("0x").count() as u64;
        } else {
            listing.packets.entry(id).or_default().push((offset, name.to_owned()));
        }
    }
    listing
}
