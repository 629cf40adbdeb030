// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What programs have written by PTWRITE: every program writes what it wants, in between the words of others. Its stream's packets are made here, so the
//! fuzzer changes words, and not packets (`pt` does).

use crate::PROCESS;
use crate::channels::{CLOCKS, decoded, event, notes, who};
use rtscope_abi::program as abi;
use rtscope_hardware::decode::Unit;
use rtscope_hardware::pt::Packet;
use rtscope_hardware::pt::encode::packet;
use std::sync::OnceLock;

const WORD: u8 = 0;
const OVERFLOW: u8 = 1;
const DAMAGE: u8 = 2;
/// Begins a message.
const FIRST: u64 = 1 << 63;

/// A byte that says which clock the program has; then words (`WORD`, 8 bytes), and gaps. Whatever that is, there is a trace, and no word is in two of its
/// events.
pub fn decode(data: &[u8]) -> Option<()> {
    static NOTES: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    let (which, mut items) = data.split_first()?;
    let mut stream = Vec::new();
    packet(Packet::Psb, &mut stream);
    packet(Packet::PsbEnd, &mut stream);
    let mut messages = 0;
    while let Some((item, rest)) = items.split_first() {
        items = rest;
        match item % 3 {
            OVERFLOW => packet(Packet::Ovf, &mut stream),
            DAMAGE => {
                // No packet begins so: what follows is read from the next PSB on.
                stream.extend([0x02, 0xff]);
                packet(Packet::Psb, &mut stream);
                packet(Packet::PsbEnd, &mut stream);
            }
            _ => {
                let (word, rest) = items.split_first_chunk::<8>()?;
                let payload = u64::from_le_bytes(*word);
                messages += u64::from(payload & FIRST != 0);
                packet(Packet::Ptw { payload, wide: true, ip: false }, &mut stream);
                items = rest;
            }
        }
    }
    let notes = &NOTES.get_or_init(|| CLOCKS.map(|clock| notes(clock, None)))[usize::from(which % 2)];
    let events = decoded(notes, &stream, Unit::Pt)?;
    assert!(events <= messages, "{events} events of {messages} messages");
    (events > 0).then_some(())
}

/// Both clocks: words of two threads in turn, a handler's within those of one, gaps, a number that is missing, and numbers that go around.
pub fn seeds() -> Vec<Vec<u8>> {
    (0..)
        .zip(CLOCKS)
        .flat_map(|(which, clock)| [0, u32::MAX - 2].map(|first| seed(which, clock, first)))
        .collect()
}

fn seed(which: u8, clock: u32, first: u32) -> Vec<u8> {
    let mut to = vec![which];
    let says = |tid, number| message(tid, first.wrapping_add(number), &thread(tid, clock));
    let writes = |tid, number, time, payload: &[u64]| {
        message(tid, first.wrapping_add(number), &event(payload.len() as u64 % 3, 0, time, payload))
    };
    for tid in [9, 10] {
        put(&mut to, &says(tid, 0));
    }
    let outer = writes(9, 1, 10, &[7; 20]);
    let inner = writes(9, 2, 15, &[]);
    let other = writes(10, 1, 12, &[8; 20]);
    for (at, (one, two)) in outer.iter().zip(&other).enumerate() {
        put(&mut to, &[*one, *two]);
        if at == 17 {
            put(&mut to, &inner);
        }
    }
    to.push(OVERFLOW);
    put(&mut to, &writes(9, 4, 20, &[1]));
    put(&mut to, &says(9, 5));
    // More than all others together, so that there are too many if any is there twice.
    for number in 6..30 {
        put(&mut to, &writes(9, number, 30, &[2]));
    }
    to.push(DAMAGE);
    put(&mut to, &writes(10, 2, 40, &[3])[1..]);
    to
}

fn put(to: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| {
        to.push(WORD);
        to.extend(word.to_le_bytes());
    });
}

/// As programs write it (`include/rtscope/abi.h`, "PTWRITE").
fn message(tid: u64, number: u32, words: &[u64]) -> Vec<u64> {
    let key = key(tid);
    let check = words.iter().fold(0_u64, |check, word| check.rotate_left(1) ^ word);
    let check = check ^ check >> 32;
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(((check ^ check >> 16) as u16).to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(6), 0);
    let data = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |data, byte| data << 8 | u64::from(*byte));
    let rest = bytes.chunks(6).zip(0_u64..);
    let rest = rest.map(|(bytes, place)| (place & 15) << 59 | (key & 0x7ff) << 48 | data(bytes));
    [FIRST | key << 32 | u64::from(number)].into_iter().chain(rest).collect()
}

/// A thread says who it is. Its number in its process is its tid.
fn thread(tid: u64, clock: u32) -> Vec<u64> {
    let mut words = who(tid, clock);
    words[6] |= tid;
    words
}

/// Of such a thread, as programs calculate it (`rtscope__ptwrite_key`).
fn key(tid: u64) -> u64 {
    let mixed = PROCESS.birth_ns ^ (u64::from(PROCESS.pid) << 32 | tid);
    (mixed ^ mixed >> 32).wrapping_mul(abi::RTU_PTWRITE_MIX) >> 33
}
