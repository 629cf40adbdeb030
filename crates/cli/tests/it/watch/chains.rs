// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A real device's interrupt, followed to the program that reads from it: the serial port of `./x vm`.
//!
//! On PREEMPT_RT its handler is a thread, which hands the byte to a worker, which wakes the reader. Elsewhere the handler itself
//! queues the work. Each of these has to be a step of the chain.

use rtscope_analyze::explain::{Actor, Explanation};
use rtscope_event::{LateResponse, OriginKind, StepKind};
use rtscope_testkit::machine::{Cpus, is_preempt_rt};
use rtscope_testkit::serial::Serial;
use rtscope_testkit::watch::Rtscope;
use std::fs::{self, File};
use std::io::Read;
use std::thread::JoinHandle;
use std::time::Duration;

const BYTES: u32 = 100;
const READER: &str = "e2e-serial";

/// A thread that reads this many bytes and ends.
fn start_reader(mut port: File) -> JoinHandle<()> {
    let read = move || {
        let mut byte = [0];
        for _ in 0..BYTES {
            port.read_exact(&mut byte).expect("the port is open");
        }
    };
    std::thread::Builder::new().name(READER.to_owned()).spawn(read).expect("starts")
}

/// The thread that handles an interrupt, where handlers are threads.
fn interrupt_thread(irq: u32) -> Option<u32> {
    let prefix = format!("irq/{irq}-");
    let tids = fs::read_dir("/proc").expect("every Linux has it").flatten();
    let mut tids = tids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    tids.find(|tid| {
        fs::read_to_string(format!("/proc/{tid}/comm")).is_ok_and(|comm| comm.starts_with(&prefix))
    })
}

/// The chain passes through the thread: woken, then running, once.
fn passes_through(late: &LateResponse, tid: u32) -> bool {
    let steps: Vec<StepKind> =
        late.chain.steps.iter().filter(|step| step.id == tid).map(|step| step.kind).collect();
    matches!(steps[..], [StepKind::Wakeup, .., StepKind::Run])
}

/// Some thread in between is a worker: it was woken for the byte, or had the byte's work queued.
fn passes_through_a_worker(explanation: &Explanation) -> bool {
    explanation.steps.iter().any(|step| match &step.actor {
        Some(Actor::Thread(thread)) => {
            let name = thread.comm.map(|comm| comm.to_string()).unwrap_or_default();
            name.starts_with("kworker") && matches!(step.kind, StepKind::Wakeup | StepKind::WorkWait)
        }
        _ => false,
    })
}

// NEEDS: one kernel, serial
#[test]
fn root_a_serial_byte_is_followed_through_threads_to_its_reader() {
    let Some(_cpus) = Cpus::for_watching() else { return };
    let Some(mut serial) = Serial::for_test() else { return };
    let irq = serial.irq().expect("it has one");
    let reader = start_reader(serial.port().try_clone().expect("a second descriptor"));
    let thread = interrupt_thread(irq);
    assert!(thread.is_some() || !is_preempt_rt(), "no thread for irq {irq} on a PREEMPT_RT kernel");
    let options = ["--irq", &irq.to_string(), "--task", READER, "--threshold", "1ns", "--rate", "5/s"];
    let watch = Rtscope::watch(&options).expect("watches");
    serial.ask(BYTES, Duration::from_millis(20)).expect("the port is open");
    reader.join().expect("it reads all bytes");
    let said = watch.stop().expect("stops");

    let late = said.late().expect("of its own types");
    // Two bytes can come as one; and one whose reader is still busy with the last byte is not waited for.
    assert!(late.len() > BYTES as usize / 2, "{} responses to {BYTES} bytes", late.len());
    for late in &late {
        assert_eq!((late.chain.origin.kind, late.chain.origin.id), (OriginKind::Irq, irq), "{late:?}");
    }
    let through = late.iter().filter(|late| thread.is_none_or(|tid| passes_through(late, tid))).count();
    assert!(through * 10 >= late.len() * 9, "{through} of {} through {thread:?}: {late:?}", late.len());
    let explained = said.explanations().expect("of its own types");
    assert!(!explained.is_empty());
    let through = explained.iter().filter(|explanation| passes_through_a_worker(explanation)).count();
    assert!(through * 10 >= explained.len() * 9, "{through} of {} through a worker", explained.len());
    println!("{} responses, interrupt thread {thread:?}; for instance: {}", late.len(), shown(&explained[0]));
}

/// The chain in one line.
fn shown(explanation: &Explanation) -> String {
    let step = |step: &rtscope_analyze::explain::StepExplanation| {
        let who = match &step.actor {
            Some(Actor::Thread(thread)) => thread.comm.map(|comm| format!(" {comm}")),
            _ => None,
        };
        format!("{}{} {} ns", step.kind.name(), who.unwrap_or_default(), step.duration_ns)
    };
    explanation.steps.iter().map(step).collect::<Vec<_>>().join(", ")
}
