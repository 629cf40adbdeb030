// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places in files that lie: whatever they say of their sizes costs neither memory nor time in proportion to it.

use nix::sys::time::TimeValLike;
use nix::time::{ClockId, clock_gettime};
use rtscope_hardware::place::{Wanted, find, find_all};
use rtscope_testkit::memory::{is_alone, peak_of};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// An ELF file of x86-64, as sparse as it can be: `programs` headers of segments, of which one has code at 0; symbols, and names.
struct Lie {
    programs: u16,
    /// How many there are said to be.
    symbols: u64,
    /// Those that are written, from number 1 on: name, kind, address and size.
    written: Vec<(u32, u8, u64, u64)>,
    names: Vec<u8>,
    /// How many bytes of names there are said to be.
    names_bytes: u64,
}

impl Lie {
    fn new(names: &[u8]) -> Lie {
        let names = [b"\0", names, b"\0"].concat();
        let names_bytes = names.len() as u64;
        Lie { programs: 1, symbols: 2, written: vec![(1, 2, 64, 16)], names, names_bytes }
    }

    fn write(&self) -> File {
        let file = tempfile::tempfile().unwrap();
        let put = |bytes: &[u8], at: u64| file.write_all_at(bytes, at).unwrap();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let halves = |halves: &[u16]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
        let pairs = |pairs: &[u32]| pairs.iter().flat_map(|pair| pair.to_le_bytes()).collect::<Vec<u8>>();
        let sections_at = 64 + 56 * u64::from(self.programs);
        let names_at = (sections_at + 192).next_multiple_of(4096);
        let symbols_at = (names_at + self.names_bytes).next_multiple_of(4096);
        let machine = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
        let head = [
            b"\x7fELF\x02\x01\x01".to_vec(),
            vec![0; 9],
            halves(&[3, machine]),
            pairs(&[1]),
            words(&[0, 64, sections_at]),
            pairs(&[0]),
            halves(&[64, 56, self.programs, 64, 3, 2]),
        ];
        put(&head.concat(), 0);
        let program = |flags: u32, address: u64| {
            [pairs(&[1, flags]), words(&[0, address, address, 4096, 4096, 4096])].concat()
        };
        let programs: Vec<u8> = (1..u64::from(self.programs))
            .flat_map(|number| program(4, number << 32))
            .chain(program(5, 0))
            .collect();
        put(&programs, 64);
        let section = |kind: u32, at: u64, bytes: u64, link: u32| {
            [pairs(&[0, kind]), words(&[0, 0, at, bytes]), pairs(&[link, 0]), words(&[8, 24])].concat()
        };
        put(&section(2, symbols_at, self.symbols * 24, 2), sections_at + 64);
        put(&section(3, names_at, self.names_bytes, 0), sections_at + 128);
        put(&self.names, names_at);
        let symbol = |(name, kind, address, size): &(u32, u8, u64, u64)| {
            [pairs(&[*name]), vec![0x10 | kind, 0], halves(&[1]), words(&[*address, *size])].concat()
        };
        put(&self.written.iter().flat_map(symbol).collect::<Vec<u8>>(), symbols_at + 24);
        file.set_len(symbols_at + self.symbols * 24).unwrap();
        file
    }
}

fn work(name: &str) -> Wanted {
    Wanted::Function { name: name.to_owned(), offset: 0 }
}

/// What is found of a name, or why nothing is; and whether the address is found in any case. With what that took of memory and of this thread's time.
fn look(lie: &Lie, name: &str) -> String {
    let file = lie.write();
    let cpu = || {
        Duration::from_nanos(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().num_nanoseconds() as u64)
    };
    let (begun, mut answer) = (cpu(), String::new());
    let bytes = peak_of(|| {
        answer = match find(&file, &work(name)) {
            Ok(place) => format!("{:#x}", place.file_offset),
            Err(error) => error.to_string(),
        };
        assert_eq!(find(&file, &Wanted::Address(64)).map(|place| place.file_offset), Ok(64));
    });
    let took = cpu() - begun;
    println!("    {:.100}: {} KiB, {} ms", answer, bytes >> 10, took.as_millis());
    assert!(bytes < 32 << 20, "{answer}: {bytes} bytes");
    // Most of them take some milliseconds. This machine may be slow, and this is no build for speed.
    assert!(took < Duration::from_secs(15), "{answer}: {took:?}");
    answer
}

