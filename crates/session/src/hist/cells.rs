// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cells in which the kernel counts by key (`struct rts_cell`), read while they grow.

use rtscope_abi as abi;
use rtscope_analyze::keyed::{BucketCount, Key, KeyedHistograms};
use rtscope_event::Comm;
use rtscope_kernel::Memory;
use std::collections::BTreeMap;
use std::mem::size_of;

const WORDS: usize = size_of::<abi::rts_cell>() / 8;
/// Cells that are copied at once.
const AT_ONCE: usize = 512;

/// What is in them.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellReading {
    /// By instance.
    pub instances: Vec<KeyedHistograms>,
    /// Names of tasks by instance and id.
    pub names: BTreeMap<(usize, u32), Comm>,
    /// Cells that are used, of the CPU that has the most.
    pub used: usize,
}

/// Reads all of them. What is counted meanwhile may be in the count and not yet in the sum.
pub(crate) fn read(memory: &Memory) -> CellReading {
    let mut reading = CellReading {
        instances: vec![KeyedHistograms::default(); memory.instances],
        ..CellReading::default()
    };
    let Some((cells, each)) = &memory.cells else { return reading };
    let mut words = vec![0; AT_ONCE.min(*each) * WORDS];
    let bytes = words.len() * 8;
    for cpu in 0..cells.bytes() / (each * WORDS * 8) {
        let mut used = 0;
        for at in (0..each * WORDS * 8).step_by(bytes) {
            cells.copy(cpu * each * WORDS * 8 + at, &mut words);
            for cell in words.chunks_exact(WORDS).filter(|cell| cell[0] != 0) {
                used += 1;
                reading.add(cell);
            }
        }
        reading.used = reading.used.max(used);
    }
    reading
}

impl CellReading {
    fn add(&mut self, cell: &[u64]) {
        let bits = |shift: u32, width: u32| cell[0] >> shift & ((1 << width) - 1);
        let instance = bits(abi::RTS_CELL_INSTANCE_SHIFT, 3) as usize;
        let bucket = bits(abi::RTS_CELL_BUCKET_SHIFT, 11) as u16;
        let key = Key { id: cell[0] as u32, kind: bits(abi::RTS_CELL_KIND_SHIFT, 9) as u16 };
        if u32::from(bucket) == abi::RTS_CELL_NAME {
            let bytes: Vec<u8> = cell[2..4].iter().flat_map(|word| word.to_ne_bytes()).collect();
            self.names.insert((instance, key.id), Comm::from_bytes(&bytes));
            return;
        }
        if let Some(histograms) = self.instances.get_mut(instance).filter(|_| cell[1] > 0) {
            histograms.add(key, bucket, BucketCount { count: cell[1], sum_ns: cell[2], max_ns: cell[3] });
        }
    }
}
