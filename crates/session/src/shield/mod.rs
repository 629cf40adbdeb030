// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What runs for a shield: the processes that hold the scheduler of mode artis (`artis` starts them, `keeper` is what they do), and the judgement of
//! what really ran on its CPUs (`verify`, by the checks of `checks`), what the scheduler lends (`top`),
//! how a task of it is scheduled (`policy`), and how a shield is now (`state`). Settings, the journal and the way back are in the crate
//! `rtscope-shield`.

pub mod artis;
pub mod checks;
pub mod keeper;
pub mod policy;
pub mod state;
pub mod top;
pub mod verify;
mod weights;
