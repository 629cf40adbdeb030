// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the loop's USDT probe is in this program: its instruction, its semaphore and its arguments, from the notes of the ELF
//! file (SystemTap's format, version 3). perf has a command of its own for that, which keeps a copy of the program in the user's
//! home; the kernel's uprobe_events only needs the numbers.

use rtscope_tracers::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// As `uprobe_events` wants it.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    /// Of the instruction, in the file.
    pub offset: u64,
    /// Of the counter that switches it on, in the file; 0: none.
    pub semaphore: u64,
    /// Where each argument is.
    pub arguments: Vec<String>,
}

impl Probe {
    /// What to write into `uprobe_events`.
    pub fn definition(&self, name: &str, program: &Path, fields: &[&str]) -> String {
        let semaphore = if self.semaphore == 0 { String::new() } else { format!("({:#x})", self.semaphore) };
        let arguments: String =
            fields.iter().zip(&self.arguments).map(|(name, place)| format!(" {name}={place}:u64")).collect();
        format!("p:{name} {}:{:#x}{semaphore}{arguments}", program.display(), self.offset)
    }
}

/// The running program's file, by a name that a definition of a probe can have: `uprobe_events` and bpftrace end a path at a space,
/// a colon or a quotation mark. Then it is the kernel's link to the file.
pub fn plain_name(own: &Path) -> PathBuf {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    if own.as_os_str().as_encoded_bytes().iter().all(is_plain) {
        return own.to_owned();
    }
    format!("/proc/{}/exe", std::process::id()).into()
}

/// Finds a probe of a program.
pub fn find(program: &Path, provider: &str, name: &str) -> Result<Probe, Error> {
    let bytes =
        fs::read(program).map_err(|error| Error::Failed(format!("{}: {error}", program.display())))?;
    let found = Elf(&bytes).probe(provider, name);
    found.ok_or_else(|| {
        Error::Failed(format!("{} has no USDT probe {provider}:{name} that is understood", program.display()))
    })
}

/// A 64-bit little-endian file. What does not fit is `None`.
struct Elf<'a>(&'a [u8]);

const PT_LOAD: u32 = 1;
const NT_STAPSDT: u32 = 3;

impl Elf<'_> {
    fn number<const N: usize>(&self, at: u64) -> Option<[u8; N]> {
        let at = usize::try_from(at).ok()?;
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u16(&self, at: u64) -> Option<u64> {
        self.number(at).map(|bytes| u64::from(u16::from_le_bytes(bytes)))
    }

    fn u32(&self, at: u64) -> Option<u32> {
        self.number(at).map(u32::from_le_bytes)
    }

    fn u64(&self, at: u64) -> Option<u64> {
        self.number(at).map(u64::from_le_bytes)
    }

    fn text(&self, at: u64, end: u64) -> Option<&str> {
        let bytes = self.0.get(usize::try_from(at).ok()?..usize::try_from(end).ok()?)?;
        let length = bytes.iter().position(|byte| *byte == 0)?;
        std::str::from_utf8(bytes.get(..length)?).ok()
    }

    fn probe(&self, provider: &str, name: &str) -> Option<Probe> {
        if self.0.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (headers, size, count) = (self.u64(0x28)?, self.u16(0x3a)?, self.u16(0x3c)?);
        let names = self.u64(headers + self.u16(0x3e)? * size + 0x18)?;
        let section = (0..count).map(|at| headers + at * size).find(|header| {
            let name = self.u32(*header).map(|name| names + u64::from(name));
            name.and_then(|at| self.text(at, self.0.len() as u64)) == Some(".note.stapsdt")
        })?;
        let (mut at, end) =
            (self.u64(section + 0x18)?, self.u64(section + 0x18)? + self.u64(section + 0x20)?);
        while at < end {
            let (name_bytes, bytes, kind) = (self.u32(at)?, self.u32(at + 4)?, self.u32(at + 8)?);
            let content = at + 12 + u64::from(name_bytes).next_multiple_of(4);
            let until = content + u64::from(bytes);
            let provider_end = content + 24 + self.text(content + 24, until)?.len() as u64 + 1;
            let here = self.text(content + 24, until)? == provider && self.text(provider_end, until)? == name;
            if kind == NT_STAPSDT && here {
                let arguments = provider_end + name.len() as u64 + 1;
                let semaphore = self.u64(content + 16)?;
                return Some(Probe {
                    offset: self.in_file(self.u64(content)?)?,
                    semaphore: if semaphore == 0 { 0 } else { self.in_file(semaphore)? },
                    arguments: self
                        .text(arguments, until)?
                        .split_whitespace()
                        .map(place)
                        .collect::<Option<_>>()?,
                });
            }
            at = until.next_multiple_of(4);
        }
        None
    }

    /// Where in the file that is which is loaded at an address.
    fn in_file(&self, address: u64) -> Option<u64> {
        let (headers, size, count) = (self.u64(0x20)?, self.u16(0x36)?, self.u16(0x38)?);
        (0..count).find_map(|at| {
            let header = headers + at * size;
            let (offset, start, bytes) =
                (self.u64(header + 8)?, self.u64(header + 16)?, self.u64(header + 32)?);
            let inside = address.checked_sub(start).filter(|inside| *inside < bytes)?;
            (self.u32(header)? == PT_LOAD).then_some(offset + inside)
        })
    }
}

