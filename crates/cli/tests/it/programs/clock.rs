// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A counter that the kernel does not trust. The kernel's opinion is a lie here: its files are covered in a mount namespace.

use super::fixture::{Fixture, Recorded, lines};
use crate::command::rtscope;
use rtscope_testkit::skip;
use std::path::Path;
use std::process::Command;

const CLOCKSOURCES: &str = "/sys/devices/system/clocksource/clocksource0";

/// A command in whose eyes the kernel says this of its clocks.
fn where_the_kernel_says(fixture: &Fixture, current: &str, available: &str, command: &Command) -> Command {
    let lies = fixture.path(&format!("kernel-{current}"));
    std::fs::create_dir_all(&lies).expect("a directory");
    for (name, text) in [("current_clocksource", current), ("available_clocksource", available)] {
        std::fs::write(lies.join(name), format!("{text}\n")).expect("a file");
    }
    let mut lied_to = Command::new("unshare");
    let script = format!("mount --bind '{}' {CLOCKSOURCES} && exec \"$@\"", lies.display());
    lied_to.args(["--mount", "sh", "-c", &script, "sh"]).arg(command.get_program()).args(command.get_args());
    lied_to
}

/// The events of a program that begins to be recorded while the kernel says this, with the recorder's summary.
fn recorded(fixture: &Fixture, emitter: &Path, current: &str, available: &str) -> Recorded {
    let mut command = rtscope();
    command.args(["record", "--json", "-u", "test:*", "--user-buffer", "64M", "-o"]).arg(fixture.trace());
    command.arg("--").arg(emitter).args(["count", "20000"]);
    let mut command = where_the_kernel_says(fixture, current, available, &command);
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{output:?}");
    Recorded::of(output)
}

// NEEDS: host
#[test]
fn root_programs_leave_a_counter_that_the_kernel_distrusts_alone() {
    if skip::without_root() || skip::without_tool("unshare") || !Path::new(CLOCKSOURCES).exists() {
        return;
    }
    let fixture = Fixture::new();
    let Some(emitter) = fixture.program("emitter.c", &[], "emitter") else { return };
    let Some(chooser) = fixture.program("clock_kind.c", &[], "clock_kind") else { return };
    let by_default =
        Recorded::printed_in(&Command::new(&chooser).output().expect("it can be started"), "clock ");
    const MONOTONIC: u64 = rtscope_abi::program::RTU_CLOCK_MONOTONIC as u64;
    for (current, available, is_trusted) in [
        ("tsc", "tsc hpet acpi_pm", true),
        ("hpet", "hpet acpi_pm", false),
        ("hpet", "tsc hpet acpi_pm", false),
        ("kvm-clock", "kvm-clock tsc acpi_pm", true),
        ("kvm-clock", "kvm-clock acpi_pm", false),
    ] {
        let recorded = recorded(&fixture, &emitter, current, available);
        recorded.assert_complete();
        let clock = &recorded.account["clock"];
        assert_eq!(clock["source"], current, "{clock}");
        assert_eq!(clock["trusted"], is_trusted, "{clock}");
        let notes = String::from_utf8_lossy(&recorded.output.stderr).into_owned();
        assert_eq!(notes.contains("does not trust the CPU's counter"), !is_trusted, "{notes}");
        let metadata = std::fs::read_to_string(fixture.trace().join("ust/metadata")).expect("a trace");
        assert!(metadata.contains(&format!("rtscope_clock_source = \"{current}\"")), "{metadata}");
        assert_eq!(metadata.contains("rtscope_clock_problem_0"), !is_trusted, "{metadata}");
        assert!(lines(&fixture.trace()).len() >= 20_000);
        let mut kind = where_the_kernel_says(&fixture, current, available, &Command::new(&chooser));
        let chosen = Recorded::printed_in(&kind.output().expect("it can be started"), "clock ");
        assert_eq!(chosen, if is_trusted { by_default } else { MONOTONIC }, "{current}: {available}");
        std::fs::remove_dir_all(fixture.trace()).expect("it was made");
    }
}
