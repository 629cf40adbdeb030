// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts in sentences for people: `1 event`, `12 345 events`. Every crate that writes sentences uses these.

/// A count with blanks between thousands: `1 234 567`.
#[must_use]
pub fn count_text(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// So many of something: `1 event was lost`, `2 events were lost`, from the words for one and for several.
#[must_use]
pub fn counted(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{} {}", count_text(count), if count == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!(count_text(7), "7");
        assert_eq!(count_text(1_234_567), "1 234 567");
    }

    #[test]
    fn one_is_not_several() {
        let events = |count: usize| counted(count, "event was lost", "events were lost");
        assert_eq!([0, 1, 2].map(events), ["0 events were lost", "1 event was lost", "2 events were lost"]);
        assert_eq!(counted(12_345_u64, "a", "b"), "12 345 b");
    }
}