#[test]
fn what_a_file_says_of_its_sizes_costs_neither_memory_nor_time() {
    if !is_alone() {
        return;
    }
    let honest = Lie::new(b"work");
    assert_eq!(look(&honest, "work"), "0x40");
    // Tables that are holes, as large as those of the largest programs are; and larger.
    let large = Lie { symbols: 15 << 20, ..Lie::new(b"work") };
    assert_eq!(look(&large, "work"), "0x40");
    let said = look(&Lie { symbols: 120 << 20, ..Lie::new(b"work") }, "work");
    assert!(
        said.contains("125829120 symbols, of which at most") && said.contains("write an address"),
        "{said}"
    );
    assert_eq!(look(&Lie { names_bytes: 500 << 20, ..Lie::new(b"work") }, "work"), "0x40");
    let said = look(&Lie { names_bytes: 5 << 30, ..Lie::new(b"work") }, "work");
    assert!(said.contains("bytes of names, of which at most"), "{said}");
    let ends = Lie::new(&b"k\0".repeat(40 << 20));
    assert!(look(&ends, "work").contains("more names than symbols"));
    // Each symbol is looked for in each segment.
    let no_kind = vec![(1, 0, u64::MAX >> 1, 1); 400_000];
    let many = Lie { programs: 65_000, symbols: 500_000, written: no_kind, ..Lie::new(b"work\0other") };
    assert!(look(&many, "work").contains("no names of functions"));
    // Names that overlap.
    let mut names = vec![b'A'; 404_000];
    (0..100).for_each(|number| names[number * 4001] = 0);
    let overlap = |count: u32| (0..count).map(|number| (number + 1, 2, 64, 16)).collect::<Vec<_>>();
    let overlapping = Lie { symbols: 400_001, written: overlap(400_000), ..Lie::new(&names) };
    for name in ["work", "A", &"A".repeat(2000)] {
        look(&overlapping, name);
    }
    // The same name again and again.
    let same = Lie {
        symbols: 2_000_001,
        written: (0..400_000).map(|number| (1 + 5 * number, 2, 64 + u64::from(number), 1)).collect(),
        ..Lie::new(&b"work\0".repeat(400_000))
    };
    assert!(look(&same, "work").contains("too often"));
    let several = Lie {
        symbols: 400_001,
        written: (0..400_000).map(|number| (1, 2, 64 + number, 1)).collect(),
        ..Lie::new(b"work")
    };
    let said = look(&several, "work");
    assert!(said.contains("0x40, 0x41") && said.contains(" and more") && said.len() < 400, "{said}");
}

#[test]
fn places_of_one_file_are_found_together_as_one_by_one() {
    let names: Vec<String> = (0..200).map(|number| format!("function{number}")).collect();
    let at = |number: usize| (1 + names[..number].iter().map(|name| name.len() + 1).sum::<usize>()) as u32;
    let written = (0..200).map(|number| (at(number), 2, 64 + 16 * number as u64, 16)).collect();
    let file = Lie { symbols: 201, written, ..Lie::new(names.join("\0").as_bytes()) }.write();
    let mut wanted: Vec<Wanted> = names.iter().rev().map(|name| work(name)).collect();
    // The end of another name, none, a part of one, and addresses in and between functions.
    wanted.extend(["n7", "", "function", "funtion7"].map(work));
    wanted.extend([64, 80, 81, 5000].map(Wanted::Address));
    let together = find_all(&file, &wanted);
    assert_eq!(together[0].as_ref().map(|place| place.address), Ok(64 + 16 * 199));
    let apart: Vec<_> = wanted.iter().map(|wanted| find(&file, wanted)).collect();
    assert!(apart[200..204].iter().all(Result::is_err) && apart[204].is_ok(), "{:?}", &apart[200..]);
    // Only the first one that is not there is told which name is like it.
    assert_eq!(together[..201], apart[..201]);
    assert_eq!(together[204..], apart[204..]);
    assert_eq!(
        apart[203].as_ref().unwrap_err().to_string(),
        "has no function funtion7; the nearest name is function7"
    );
}
