// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers as people read them.

pub use rtscope_event::{count_text, counted};

const UNITS: [(u64, &str); 4] = [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];

/// A duration with a sensible unit and four significant digits: `4.102 us`. An exact value has no trailing zeros
/// (`500 us` is exactly that, `500.0 us` is rounded).
#[must_use]
pub fn duration_text(ns: u64) -> String {
    let mut index = UNITS.iter().rposition(|(size, _)| ns >= *size).unwrap_or(0);
    loop {
        let (size, unit) = UNITS[index];
        let whole = ns / size;
        let decimals = match whole {
            _ if size == 1 => 0,
            0..10 => 3,
            10..100 => 2,
            100..1000 => 1,
            _ => 0,
        };
        let scale = 10_u128.pow(decimals);
        let scaled = (u128::from(ns) * scale + u128::from(size) / 2) / u128::from(size);
        if scaled >= 1000 * scale && index + 1 < UNITS.len() && whole < 1000 {
            index += 1; // 999.96 us rounds to 1.000 ms.
            continue;
        }
        let exact = scaled * u128::from(size) == u128::from(ns) * scale;
        let mut text = format!("{}", scaled / scale);
        if decimals > 0 {
            let fraction = format!("{:0width$}", scaled % scale, width = decimals as usize);
            let fraction = if exact { fraction.trim_end_matches('0') } else { &fraction };
            if !fraction.is_empty() {
                text = format!("{text}.{fraction}");
            }
        }
        return format!("{text} {unit}");
    }
}

/// A share in thousandths as `12.3 %`.
#[must_use]
pub fn share_text(permille: u32) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}

/// A size as people ask for it: `1 GiB`, `1.5 MiB`.
#[must_use]
pub fn size_text(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let Some((shift, unit)) = units.into_iter().find(|(shift, _)| bytes >= 1 << shift) else {
        return format!("{bytes} bytes");
    };
    let tenths = (bytes * 10) >> shift;
    if tenths % 10 == 0 {
        format!("{} {unit}", tenths / 10)
    } else {
        format!("{}.{} {unit}", tenths / 10, tenths % 10)
    }
}

/// How far something reaches back, in whole units: `2 h 13 min`, `45 s`.
#[must_use]
pub fn reach_text(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_four_digits_and_no_false_precision() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1 us"),
            (4_102, "4.102 us"),
            (31_049, "31.05 us"),
            (310_500, "310.5 us"),
            (500_000, "500 us"),
            (500_010, "500.0 us"),
            (999_960, "1.000 ms"),
            (3_412_345, "3.412 ms"),
            (1_234_567_890, "1.235 s"),
            (86_400_000_000_000, "86400 s"),
        ] {
            assert_eq!(duration_text(ns), text);
        }
    }

    #[test]
    fn counts_are_grouped() {}

    #[test]
    fn sizes_and_reaches_are_in_units_of_people() {
        let sizes = [(1023, "1023 bytes"), (1536, "1.5 KiB"), (1 << 30, "1 GiB"), (5 << 19, "2.5 MiB")];
        sizes.iter().for_each(|(bytes, text)| assert_eq!(size_text(*bytes), *text));
        let reaches = [(0, "0 s"), (125, "2 min 5 s"), (7985, "2 h 13 min"), (200_000, "2 d 7 h")];
        reaches.iter().for_each(|(seconds, text)| assert_eq!(reach_text(seconds * 1_000_000_000), *text));
    }
}
