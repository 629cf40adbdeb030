// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inputs to begin with: what honest writers write.

use crate::PROCESS;
use crate::programs::RING_HEADER;
use rtscope_abi::program as abi;
use rtscope_ctf::write_trace;
use rtscope_event::{
    Chain, Comm, CpuHistory, CpuId, End, LateResponse, Loss, LossCause, MonotonicNs, Origin, OriginKind,
    OtherOrigin, Pid, Priority, Step, StepKind, Tid, WaitKind,
};
use rtscope_programs::patterns::RequestedEvents;
use rtscope_programs::records::Layout;
use rtscope_programs::{ProviderInfo, RingInfo, bytes};
use rtscope_store::trigger::{SCHEMA, TriggerFile};
use rtscope_testkit::descriptions;
use rtscope_testkit::program_files::{self, record_word};
use rtscope_testkit::random::Random;
use rtscope_testkit::recordings::{START, info};
use std::fs;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Inputs for the target of this name.
#[must_use]
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "metadata" => metadata().to_vec(),
        "packets" => streams(),
        "format" => files(&crates().join("ftrace/tests/formats")),
        "page" => vec![page()],
        "provider" => (0..12).map(provider).collect(),
        "ring" => (0..3).map(ring).collect(),
        "session" => vec![
            session(&["+motor:*", "-*:end"]),
            session(&["+*"]),
            session(&[DEVICE, ">/*"]),
            session(&[OUTSIDE]),
            session(&["@/ptwrite", ">/*"]),
        ],
        "trigger" => vec![trigger()],
        "snapshot" => vec![[&[2_u8, program_files::KEY.to_le_bytes()[0], 200][..], &records()[..]].concat()],
        "channels" => crate::channels::seeds(),
        "ptwrite" => crate::ptwrite::seeds(),
        "coresight" => crate::arm::frame_seeds(),
        "etm4" => crate::arm::etm4_seeds(),
        "ptm" => crate::arm::ptm_seeds(),
        "etm3" => crate::arm::etm3_seeds(),
        "perf" => crate::perf::seeds(),
        "journal" => vec![JOURNAL.as_bytes().to_vec()],
        "stack" => crate::stack::seeds(),
        "pt" | "pt-flow" => crate::pt::seeds(target),
        other => crate::hardware::seeds(other),
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Of a trace of ours, and of one of LTTng's.
pub(crate) fn metadata() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let lttng = fs::read(crates().join("ctf/tests/corpus/lttng-ust/metadata")).unwrap();
        vec![ours("metadata"), lttng]
    })
}

fn ours(file: &str) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("trace");
    write_trace(&dir, &Random(5).recording(40), &info()).unwrap();
    fs::read(dir.join(file)).unwrap()
}

fn streams() -> Vec<Vec<u8>> {
    let lttng = files(&crates().join("ctf/tests/corpus/lttng-ust"));
    let lttng = lttng.iter().filter(|bytes| bytes.starts_with(&0xc1fc_1fc1_u32.to_le_bytes()));
    let lttng = lttng.map(|bytes| [&[1_u8][..], &bytes[..]].concat());
    lttng.chain([[&[0_u8][..], &ours("kernel_0")[..]].concat()]).collect()
}

/// A sub-buffer with an event, a long time and an absolute one.
fn page() -> Vec<u8> {
    let words: [u32; 12] =
        [3 | 100 << 5, 0x0101_0007, 42, 1, 30 | 5 << 5, 9, 31 | 7 << 5, 3, 2 | 8 << 5, 7, 1, 29];
    let mut bytes = 77_u64.to_le_bytes().to_vec();
    bytes.extend((words.len() as u64 * 4).to_le_bytes());
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.resize(4096, 0);
    bytes
}

fn provider(seed: u64) -> Vec<u8> {
    program_files::provider_of_text(
        PROCESS.pid,
        PROCESS.birth_ns,
        0,
        &descriptions::provider(&mut Random(seed)),
    )
}

fn records() -> Vec<u8> {
    let words =
        [record_word(abi::RTU_ID_SYNC, 4, 9), 9, 0, 0, record_word(0, 3, 10), 1, 2, record_word(1, 2, 12), 5];
    words.iter().flat_map(|word: &u64| word.to_le_bytes()).collect()
}

/// A ring of the process, empty.
pub(crate) fn ring_info() -> RingInfo {
    RingInfo {
        pid: PROCESS.pid,
        host_pid: None,
        birth_ns: PROCESS.birth_ns,
        clock: abi::RTU_CLOCK_MONOTONIC,
        layout: Layout { ring_bytes: 65536, sub_bytes: 16384, key: program_files::KEY },
        uid: 0,
        tid: 1,
        number: 0,
        comm: "seed".to_string(),
        sync: None,
        lost_before: 0,
        clock_offset_ns: 0,
        left_until: 0,
        drops_earlier: false,
        choice: rtscope_programs::ThreadChoice::default(),
    }
}

