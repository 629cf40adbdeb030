// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events of Rust programs, in the same rings as those of C programs (include/rtscope).
//!
//! ```
//! use rtscope_probe::{enumeration, event, event_level};
//!
//! enumeration!(Mode { 0 => "idle", 1 => "run" });
//!
//! let (axis, target, note, raw) = (1, 0.5, "by hand", [0x12, 0x34]);
//! event!(motor, setpoint, axis: u64 = axis, target: f64 = target, mode: enum(Mode) = 1, note: str = note);
//! event_level!(debug, motor, message, id: x16 = 0x7ff, raw: [x8; 2] = &raw, rest: bytes = &raw[1..]);
//! ```
//!
//! [`printf!`] has a text that readers make, and [`span!`] a begin and an end.
//!
//! Record with `rtscope record -u 'motor:*' -o DIR -- ./program`. An event that nobody records costs two loads and a branch, and
//! evaluates no argument. One that is recorded makes no system call once its thread has a ring, takes no lock, and never waits;
//! what does not fit is lost and counted. Events may be in signal handlers, too.
//!
//! Each event is also a USDT probe that `perf list`, `bpftrace -l` and gdb see. Each place that has the event is a separate probe
//! with its own semaphore, as in C; bpftrace 0.17 switches on only the first of one name.
//!
//! The slow part (files, rings, threads, forks) is the C header itself, compiled with this crate: one implementation, whoever
//! records, and one ring a thread in a process that has events in C, C++ and Rust. The environment works as for C:
//! `RTSCOPE=0`, `RTSCOPE_BUFFER`, `RTSCOPE_SUB_BUFFERS`, `RTSCOPE_LAZY`, `RTSCOPE_LOCK`, `RTSCOPE_ALLOW_BLOCKING` (RTSCOPE_EVENT(3)).
//!
//! With the feature `disable`, and on machines that rtscope does not know, events are nothing: their arguments are looked at by
//! the compiler and never evaluated.
//!
//! Not for programs that load this crate as a Rust `dylib` (`-C prefer-dynamic`): the events of such a program do not link. Rust
//! libraries of type `cdylib` are fine, each of them with its own copy.

use std::io;

#[doc(hidden)]
pub mod private;

/// How rings are made from now on; what is `None` or false stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Size of each thread's ring; rounded up to a power of two from 64 KiB to 1 GiB.
    pub ring_bytes: Option<u64>,
    /// Into how many parts a ring is divided: 2 to 256, a power of two.
    pub sub_buffers: Option<u32>,
    /// Lock rings in memory.
    pub lock: bool,
    /// A thread has a ring only after [`thread_init`].
    pub only_when_asked: bool,
    /// `rtscope record --blocking` may make threads wait that have no real-time policy.
    pub allow_blocking: bool,
}

/// Sets what rings made from now on are like. Nothing when events are disabled.
///
/// # Errors
/// `EINVAL`: a value is out of range. `ENOTSUP`: this process cannot be traced (rtscope_init(3)), or has no event.
pub fn init(options: &Options) -> io::Result<()> {
    private::init(options)
}

/// Makes the calling thread's ring now, so that its first event costs what all others cost. Nothing when events are disabled.
///
/// # Errors
/// Why there is none (rtscope_thread_init(3)): events of this thread are then lost, and counted.
pub fn thread_init() -> io::Result<()> {
    private::thread_init()
}

/// Gives the calling thread's ring up before the thread ends, which would do it too.
pub fn thread_exit() {
    private::thread_exit();
}

/// Records an event of level `info`: `event!(provider, event, field: type = value, ...)`, at most 16 fields.
///
/// | type | value | in the trace |
/// |---|---|---|
/// | `u8` to `u64`, `i8` to `i64` | the Rust type of that name | an integer |
/// | `x8` to `x64` | `u8` to `u64` | the same, in hexadecimal |
/// | `bool` | `bool` | true or false |
/// | `f32`, `f64` | that | a floating-point number |
/// | `enum(E)` | `i32` | a number with the name that [`enumeration!`] gave it |
/// | `str`, `str(100)` | `&str` | text up to its first NUL, of at most 255 bytes (what is cut ends in `…`), or as many as said (at most 4096), whole characters |
/// | `[u16; 4]` | `&[u16; 4]`, of any number type above | an array |
/// | `[u16]`, `bytes` (that is `[x8]`) | `&[u16]` | a sequence; more than 1024 bytes are cut off |
///
/// Values are evaluated once, in order, and only when somebody records the event. Names are letters, digits and `_`.
#[macro_export]
macro_rules! event {
    ($provider:ident, $($event:tt)+) => {
        $crate::event_level!(info, $provider, $($event)+)
    };
}

