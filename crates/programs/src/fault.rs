// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A fault of rtscope's own while it looks at what a user has left: that user's is all that it may cost, and it is told.
//!
//! What is in a user's directory can be anything, and each way of reading it wrongly was to be found by a test. For the one that was not, this is the
//! bulkhead: a panic ends neither the thread, which all users share, nor the recording. What was being looked at is given up, since nobody knows its state.
//! What empties rings (`collector`) has no such bulkhead, since all users' events go into one trace: a panic there ends the recording.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Does this work; a panic in it, of which the hook for panics has said more, is an error with its words.
pub(crate) fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // What this can leave half-done is given up by whoever calls it, or counts things of one user.
    catch_unwind(AssertUnwindSafe(work)).map_err(|payload| words(payload.as_ref()))
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_with_its_words() {
        assert_eq!(guarded(|| 7), Ok(7));
        let nothing: [u8; 0] = [];
        let read = |at: usize| nothing[at];
        assert!(guarded(|| read(3)).is_err_and(|why| why.contains("index is 3")));
        assert_eq!(guarded(|| -> u8 { panic!("as it is") }), Err("as it is".to_string()));
    }
}
