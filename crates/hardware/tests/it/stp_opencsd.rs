// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What our encoder of STP writes, read by OpenCSD's packet lister where it is installed (Debian: libopencsd-bin).

use std::path::Path;
use std::process::Command;

use rtscope_hardware::stp::Encoding;
use rtscope_testkit::random::Random;

use super::stp::stream_of;
use super::stp_captures::agrees_below;

/// A snapshot of one source whose bytes are not in frames.
fn write_snapshot(directory: &Path, stream: &[u8]) {
    let write = |name: &str, content: &str| std::fs::write(directory.join(name), content).unwrap();
    write(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n\n[device_list]\ndevice0=device_0.ini\n\n[trace]\nmetadata=trace.ini\n",
    );
    write(
        "device_0.ini",
        "[device]\nname=STM_0\nclass=trace_source\ntype=STM\n\n[regs]\nSTMTCSR(0x3A0)=0x00200007\n",
    );
    write(
        "trace.ini",
        "[trace_buffers]\nbuffers=buffer0\n\n[buffer0]\nname=ETB_0\nfile=stp.bin\nformat=source_data\n\n\
         [source_buffers]\nSTM_0=ETB_0\n\n[core_trace_sources]\n",
    );
    std::fs::write(directory.join("stp.bin"), stream).unwrap();
}

#[test]
fn opencsd_reads_our_packets_as_we_do() {
    // It leaves a log where it is started.
    let elsewhere = tempfile::tempdir().unwrap();
    if Command::new("trc_pkt_lister").arg("-help").current_dir(&elsewhere).output().is_err() {
        return rtscope_testkit::skip::say("trc_pkt_lister is missing (Debian: libopencsd-bin)");
    }
    for encoding in [Encoding::Binary, Encoding::Gray] {
        let (stream, meant) = stream_of(&mut Random(21), encoding, 2000, true);
        let directory = tempfile::tempdir().unwrap();
        write_snapshot(directory.path(), &stream);
        let listing = directory.path().join("listing");
        let mut command = Command::new("trc_pkt_lister");
        command.args(["-decode", "-no_time_print", "-ss_dir"]).arg(directory.path());
        // It ends with status 0 whatever happens; the listing tells.
        let output = command.arg("-logfilename").arg(&listing).current_dir(&directory).output().unwrap();
        let listing = std::fs::read_to_string(&listing).unwrap_or_else(|_| panic!("{output:?}"));
        assert!(listing.lines().filter(|line| line.contains("];\t")).count() >= meant.len(), "{listing}");
        // OpenCSD 1.5.5 shifts 32 bits when it takes a gray code apart: 2^31 becomes 18446744071562067968, and 2^40 becomes 256.
        let last_ticks = if encoding == Encoding::Binary { u64::MAX } else { (1 << 31) - 1 };
        agrees_below(&format!("(our encoder, {encoding:?})"), &stream, &listing, last_ticks);
    }
}
