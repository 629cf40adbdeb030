// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The writer: writer.c with the shipped header, or with one in which something is wrong on purpose, and what it calls.

use super::{HANDLER, HEAD, HEADER_WORDS, LOST, READER, RING, TAIL, WORDS, with, word_at};
use crate::records::Layout;
use rtscope_event::exact::index;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::process::Command;

const ACQUIRE: u32 = 1;
const RELEASE: u32 = 2;

/// `struct model` of writer.c.
#[repr(C)]
struct Calls {
    load: extern "C" fn(usize, u32, u32) -> u64,
    store: extern "C" fn(usize, u32, u64, u32),
    swap: extern "C" fn(usize, u64, u64) -> u32,
    copy: extern "C" fn(usize, usize, u64),
    count: extern "C" fn(usize),
    fence: extern "C" fn(),
    now: extern "C" fn() -> u64,
}

static CALLS: Calls = Calls { load, store, swap, copy, count, fence, now };

type Begin = extern "C" fn(*const c_void, usize, u64, u64, u32, c_int);
type Emit = extern "C" fn(u32, u32, u64) -> c_int;
type Do = extern "C" fn();
type Has = extern "C" fn(usize, u64) -> c_int;

/// A compiled writer. It has one thread's state, so one test uses it at a time.
#[derive(Clone, Copy)]
pub(crate) struct Writer {
    begin: Begin,
    emit: Emit,
    emit_outside: Emit,
    jump: Do,
    move_on: Do,
    fork: Do,
    has: Has,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Recorded,
    Lost,
    /// A handler jumped away from it.
    Left,
}

/// A change of a header's text that breaks it: what is replaced (exactly once), and by what.
pub(crate) type Change = (&'static str, &'static str);

impl Writer {
    /// Compiles writer.c against the headers, with these changes of ring.h and steps.h. `None`: there is no compiler.
    pub(crate) fn build(directory: &Path, changes: &[Change]) -> Option<Writer> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let headers = directory.join("rtscope");
        fs::create_dir_all(&headers).expect("a directory of the test");
        let mut made = 0;
        for entry in
            fs::read_dir(here.join("../../include/rtscope")).expect("the headers are there").flatten()
        {
            let mut text = fs::read_to_string(entry.path()).expect("text");
            if ["ring.h", "steps.h"].iter().any(|name| entry.file_name() == *name) {
                for (old, new) in changes {
                    made += text.matches(old).count();
                    text = text.replace(old, new);
                }
            }
            fs::write(headers.join(entry.file_name()), text).expect("a file of the test");
        }
        assert_eq!(made, changes.len(), "each change is of one place: {changes:?}");
        let library = directory.join("writer.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O1", "-shared", "-fPIC", "-I"]).arg(directory);
        compiler.arg(here.join("src/model/writer.c")).arg("-o").arg(&library);
        let output = compiler.output().ok()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let path = CString::new(library.to_str().expect("plain")).expect("no NUL");
        // SAFETY: a library that was just made from writer.c; it has no constructor.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "it was just linked");
        let function = |name: &CStr| {
            // SAFETY: an open library, which is never closed, and a name that ends in NUL.
            let address = unsafe { libc::dlsym(handle, name.as_ptr().cast::<c_char>()) };
            assert!(!address.is_null(), "{name:?} is in writer.c");
            address
        };
        let [begin, emit, emit_outside, jump] =
            [c"model_begin", c"model_emit", c"model_emit_outside", c"model_jump"].map(function);
        let [move_on, fork, has] = [c"model_move", c"model_fork", c"model_has"].map(function);
        Some(Writer {
            // SAFETY: writer.c defines model_begin() with these parameters; C's pointers and numbers are these types.
            begin: unsafe { std::mem::transmute::<*mut c_void, Begin>(begin) },
            // SAFETY: as above, model_emit().
            emit: unsafe { std::mem::transmute::<*mut c_void, Emit>(emit) },
            // SAFETY: as above, model_emit_outside().
            emit_outside: unsafe { std::mem::transmute::<*mut c_void, Emit>(emit_outside) },
            // SAFETY: as above, model_jump().
            jump: unsafe { std::mem::transmute::<*mut c_void, Do>(jump) },
            // SAFETY: as above, model_move().
            move_on: unsafe { std::mem::transmute::<*mut c_void, Do>(move_on) },
            // SAFETY: as above, model_fork().
            fork: unsafe { std::mem::transmute::<*mut c_void, Do>(fork) },
            // SAFETY: as above, model_has().
            has: unsafe { std::mem::transmute::<*mut c_void, Has>(has) },
        })
    }

    pub(crate) fn begin(&self, ring: usize, layout: Layout, flight: bool) {
        WRITER.set(Some(*self));
        let Layout { ring_bytes, sub_bytes, key } = layout;
        (self.begin)((&raw const CALLS).cast(), ring, ring_bytes, sub_bytes, key, c_int::from(flight));
    }

    /// Emits an event of this many words with this stack pointer. Only one outside of handlers comes back when a handler jumps.
    pub(crate) fn emit(&self, id: u32, words: u32, stack: u64, is_outside: bool) -> Outcome {
        match (if is_outside { self.emit_outside } else { self.emit })(id, words, stack) {
            0 => Outcome::Lost,
            1 => Outcome::Recorded,
            _ => Outcome::Left,
        }
    }

    /// The thread goes on on the other CPU.
    pub(crate) fn move_on(&self) {
        (self.move_on)();
    }
}

