// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workloads and event builders for tests, demo and benchmarks.
