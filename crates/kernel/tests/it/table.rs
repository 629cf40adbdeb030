// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tracker's table of tasks: a task that has ended has no way in it, whatever other CPUs did at the same time.

use rtscope_testkit::host_bpf::{Mutation, Output, compile};
use rtscope_testkit::skip;
use std::process::Command;

/// Each leaves something behind that adds up.
const FAULTS: [Mutation; 4] = [
    Mutation {
        name: "a way claimed after the last switch",
        file: "trackers/response/tasks.bpf.h",
        from: "if (made && is_gone(task))",
        to: "if (0)",
    },
    Mutation {
        name: "only the first of two ways is freed",
        file: "core/tasks.bpf.h",
        from: "\t\t\tfree_way(&set->ways[i], tid);",
        to: "\t\t\t{ free_way(&set->ways[i], tid); break; }",
    },
    Mutation {
        name: "what was freed is written to",
        file: "trackers/response/tasks.bpf.h",
        from: "\tif (way->tid == (__u32)task->pid) {\n",
        to: "\t{\n",
    },
    Mutation {
        name: "freed without the lock",
        file: "core/tasks.bpf.h",
        from: "\tbool locked = lock_way(way);",
        to: "\tbool locked = false;",
    },
];

#[test]
fn tasks_that_have_ended_have_no_way_in_the_table_after_a_million_operations() {
    let directory = tempfile::tempdir().unwrap();
    let Some(program) = compile(directory.path(), "table.c", "x86", Output::Program, None) else {
        skip!("there is no gcc here")
    };
    let output = Command::new(program).args(["1000000", "1"]).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{output:?}");
    for fault in &FAULTS {
        let program = compile(directory.path(), "table.c", "x86", Output::Program, Some(fault));
        let output = Command::new(program.unwrap()).args(["1000000", "1"]).output().unwrap();
        assert!(!output.status.success(), "it does not see: {}", fault.name);
    }
}
