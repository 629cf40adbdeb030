// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operands as programs and others write them.
