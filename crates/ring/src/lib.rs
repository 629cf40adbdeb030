// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reading the mapped banks of the flight recorder: snapshot, frame, resynchronise.
