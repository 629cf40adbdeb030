// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decisions of a run: a list that is continued by the first choice, or at random.

/// Where the next decisions come from.
#[derive(Clone, Debug)]
pub(crate) struct Choices {
    /// Each decision, and of how many.
    path: Vec<(u32, u32)>,
    at: usize,
    /// Of a generator of numbers, when runs are random.
    random: Option<u64>,
}

impl Choices {
    /// All runs, one after the other.
    pub(crate) fn exhaustive() -> Choices {
        Choices { path: Vec::new(), at: 0, random: None }
    }

    /// Random runs.
    pub(crate) fn random(seed: u64) -> Choices {
        Choices { path: Vec::new(), at: 0, random: Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1) }
    }

    /// One of `count`. At random, 0 is as frequent as `weight` others.
    pub(crate) fn choose(&mut self, count: u32, weight: u32) -> u32 {
        if self.at == self.path.len() {
            let chosen = self.random.as_mut().map_or(0, |state| {
                // xorshift64*
                *state ^= *state >> 12;
                *state ^= *state << 25;
                *state ^= *state >> 27;
                let number = (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as u32;
                (number % (count - 1 + weight)).saturating_sub(weight - 1)
            });
            self.path.push((chosen, count));
        }
        self.at += 1;
        self.path[self.at - 1].0
    }

    /// Goes to the next run; whether there is one.
    pub(crate) fn next(&mut self) -> bool {
        self.at = 0;
        if self.random.is_some() {
            self.path.clear();
            return true;
        }
        while let Some((chosen, count)) = self.path.pop() {
            if chosen + 1 < count {
                self.path.push((chosen + 1, count));
                return true;
            }
        }
        false
    }

    /// The decisions so far that were not the first choice: how to get there again.
    pub(crate) fn description(&self) -> String {
        let other = self.path.iter().enumerate().filter(|(_, (chosen, _))| *chosen > 0);
        other.map(|(at, (chosen, count))| format!("{at}: {chosen}/{count}")).collect::<Vec<_>>().join(", ")
    }
}