thread_local! {
    static WRITER: std::cell::Cell<Option<Writer>> = const { std::cell::Cell::new(None) };
}

fn writer() -> Writer {
    WRITER.get().expect("the writer that calls")
}

/// What a handler does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handling {
    Nothing,
    Emits,
    Jumps,
    EmitsAndJumps,
}

/// What may come before each access: a handler, or a fork in one. A jump leaves this and its callers up to the outermost event; none of them
/// has anything to drop then, or to give back.
fn interrupt() {
    let (handling, fork) = with(|memory| {
        if !memory.explores || memory.child.is_some() {
            return (Handling::Nothing, false);
        }
        let may_fork = memory.limits.forks > 0;
        let may_signal = memory.limits.signals > 0 && memory.depth < memory.limits.depth;
        let fork = may_fork && memory.choices.choose(2, 60) == 1;
        let signal = !fork && may_signal && memory.choices.choose(2, 25) == 1;
        memory.limits.forks -= u32::from(fork);
        memory.limits.signals -= u32::from(signal);
        memory.depth += u32::from(signal);
        if fork {
            memory.child = Some(Box::new([0; WORDS]));
        }
        let jumps = if signal && memory.limits.jumps > 0 { memory.choices.choose(3, 2) } else { 0 };
        memory.limits.jumps -= u32::from(jumps > 0);
        let handling = match (signal, jumps) {
            (false, _) => Handling::Nothing,
            (true, 0) => Handling::Emits,
            (true, 1) => Handling::Jumps,
            (true, _) => Handling::EmitsAndJumps,
        };
        (handling, fork)
    });
    if fork {
        (writer().fork)();
    }
    if matches!(handling, Handling::Emits | Handling::EmitsAndJumps) {
        HANDLER.get().expect("a scenario with signals has one")();
    }
    // A fork inside of the handler has a child now, which may jump as well.
    if matches!(handling, Handling::Jumps | Handling::EmitsAndJumps) {
        (writer().jump)();
    }
    if handling != Handling::Nothing {
        with(|memory| memory.depth -= 1);
    }
}

/// Whether memory of the ring is meant. Otherwise it is the writer's own, or a fault: then it must not be touched.
enum Place {
    Ring(usize),
    Own,
    None,
}

fn place(address: usize, bytes: usize) -> Place {
    if let Some(offset) = with(|memory| memory.ring_offset(address, bytes)) {
        return Place::Ring(offset);
    }
    if (writer().has)(address, bytes as u64) != 0 {
        return Place::Own;
    }
    with(|memory| memory.fault(|| format!("{bytes} bytes at {address:#x}, where nothing is")));
    Place::None
}