/// [`event!`] of another level: `emerg`, `alert`, `crit`, `err`, `warning`, `notice`, `info` or `debug`, as syslog has them.
#[macro_export]
macro_rules! event_level {
    ($level:ident, $provider:ident, $event:ident
        $(, $field:ident : $kind:tt $(($($of:tt)+))? = $value:expr)* $(,)?) => {
        $crate::__rtscope_event!(
            $level, $provider, (::core::stringify!($event)) $(, $field : $kind $(($($of)+))? = $value)*
        )
    };
}

/// An event with a text that readers make, `printf!(provider, event, "x = %d, %s", x: i32 = x, why: str = "late")`: the format, as printf(3) has it
/// (without `*` and `n`), then fields as of [`event!`], at most 15. The program formats nothing.
#[macro_export]
macro_rules! printf {
    ($provider:ident, $event:ident, $format:literal
        $(, $field:ident : $kind:tt $(($($of:tt)+))? = $value:expr)* $(,)?) => {{
        const _: () = {
            static LABELS: $crate::private::Labels<1> = $crate::private::Labels::new(
                $crate::private::checked_labels([(0, ::core::concat!($format, "\0"))])
            );
            static ENUMERATION: $crate::private::Enumeration = $crate::private::Enumeration::new(
                $crate::private::checked(
                    ::core::concat!($crate::__rtscope_format_name!($provider $event), "\0"), &[]
                ),
                &LABELS,
            );
            $crate::__rtscope_enumeration_place!(ENUMERATION);
        };
        $crate::event!(
            $provider, $event $(, $field : $kind $(($($of)+))? = $value)*, printf: printf($provider $event) = 0
        )
    }};
}

/// A part of a function: `let _span = span!(provider, name, field: type = value, ...);` records `name_begin` with these fields, and `name_end` when
/// the value is dropped. Readers take the two for one span.
#[macro_export]
macro_rules! span {
    ($provider:ident, $name:ident
        $(, $field:ident : $kind:tt $(($($of:tt)+))? = $value:expr)* $(,)?) => {{
        $crate::__rtscope_event!(
            info, $provider, (::core::concat!(::core::stringify!($name), "_begin"))
            $(, $field : $kind $(($($of)+))? = $value)*
        );
        $crate::__rtscope_span!($provider, $name)
    }};
}

/// The name of a format, as the header makes it: of one place in the sources.
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_format_name {
    ($provider:ident $event:ident) => {
        ::core::concat!(
            "rtscope_printf_",
            ::core::stringify!($provider),
            "_",
            ::core::stringify!($event),
            "_",
            ::core::line!(),
            "_",
            ::core::column!()
        )
    };
}

#[cfg(not(rtscope_disabled))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_event {
    ($level:ident, $provider:ident, ($($name:tt)+)
        $(, $field:ident : $kind:tt $(($($of:tt)+))? = $value:expr)*) => {{
        const __RTSCOPE_TEXT: &::core::primitive::str = $crate::private::checked(
            ::core::concat!(
                ::core::stringify!($provider), ":", $($name)+, " ", $crate::__rtscope_level!($level), "\n"
                $(, $crate::__rtscope_text!($kind $(($($of)+))?), " ", ::core::stringify!($field), "\n")*, "\0"
            ),
            &[$(::core::stringify!($field)),*],
        );
        #[unsafe(link_section = ".probes")]
        static __RTSCOPE_EVENT: $crate::private::Event =
            $crate::private::Event::new(__RTSCOPE_TEXT, &__RTSCOPE_PLACE);
        #[used]
        #[unsafe(link_section = "rtscope_events_2")]
        static __RTSCOPE_PLACE: $crate::private::Place = $crate::private::Place::new(&__RTSCOPE_EVENT);
        // Each is asked once: nobody reloads them behind the values, which may be calls.
        let (enabled, probed) = (__RTSCOPE_EVENT.enabled(), __RTSCOPE_EVENT.is_probed());
        if (enabled != 0) | probed {
            match ($($crate::__rtscope_field!($value, $kind $(($($of)+))?),)*) {
                fields => {
                    if probed {
                        $crate::__rtscope_probe!(__RTSCOPE_EVENT, fields, $provider, ($($name)+), $($field)*);
                    }
                    __RTSCOPE_EVENT.record(&fields, enabled);
                }
            }
        }
    }};
}

