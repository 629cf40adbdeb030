// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports as text for people and as JSON for programs.
//!
//! Both say the same: what a text rounds or leaves out is in the JSON in nanoseconds. Nothing here reads a clock or
//! writes anywhere; a [`WallClock`] comes from the caller.
#![forbid(unsafe_code)]

mod block;
mod call;
mod caps;
mod controls;
mod event;
mod explanation;
mod fds;
mod flame;
pub mod hardware;
mod hist;
pub mod impact;
mod integers;
mod io_profile;
mod json;
mod label;
mod late;
pub mod list;
mod locale;
mod lock;
pub mod npt;
pub mod perfetto;
mod plot;
mod record;
mod recording;
pub mod schema;
pub mod shield;
mod stacks;
mod stat;
mod state;
mod style;
mod summary;
pub mod table;
pub mod top;
mod units;
mod watch;

pub use caps::{CAPS_SCHEMA, caps_json, caps_text};
pub use controls::without_controls;
pub use event::{
    Addition, Architecture, Clock, CsvFormat, CsvWriter, EVENT_SCHEMA, EventFormat, EventPrinter, JsonFormat,
    JsonWriter, PrettyFormat, PrettyWriter, Resolver, Resolving, ResolvingWriter, Saying, SayingWriter, Who,
    to_read, why_not,
};
pub use explanation::{explanation_text, loss_line};
pub use fds::{FDS_SCHEMA, fds_json, fds_text};
pub use flame::{FLAME_SCHEMA, flame_json, flame_svg, flame_text};
pub use hist::{HIST_SCHEMA, heat_svg, hist_json, hist_text};
pub use integers::with_strings;
pub use io_profile::{
    IO_CHANGE_SCHEMA, IO_PROFILE_SCHEMA, io_change_json, io_change_text, io_profile_json, io_profile_text,
};
pub use json::{SCHEMA, actions_json, command_json, explanation_json, late_json, stuck_json, summary_json};
pub use label::{actor_label, cause_label, clean, origin_label, thread_label};
pub use late::{late_line, late_text, stuck_text};
pub use locale::{is_utf8, width_of};
pub use record::{
    RECORD_SCHEMA, RECORD_USER_SCHEMA, SNAPSHOT_REQUEST_SCHEMA, much_lost, recorded_json, recorded_notes,
    recorded_text, snapshot_request_json,
};
pub use recording::{flight_recording_note, progress_line, recording_notes};
pub use rtscope_event::WallClock;
pub use stat::{
    STAT_IRQS_SCHEMA, STAT_LATENCY_SCHEMA, STAT_SCHEMA, STAT_SYSCALLS_SCHEMA, STAT_TASKS_SCHEMA, TraceStat,
    Wanted, figures_json, figures_text, irqs_json, irqs_text, latency_json, latency_svg, latency_text,
    missing_line, missing_lines, syscalls_json, syscalls_text, tasks_json, tasks_text,
};
pub use state::state_text;
pub use style::{Style, in_ascii};
pub use summary::summary_text;
pub use units::{count_text, counted, duration_text, reach_text, share_text, size_text};
pub use watch::{
    actions_text, explanation_file, history_json, history_notes, snapshot_json, snapshot_lost_json,
    snapshot_text, watch_start_json, watch_start_notes,
};
