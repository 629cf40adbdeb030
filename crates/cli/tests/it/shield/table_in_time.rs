// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rtscope shield table` in a virtual machine whose clock counts instructions (docs/adr/0013): what is late there is late because of what
//! ran, and not because of the emulator, so counts of late wakeups are compared as on a real machine.

use super::fixture::json;
use super::table;
use rtscope_testkit::machine::{Cpus, is_preempt_rt};
use rtscope_testkit::skip;
use serde_json::Value;
use std::fs;

/// Of each row.
const WAKE_UPS: u64 = 3000;

/// How many user latencies of a whole row are longer than a millisecond.
fn late(table: &Value, name: &str) -> u64 {
    let row = table::row(table, name);
    assert_eq!((&row["missing"], &row["cut"]), (&Value::Null, &Value::Null), "{row}");
    assert_eq!(row["user_latency"]["count"], WAKE_UPS, "{row}");
    let late = table::late(row, "user_latency");
    println!(
        "{name}: {late} of {WAKE_UPS} more than 1 ms late; at most {} ns",
        row["user_latency"]["max_ns"]
    );
    late
}

// NEEDS: machine, sched_ext, virtual time
#[test]
fn root_vm_shielded_and_lent_cpus_are_in_time_in_virtual_time() {
    if skip::outside_guests() {
        return;
    }
    let Some(_cpus) = Cpus::for_watching() else { return };
    let wake_ups = WAKE_UPS.to_string();
    let table = json(&["table", "--json", "--samples", &wake_ups, "--rate", "2000/s"]);
    assert_eq!(late(&table, "stock unloaded"), 0, "nothing disturbs, and something is late");
    let (stock, shield) = (late(&table, "stock loaded"), late(&table, "shield loaded"));
    // Against stock's late ones; on PREEMPT_RT, where the loads disturb nobody, against a tenth of all.
    let of = if is_preempt_rt() { WAKE_UPS / 10 } else { stock };
    // With fewer than a hundred the shield has to be without any.
    assert!(of >= 30, "the loads disturb nobody: {stock}");
    assert!(shield * 100 <= of, "stock {stock}, shield {shield}");
    if !fs::exists("/sys/kernel/sched_ext").expect("told") {
        let missing = &table::row(&table, "artis loaded")["missing"];
        assert!(missing.as_str().is_some_and(|why| why.contains("sched_ext")), "{missing}");
        return;
    }
    let lent = late(&table, "artis loaded");
    assert!(lent * 50 <= of, "stock {stock}, artis {lent}");
    let compute = &table::row(&table, "artis loaded")["work"]["compute_of_stock"];
    println!("compute loops beside artis, against stock's: {compute}");
    // A CPU that is not used leaves its instructions to the other one: less would be the scheduler's own cost.
    assert!(is_preempt_rt() || compute.as_f64().is_some_and(|part| part >= 0.8), "{compute}");
}
