// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much of a long test is done: all of it, or a short form with the same assertions.
//!
//! A test that kills a process at each of many points, or watches for minutes, takes most of the time of `./x test` and finds
//! something once in months. So it does a part of that there, and everything in `./x test --all`, which sets
//! `RTSCOPE_TEST_ALL=1`. The part is the same each time, or a failure could not be repeated.

/// What asks for the full form.
const VARIABLE: &str = "RTSCOPE_TEST_ALL";
/// The short form has one of this many.
const ONE_OF: usize = 4;
/// At least this many: the first, the last, and one between them.
const LEAST: usize = 3;

/// Whether long tests run in their full form.
pub fn full() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "1")
}

/// All of these in the full form; otherwise a fourth, evenly spread, with the first and the last.
pub fn sample<T>(all: Vec<T>) -> Vec<T> {
    if full() { all } else { spread(all) }
}

fn spread<T>(all: Vec<T>) -> Vec<T> {
    let last = all.len().saturating_sub(1);
    let number = all.len().div_ceil(ONE_OF).max(LEAST);
    if all.len() <= number {
        return all;
    }
    let mut chosen = (0..number).map(|at| at * last / (number - 1)).peekable();
    let is_chosen = |(at, _): &(usize, T)| chosen.next_if_eq(at).is_some();
    all.into_iter().enumerate().filter(is_chosen).map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_form_has_a_fourth_with_both_ends() {
        let of = |number: usize| spread((0..number).collect());
        assert_eq!(of(40), [0, 4, 8, 13, 17, 21, 26, 30, 34, 39]);
        assert_eq!(of(10), [0, 4, 9]);
        assert_eq!(of(4), [0, 1, 3]);
        assert_eq!((of(3), of(1), of(0)), (vec![0, 1, 2], vec![0], vec![]));
    }
}