/// Events that are nothing.
#[cfg(rtscope_disabled)]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_event {
    ($level:ident, $provider:ident, ($($name:tt)+)
        $(, $field:ident : $kind:tt $(($($of:tt)+))? = $value:expr)*) => {{
        if false {
            let _ = $crate::__rtscope_level!($level);
            let _ = ($($crate::__rtscope_field!($value, $kind $(($($of)+))?),)*);
        }
    }};
}

/// The end of a span, which has no USDT probe.
#[cfg(not(rtscope_disabled))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_span {
    ($provider:ident, $name:ident) => {{
        const __RTSCOPE_TEXT: &::core::primitive::str = $crate::private::checked(
            ::core::concat!(
                ::core::stringify!($provider),
                ":",
                ::core::stringify!($name),
                "_end ",
                $crate::__rtscope_level!(info),
                "\n\0"
            ),
            &[],
        );
        #[unsafe(link_section = ".probes")]
        static __RTSCOPE_EVENT: $crate::private::Event =
            $crate::private::Event::new(__RTSCOPE_TEXT, &__RTSCOPE_PLACE);
        #[used]
        #[unsafe(link_section = "rtscope_events_2")]
        static __RTSCOPE_PLACE: $crate::private::Place = $crate::private::Place::new(&__RTSCOPE_EVENT);
        $crate::private::Span::new(&__RTSCOPE_EVENT)
    }};
}

#[cfg(rtscope_disabled)]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_span {
    ($provider:ident, $name:ident) => {
        $crate::private::Span::nothing()
    };
}

/// Names for values of a field: `enumeration!(pub Mode { 0 => "idle", 1 => "run" });`, beside other items.
///
/// It makes a type of that name, which fields say: `mode: enum(Mode) = 1`. A program has one enumeration of a name.
#[macro_export]
macro_rules! enumeration {
    ($visibility:vis $name:ident { $($value:expr => $label:literal),+ $(,)? }) => {
        #[allow(non_camel_case_types)]
        #[doc = ::core::concat!("Names of the values of `", ::core::stringify!($name), "`, for rtscope.")]
        $visibility enum $name {}

        const _: () = {
            static LABELS: $crate::private::Labels<{ [$($label),+].len() }> = $crate::private::Labels::new(
                $crate::private::checked_labels([$(($value, ::core::concat!($label, "\0"))),+])
            );
            static ENUMERATION: $crate::private::Enumeration = $crate::private::Enumeration::new(
                $crate::private::checked(
                    ::core::concat!(::core::stringify!($name), "\0"), &[::core::stringify!($name)]
                ),
                &LABELS,
            );
            $crate::__rtscope_enumeration_place!(ENUMERATION);

            impl $crate::private::EnumerationType for $name {
                const ENUMERATION: &'static $crate::private::Enumeration = &ENUMERATION;
            }
        };
    };
}

#[cfg(not(rtscope_disabled))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_enumeration_place {
    ($enumeration:ident) => {
        #[used]
        #[unsafe(link_section = "rtscope_enums_2")]
        static PLACE: &$crate::private::Enumeration = &$enumeration;
    };
}

#[cfg(rtscope_disabled)]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_enumeration_place {
    ($enumeration:ident) => {};
}

#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_level {
    (emerg) => { 0 };
    (alert) => { 1 };
    (crit) => { 2 };
    (err) => { 3 };
    (warning) => { 4 };
    (notice) => { 5 };
    (info) => { 6 };
    (debug) => { 7 };
}

/// What the header calls a type.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_text {
    (i8) => { "s8" };
    (i16) => { "s16" };
    (i32) => { "s32" };
    (i64) => { "s64" };
    (bytes) => { "seq x8" };
    (str ($max:expr)) => { "str" };
    (enum ($name:ident)) => { ::core::concat!("enum ", ::core::stringify!($name)) };
    (printf ($provider:ident $event:ident)) => {
        ::core::concat!("enum ", $crate::__rtscope_format_name!($provider $event))
    };
    ([$of:tt; $count:literal]) => { ::core::concat!("array ", $crate::__rtscope_text!($of), " ", $count) };
    ([$of:tt]) => { ::core::concat!("seq ", $crate::__rtscope_text!($of)) };
    ($kind:ident) => { ::core::stringify!($kind) };
}

