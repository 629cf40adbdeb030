// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reports as text and JSON.
