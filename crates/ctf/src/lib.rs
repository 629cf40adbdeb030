// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CTF 1.8 in the LTTng kernel layout: writer and reader.
