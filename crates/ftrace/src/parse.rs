// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a tracepoint's `format` file.
//!
//! The kernel writes it with a few fixed `printf` formats (`f_show` in `kernel/trace/trace_events.c`), but the types in it
//! are whatever the tracepoint's author wrote: any C declaration, even with attributes and unexpanded macros. So a
//! declaration is only trusted where nothing else tells; sizes, offsets and signs are the file's. An unclear field is
//! [`FieldKind::Opaque`]: its bytes are retained, nothing is guessed.

use crate::format::{EventFormat, Field, FieldKind, Meaning, Scalar};

/// More fields than any tracepoint has. Kernel 6.18's largest has 24.
const MAX_FIELDS: usize = 1024;
/// A record of the ring buffer fits into one page, and pages are at most 64 KiB.
const MAX_RECORD_BYTES: u32 = 1 << 16;
/// Bytes of a pointer, and of a register that holds a system call's argument. The kernel's files are those of this machine.
const WORD: u8 = if usize::BITS == 64 { 8 } else { 4 };

/// A `format` file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A part that every such file has is missing.
    #[error("the description of a tracepoint has no line '{0}'")]
    NoLine(&'static str),
    /// Not a number, or too large a number.
    #[error("'{text}' in the description of tracepoint {event} is not a usable {what}")]
    Number {
        /// The tracepoint.
        event: String,
        /// Its meaning.
        what: &'static str,
        /// The text in its place.
        text: String,
    },
    /// A line that describes a field in another form than the kernel's.
    #[error("the description of tracepoint {event} has a field that cannot be read: '{line}'")]
    Field {
        /// The tracepoint.
        event: String,
        /// The line.
        line: String,
    },
    /// More fields than a tracepoint can have.
    #[error("the description of tracepoint {0} has more than {MAX_FIELDS} fields")]
    TooManyFields(String),
}

impl EventFormat {
    /// Reads the text of a `format` file. The subsystem is not in it: it is the name of the directory.
    ///
    /// # Errors
    /// See [`ParseError`]. Any text gives a value or an error.
    pub fn parse(system: &str, text: &str) -> Result<EventFormat, ParseError> {
        // The rest of the file belongs to `print fmt`, line feeds included.
        let (head, print_fmt) = match text.split_once("\nprint fmt:") {
            Some((head, rest)) => (head, rest.trim()),
            None => (text, ""),
        };
        let value = |key: &'static str| {
            head.lines().find_map(|line| line.strip_prefix(key)).map(str::trim).ok_or(ParseError::NoLine(key))
        };
        let name = value("name:")?.to_string();
        let id = value("ID:")?;
        let id = id.parse().map_err(|_| number(&name, "identity", id))?;
        let mut format = EventFormat {
            id,
            system: system.to_string(),
            name,
            common: Vec::new(),
            fields: Vec::new(),
            print_fmt: print_fmt.to_string(),
        };
        for line in head.lines() {
            let line = line.trim();
            // `field special:` is how very old kernels wrote fields that need care; the rest is the same.
            let Some(rest) = line.strip_prefix("field:").or_else(|| line.strip_prefix("field special:"))
            else {
                continue;
            };
            let field = parse_field(&format, line, rest)?;
            let list =
                if field.name.starts_with("common_") { &mut format.common } else { &mut format.fields };
            list.push(field);
            if format.common.len() + format.fields.len() > MAX_FIELDS {
                return Err(ParseError::TooManyFields(format.name));
            }
        }
        Ok(format)
    }
}

fn number(event: &str, what: &'static str, text: &str) -> ParseError {
    ParseError::Number { event: event.to_string(), what, text: text.chars().take(80).collect() }
}

/// `unsigned short common_type; offset:0; size:2; signed:0;`
fn parse_field(format: &EventFormat, line: &str, rest: &str) -> Result<Field, ParseError> {
    let broken = || ParseError::Field { event: format.name.clone(), line: line.chars().take(200).collect() };
    // A declaration can hold a `;` only in an attribute not seen so far; the numbers are the last three parts.
    let (declaration, numbers) = rest.rsplit_once("offset:").ok_or_else(broken)?;
    let declaration = declaration.trim().strip_suffix(';').ok_or_else(broken)?.trim();
    let mut parts = numbers.split(';').map(str::trim);
    let mut part = |key: &'static str, what: &'static str| {
        let text = parts.next().ok_or_else(broken)?;
        let text = text.strip_prefix(key).ok_or_else(broken)?;
        text.parse::<u32>()
            .ok()
            .filter(|number| *number <= MAX_RECORD_BYTES)
            .ok_or_else(|| number(&format.name, what, text))
    };
    let offset = part("", "offset of a field")?;
    let size = part("size:", "size of a field")?;
    // Very old kernels wrote no sign.
    let signed = part("signed:", "sign of a field").unwrap_or(0) != 0;
    if offset + size > MAX_RECORD_BYTES {
        return Err(number(&format.name, "end of a field", &(offset + size).to_string()));
    }
    let declared = Declaration::parse(declaration).ok_or_else(broken)?;
    let kind = kind_of(format, &declared, size, signed);
    Ok(Field { name: declared.name.to_string(), declaration: declared.to_string(), offset, size, kind })
}

