// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A system call in a line: `fsync(fd: 3)`, and what it returned: `-ENOENT (No such file or directory)`.

use crate::clean;
use crate::event::error;
use rtscope_event::{CallArgument, SystemCall};

/// The call with its arguments. Small numbers are decimal, everything else is an address or a mask.
pub(crate) fn call_label(call: &SystemCall) -> String {
    let name = call.name.clone().unwrap_or_else(|| format!("system call {}", call.number));
    let args: Vec<String> = call.args.iter().map(argument_label).collect();
    // Of a file that anybody may have written.
    clean(&format!("{name}({})", args.join(", ")))
}

fn argument_label(argument: &CallArgument) -> String {
    const SMALL: u64 = 1 << 16;
    let value = argument.value;
    // An int fills half of a register.
    let text = match (value as i64, value as u32 as i32) {
        (number @ -4096..0, _) => number.to_string(),
        (_, number @ -4096..0) if value <= u64::from(u32::MAX) => number.to_string(),
        _ if value < SMALL => value.to_string(),
        _ => format!("{value:#x}"),
    };
    match &argument.name {
        Some(name) => format!("{name}: {text}"),
        None => text,
    }
}

/// What it returned.
pub(crate) fn result_label(call: &SystemCall) -> String {
    let Some(result) = call.result else { return "not returned".to_owned() };
    error(result).unwrap_or_else(|| {
        let value = result as u64;
        argument_label(&CallArgument { name: None, value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: Option<&str>, args: &[(Option<&str>, u64)], result: i64) -> SystemCall {
        let argument = |(name, value): &(Option<&str>, u64)| CallArgument {
            name: name.map(str::to_owned),
            value: *value,
        };
        let args = args.iter().map(argument).collect();
        SystemCall { number: 257, name: name.map(str::to_owned), args, result: Some(result) }
    }

    #[test]
    fn calls_are_shown_with_their_arguments_and_results() {
        let at_fdcwd = u64::from(-100_i32 as u32);
        let open = call(Some("openat"), &[(Some("dfd"), at_fdcwd), (Some("filename"), 0x7f00_1234_5678)], -2);
        assert_eq!(call_label(&open), "openat(dfd: -100, filename: 0x7f0012345678)");
        assert_eq!(result_label(&open), "-ENOENT (No such file or directory)");
        let unknown = call(None, &[(None, 3), (None, u64::MAX)], 70_000);
        assert_eq!(call_label(&unknown), "system call 257(3, -1)");
        assert_eq!(result_label(&unknown), "0x11170");
        assert_eq!(result_label(&call(None, &[], 0)), "0");
        assert_eq!(result_label(&SystemCall { result: None, ..unknown }), "not returned");
    }
}
