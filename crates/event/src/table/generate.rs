// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is made of the table: an enumeration, and functions that have one arm for each entry.

/// A name in traces: the second one, if there is one.
macro_rules! trace_name {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $name:literal) => {
        $name
    };
}

/// An optional expression.
macro_rules! or_none {
    () => {
        None
    };
    ($value:expr) => {
        $value
    };
}

/// What a form's values are: the form itself, but for the forms that are no types of values.
macro_rules! value_of {
    (Address) => { u64 };
    (Softirq) => { u32 };
    (CpuNumber) => { CpuId };
    (ThisCpu) => { CpuId };
    (IdleState) => { Option<u32> };
    (FileName) => { String };
    ($form:ident) => { $form };
}

/// A field of a record: of the structure, or a flag of its word.
macro_rules! read_record {
    ($form:ident, $words:ident, $flags:ident, $record:ident . $field:ident) => {
        <$form as Form>::from_record(field_of!($words, $flags, $record.$field))?
    };
    ($form:ident, $words:ident, $flags:ident, $record:ident . $field:ident, $flag:ident) => {
        <$form as forms::Flags>::from_flags(u32::from($flags), abi::$flag)?
    };
}

/// The table; its syntax is described where it is.
macro_rules! kernel_events {
    ($(
        $(#[$doc:meta])*
        $variant:ident: $kind:ident, $record:ident, $origin:expr => {
            $(
                $([$beside:ident: $companion:ident($($of:ident),*) $(as $beside_name:literal)?])*
                $(#[$field_doc:meta])*
                $field:ident: $form:ident $(($flag:ident))? $(as $name:literal)? $(else $missing:expr)?
            ),*
            $(; [$last:ident: $last_companion:ident($($last_of:ident),*) $(as $last_name:literal)?])?
        }
    )*) => {
        /// What happened. Field meanings are those of the kernel's tracepoints; times are nanoseconds.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[allow(
            missing_docs,
            reason = "the variants and fields are the kernel's tracepoints and arguments of the same names"
        )]
        pub enum EventKind {
            $($(#[$doc])* $variant { $($(#[$field_doc])* $field: value_of!($form),)* },)*
        }

        /// Place in the table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Place {
            $($variant,)*
        }

        /// The place of an event.
        #[inline]
        fn place(event: &EventKind) -> Place {
            match event {
                $(EventKind::$variant { .. } => Place::$variant,)*
            }
        }

        static ENTRIES: &[Entry] = &[$(Entry {
            record: abi::$kind,
            place: Place::$variant,
            origin: $origin,
            fields: &[
                $(
                    $((trace_name!($beside $($beside_name)?), <$companion as Beside>::TRACE),)*
                    (trace_name!($field $($name)?), <$form as Form>::TRACE),
                )*
                $((trace_name!($last $($last_name)?), <$last_companion as Beside>::TRACE),)?
            ],
        },)*];

        /// The event of a record's type, flags and words (header included); `None` for a type that is not an event's, a
        /// record that is too short for its type, or one that has something unknown in it.
        #[inline]
        fn from_record(kind: u8, flags: u8, words: &[u64]) -> Option<EventKind> {
            match u32::from(kind) {
                $(abi::$kind => {
                    let words = words.first_chunk::<{ size_of::<abi::$record>() / 8 }>()?;
                    Some(EventKind::$variant {
                        $($field: read_record!($form, words, flags, $record.$field $(, $flag)?),)*
                    })
                })*
                _ => None,
            }
        }

        /// Gives all fields to a sink.
        #[inline]
        fn put<N: NameLookup>(event: &EventKind, moment: &Moment<'_, N>, out: &mut impl TraceSink) {
            match event {
                $(EventKind::$variant { $($field,)* } => {
                    $(
                        $($companion($(*$of),*).put(moment, out);)*
                        <$form as Form>::put($field, out);
                    )*
                    $($last_companion($(*$last_of),*).put(moment, out);)?
                })*
            }
        }

        /// The event at a place from the values of a trace.
        #[inline]
        fn take(place: Place, fields: &mut TakenFields<'_>, names: &mut FoundNames) -> Option<EventKind> {
            Some(match place {
                $(Place::$variant => {
                    $(
                        $(let $beside = <$companion as Beside>::take(fields);)*
                        let $field = <$form as Form>::take(fields).or_else(|| or_none!($($missing)?))?;
                    )*
                    $(let $last = <$last_companion as Beside>::take(fields);)?
                    $($($companion($($of),*).note($beside, names);)*)*
                    $($last_companion($($last_of),*).note($last, names);)?
                    EventKind::$variant { $($field,)* }
                })*
            })
        }

        /// Appends all fields to a line of text.
        fn show(event: &EventKind, line: &mut String) {
            match event {
                $(EventKind::$variant { $($field,)* } => {
                    $(text::show::<$form>(stringify!($field), $field, line);)*
                })*
            }
        }

        /// The event at a place from a line of text.
        #[allow(unused_variables, reason = "few companions are used where a field is missing")]
        fn parse(place: Place, fields: &text::TextFields<'_>) -> Result<EventKind, ParseEventError> {
            Ok(match place {
                $(Place::$variant => {
                    $(
                        $(let $beside = <$companion as Beside>::UNKNOWN;)*
                        let $field = fields.value::<$form>(stringify!($field), || or_none!($($missing)?))?;
                    )*
                    EventKind::$variant { $($field,)* }
                })*
            })
        }

        /// An event at a place with random values.
        fn random(place: Place, random: &mut forms::RandomNumbers<'_>) -> EventKind {
            match place {
                $(Place::$variant => EventKind::$variant { $($field: <$form as Form>::random(random),)* },)*
            }
        }
    };
}
