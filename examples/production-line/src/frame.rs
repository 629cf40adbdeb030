// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Synthetic camera frames: an unevenly lit, noisy surface with a known number of defects, the same for the same number each time. So
//! whoever has looked for them can be checked.

use bytemuck::{Pod, Zeroable};

/// Pixels of a line.
pub const WIDTH: usize = 128;
/// Lines.
pub const HEIGHT: usize = 96;
/// At most one defect is in a cell of so many pixels a side, so that two never touch.
const CELL: usize = 32;
const COLUMNS: usize = WIDTH / CELL;
const CELLS: usize = COLUMNS * (HEIGHT / CELL);
/// A frame has fewer defects than that.
const DEFECTS: u64 = 7;
/// How much brighter or darker they are than what is around them; the noise is a tenth of it.
const CONTRAST: i32 = 60;
const NOISE: u64 = 7;

/// A frame as it goes through the queue. All times are of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Frame {
    /// Counts the frames of its camera, those that found the queue full, too.
    pub number: u64,
    /// When the camera was to take it.
    pub due_ns: u64,
    /// When it did.
    pub taken_ns: u64,
    /// The camera.
    pub camera: u32,
    /// How many defects it has.
    pub planted: u32,
    /// Brightness.
    pub pixels: [[u8; WIDTH]; HEIGHT],
}

/// A defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defect {
    /// Column of its middle.
    pub x: usize,
    /// Line of its middle.
    pub y: usize,
    /// Half of its diameter in pixels.
    pub radius: usize,
    /// Brighter than what is around it, or darker.
    pub bright: bool,
}

/// Numbers that look random, and are the same each time (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn of(camera: u32, number: u64) -> Random {
        let seed = (number << 8 | u64::from(camera)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random(seed | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % end
    }
}

/// The defects of a frame.
pub fn planted(camera: u32, number: u64) -> Vec<Defect> {
    let mut random = Random::of(camera, number);
    let count = random.below(DEFECTS);
    let mut free: Vec<usize> = (0..CELLS).collect();
    let mut defect = |_| {
        let cell = free.swap_remove(random.below(free.len() as u64) as usize);
        let mut middle = || CELL / 2 - 4 + random.below(9) as usize;
        let (x, y) = (middle(), middle());
        Defect {
            x: cell % COLUMNS * CELL + x,
            y: cell / COLUMNS * CELL + y,
            radius: 2 + random.below(3) as usize,
            bright: random.below(2) == 0,
        }
    };
    (0..count).map(&mut defect).collect()
}

/// What the camera sees. `defects`: those of this number, worked out before, since that takes memory.
pub fn take(frame: &mut Frame, camera: u32, number: u64, defects: &[Defect]) {
    (frame.camera, frame.number, frame.planted) = (camera, number, defects.len() as u32);
    let mut random = Random::of(camera.wrapping_add(128), number);
    for (y, line) in frame.pixels.iter_mut().enumerate() {
        for (x, pixel) in line.iter_mut().enumerate() {
            // The lamp is in a corner.
            *pixel = (90 + (x + y) / 4 + random.below(NOISE) as usize) as u8;
        }
    }
    for defect in defects {
        let Defect { x, y, radius, bright } = *defect;
        for line in y - radius..=y + radius {
            for column in x - radius..=x + radius {
                if column.abs_diff(x).pow(2) + line.abs_diff(y).pow(2) <= radius.pow(2) {
                    let pixel = &mut frame.pixels[line][column];
                    let value = i32::from(*pixel) + if bright { CONTRAST } else { -CONTRAST };
                    *pixel = value.clamp(0, 255) as u8;
                }
            }
        }
    }
}
