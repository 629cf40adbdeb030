// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests that say nothing in an emulated machine, each with its reason.
//!
//! An emulated CPU is 10 to 50 times slower than a real one, all CPUs take turns, and the host takes them away at will. A
//! promise about time cannot be checked there; one about what happens, in which order and how often, can.

const SHARES: &str =
    "a program's stamps and the kernel's events are too far apart on an emulated CPU to compare shares";
const COUNTS: &str = "an emulated CPU is late by itself, so a program and rtscope count other turns as late";
const RATES: &str = "an emulated CPU does not come to as many events as the test needs";
const SLOW_READER: &str = "an emulated CPU reads a bank more slowly than its circle is written";
const SPEED: &str = "an emulated CPU takes seconds for what a real one does in a tenth of one";

/// Name, without the module that it is in, and reason.
pub const TIMING: &[(&str, &str)] = &[
    ("root_the_hog_is_the_culprit_with_its_share", SHARES),
    ("root_a_bigger_hog_on_the_other_cpu_is_not_blamed", SHARES),
    ("root_a_hog_that_starts_right_after_the_response_is_not_blamed", SHARES),
    ("root_a_spinner_of_equal_priority_is_the_culprit", SHARES),
    ("root_a_flood_of_datagrams_is_named_as_the_network_softirq", SHARES),
    ("root_where_nothing_disturbs_nothing_is_late_and_nobody_blamed", COUNTS),
    ("root_the_late_count_of_a_command_is_the_commands_own", COUNTS),
    ("root_no_event_is_missed_while_the_banks_flip", RATES),
    ("root_no_event_is_missed_while_the_instances_swap", SLOW_READER),
    ("root_a_long_watch_keeps_its_memory_and_its_counts", COUNTS),
    ("root_two_watches_at_once_count_the_same", COUNTS),
    ("root_all_tracepoints_start_and_stop_within_a_second", SPEED),
    ("root_until_running_a_response_ends_when_the_target_runs", COUNTS),
];
