// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares that add up: rounding each part of a whole separately gives 99.9 % or 100.1 %; largest remainders do not.

/// All, in thousandths: shares are shown with one decimal of a percent.
pub const WHOLE: u32 = 1000;

/// Divides `share` among `parts` in proportion, so that the results add up to `share` exactly. All are 0 when the parts
/// are.
#[must_use]
pub fn divide(share: u32, parts: &[u64]) -> Vec<u32> {
    let total: u128 = parts.iter().map(|part| u128::from(*part)).sum();
    if total == 0 {
        return vec![0; parts.len()];
    }
    let scaled = |part: u64| u128::from(part) * u128::from(share);
    // A quotient is at most `share`, so it fits.
    let mut result: Vec<u32> = parts.iter().map(|part| (scaled(*part) / total) as u32).collect();
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(scaled(parts[*index]) % total));
    let left = share - result.iter().sum::<u32>();
    for index in order.into_iter().take(left as usize) {
        result[index] += 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        assert_eq!(divide(WHOLE, &[1, 1, 1]), [334, 333, 333]);
        assert_eq!(divide(WHOLE, &[0, 5]), [0, 1000]);
        assert_eq!(divide(WHOLE, &[]), [0; 0]);
        assert_eq!(divide(WHOLE, &[0, 0]), [0, 0]);
        assert_eq!(divide(7, &[u64::MAX, u64::MAX, 1]), [4, 3, 0]);
    }
}
