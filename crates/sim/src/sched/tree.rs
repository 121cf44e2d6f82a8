//! Tree of maxima over CPUs, to find the CPU of a range with the highest value.
//!
//! CPUs that share a cache, a node or a package are neighbours in the model's order, so a domain is
//! a range. A change and a query cost the logarithm of the number of CPUs, never their number.

use std::ops::Range;

/// Value per CPU, and the maximum of each pair, pair of pairs, and so on.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// Node 1 is the root, node `size + i` is CPU i.
    most: Vec<u32>,
    size: usize,
}

impl Tree {
    pub(crate) fn new(cpus: usize) -> Self {
        let size = cpus.next_power_of_two().max(1);
        Self { most: vec![0; 2 * size], size }
    }

    pub(crate) fn set(&mut self, cpu: usize, value: u32) {
        let mut node = self.size + cpu;
        if self.most[node] == value {
            return;
        }
        self.most[node] = value;
        while node > 1 {
            node /= 2;
            let most = self.most[2 * node].max(self.most[2 * node + 1]);
            if self.most[node] == most {
                return;
            }
            self.most[node] = most;
        }
    }

    /// Returns the largest value of all.
    pub(crate) fn top(&self) -> u32 {
        self.most[1]
    }

    /// Returns the largest value in a range.
    pub(crate) fn most(&self, range: &Range<usize>) -> u32 {
        let (mut low, mut high, mut most) = (self.size + range.start, self.size + range.end, 0);
        while low < high {
            if low & 1 == 1 {
                most = most.max(self.most[low]);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                most = most.max(self.most[high]);
            }
            low /= 2;
            high /= 2;
        }
        most
    }

    /// Returns the first CPU of a range with at least this value.
    pub(crate) fn first(&self, range: &Range<usize>, least: u32) -> Option<usize> {
        if self.top() < least || self.most(range) < least {
            return None;
        }
        self.search(1, 0, self.size, range, least)
    }

    fn search(
        &self,
        node: usize,
        from: usize,
        width: usize,
        range: &Range<usize>,
        least: u32,
    ) -> Option<usize> {
        if self.most[node] < least || from >= range.end || from + width <= range.start {
            return None;
        }
        if width == 1 {
            return Some(from);
        }
        let half = width / 2;
        self.search(2 * node, from, half, range, least)
            .or_else(|| self.search(2 * node + 1, from + half, half, range, least))
    }

    /// Returns the first CPU of a range with at least this value, from `start` on and around to it.
    pub(crate) fn around(&self, range: &Range<usize>, start: usize, least: u32) -> Option<usize> {
        let start = start.clamp(range.start, range.end);
        self.first(&(start..range.end), least).or_else(|| self.first(&(range.start..start), least))
    }

    /// Returns the CPUs of a range with at least this value, from `start` on and around to it.
    pub(crate) fn each<'a>(
        &'a self,
        range: &Range<usize>,
        start: usize,
        least: u32,
    ) -> impl Iterator<Item = usize> + 'a {
        let start = start.clamp(range.start, range.end);
        [start..range.end, range.start..start].into_iter().flat_map(move |mut rest| {
            std::iter::from_fn(move || {
                let at = self.first(&rest, least)?;
                rest.start = at + 1;
                Some(at)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    #[test]
    fn the_tree_finds_the_same_as_a_scan() {
        let mut rng = Rng::new(5);
        for cpus in [1, 2, 3, 7, 64, 100] {
            let (mut tree, mut plain) = (Tree::new(cpus), vec![0; cpus]);
            for _ in 0..500 {
                let (cpu, value) = (rng.below(cpus as u64) as usize, rng.below(4) as u32);
                tree.set(cpu, value);
                plain[cpu] = value;
                let start = rng.below(cpus as u64) as usize;
                let end = start + rng.below((cpus - start) as u64 + 1) as usize;
                assert_eq!(tree.most(&(start..end)), plain[start..end].iter().copied().max().unwrap_or(0));
                let first = (start..end).find(|&at| plain[at] >= 2);
                assert_eq!(tree.first(&(start..end), 2), first);
                let around = start..cpus;
                let each: Vec<usize> = tree.each(&(0..cpus), start, 2).collect();
                let scan: Vec<usize> = around.chain(0..start).filter(|&at| plain[at] >= 2).collect();
                assert_eq!(each, scan);
                assert_eq!(tree.top(), plain.iter().copied().max().unwrap_or(0));
            }
        }
    }
}