/// A value as what it is in the payload.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_field {
    ($value:expr, str) => { $crate::private::marked_text($value) };
    ($value:expr, str ($max:expr)) => { $crate::private::text($value, $max) };
    ($value:expr, bytes) => { $crate::__rtscope_field!($value, [x8]) };
    ($value:expr, printf ($($of:tt)*)) => { $crate::private::number::<::core::primitive::i32>($value) };
    ($value:expr, enum ($name:ident)) => { $crate::private::label::<$name>($value) };
    ($value:expr, [$of:ident; $count:literal]) => {
        $crate::private::array::<$crate::private::kinds::$of, $count>($value)
    };
    ($value:expr, [$of:ident]) => { $crate::private::sequence::<$crate::private::kinds::$of>($value) };
    ($value:expr, bool) => { $crate::private::number::<::core::primitive::bool>($value) };
    ($value:expr, f32) => { $crate::private::number::<::core::primitive::f32>($value) };
    ($value:expr, f64) => { $crate::private::number::<::core::primitive::f64>($value) };
    ($value:expr, $kind:ident) => { $crate::private::number::<$crate::private::kinds::$kind>($value) };
}

/// A USDT probe (SystemTap's note format, version 3), whose semaphore is in the event. Its arguments are 64-bit words in memory,
/// at most 12 of them: numbers, or where a text, an array or a floating-point number is.
#[cfg(not(rtscope_disabled))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_probe {
    ($this:ident, $fields:ident, $provider:ident, ($($name:tt)+), $($field:ident)*) => {
        let mut arguments = $crate::private::Arguments::new();
        $crate::private::Fields::arguments(&$fields, &mut arguments);
        // SAFETY: an instruction that does nothing, and a note in the program file.
        unsafe {
            $crate::__rtscope_asm!(
                "990: nop /* {words} */",
                ".pushsection .note.stapsdt,\"?\",\"note\"",
                ".balign 4",
                ".4byte 992f-991f, 994f-993f, 3",
                "991: .asciz \"stapsdt\"",
                "992: .balign 4",
                "993: .8byte 990b, _.stapsdt.base, {event} + 20",
                ::core::concat!(".asciz \"", ::core::stringify!($provider), "\""),
                ::core::concat!(".asciz \"", $($name)+, "\""),
                ::core::concat!(".asciz \"", $crate::__rtscope_words!($($field)*), "\""),
                "994: .balign 4",
                ".popsection",
                event = sym $this,
                words = in(reg) arguments.words()
            );
        }
    };
}

/// Where each argument of a probe is: an offset in bytes from a register.
#[cfg(not(rtscope_disabled))]
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_words {
    () => { "" };
    ($first:ident $($field:ident)*) => {
        ::core::concat!(
            $crate::__rtscope_word!(0), $crate::__rtscope_words!([8 16 24 32 40 48 56 64 72 80 88] $($field)*)
        )
    };
    ([$($offset:literal)*]) => { "" };
    ([] $($field:ident)+) => { "" };
    ([$offset:literal $($offsets:literal)*] $first:ident $($field:ident)*) => {
        ::core::concat!(
            " ", $crate::__rtscope_word!($offset), $crate::__rtscope_words!([$($offsets)*] $($field)*)
        )
    };
}

#[cfg(all(not(rtscope_disabled), target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_word {
    ($offset:literal) => { ::core::concat!("8@", $offset, "({words})") };
}

#[cfg(all(not(rtscope_disabled), target_arch = "aarch64"))]
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! __rtscope_word {
    ($offset:literal) => { ::core::concat!("8@[{words}, ", $offset, "]") };
}

#[cfg(all(not(rtscope_disabled), target_arch = "x86_64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_asm {
    ($($all:tt)*) => {
        ::core::arch::asm!($($all)*, options(att_syntax, nostack, preserves_flags, readonly))
    };
}

#[cfg(all(not(rtscope_disabled), target_arch = "aarch64"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __rtscope_asm {
    ($($all:tt)*) => {
        ::core::arch::asm!($($all)*, options(nostack, preserves_flags, readonly))
    };
}
