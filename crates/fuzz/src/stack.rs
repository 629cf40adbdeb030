// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Copies of stacks, with the file that their program's code is in: both are the program's.

use rtscope_event::{Comm, CopyEnd, MonotonicNs, Pid, StackCopy, Tid};
use std::path::Path;
use std::process::Command;

/// Of x86-64: as `StackCopy` has them.
const REGISTERS: usize = 17;
/// The part of the stack that an input has.
const STACK: usize = 256;

/// Registers, stack, and a file.
pub fn unwind(data: &[u8]) -> Option<()> {
    let (registers, rest) = data.split_at_checked(REGISTERS * 8)?;
    let (memory, file) = rest.split_at_checked(STACK)?;
    let registers =
        registers.chunks_exact(8).filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes));
    let copy = StackCopy {
        id: 1,
        time: MonotonicNs(1),
        tid: Tid(1),
        pid: Pid(1),
        comm: Comm::from("a"),
        kernel: Vec::new(),
        registers: registers.collect(),
        memory: memory.to_vec(),
        end: CopyEnd::Limit,
    };
    let stack = rtscope_stacks::unwind_in(file, &copy).ok()?;
    assert!(!stack.user.is_empty(), "the place of the copy itself is a frame");
    (stack.user.len() > 1).then_some(())
}

/// A small library of the compiler's, and a stack whose every word is a return address into it.
pub fn seeds() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().unwrap();
    let library = directory.path().join("a.so");
    let source = "long f(long x) { volatile long a[4] = {x}; return a[x & 3]; } long g(long x) { return f(x) + f(-x); }";
    build(source, &library);
    let file = std::fs::read(library).unwrap();
    // Where the code of so small a library is.
    let seed = |address: u64| {
        let mut registers = [0; REGISTERS];
        (registers[7], registers[6], registers[16]) = (0x7000_0000, 0x7000_0010, address);
        let registers = registers.iter().flat_map(|register| register.to_le_bytes());
        let memory = address.to_le_bytes().repeat(STACK / 8);
        registers.chain(memory).chain(file.iter().copied()).collect()
    };
    (0..4).map(|at| seed(0x2a4 + at * 0x0c)).collect()
}

/// As small as linkers can.
fn build(source: &str, library: &Path) {
    let path = library.with_extension("c");
    std::fs::write(&path, source).unwrap();
    let options =
        ["-O1", "-shared", "-fPIC", "-nostdlib", "-Wl,-z,noseparate-code", "-Wl,--hash-style=gnu", "-o"];
    let done = Command::new("cc").args(options).arg(library).arg(path).status().unwrap();
    assert!(done.success());
}
