// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of the instruction sets as the flow needs: where the next waypoint is and where it leads.
//!
//! A waypoint is an instruction that the trace unit reports: branches, ISB, and by configuration WFI and WFE and the start of a
//! transaction (IHI 0064, 4.2; for ETMv3 and PTM IHI 0014 and IHI 0035). Encodings: Arm ARM, DDI 0487, C4 and F3, F4.

/// An instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Isa {
    /// AArch64.
    #[default]
    A64,
    /// AArch32 with instructions of four bytes.
    A32,
    /// AArch32 with instructions of two and four bytes (Thumb).
    T32,
}

/// What an instruction does to the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Nothing.
    #[default]
    Other,
    /// A branch to an address in the instruction.
    Direct,
    /// A branch to an address in a register or memory.
    Indirect,
    /// ISB.
    Barrier,
    /// DSB and DMB.
    DataBarrier,
    /// WFI and WFE.
    Wait,
    /// TSTART.
    TransactionStart,
}

/// An instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub kind: Kind,
    /// Bytes.
    pub size: u8,
    /// Whether it stores where to return to.
    pub link: bool,
    /// Whether it is the usual return of a function.
    pub is_return: bool,
    /// Whether it returns from an exception.
    pub is_exception_return: bool,
    /// Where a direct branch leads.
    pub target: u64,
    /// The instruction set there.
    pub next: Isa,
}

