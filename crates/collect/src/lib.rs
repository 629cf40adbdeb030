// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From rings to events: decode, order, name, account for losses.
