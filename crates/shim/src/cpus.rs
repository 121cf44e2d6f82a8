//! CPU set of fixed width, laid out like the kernel's masks, and the calling thread's own mask.
//!
//! [`trimtab_core::set::CpuSet`] grows on the heap; the shim may not allocate. The width is that of
//! the hand-off, and a set is a kibibyte. A set is filled in place and never moved, since a thread
//! with the least stack (16 KiB, of which the C library takes its part) may create another.

use libc::{c_void, pid_t};
use trimtab_core::handoff::CPUS_MAX;
use trimtab_core::ids::OsCpu;

const WORD_BITS: usize = u64::BITS as usize;

/// Set of CPUs in the kernel's numbering.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cpus {
    words: [u64; CPUS_MAX / WORD_BITS],
}

impl Cpus {
    pub(crate) const fn new() -> Self {
        Self { words: [0; CPUS_MAX / WORD_BITS] }
    }

    /// Replaces the members by the CPUs of these runs.
    pub(crate) fn become_runs(&mut self, runs: impl Iterator<Item = (OsCpu, OsCpu)>) {
        self.words.fill(0);
        runs.for_each(|run| self.insert(run));
    }

    /// Replaces the members by those of a kernel mask, on a little-endian machine.
    pub(crate) fn become_bytes(&mut self, bytes: &[u8]) {
        self.words.fill(0);
        for (at, &byte) in bytes.iter().enumerate().take(CPUS_MAX / 8) {
            self.words[at / 8] |= u64::from(byte) << (at % 8 * 8);
        }
    }

    /// Writes the set as a kernel mask. Members beyond its end are left out.
    pub(crate) fn write_bytes(&self, bytes: &mut [u8]) {
        for (at, byte) in bytes.iter_mut().enumerate() {
            let word = self.words.get(at / 8).copied().unwrap_or(0);
            *byte = (word >> (at % 8 * 8)) as u8;
        }
    }

    pub(crate) fn insert(&mut self, (first, last): (OsCpu, OsCpu)) {
        for cpu in first.0..=last.0 {
            if let Some(word) = self.words.get_mut(cpu as usize / WORD_BITS) {
                *word |= 1 << (cpu as usize % WORD_BITS);
            }
        }
    }

    pub(crate) fn contains(&self, OsCpu(cpu): OsCpu) -> bool {
        self.words
            .get(cpu as usize / WORD_BITS)
            .is_some_and(|word| word >> (cpu as usize % WORD_BITS) & 1 == 1)
    }

    pub(crate) fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Returns one more than the largest member, 0 for the empty set.
    pub(crate) fn end(&self) -> usize {
        let last = self.words.iter().enumerate().rfind(|(_, word)| **word != 0);
        last.map_or(0, |(at, word)| (at + 1) * WORD_BITS - word.leading_zeros() as usize)
    }

    /// Returns whether the set is a proper subset of `other`.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self != other && self.words.iter().zip(&other.words).all(|(a, b)| a & !b == 0)
    }

    /// Returns the mask for the kernel and the C library: address, and bytes as few as possible.
    pub(crate) fn raw(&self) -> (*const c_void, usize) {
        (self.words.as_ptr().cast(), self.end().div_ceil(WORD_BITS) * size_of::<u64>())
    }

    /// Replaces the members by the calling thread's mask. Returns false if the kernel does not give
    /// the mask, or if the mask does not fit.
    ///
    /// Uses a raw system call, because other libraries replace the C library's function.
    pub(crate) fn read_this_thread(&mut self) -> bool {
        self.read(0)
    }

    /// Does the same for any thread, the calling one if its number is 0.
    pub(crate) fn read(&mut self, thread: pid_t) -> bool {
        self.words.fill(0);
        let (mask, bytes) = (self.words.as_mut_ptr(), size_of_val(&self.words));
        // SAFETY: the address and the length describe `words`, and the kernel writes at most these.
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, thread, bytes, mask) > 0 }
    }

    /// Restricts the calling thread to these CPUs. Returns true if the kernel agreed.
    pub(crate) fn confine_this_thread(&self) -> bool {
        let (mask, bytes) = self.raw();
        // SAFETY: `mask` is valid for `bytes` bytes, and the kernel only reads it.
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, mask) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(runs: &[(u32, u32)]) -> Cpus {
        let mut cpus = Cpus::new();
        for &(first, last) in runs {
            cpus.insert((OsCpu(first), OsCpu(last)));
        }
        cpus
    }

    #[test]
    fn sets_count_and_compare() {
        let set = cpus(&[(0, 2), (70, 70)]);
        assert_eq!((set.len(), set.end()), (4, 71));
        assert!(set.contains(OsCpu(70)) && !set.contains(OsCpu(69)) && !set.contains(OsCpu(u32::MAX)));
        assert!(cpus(&[(1, 1)]).is_within(&set) && !set.is_within(&set) && !cpus(&[(3, 3)]).is_within(&set));
        assert_eq!(Cpus::new().end(), 0);
        assert_eq!(cpus(&[(8191, 8191)]).end(), CPUS_MAX);
        assert!(cpus(&[(8192, 8200)]) == Cpus::new(), "beyond the width there is nothing");
    }

    #[test]
    fn bytes_are_the_kernels_layout() {
        let set = cpus(&[(1, 1), (8, 9), (70, 70)]);
        let mut bytes = [0xff; 16];
        set.write_bytes(&mut bytes);
        assert_eq!(bytes[..10], [2, 3, 0, 0, 0, 0, 0, 0, 64, 0]);
        let mut read = cpus(&[(5, 5)]);
        read.become_bytes(&bytes);
        assert!(read == set);
    }

    #[test]
    fn a_raw_mask_is_as_long_as_needed() {
        for (last, bytes) in [(0, 8), (63, 8), (64, 16), (8191, 1024)] {
            assert_eq!(cpus(&[(last, last)]).raw().1, bytes, "CPU {last}");
        }
    }

    #[test]
    fn a_thread_has_a_mask_and_may_keep_it() {
        let mut mine = cpus(&[(5000, 5000)]);
        assert!(mine.read_this_thread() && !mine.contains(OsCpu(5000)));
        assert!(mine.len() > 0 && mine.confine_this_thread());
        assert!(!Cpus::new().confine_this_thread(), "nowhere is not a place");
    }
}