/// One argument, `8@%rax`, `8@-16(%rbp)`, `8@x3` or `8@[sp, 8]`, as uprobe_events writes it; constants have no way there.
fn place(argument: &str) -> Option<String> {
    let (_, operand) = argument.split_once('@')?;
    if let Some(inside) = operand.strip_suffix(')') {
        let (offset, base) = inside.split_once('(')?;
        let offset: i64 = if offset.is_empty() { 0 } else { offset.parse().ok()? };
        return Some(format!("{offset:+}({})", register(base)?));
    }
    register(operand)
}

fn register(name: &str) -> Option<String> {
    let Some(name) = name.strip_prefix('%') else {
        // 64-bit Arm.
        let number = name.strip_prefix('x')?;
        return number.parse::<u8>().is_ok().then(|| format!("%{name}"));
    };
    // The kernel calls the registers that are older than their 64 bits by their old names.
    let known = name.strip_prefix('r').filter(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()));
    Some(format!("%{}", known.unwrap_or(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_definitions_cannot_have_is_replaced_by_one_to_the_same_file() {
        assert_eq!(
            plain_name(Path::new("/opt/rtscope-1.0_a/rtscope")),
            Path::new("/opt/rtscope-1.0_a/rtscope")
        );
        let own = std::env::current_exe().expect("it has a path");
        for odd in ["/a checkout/rtscope", "/a:b/rtscope", "/a\"b/rtscope", "/a\nb/rtscope", "/ä/rtscope"] {
            let name = plain_name(Path::new(odd));
            assert_eq!(fs::read_link(&name).expect("a link"), own, "{odd}");
        }
    }

    #[test]
    fn arguments_are_said_as_the_kernel_says_them() {
        for (argument, said) in [
            ("8@%r13", "%r13"),
            ("8@%rax", "%ax"),
            ("8@64(%rbp)", "+64(%bp)"),
            ("-8@-16(%rsp)", "-16(%sp)"),
            ("8@(%rdi)", "+0(%di)"),
            ("8@x3", "%x3"),
        ] {
            assert_eq!(place(argument).as_deref(), Some(said), "{argument}");
        }
        assert_eq!(place("8@$5"), None);
        assert_eq!(place("rax"), None);
    }

    #[test]
    fn this_program_has_the_probe_of_its_loop_and_no_other() {
        let own = std::env::current_exe().expect("it runs");
        let probe = find(&own, "npt", "loop").expect("the loop is linked in");
        assert!(probe.offset > 0 && probe.semaphore > 0 && probe.arguments.len() == 2, "{probe:?}");
        assert!(find(&own, "npt", "none").is_err());
        assert!(find(Path::new("/proc/self/status"), "npt", "loop").is_err());
        let text = probe.definition("group/event", Path::new("/bin/x"), &["turn", "gap_ticks"]);
        assert!(text.starts_with("p:group/event /bin/x:0x") && text.contains(") turn="), "{text}");
    }
}