fn own_load(address: usize, bytes: u32) -> u64 {
    if bytes == 4 {
        // SAFETY: writer.c has four bytes there (model_has), aligned; only this thread uses them.
        u64::from(unsafe { *(address as *const u32) })
    } else {
        // SAFETY: as above, with eight.
        unsafe { *(address as *const u64) }
    }
}

fn own_store(address: usize, bytes: u32, value: u64) {
    if bytes == 4 {
        // SAFETY: as in own_load().
        unsafe { *(address as *mut u32) = (value & 0xffff_ffff) as u32 };
    } else {
        // SAFETY: as in own_load().
        unsafe { *(address as *mut u64) = value };
    }
}

extern "C" fn load(address: usize, bytes: u32, order: u32) -> u64 {
    interrupt();
    let place = place(address, bytes as usize);
    let Place::Ring(offset) = place else {
        return if matches!(place, Place::Own) { own_load(address, bytes) } else { 0 };
    };
    let word = word_at(offset);
    if word == TAIL && with(|memory| memory.wants_reader()) {
        READER.get().expect("a scenario that takes has one")();
    }
    with(|memory| match &memory.child {
        Some(child) => child[word],
        None => memory.writer_loads(word, order == ACQUIRE),
    })
}

extern "C" fn store(address: usize, bytes: u32, value: u64, order: u32) {
    interrupt();
    match place(address, bytes as usize) {
        Place::Ring(offset) => with(|memory| memory.writer_stores(word_at(offset), value, order == RELEASE)),
        Place::Own => own_store(address, bytes, value),
        Place::None => {}
    }
}

extern "C" fn swap(address: usize, old: u64, value: u64) -> u32 {
    interrupt();
    let place = place(address, 8);
    if matches!(place, Place::Own) {
        // What it notes of its events.
        let found = own_load(address, 8);
        if found == old {
            own_store(address, 8, value);
        }
        return u32::from(found == old);
    }
    let Place::Ring(offset) = place else { return 0 };
    with(|memory| {
        let word = word_at(offset);
        if word != HEAD {
            memory.fault(|| "something else than the head is swapped".to_string());
        }
        let found = memory.child.as_ref().map(|child| child[word]);
        let found = found.unwrap_or_else(|| memory.writer_loads(word, false));
        if found == old {
            memory.writer_stores(word, value, false);
        }
        u32::from(found == old)
    })
}

extern "C" fn copy(to: usize, from: usize, bytes: u64) {
    for at in (0..index(bytes)).step_by(8) {
        // SAFETY: writer.c and ring.h copy from arrays of words on their stack, of this size.
        let value = unsafe { *((from + at) as *const u64) };
        store(to + at, 8, value, 0);
    }
}

extern "C" fn count(address: usize) {
    interrupt();
    let Place::Ring(offset) = place(address, 8) else { return };
    with(|memory| {
        let word = word_at(offset);
        if word != LOST {
            memory.fault(|| "something else than losses is counted".to_string());
        }
        let count = memory.child.as_ref().map(|child| child[word]);
        let count = count.unwrap_or_else(|| memory.writer_loads(word, false));
        memory.writer_stores(word, count + 1, false);
    });
}

extern "C" fn fence() {
    with(|memory| memory.fenced = memory.seen);
}

extern "C" fn now() -> u64 {
    with(|memory| {
        memory.time += 1;
        memory.time
    })
}

impl super::Memory {
    fn writer_stores(&mut self, word: usize, value: u64, is_release: bool) {
        match &mut self.child {
            Some(child) => child[word] = value,
            None => self.write(word, value, is_release),
        }
    }

    /// Whether the reader takes now, before the writer looks at what was given back.
    fn wants_reader(&mut self) -> bool {
        let may = self.explores && self.child.is_none() && self.limits.takes > 0;
        let takes = may && self.choices.choose(2, 2) == 1;
        self.limits.takes -= u32::from(takes);
        takes
    }
}

const _: () = assert!(RING % 8 == 0 && HEADER_WORDS < WORDS, "words are whole");
