// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What OpenCSD's `trc_pkt_lister` said of a capture.

use rtscope_hardware::coresight::snapshot::{Buffer, Format};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// One line: where, of which source, what.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Packets: offset and name, by source.
    pub packets: BTreeMap<u8, Vec<(u64, String)>>,
    /// Bytes that it could not use, by source.
    pub unused: BTreeMap<u8, u64>,
    /// Bytes in packets or not, by source.
    pub bytes: BTreeMap<u8, u64>,
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
        let count = bytes.matches("0x").count() as u64;
        *listing.bytes.entry(id).or_default() += count;
        if UNSYNCHRONISED.contains(&name) {
            *listing.unused.entry(id).or_default() += count;
        } else {
            listing.packets.entry(id).or_default().push((offset, name.to_owned()));
        }
    }
    listing
}

/// The first version of OpenCSD whose listings have all that is compared: ETE, and its newer elements.
const NEWEST_NEEDED: [u32; 2] = [1, 5];

/// What it says of a buffer of a snapshot now; or why it does not.
pub fn asked(snapshot: &Path, buffer: &Buffer) -> Result<String, String> {
    // It leaves a log where it is started.
    let elsewhere = tempfile::tempdir().unwrap();
    let listing = elsewhere.path().join("listing");
    let mut command = Command::new("trc_pkt_lister");
    command.args(["-decode", "-no_time_print", "-src_name", &buffer.name, "-ss_dir"]).arg(snapshot);
    if buffer.format == Format::Dstream {
        command.arg("-dstream_format");
    }
    // It ends with status 0 whatever happens; the listing tells.
    let Ok(output) = command.arg("-logfilename").arg(&listing).current_dir(&elsewhere).output() else {
        return Err("trc_pkt_lister is missing (Debian: libopencsd-bin)".to_owned());
    };
    let listing = std::fs::read_to_string(&listing).unwrap_or_else(|_| panic!("{output:?}"));
    let version =
        listing.lines().find_map(|line| line.strip_prefix("** Library Version :")).unwrap_or("").trim();
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    if numbers.as_slice() < &NEWEST_NEEDED {
        return Err(format!("OpenCSD {version} is too old to compare with"));
    }
    Ok(listing)
}
