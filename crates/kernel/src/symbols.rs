// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the kernel's addresses, from `/proc/kallsyms`.

use std::fs;

/// The kernel's symbols at the time at which they were read; modules may come and go.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// By address: its name is this part of `names`.
    places: Vec<(u64, u32, u32)>,
    names: String,
}

impl KernelSymbols {
    /// Of this kernel. Nothing has a name where addresses are kept from the reader (`kernel.kptr_restrict`). Takes about 100 ms.
    #[must_use]
    pub fn read() -> KernelSymbols {
        let text = fs::read("/proc/kallsyms").unwrap_or_default();
        KernelSymbols::parse(&String::from_utf8_lossy(&text))
    }

    fn parse(text: &str) -> KernelSymbols {
        let mut symbols = KernelSymbols::default();
        for line in text.lines() {
            // `ffffffff81000000 T _stext`, and behind it a module. Absolute symbols are no places: offsets within memory of each CPU.
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || matches!(kind, "A" | "a") {
                continue;
            }
            let (Ok(at), Ok(length)) = (u32::try_from(symbols.names.len()), u32::try_from(name.len())) else {
                break;
            };
            symbols.names.push_str(name);
            symbols.places.push((address, at, length));
        }
        symbols.places.sort_by_key(|(address, ..)| *address);
        symbols
    }

    /// The symbol at or before an address, and how far behind it the address is.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<(&str, u64)> {
        // Behind this, it is another thing that has no name.
        const FAR: u64 = 1 << 20;
        let behind = self.places.partition_point(|(at, ..)| *at <= address);
        let (place, at, length) = *self.places.get(behind.checked_sub(1)?)?;
        let name = self.names.get(at as usize..(at + length) as usize)?;
        (address - place < FAR).then_some((name, address - place))
    }

    /// `function+0x1a`, or the address.
    #[must_use]
    pub fn label(&self, address: u64) -> String {
        match self.find(address) {
            Some((name, offset)) => format!("{name}+{offset:#x}"),
            None => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_name_of_the_symbol_before_it() {
        let text = "ffffffff81000100 T second\nffffffff81000000 T first\n0000000000000010 A offset\nffffffffc0000000 t third\t[module]\nbad\n";
        let symbols = KernelSymbols::parse(text);
        assert_eq!(symbols.find(0xffff_ffff_8100_00ff), Some(("first", 0xff)));
        assert_eq!(symbols.label(0xffff_ffff_8100_0100), "second+0x0");
        assert_eq!(symbols.label(0xffff_ffff_c000_0012), "third+0x12");
        assert_eq!(symbols.label(0x10), "0x10");
        assert_eq!(symbols.find(0xffff_8880_0000_0000), None, "memory that was allocated");
        assert_eq!(KernelSymbols::parse("0000000000000000 T hidden\n").find(0), None);
    }
}
