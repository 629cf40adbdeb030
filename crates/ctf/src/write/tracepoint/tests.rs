// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats to classes.

use super::*;

const COMMON: &str = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
";

fn format(system: &str, name: &str, fields: &[(&str, u32, u32, u32)]) -> EventFormat {
    let mut text = format!("name: {name}\nID: 7\nformat:\n{COMMON}\n");
    for (declaration, offset, size, signed) in fields {
        text.push_str(&format!("\tfield:{declaration};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n"));
    }
    EventFormat::parse(system, &text).unwrap()
}

fn described(format: &EventFormat, paths: u8) -> String {
    let mut class = Tracepoint::new(format, paths);
    class.name = name_all(&[format], &HashSet::new()).remove(0);
    let mut text = String::new();
    class.describe(9, &mut text);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_switch_looks_like_one_that_we_recorded_ourselves() {
    let switch = format(
        "sched",
        "sched_switch",
        &[
            ("char prev_comm[16]", 8, 16, 0),
            ("pid_t prev_pid", 24, 4, 1),
            ("int prev_prio", 28, 4, 1),
            ("long prev_state", 32, 8, 1),
            ("char next_comm[16]", 40, 16, 0),
            ("pid_t next_pid", 56, 4, 1),
            ("int next_prio", 60, 4, 1),
        ],
    );
    let expected = "event { name = \"sched_switch\"; id = 9; stream_id = 0; \
        context := struct { hex8_t _irq_flags; uint8_t _preempt_count; int32_t _tid; }; \
        fields := struct { string _prev_comm; int32_t _prev_tid; int32_t _prev_prio; int64_t _prev_state; \
        string _next_comm; int32_t _next_tid; int32_t _next_prio; uint32_t _prev_state_raw; uint8_t _preempt; }; };";
    assert_eq!(described(&switch, 0), expected);
    let mut record = vec![7, 0, 1, 2, 41, 0, 0, 0];
    record.extend(b"motor\0old bytes\0");
    record.extend([41_u32.to_le_bytes(), 19_u32.to_le_bytes()].concat());
    record.extend(0x100_u64.to_le_bytes());
    record.extend(b"swapper/3\0\0\0\0\0\0\0");
    record.extend([0_u32.to_le_bytes(), 120_u32.to_le_bytes()].concat());
    let mut out = Vec::new();
    Tracepoint::new(&switch, 0).encode(&record, &[], &mut out).unwrap();
    let mut wanted = vec![1, 2, 41, 0, 0, 0];
    wanted.extend(b"motor\0");
    wanted.extend([41_i32.to_le_bytes(), (-81_i32).to_le_bytes()].concat());
    wanted.extend(0_u64.to_le_bytes());
    wanted.extend(b"swapper/3\0");
    wanted.extend([0_i32.to_le_bytes(), 20_i32.to_le_bytes(), 0_i32.to_le_bytes()].concat());
    wanted.push(1);
    assert_eq!(out, wanted);
}

#[test]
fn every_kind_of_field_has_its_type() {
    let all = format(
        "net",
        "all",
        &[
            ("void * pointer", 8, 8, 0),
            ("bool flag", 16, 1, 0),
            ("s16 small", 18, 2, 1),
            ("u8 mac[6]", 20, 6, 0),
            ("__data_loc char[] name", 28, 4, 0),
            ("__data_loc u32[] words", 32, 4, 0),
            ("__rel_loc char[] near", 36, 4, 0),
            ("__data_loc cpumask_t cpumask", 40, 4, 0),
            ("struct whatever w", 44, 5, 0),
            ("char tail[]", 52, 0, 0),
        ],
    );
    let text = described(&all, 0);
    let fields = text.split("fields := ").nth(1).unwrap();
    let expected = "struct { hex64_t _pointer; uint8_t _flag; int16_t _small; uint8_t _mac[6]; string _name; \
        uint32_t __words_length; uint32_t _words[ __words_length ]; string _near; \
        uint32_t __cpumask_length; hex64_t _cpumask[ __cpumask_length ]; hex8_t _w[5]; string _tail; }; };";
    assert_eq!(fields, expected);
}

#[test]
fn system_calls_have_their_arguments_and_the_paths_that_are_known() {
    let fields = [
        ("int __syscall_nr", 8, 4, 1),
        ("int dfd", 16, 8, 0),
        ("const char * filename", 24, 8, 0),
        ("umode_t mode", 40, 8, 0),
    ];
    let open = format("syscalls", "sys_enter_openat", &fields);
    let with = described(&open, 1 << 1);
    assert!(with.contains("name = \"syscall_entry_openat\""), "{with}");
    assert!(with.contains("fields := struct { int32_t _dfd; string _filename; uint16_t _mode; }"), "{with}");
    assert_eq!(Tracepoint::new(&open, 1 << 1).texts, [GivenText { argument: 1, offset: 24 }]);
    let without = described(&open, 0);
    assert!(without.contains("hex64_t _filename;"), "{without}");
    let exit =
        format("syscalls", "sys_exit_openat", &[("int __syscall_nr", 8, 4, 1), ("long ret", 16, 8, 1)]);
    let exit = described(&exit, 0xff);
    assert!(exit.contains("syscall_exit_openat") && exit.contains("struct { int64_t _ret; }"), "{exit}");
}

#[test]
fn a_kernel_that_reads_texts_itself_is_believed() {
    let open = format(
        "syscalls",
        "sys_enter_chdir",
        &[
            ("int __syscall_nr", 8, 4, 1),
            ("const char * filename", 16, 8, 0),
            ("__data_loc char[] __filename_val", 24, 4, 0),
        ],
    );
    assert!(described(&open, 1).contains("struct { string _filename; }"), "{}", described(&open, 1));
    let mut record = vec![0; 28];
    record[24..28].copy_from_slice(&(5_u32 << 16 | 28).to_le_bytes());
    record.extend(b"/tmp\0");
    let mut out = Vec::new();
    Tracepoint::new(&open, 1).encode(&record, &[Some(b"other")], &mut out).unwrap();
    assert_eq!(&out[6..], b"/tmp\0");
}

#[test]
fn names_are_lttngs_or_the_kernels_and_never_twice() {
    let names = |events: &[(&str, &str)]| {
        let formats: Vec<EventFormat> =
            events.iter().map(|(system, name)| format(system, name, &[])).collect();
        name_all(&formats.iter().collect::<Vec<_>>(), &HashSet::from(["sched_switch", "irq_handler_entry"]))
    };
    let lttng = names(&[
        ("irq", "softirq_entry"),
        ("irq", "irq_handler_entry"),
        ("timer", "hrtimer_start"),
        ("timer", "timer_start"),
        ("irq_vectors", "local_timer_entry"),
        ("power", "cpu_idle"),
        ("raw_syscalls", "sys_enter"),
        ("block", "block_rq_issue"),
    ]);
    let expected = [
        "irq_softirq_entry",
        "irq_handler_entry",
        "timer_hrtimer_start",
        "timer_start",
        "x86_irq_vectors_local_timer_entry",
        "power_cpu_idle",
        "sys_enter",
        "block_rq_issue",
    ];
    assert_eq!(lttng, expected);
    assert_eq!(names(&[("ext4", "read"), ("xfs", "read")]), ["ext4_read", "xfs_read"]);
    assert_eq!(
        names(&[("mine", "sched_switch"), ("sched", "sched_switch")]),
        ["mine_sched_switch", "sched_switch"]
    );
    assert_eq!(
        names(&[("a", "b_c"), ("a_b", "c"), ("x", "c"), ("x", "b_c")]),
        ["a_b_c", "a_b_c_2", "x_c", "x_b_c"]
    );
}

#[test]
fn fields_have_different_names_whatever_the_kernel_calls_them() {
    let odd = format(
        "odd",
        "odd",
        &[
            ("int a", 8, 4, 1),
            ("int a", 12, 4, 1),
            ("int _a_length", 16, 4, 1),
            ("__data_loc u8[] a", 20, 4, 0),
            ("int event", 24, 4, 1),
        ],
    );
    let text = described(&odd, 0);
    let mut names: Vec<&str> = text.split("fields := ").nth(1).unwrap().split(';').collect();
    names.retain(|part| part.contains('_'));
    let names: Vec<&str> =
        names.iter().filter_map(|part| part.split_whitespace().find(|word| word.starts_with('_'))).collect();
    let unique: HashSet<&&str> = names.iter().collect();
    assert_eq!((names.len(), unique.len()), (6, 6), "{text}");
}

#[test]
fn no_record_makes_it_panic() {
    let formats = [
        format("sched", "sched_switch", &[("long prev_state", 32, 8, 1), ("int prev_prio", 65_000, 4, 1)]),
        format(
            "a",
            "b",
            &[("__data_loc char[] n", 8, 4, 0), ("__rel_loc u64[] m", 12, 4, 0), ("u32 r[]", 16, 0, 0)],
        ),
    ];
    let mut seed = 1_u64;
    for _ in 0..20_000 {
        let mut record = Vec::new();
        let length = {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed >> 58
        };
        for _ in 0..length {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            record.push(seed.to_le_bytes()[5]);
        }
        for format in &formats {
            let mut out = Vec::new();
            let _ = Tracepoint::new(format, 0).encode(&record, &[], &mut out);
            assert!(out.len() <= 3 * record.len() + 64, "{} {}", out.len(), record.len());
        }
    }
}

#[test]
fn a_tracepoint_of_a_built_in_event_has_its_name() {
    let of = |system: &str, name: &str| {
        let formats = [format(system, name, &[])];
        let own = rtscope_event::classes().iter().map(|class| class.name).collect();
        name_all(&formats.iter().collect::<Vec<_>>(), &own).remove(0)
    };
    assert_eq!(of("workqueue", "workqueue_execute_start"), "workqueue_execute_start");
    assert_eq!(of("power", "cpu_idle"), "power_cpu_idle");
    assert_eq!(of("irq_vectors", "local_timer_exit"), "x86_irq_vectors_local_timer_exit");
    assert_eq!(of("irq_vectors", "vector_alloc"), "x86_irq_vectors_vector_alloc");
    // Not the same tracepoint.
    assert_eq!(of("other", "workqueue_execute_start"), "other_workqueue_execute_start");
    assert_eq!(of("other", "elsewhere"), "elsewhere");
}

#[test]
fn what_a_block_request_does_is_a_mask_as_in_lttng_and_a_text() {
    let request = format("block", "block_rq_issue", &[("dev_t dev", 8, 4, 0), ("char rwbs[10]", 12, 10, 0)]);
    let fields = "fields := struct { uint32_t _dev; uint32_t _rwbs; string _rwbs_text; }; };";
    assert!(described(&request, 0).ends_with(fields), "{}", described(&request, 0));
    // As blk_fill_rwbs writes them.
    for (text, mask) in [
        ("R", 4),
        ("RA", 4 | 8),
        ("RSM", 4 | 32 | 64),
        ("W", 1),
        ("WFS", 1 | 512 | 32),
        ("FWFSM", 1024 | 1 | 512 | 32 | 64),
        ("D", 2),
        ("DE", 2 | 128),
        ("F", 256),
        ("FS", 256 | 32),
        ("FF", 1024 | 256),
        ("FFS", 1024 | 256 | 32),
        ("FN", 1024),
        ("N", 0),
        ("ZAS", 32),
        ("ZRA", 0),
        ("WU", 1),
        ("", 0),
    ] {
        let mut record = vec![7, 0, 1, 2, 41, 0, 0, 0, 3, 0, 0, 0];
        record.extend(text.bytes());
        record.extend(std::iter::repeat_n(0, 10 - text.len()));
        let mut out = Vec::new();
        Tracepoint::new(&request, 0).encode(&record, &[], &mut out).unwrap();
        let expected = [&[3, 0, 0, 0][..], &u32::to_le_bytes(mask), text.as_bytes(), &[0]].concat();
        assert_eq!(out[6..], expected, "{text}");
    }
}

#[test]
fn a_fork_has_the_processes_that_the_caller_knows() {
    let fork = format(
        "sched",
        "sched_process_fork",
        &[("pid_t parent_pid", 8, 4, 1), ("pid_t child_pid", 12, 4, 1)],
    );
    let fields = "fields := struct { int32_t _parent_tid; int32_t _child_tid; int32_t _parent_pid; int32_t _child_pid; }; };";
    assert!(described(&fork, 0).ends_with(fields), "{}", described(&fork, 0));
    let record = [[7, 0, 1, 2], [41, 0, 0, 0], [41, 0, 0, 0], [43, 0, 0, 0]].concat();
    let encoded = |given: &[Option<&[u8]>]| {
        let mut out = Vec::new();
        Tracepoint::new(&fork, 0).encode(&record, given, &mut out).unwrap();
        out.split_off(6)
    };
    let parent_and_child = [41, 0, 0, 0, 43, 0, 0, 0];
    let known = encoded(&[Some(&[40, 0, 0, 0]), Some(&[43, 0, 0, 0])]);
    assert_eq!(known, [&parent_and_child[..], &[40, 0, 0, 0, 43, 0, 0, 0]].concat());
    assert_eq!(encoded(&[]), [&parent_and_child[..], &[0xff; 8]].concat());
}
