// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Looking for defects: what differs from its surroundings (by bands of lines, which many can do at once), then what of that hangs
//! together.

use crate::frame::{Defect, Frame, HEIGHT, WIDTH};

/// Half the side of the square that a pixel is compared with: larger than a defect.
const AROUND: usize = 7;
/// Half the side of the square whose mean is compared: less noise.
const NEAR: usize = 1;
/// What differs by more is no noise.
const THRESHOLD: i32 = 20;
/// Fewer pixels are no defect.
const LEAST_AREA: usize = 4;
/// How far the middle that was found may be from the planted one.
const TOLERANCE: f64 = 1.5;

/// What a pixel is: as its surroundings, brighter or darker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// As its surroundings.
    Plain,
    /// Brighter.
    Bright,
    /// Darker.
    Dark,
}

/// Pixels that hang together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Brighter or darker.
    pub mark: Mark,
    /// Columns and lines.
    pub pixels: Vec<(usize, usize)>,
}

/// What an analysis says of a blob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finding {
    /// Column of its middle.
    pub x: f64,
    /// Line of its middle.
    pub y: f64,
    /// Brighter or darker.
    pub bright: bool,
    /// Mean difference from the surface around it.
    pub contrast: f64,
}

/// Lines `from..to` of a frame, marked.
pub fn mark_band(frame: &Frame, from: usize, to: usize) -> Vec<[Mark; WIDTH]> {
    let first = from.saturating_sub(AROUND);
    let sums = sums(frame, first, (to + AROUND).min(HEIGHT));
    let mean = |x: usize, y: usize, reach: usize| {
        let (left, right) = (x.saturating_sub(reach), (x + reach + 1).min(WIDTH));
        let (top, bottom) = (y.saturating_sub(reach) - first, (y + reach + 1).min(HEIGHT) - first);
        let sum = sums[bottom][right] + sums[top][left] - sums[top][right] - sums[bottom][left];
        sum / ((right - left) * (bottom - top)) as i32
    };
    let mark = |x: usize, y: usize| match mean(x, y, NEAR) - mean(x, y, AROUND) {
        difference if difference > THRESHOLD => Mark::Bright,
        difference if difference < -THRESHOLD => Mark::Dark,
        _ => Mark::Plain,
    };
    (from..to).map(|y| std::array::from_fn(|x| mark(x, y))).collect()
}

/// Sums of all pixels above and to the left, of lines `from..to`.
fn sums(frame: &Frame, from: usize, to: usize) -> Vec<[i32; WIDTH + 1]> {
    let mut sums = vec![[0; WIDTH + 1]];
    for (line, pixels) in frame.pixels[from..to].iter().enumerate() {
        let (mut row, mut sum) = ([0; WIDTH + 1], 0);
        for (x, pixel) in pixels.iter().enumerate() {
            sum += i32::from(*pixel);
            row[x + 1] = sums[line][x + 1] + sum;
        }
        sums.push(row);
    }
    sums
}

/// What hangs together (of four neighbours), and is large enough.
pub fn blobs(marks: &[[Mark; WIDTH]]) -> Vec<Blob> {
    let mut seen = vec![[false; WIDTH]; marks.len()];
    let mut blobs = Vec::new();
    for y in 0..marks.len() {
        for x in 0..WIDTH {
            if marks[y][x] == Mark::Plain || seen[y][x] {
                continue;
            }
            let (mark, mut pixels, mut next) = (marks[y][x], Vec::new(), vec![(x, y)]);
            seen[y][x] = true;
            while let Some((x, y)) = next.pop() {
                pixels.push((x, y));
                let neighbours = [(x.wrapping_sub(1), y), (x + 1, y), (x, y.wrapping_sub(1)), (x, y + 1)];
                for (x, y) in neighbours {
                    if y < marks.len() && x < WIDTH && marks[y][x] == mark && !seen[y][x] {
                        seen[y][x] = true;
                        next.push((x, y));
                    }
                }
            }
            if pixels.len() >= LEAST_AREA {
                blobs.push(Blob { mark, pixels });
            }
        }
    }
    blobs
}

/// Looks at one blob.
pub fn analyse(frame: &Frame, blob: &Blob) -> Finding {
    let count = blob.pixels.len() as f64;
    let mean = |of: &dyn Fn(&(usize, usize)) -> f64| blob.pixels.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(&|pixel| pixel.0 as f64), mean(&|pixel| pixel.1 as f64));
    // The surface is measured on a ring that no defect reaches.
    let ring = (0..64).map(|step| {
        let angle = f64::from(step) * std::f64::consts::TAU / 64.0;
        let at = |middle: f64, side: f64, most: usize| {
            (middle + 9.0 * side).round().clamp(0.0, most as f64) as usize
        };
        f64::from(frame.pixels[at(y, angle.sin(), HEIGHT - 1)][at(x, angle.cos(), WIDTH - 1)])
    });
    let surface = ring.sum::<f64>() / 64.0;
    let contrast = mean(&|(x, y)| f64::from(frame.pixels[*y][*x])) - surface;
    Finding { x, y, bright: contrast > 0.0, contrast }
}

/// Whether it is one of the planted ones.
pub fn agrees(finding: &Finding, planted: &[Defect]) -> bool {
    planted.iter().any(|defect| {
        let distance = (finding.x - defect.x as f64).hypot(finding.y - defect.y as f64);
        distance <= TOLERANCE && finding.bright == defect.bright
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;
    use bytemuck::Zeroable;

    #[test]
    fn what_was_planted_is_found_and_nothing_else() {
        let mut frame = Frame::zeroed();
        let (mut all, mut most) = (0, 0);
        for number in 0..2000 {
            let defects = frame::planted(3, number);
            frame::take(&mut frame, 3, number, &defects);
            let blobs = blobs(&mark_band(&frame, 0, HEIGHT));
            assert_eq!(blobs.len(), defects.len(), "frame {number}: {defects:?} {blobs:?}");
            let agree = blobs.iter().filter(|blob| agrees(&analyse(&frame, blob), &defects)).count();
            assert_eq!(agree, defects.len(), "frame {number}: {defects:?}");
            all += defects.len();
            most = most.max(defects.len());
        }
        assert!(all > 4000 && most == 6, "{all} {most}");
    }

    #[test]
    fn bands_give_the_same_as_the_whole() {
        let mut frame = Frame::zeroed();
        frame::take(&mut frame, 0, 5, &frame::planted(0, 5));
        let whole = mark_band(&frame, 0, HEIGHT);
        for bands in [2, 3, 5, HEIGHT] {
            let line = |band: usize| HEIGHT * band / bands;
            let parts = (0..bands).flat_map(|band| mark_band(&frame, line(band), line(band + 1)));
            assert!(parts.collect::<Vec<_>>() == whole, "{bands}");
        }
    }

    #[test]
    fn another_frames_defects_do_not_agree() {
        let mut frame = Frame::zeroed();
        let (mut wrong, mut all) = (0, 0);
        for number in 0..100 {
            frame::take(&mut frame, 0, number, &frame::planted(0, number));
            let others = frame::planted(0, number + 1);
            for blob in blobs(&mark_band(&frame, 0, HEIGHT)) {
                all += 1;
                wrong += usize::from(agrees(&analyse(&frame, &blob), &others));
            }
        }
        assert!(wrong * 10 < all, "{wrong} of {all}");
    }
}
