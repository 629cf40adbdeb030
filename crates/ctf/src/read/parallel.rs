// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Work on all CPUs that this process may use.

use std::sync::{Mutex, PoisonError};

/// More threads would only wait for memory or the disk.
const MAX_THREADS: usize = 16;

/// The useful number of threads.
pub(crate) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

/// Does `work` with each item, on all CPUs.
pub(crate) fn for_each<T: Send>(items: Vec<T>, work: impl Fn(T) + Sync) {
    let count = threads().min(items.len());
    if count <= 1 {
        return items.into_iter().for_each(work);
    }
    let items = Mutex::new(items.into_iter());
    let next = || items.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..count {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}
