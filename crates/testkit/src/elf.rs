// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files with given code and names: programs for decoders of instruction traces, which are never run.

/// `e_machine` of x86-64.
pub const X86_64: u16 = 62;
/// `e_machine` of Arm with 32 bits.
pub const ARM: u16 = 40;
/// `e_machine` of AArch64.
pub const AARCH64: u16 = 183;

const HEADER: u64 = 64;
const PROGRAM_HEADER: u64 = 56;
/// Where the code is in the file: the second page, as linkers have it.
pub const CODE_OFFSET: u64 = 0x1000;

/// A function: its name, and where it begins in the code and how long it is.
pub type Function<'f> = (&'f str, u64, u64);

/// A file whose code is at `address` in memory, which is that of a page.
#[must_use]
pub fn program(machine: u16, address: u64, code: &[u8], functions: &[Function<'_>]) -> Vec<u8> {
    let (mut names, mut symbols) = (vec![0u8], vec![0u8; 24]);
    for (name, offset, size) in functions {
        symbols.extend((names.len() as u32).to_le_bytes());
        // STB_GLOBAL and STT_FUNC, in the section of the code.
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((address + offset).to_le_bytes());
        symbols.extend(size.to_le_bytes());
        names.extend(name.bytes());
        names.push(0);
    }
    let section_names = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let code_end = CODE_OFFSET + code.len() as u64;
    let symbols_at = code_end.next_multiple_of(8);
    let names_at = symbols_at + symbols.len() as u64;
    let section_names_at = names_at + names.len() as u64;
    let sections_at = (section_names_at + section_names.len() as u64).next_multiple_of(8);
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |file: &mut Vec<u8>, values: &[u16]| {
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    };
    let word = |file: &mut Vec<u8>, values: &[u32]| {
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    };
    let long = |file: &mut Vec<u8>, values: &[u64]| {
        values.iter().for_each(|value| file.extend(value.to_le_bytes()));
    };
    half(&mut file, &[2, machine]);
    word(&mut file, &[1]);
    long(&mut file, &[address, HEADER, sections_at]);
    word(&mut file, &[0]);
    half(&mut file, &[HEADER as u16, PROGRAM_HEADER as u16, 1, 64, 5, 4]);
    // PT_LOAD, readable and executable.
    word(&mut file, &[1, 5]);
    let length = code.len() as u64;
    long(&mut file, &[CODE_OFFSET, address, address, length, length, 0x1000]);
    file.resize(CODE_OFFSET as usize, 0);
    file.extend(code);
    file.resize(symbols_at as usize, 0);
    file.extend(&symbols);
    file.extend(&names);
    file.extend(section_names);
    file.resize(sections_at as usize, 0);
    let mut section = |name: u32, kind: u32, place: [u64; 4], link: u32, entry: u64| {
        let [flags, address, offset, size] = place;
        word(&mut file, &[name, kind]);
        long(&mut file, &[flags, address, offset, size]);
        word(&mut file, &[link, u32::from(kind == 2)]);
        long(&mut file, &[8, entry]);
    };
    section(0, 0, [0; 4], 0, 0);
    section(1, 1, [6, address, CODE_OFFSET, length], 0, 0);
    section(7, 2, [0, 0, symbols_at, symbols.len() as u64], 3, 24);
    section(15, 3, [0, 0, names_at, names.len() as u64], 0, 0);
    section(23, 3, [0, 0, section_names_at, section_names.len() as u64], 0, 0);
    file
}