/// What the process describes.
pub(crate) fn provider_info() -> ProviderInfo {
    static ONE: OnceLock<ProviderInfo> = OnceLock::new();
    let all = RequestedEvents::default();
    let made = || (0..).find_map(|seed| bytes::provider(&provider(seed), PROCESS, &all).ok());
    ONE.get_or_init(|| made().unwrap()).clone()
}

const JOURNAL: &str = r#"{"schema":"rtscope.shield/1","boot_id":"b","state":"active","rt":"1","others":"0","level":"basic",
"apart":{"kind":"partition","mount":"/sys/fs/cgroup"},"kept_irqs":[3],"began":5,"keeper":null,"steps":[]}"#;

/// One that was filled to its end, one at its beginning, one in a later lap.
fn ring(number: u64) -> Vec<u8> {
    let mut bytes = program_files::ring(PROCESS.pid, 1, PROCESS.birth_ns, abi::RTU_CLOCK_MONOTONIC)
        [..RING_HEADER]
        .to_vec();
    let records = records();
    let tail =
        [0, program_files::RING_BYTES as u64 - 64, 127 * program_files::RING_BYTES as u64][number as usize];
    program_files::put64(&mut bytes, offset_of!(abi::rtu_ring, tail), tail);
    program_files::put64(&mut bytes, offset_of!(abi::rtu_ring, head), tail + records.len() as u64);
    bytes.push(16);
    [bytes, records].concat()
}

/// As `ChannelDevice` writes it.
const DEVICE: &str = "@/256 0 24 104 4096 /dev/stm0 user";
/// The last port is behind the channel.
const OUTSIDE: &str = "@/256 0 24 256 4096 /dev/stm0 user";

fn session(patterns: &[&str]) -> Vec<u8> {
    let patterns: String = patterns.iter().flat_map(|pattern| [*pattern, "\0"]).collect();
    let mut bytes = abi::RTU_SESSION_MAGIC.to_le_bytes().to_vec();
    for word in [abi::RTU_SESSION_VERSION, patterns.len() as u32, 9, 0, 1, 0, 65536, 6] {
        bytes.extend(word.to_le_bytes());
    }
    [bytes, patterns.into_bytes()].concat()
}

fn trigger() -> Vec<u8> {
    let step = |kind, duration_ns| Step { kind, id: 17, cpu: CpuId(1), duration_ns, wait: WaitKind::None };
    let steps = vec![step(StepKind::Handler, 5), step(StepKind::Wakeup, 400), step(StepKind::Run, 95)];
    let origin = Origin { kind: OriginKind::Irq, id: 17, cpu: CpuId(0), time_ns: MonotonicNs(START) };
    let others = vec![OtherOrigin { kind: OriginKind::Timer, id: 0, time_ns: MonotonicNs(START + 1) }];
    let late = LateResponse {
        tracker: rtscope_event::Tracker::Response,
        instance: 0,
        sequence: 1,
        cpu: CpuId(1),
        end_ns: MonotonicNs(START + 500),
        end: End::Blocked,
        threshold_ns: 100,
        tid: Tid(7),
        pid: Pid(7),
        prio: Priority(9),
        comm: Comm::from_bytes(b"loop"),
        snapshot: Some(1),
        chain: Chain { origin, steps, merged: 1, others, busy: false },
        events: None,
        call: None,
        lock: None,
        block: None,
        section: None,
        stacks: None,
    };
    let (from_ns, until_ns) = (MonotonicNs(START), MonotonicNs(START + 1000));
    let trigger = TriggerFile {
        schema: SCHEMA.to_string(),
        producer: "rtscope".to_string(),
        number: 1,
        detected_ns: until_ns,
        detected_at: "2026-11-20T23:41:07Z".to_string(),
        pre_ns: 500,
        post_ns: 1,
        from_ns,
        until_ns,
        ftrace_from_ns: Some(from_ns),
        pre_met: false,
        history: vec![CpuHistory { cpu: CpuId(1), complete_since: Some(from_ns), events: 3 }],
        losses: vec![Loss { cpu: None, cause: LossCause::Unfinished, count: Some(2) }],
        copied_ns: 7,
        watched: "task 7".to_string(),
        late: vec![late],
    };
    serde_json::to_vec(&trigger).unwrap()
}