/// A declaration taken apart: `__data_loc` `unsigned long` `[]` `cpus`.
struct Declaration<'a> {
    /// `__data_loc`, `__rel_loc` or nothing.
    location: &'a str,
    /// The type before the name, without brackets.
    base: String,
    /// The text between the brackets; `None`: not an array.
    brackets: Option<&'a str>,
    /// The field's name.
    name: &'a str,
}

impl std::fmt::Display for Declaration<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.location.is_empty() {
            write!(f, "{} ", self.location)?;
        }
        f.write_str(&self.base)?;
        if let Some(len) = self.brackets {
            write!(f, "[{len}]")?;
        }
        Ok(())
    }
}

impl<'a> Declaration<'a> {
    fn parse(text: &'a str) -> Option<Declaration<'a>> {
        let (location, rest) = ["__data_loc", "__rel_loc"]
            .into_iter()
            .find_map(|word| text.strip_prefix(word).map(|rest| (word, rest.trim_start())))
            .unwrap_or(("", text));
        // `char name[16]` has the brackets behind the name, `__data_loc char[] name` has them before it.
        let (rest, behind) = split_brackets(rest);
        let start = rest
            .rfind(|c: char| !(c.is_alphanumeric() || c == '_'))
            .map_or(0, |at| at + rest[at..].chars().next().map_or(1, char::len_utf8));
        let (base, name) = rest.split_at(start);
        let (base, before) = split_brackets(base.trim_end());
        let base = without_attributes(base);
        if name.is_empty() || base.is_empty() {
            return None;
        }
        Some(Declaration { location, base, brackets: behind.or(before), name })
    }

    fn is_pointer(&self) -> bool {
        self.base.contains('*')
    }

    /// The words of the type that tell something about its values.
    fn words(&self) -> impl Iterator<Item = &str> {
        let qualifier = |word: &&str| !matches!(*word, "const" | "volatile" | "__user" | "__rcu" | "__iomem");
        self.base.split(|c: char| c.is_whitespace() || c == '*').filter(|w| !w.is_empty()).filter(qualifier)
    }

    fn is_aggregate(&self) -> bool {
        !self.is_pointer() && self.words().next().is_some_and(|word| word == "struct" || word == "union")
    }

    fn is_char(&self) -> bool {
        !self.is_pointer() && self.words().eq(["char"])
    }

    fn is_cpu_mask(&self) -> bool {
        self.words().any(|word| word == "cpumask_t" || word == "cpumask_var_t" || word == "cpumask")
    }
}

/// `char name[16]` → `char name`, `16`.
fn split_brackets(text: &str) -> (&str, Option<&str>) {
    let open =
        text.strip_suffix(']').and_then(|inner| inner.rfind('[').map(|at| (&inner[..at], &inner[at + 1..])));
    open.map_or((text, None), |(head, len)| (head.trim_end(), Some(len.trim())))
}

/// Kernels built with clang can show `__attribute__((btf_type_tag("user")))` in types.
fn without_attributes(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("__attribute__") {
        out.push_str(&rest[..at]);
        let tail = &rest[at + "__attribute__".len()..];
        let mut depth = 0_usize;
        let end = tail.char_indices().find_map(|(index, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (depth == 0 && c == ')').then_some(index + 1)
        });
        rest = end.map_or("", |end| &tail[end..]);
    }
    out.push_str(rest);
    out.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn kind_of(format: &EventFormat, declared: &Declaration<'_>, size: u32, signed: bool) -> FieldKind {
    if !declared.location.is_empty() {
        let element = dynamic_element(format, declared, signed);
        // The word that tells where the elements are.
        let usable = size == 4;
        let relative = declared.location == "__rel_loc";
        return if usable { FieldKind::Dynamic { element, relative } } else { FieldKind::Opaque };
    }
    let element = |bytes: u32| {
        let size = u8::try_from(bytes).ok().filter(|size| matches!(size, 1 | 2 | 4 | 8))?;
        Some(Scalar { size, signed, meaning: meaning(format, declared) })
    };
    if let Some(len) = declared.brackets {
        return array_of(declared, len, size, element);
    }
    if declared.is_aggregate() || (declared.is_cpu_mask() && size > 8) {
        let mask = declared.is_cpu_mask() && size % 8 == 0;
        let word = Scalar { size: 8, signed: false, meaning: Meaning::CpuMask };
        return if mask { FieldKind::Array { element: word, len: size / 8 } } else { FieldKind::Opaque };
    }
    element(size).map_or(FieldKind::Opaque, |scalar| FieldKind::Scalar(as_argument(format, declared, scalar)))
}

/// An array in place. Its length is the number in the brackets; some kernels show a macro's name there, and then the
/// element's size is that of its type.
fn array_of(
    declared: &Declaration<'_>,
    len: &str,
    size: u32,
    element: impl Fn(u32) -> Option<Scalar>,
) -> FieldKind {
    let known = declared_size(declared);
    let written = len.parse::<u32>().ok().filter(|len| *len > 0 && size % len == 0);
    let len = written.or_else(|| known.map(|bytes| size / u32::from(bytes)));
    let bytes = match len {
        Some(len) if len > 0 => Some(size / len),
        _ => known.map(u32::from),
    };
    let scalar = bytes.filter(|_| !declared.is_aggregate()).and_then(element);
    match (scalar, len) {
        (Some(element), Some(len)) => FieldKind::Array { element, len },
        _ => FieldKind::Opaque,
    }
}

/// The file has no size for the elements of a dynamic array: that of their type is taken, or else they are bytes.
fn dynamic_element(format: &EventFormat, declared: &Declaration<'_>, signed: bool) -> Scalar {
    if declared.is_cpu_mask() {
        return Scalar { size: WORD, signed: false, meaning: Meaning::CpuMask };
    }
    match declared_size(declared) {
        Some(size) => Scalar { size, signed, meaning: meaning(format, declared) },
        None => Scalar { size: 1, signed: false, meaning: Meaning::Hex },
    }
}

fn meaning(format: &EventFormat, declared: &Declaration<'_>) -> Meaning {
    if declared.is_pointer() {
        let text = format.system == "syscalls"
            && declared.brackets.is_none()
            && declared.base.matches('*').count() == 1
            && declared.words().eq(["char"])
            && declared.base.starts_with("const")
            // Data of a given length (write, pwrite64, mq_timedsend), not a text.
            && !matches!(declared.name, "buf" | "u_msg_ptr");
        return if text { Meaning::UserText } else { Meaning::Hex };
    }
    if declared.is_cpu_mask() {
        return Meaning::CpuMask;
    }
    if declared.is_char() && declared.brackets.is_some() {
        return Meaning::Text;
    }
    // The only way to tell a bit set from other arrays of `unsigned long` is how the kernel prints it.
    let printed_as = |function: &str| format.print_fmt.contains(&format!("{function}({})", declared.name));
    if printed_as("__get_cpumask") || printed_as("__get_rel_cpumask") {
        return Meaning::CpuMask;
    }
    if printed_as("__get_bitmask") || printed_as("__get_rel_bitmask") {
        return if declared.name.contains("cpu") { Meaning::CpuMask } else { Meaning::Hex };
    }
    Meaning::Number
}

/// The kernel stores each argument of a system call in a whole register and calls it unsigned, even `int dfd`, of which only
/// the lower half is defined. Here such an argument has its C type (on little-endian machines it is at the same place):
/// −100 and not 4294967196.
fn as_argument(format: &EventFormat, declared: &Declaration<'_>, scalar: Scalar) -> Scalar {
    let is_argument = format.system == "syscalls" && format.name.starts_with("sys_enter_");
    if !is_argument || cfg!(target_endian = "big") || scalar.size != WORD || declared.is_pointer() {
        return scalar;
    }
    let words: Vec<&str> = declared.words().collect();
    match c_type(&words.join(" ")) {
        Some((size, signed)) => Scalar { size, signed, ..scalar },
        None => scalar,
    }
}

fn declared_size(declared: &Declaration<'_>) -> Option<u8> {
    if declared.is_pointer() {
        return Some(WORD);
    }
    let words: Vec<&str> = declared.words().collect();
    if words.first() == Some(&"enum") {
        return Some(4);
    }
    c_type(&words.join(" ")).map(|(size, _)| size)
}

/// Bytes and sign of the C types that the kernel's own headers define (`long` is a register on Linux).
fn c_type(name: &str) -> Option<(u8, bool)> {
    Some(match name {
        "char" | "signed char" | "s8" | "__s8" | "int8_t" => (1, true),
        "unsigned char" | "u8" | "__u8" | "uint8_t" | "bool" | "_Bool" => (1, false),
        "short" | "short int" | "signed short" | "s16" | "__s16" | "int16_t" => (2, true),
        "unsigned short" | "short unsigned int" | "u16" | "__u16" | "uint16_t" | "umode_t" | "__be16"
        | "__le16" => (2, false),
        "int" | "signed int" | "signed" | "s32" | "__s32" | "int32_t" | "pid_t" | "clockid_t" | "key_t"
        | "mqd_t" | "key_serial_t" | "timer_t" | "rwf_t" => (4, true),
        "unsigned int" | "unsigned" | "uint" | "u32" | "__u32" | "uint32_t" | "uid_t" | "gid_t" | "qid_t"
        | "dev_t" | "gfp_t" | "__be32" | "__le32" => (4, false),
        "long long" | "long long int" | "s64" | "__s64" | "int64_t" | "loff_t" => (8, true),
        "unsigned long long"
        | "long long unsigned int"
        | "u64"
        | "__u64"
        | "uint64_t"
        | "sector_t"
        | "__be64"
        | "__le64" => (8, false),
        "long" | "long int" | "ssize_t" | "off_t" => (WORD, true),
        "unsigned long" | "long unsigned int" | "size_t" | "uintptr_t" => (WORD, false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