/// The instruction at the beginning of the bytes; `None` if they are too few.
#[must_use]
pub fn decode(isa: Isa, address: u64, bytes: &[u8]) -> Option<Instruction> {
    match isa {
        Isa::A64 => Some(a64(word(bytes)?, address)),
        Isa::A32 => Some(a32(word(bytes)?, address)),
        Isa::T32 => {
            let first = u16::from_le_bytes(*bytes.first_chunk()?);
            // 11101, 11110 and 11111 begin an instruction of four bytes (F3.1).
            if first < 0xE800 {
                return Some(t32(u32::from(first) << 16, 2, address));
            }
            let second = u16::from_le_bytes(*bytes.get(2..)?.first_chunk()?);
            Some(t32(u32::from(first) << 16 | u32::from(second), 4, address))
        }
    }
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

/// Bits as a signed number in bytes, of words.
fn words(value: u32, low: u32, bits: u32) -> i64 {
    i64::from((value >> low << (32 - bits)) as i32 >> (32 - bits)) * 4
}

fn a64(code: u32, address: u64) -> Instruction {
    let plain = Instruction { size: 4, next: Isa::A64, ..Instruction::default() };
    let direct = |offset: i64| Instruction {
        kind: Kind::Direct,
        target: address.wrapping_add_signed(offset),
        ..plain
    };
    let kind = |kind| Instruction { kind, ..plain };
    match code >> 24 {
        // B.cond and BC.cond.
        0x54 => direct(words(code, 5, 19)),
        // RETAASPPC and RETABSPPC with a label (FEAT_PAuth_LR).
        0x55 if code & 0x00C0_001F == 0x1F => Instruction { is_return: true, ..kind(Kind::Indirect) },
        // CBZ, CBNZ.
        0x34 | 0x35 | 0xB4 | 0xB5 => direct(words(code, 5, 19)),
        // TBZ, TBNZ.
        0x36 | 0x37 | 0xB6 | 0xB7 => direct(words(code, 5, 14)),
        // B, BL.
        0x14..=0x17 => direct(words(code, 0, 26)),
        0x94..=0x97 => Instruction { link: true, ..direct(words(code, 0, 26)) },
        // Compare and branch (FEAT_CMPBR): CBB, CBH and CB of registers; CB with a number.
        0x74 if code & 0xC000 != 0x4000 => direct(words(code, 5, 9)),
        0xF4 if code & 0xC000 == 0 => direct(words(code, 5, 9)),
        0x75 | 0xF5 if code & 0x4000 == 0 => direct(words(code, 5, 9)),
        0xD6 | 0xD7 => a64_register_branch(code, plain),
        0xD5 => match code {
            // ISB, DSB and DMB, WFE and WFI, WFET and WFIT, TSTART.
            _ if code & 0xFFFF_F0FF == 0xD503_30DF => kind(Kind::Barrier),
            _ if code & 0xFFFF_F0DF == 0xD503_309F => kind(Kind::DataBarrier),
            _ if code & 0xFFFF_FFDF == 0xD503_205F => kind(Kind::Wait),
            _ if code & 0xFFFF_FFC0 == 0xD503_1000 => kind(Kind::Wait),
            _ if code & 0xFFFF_FFE0 == 0xD523_3060 => kind(Kind::TransactionStart),
            _ => plain,
        },
        _ => plain,
    }
}

/// BR, BLR, RET, ERET and their forms with pointer authentication.
fn a64_register_branch(code: u32, plain: Instruction) -> Instruction {
    let indirect = Instruction { kind: Kind::Indirect, ..plain };
    let link = Instruction { link: true, ..indirect };
    let is_return = Instruction { is_return: true, ..indirect };
    let exception = Instruction { is_exception_return: true, ..indirect };
    match code {
        _ if code & 0xFFFF_FC1F == 0xD61F_0000 => indirect,
        _ if code & 0xFFFF_FC1F == 0xD63F_0000 => link,
        _ if code & 0xFFFF_FC1F == 0xD65F_0000 => is_return,
        0xD69F_03E0 | 0xD69F_0BFF | 0xD69F_0FFF | 0xD6FF_03E0 | 0xD6FF_07E0 => exception,
        _ if code & 0xFFFF_F800 == 0xD71F_0800 || code & 0xFFFF_F81F == 0xD61F_081F => indirect,
        _ if code & 0xFFFF_F800 == 0xD73F_0800 || code & 0xFFFF_F81F == 0xD63F_081F => link,
        // RETAA, RETAB; with a register FEAT_PAuth_LR.
        _ if code & 0xFFFF_FBE0 == 0xD65F_0BE0 => is_return,
        _ => plain,
    }
}

fn a32(code: u32, address: u64) -> Instruction {
    let plain = Instruction { size: 4, next: Isa::A32, ..Instruction::default() };
    let unconditional = code >> 28 == 0xF;
    if let Some(is_return) = a32_indirect(code, unconditional) {
        let link = !unconditional && code & 0x0FF0_00F0 == 0x0120_0030;
        return Instruction { kind: Kind::Indirect, link, is_return, ..plain };
    }
    if code & 0x0E00_0000 == 0x0A00_0000 {
        let here = (address as u32).wrapping_add(8);
        let target = here.wrapping_add(words(code, 0, 24) as u32);
        let direct = Instruction { kind: Kind::Direct, ..plain };
        return if unconditional {
            // BLX: to T32, bit 24 is half a word.
            let target = target.wrapping_add(code >> 23 & 2);
            Instruction { link: true, target: u64::from(target), next: Isa::T32, ..direct }
        } else {
            Instruction { link: code & 1 << 24 != 0, target: u64::from(target), ..direct }
        };
    }
    let kind = match code {
        _ if code & 0xFFF0_00F0 == 0xF570_0060 => Kind::Barrier,
        _ if matches!(code & 0xFFF0_00F0, 0xF570_0040 | 0xF570_0050) => Kind::DataBarrier,
        // As writes to CP15 before Armv7.
        _ if code & 0x0FFF_0FFF == 0x0E07_0F95 => Kind::Barrier,
        _ if matches!(code & 0x0FFF_0FFF, 0x0E07_0F9A | 0x0E07_0FBA) => Kind::DataBarrier,
        _ if !unconditional && code & 0x0FFF_FFFE == 0x0320_F002 => Kind::Wait,
        _ => Kind::Other,
    };
    Instruction { kind, ..plain }
}

/// Whether the PC is written, and whether that is the usual return.
fn a32_indirect(code: u32, unconditional: bool) -> Option<bool> {
    let is = |mask: u32, value: u32| code & mask == value;
    if unconditional {
        // RFE.
        return is(0xFE50_0000, 0xF810_0000).then_some(false);
    }
    if is(0x0FF0_00D0, 0x0120_0010) {
        return Some(code & 0xFF == 0x1E);
    }
    if is(0x0FF0_00F0, 0x0120_0020) {
        return Some(false);
    }
    if is(0x0E10_8000, 0x0810_8000) {
        return Some(is(0x0FFF_A000, 0x08BD_8000));
    }
    if is(0x0E50_F000, 0x0410_F000) {
        return Some(is(0x01FF_0000, 0x009D_0000));
    }
    if is(0x0E50_F010, 0x0610_F000) {
        return Some(false);
    }
    if is(0x0FE0_F000, 0x01A0_F000) {
        return Some(is(0x0010_0FFF, 0x000E));
    }
    // Miscellaneous instructions, loads and stores, MSR and comparisons have these bits too, and no destination.
    let not_a_write =
        is(0x0F90_0080, 0x0100_0000) || is(0x0F90_00F0, 0x0180_0090) || is(0x0FB0_F000, 0x0320_F000);
    if not_a_write || is(0x0F90_F000, 0x0310_F000) {
        return None;
    }
    (is(0x0E00_F000, 0x0200_F000) || is(0x0E00_F000, 0x0000_F000)).then_some(false)
}

/// The code has its first halfword in the upper half.
fn t32(code: u32, size: u8, address: u64) -> Instruction {
    let plain = Instruction { size, next: Isa::T32, ..Instruction::default() };
    if let Some((target, next, link)) = t32_direct(code, address as u32) {
        return Instruction { kind: Kind::Direct, target: u64::from(target), next, link, ..plain };
    }
    if let Some((is_return, link)) = t32_indirect(code) {
        return Instruction { kind: Kind::Indirect, is_return, link, ..plain };
    }
    let kind = match code {
        _ if code & 0xFFFF_FFF0 == 0xF3BF_8F60 => Kind::Barrier,
        _ if matches!(code & 0xFFFF_FFF0, 0xF3BF_8F40 | 0xF3BF_8F50) => Kind::DataBarrier,
        _ if code & 0xFFFF_0FFF == 0xEE07_0F95 => Kind::Barrier,
        _ if matches!(code & 0xFFFF_0FFF, 0xEE07_0F9A | 0xEE07_0FBA) => Kind::DataBarrier,
        _ if code & 0xFFFF_FFFE == 0xF3AF_8002 || code & 0xFFEF_0000 == 0xBF20_0000 => Kind::Wait,
        _ => Kind::Other,
    };
    Instruction { kind, ..plain }
}

/// Target, instruction set there, whether it links.
fn t32_direct(code: u32, address: u32) -> Option<(u32, Isa, bool)> {
    let is = |mask: u32, value: u32| code & mask == value;
    let here = address.wrapping_add(4);
    let signed = |value: u32, bits: u32| ((value << (32 - bits)) as i32 >> (32 - bits)) as u32;
    let to = |offset: u32| Some((here.wrapping_add(offset), Isa::T32, false));
    let sign = code >> 26 & 1;
    // I1 and I2 are the inverse of J1 and J2 where the sign is 0.
    let (i1, i2) = (!(code >> 13 ^ sign) & 1, !(code >> 11 ^ sign) & 1);
    let far = sign << 24 | i1 << 23 | i2 << 22 | (code >> 16 & 0x3FF) << 12 | (code & 0x7FF) << 1;
    if is(0xF000_0000, 0xD000_0000) && !is(0x0E00_0000, 0x0E00_0000) {
        return to(signed(code >> 16 & 0xFF, 8) << 1);
    }
    if is(0xF800_0000, 0xE000_0000) {
        return to(signed(code >> 16 & 0x7FF, 11) << 1);
    }
    if is(0xF800_D000, 0xF000_8000) && !is(0x0380_0000, 0x0380_0000) {
        let near = sign << 19
            | (code >> 11 & 1) << 18
            | (code >> 13 & 1) << 17
            | (code >> 16 & 0x3F) << 11
            | code & 0x7FF;
        return to(signed(near, 20) << 1);
    }
    if is(0xF800_9000, 0xF000_9000) {
        return Some((here.wrapping_add(signed(far, 25)), Isa::T32, code & 1 << 14 != 0));
    }
    if is(0xF800_D001, 0xF000_C000) {
        return Some(((here & !3).wrapping_add(signed(far & !2, 25)), Isa::A32, true));
    }
    if is(0xF500_0000, 0xB100_0000) {
        return to((code >> 25 & 1) << 6 | (code >> 19 & 0x1F) << 1);
    }
    // Loops of Armv8.1-M: LE, LETP backwards, WLS, WLSTP forwards.
    let loops = (code & 0x7FE) << 1 | (code & 0x800) >> 10;
    if matches!(code & 0xFFFF_F001, 0xF00F_C001 | 0xF02F_C001 | 0xF01F_C001) {
        return to(loops.wrapping_neg());
    }
    if is(0xFFF0_F001, 0xF040_C001) || is(0xFFC0_F001, 0xF000_C001) {
        return to(loops);
    }
    None
}

/// Whether the PC is written: whether that is the usual return, whether it links.
fn t32_indirect(code: u32) -> Option<(bool, bool)> {
    let is = |mask: u32, value: u32| code & mask == value;
    if is(0xFF00_0000, 0x4700_0000) {
        let link = code & 1 << 23 != 0;
        return Some((!link && is(0x0078_0000, 0x0070_0000), link));
    }
    let is_return = match code {
        _ if is(0xFF00_0000, 0xBD00_0000) => true,
        _ if is(0xFD87_0000, 0x4487_0000) => is(0xFFFF_0000, 0x46F7_0000),
        // BXJ, TBB and TBH, RFE, SUBS PC.
        _ if is(0xFFF0_D000, 0xF3C0_8000) || is(0xFFF0_FFE0, 0xE8D0_F000) => false,
        _ if is(0xFFD0_0000, 0xE810_0000) || is(0xFFD0_0000, 0xE990_0000) => false,
        _ if is(0xFFF0_D000, 0xF3D0_8000) => false,
        // LDR PC in its forms.
        _ if is(0xFFF0_F000, 0xF8D0_F000) || is(0xFF7F_F000, 0xF85F_F000) => false,
        _ if is(0xFFF0_F800, 0xF850_F800) => is(0x000F_0F00, 0x000D_0B00),
        _ if is(0xFFF0_FFC0, 0xF850_F000) => false,
        // LDM with the PC.
        _ if is(0xFE50_8000, 0xE810_8000) => is(0x0FFF_0000, 0x08BD_0000),
        _ => return None,
    };
    Some((is_return, false))
}
