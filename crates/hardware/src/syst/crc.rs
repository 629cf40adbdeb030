// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SyS-T's checksum: CRC-32C, of the header, what follows it, and the payload.

static TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 == 0 { 0 } else { 0x82f6_3b78 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// Of all bytes of a message before its checksum.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |value: u32, byte| value >> 8 ^ TABLE[(value as u8 ^ byte) as usize])
}
