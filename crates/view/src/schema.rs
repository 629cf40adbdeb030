// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of all JSON objects that rtscope prints, or writes for others to read. docs/json.md describes each of them, and
//! a test compares it with this list and with what the program prints (crates/cli/tests/it/json.rs).
//!
//! A name says which command prints the object and, after a dot, which of its objects it is. No two objects share a name. The
//! number is raised when a field is removed, renamed or given another meaning; new fields may come without that.

/// `rtscope caps --json`.
pub const CAPS: &str = crate::CAPS_SCHEMA;
/// `rtscope fds --json`.
pub const FDS: &str = crate::FDS_SCHEMA;
/// `rtscope explain --flame FILE --json`.
pub const FLAME: &str = crate::FLAME_SCHEMA;
/// `rtscope hardware --json`.
pub const HARDWARE: &str = crate::hardware::SCHEMA;
/// `rtscope hardware capture --json`.
pub const HARDWARE_CAPTURE: &str = crate::hardware::CAPTURE_SCHEMA;
/// `rtscope hardware decode --json`.
pub const HARDWARE_DECODE: &str = crate::hardware::DECODE_SCHEMA;
/// `rtscope hist --json`.
pub const HIST: &str = crate::HIST_SCHEMA;
/// `rtscope io-profile --detect --json`.
pub const IO_CHANGE: &str = crate::IO_CHANGE_SCHEMA;
/// `rtscope io-profile --json`.
pub const IO_PROFILE: &str = crate::IO_PROFILE_SCHEMA;
/// `rtscope impact --json`.
pub const IMPACT: &str = rtscope_measure::impact::SCHEMA;
/// `rtscope impact --max-rate --json`.
pub const IMPACT_RATE: &str = rtscope_measure::impact::RATE_SCHEMA;
/// `rtscope list -k --json`.
pub const LIST: &str = crate::list::SCHEMA;
/// `rtscope list --json`.
pub const LIST_PROGRAMS: &str = crate::list::PROGRAMS_SCHEMA;
/// `rtscope npt --json`.
pub const NPT: &str = rtscope_measure::npt::SCHEMA;
/// `rtscope record -k --json`.
pub const RECORD: &str = rtscope_session::schema::RECORD;
/// `rtscope record --at … --hardware pt --json`.
pub const RECORD_PLACES: &str = rtscope_session::schema::RECORD_PLACES;
/// `rtscope record -u --json`.
pub const RECORD_USER: &str = rtscope_session::schema::RECORD_USER;
/// `rtscope shield create --json`.
pub const SHIELD_CREATE: &str = crate::shield::CREATE_SCHEMA;
/// `rtscope shield plan --json`.
pub const SHIELD_PLAN: &str = crate::shield::PLAN_SCHEMA;
/// `rtscope shield status --json`.
pub const SHIELD_STATUS: &str = crate::shield::STATUS_SCHEMA;
/// `rtscope shield table --json`.
pub const SHIELD_TABLE: &str = rtscope_measure::table::SCHEMA;
/// `rtscope shield top --json`.
pub const SHIELD_TOP: &str = crate::shield::top::SCHEMA;
/// `rtscope shield undo --json`.
pub const SHIELD_UNDO: &str = crate::shield::UNDO_SCHEMA;
/// `rtscope shield verify --json`.
pub const SHIELD_VERIFY: &str = crate::shield::verify::SCHEMA;
/// `rtscope state --json`.
pub const STATE: &str = rtscope_session::watch::state::SCHEMA;
/// `trigger.json` in the directory of a saved snapshot.
pub const SNAPSHOT: &str = rtscope_store::trigger::SCHEMA;
/// `rtscope snapshot --json`.
pub const SNAPSHOT_REQUEST: &str = crate::SNAPSHOT_REQUEST_SCHEMA;
/// `rtscope watch response --json` and `rtscope explain --json`.
pub const WATCH: &str = crate::SCHEMA;

/// All of them.
pub const ALL: [&str; 34] = [
    CAPS,
    crate::EVENT_SCHEMA,
    FDS,
    FLAME,
    HARDWARE,
    HARDWARE_CAPTURE,
    HARDWARE_DECODE,
    HIST,
    IMPACT,
    IMPACT_RATE,
    IO_CHANGE,
    IO_PROFILE,
    LIST,
    LIST_PROGRAMS,
    NPT,
    RECORD,
    RECORD_PLACES,
    RECORD_USER,
    SHIELD_CREATE,
    SHIELD_PLAN,
    SHIELD_STATUS,
    SHIELD_TABLE,
    SHIELD_TOP,
    SHIELD_UNDO,
    SHIELD_VERIFY,
    SNAPSHOT,
    SNAPSHOT_REQUEST,
    crate::STAT_SCHEMA,
    crate::STAT_IRQS_SCHEMA,
    crate::STAT_LATENCY_SCHEMA,
    crate::STAT_SYSCALLS_SCHEMA,
    crate::STAT_TASKS_SCHEMA,
    STATE,
    WATCH,
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_regular_and_each_is_there_once() {
        assert_eq!(BTreeSet::from(ALL).len(), ALL.len());
        for name in ALL {
            let (words, version) = name.split_once('/').expect("a version");
            assert!(version.parse::<u32>().is_ok_and(|version| version > 0), "{name}");
            let is_word = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase());
            assert!(words.starts_with("rtscope.") && words.split('.').all(is_word), "{name}");
        }
    }
}
