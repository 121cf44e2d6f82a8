//! The CPUs that this thread may use, by its mask and the quota of its control group, and the CPU
//! on which it runs.

use crate::shared_layout::Mask;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns whether `ranks` ranks are more than this thread's CPUs, by its mask and the quota of its
/// control group.
///
/// # Examples
/// ```
/// use trimtab_team::cpus::crowded_here;
///
/// assert!(!crowded_here(1));
/// assert!(crowded_here(u32::MAX));
/// ```
pub fn crowded_here(ranks: u32) -> bool {
    let usable = allowed().iter().map(|word| word.count_ones()).sum::<u32>().min(quota().unwrap_or(u32::MAX));
    ranks > usable.max(1)
}

/// Returns the CPUs that this thread may use.
pub(crate) fn allowed() -> [u64; Mask::WORD_COUNT] {
    let mut words = [0_u64; Mask::WORD_COUNT];
    // SAFETY: the kernel fills at most the number of bytes that it is given.
    let filled =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    // The machine has more CPUs than fit: enough for any team.
    if filled < 0 { [u64::MAX; 16] } else { words }
}

/// Returns the CPU quota of this process's control group (version 2), in CPUs, if it is bounded.
pub(crate) fn quota() -> Option<u32> {
    let path = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = path.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned();
    let mut folder = std::path::Path::new("/sys/fs/cgroup").join(path);
    let mut least: Option<u32> = None;
    // The smallest quota of its ancestors counts.
    while folder.starts_with("/sys/fs/cgroup") {
        if let Ok(text) = std::fs::read_to_string(folder.join("cpu.max")) {
            let mut words = text.split_whitespace().map(str::parse::<u64>);
            if let (Some(Ok(quota)), Some(Ok(period))) = (words.next(), words.next()) {
                let cpus = u32::try_from(quota / period.max(1)).unwrap_or(u32::MAX).max(1);
                least = Some(least.map_or(cpus, |least| least.min(cpus)));
            }
        }
        if !folder.pop() {
            break;
        }
    }
    least
}

/// Reader of the number of the CPU on which the thread runs that made it, or the calling thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuReader(*const AtomicU32);

/// Number of no CPU.
pub(crate) const NO_CPU: u32 = u32::MAX;
/// Value that is read if the kernel updates no word.
static UNKNOWN: AtomicU32 = AtomicU32::new(NO_CPU);

impl CpuReader {
    /// Returns this thread's reader: of a word that the kernel updates (`rseq`), if the C library
    /// has registered one.
    pub(crate) fn of_this_thread() -> Self {
        Self(registered_word().unwrap_or(&raw const UNKNOWN))
    }

    /// Returns a reader for all threads, which needs a call of the kernel.
    pub(crate) fn of_any_thread() -> Self {
        Self(&raw const UNKNOWN)
    }

    /// Returns the CPU's number; [`NO_CPU`] if only a call of the kernel would give it.
    #[inline(always)]
    pub(crate) fn cpu(self) -> u32 {
        // SAFETY: the word belongs to this thread, which made the reader and lives, or is static.
        unsafe { (*self.0).load(Ordering::Relaxed) }
    }

    /// Returns the CPU's number, by a call of the kernel if necessary.
    pub(crate) fn cpu_by_any_means(self) -> u32 {
        match self.cpu() {
            // SAFETY: it has no preconditions.
            NO_CPU => u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(NO_CPU),
            cpu => cpu,
        }
    }
}

/// Returns the address of `cpu_id` in the area of this thread that glibc (2.35 and later)
/// registered with the kernel.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, trimtab_model))))]
fn registered_word() -> Option<*const AtomicU32> {
    /// Offset of `cpu_id` in `struct rseq`.
    const CPU_ID: isize = 4;
    let symbol = |name: &std::ffi::CStr| {
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!found.is_null()).then_some(found.cast_const())
    };
    // SAFETY: glibc's constants of these names and types; the size is zero if nothing is
    // registered.
    let (offset, size) = unsafe {
        let (offset, size) = (symbol(c"__rseq_offset")?, symbol(c"__rseq_size")?);
        (offset.cast::<isize>().read(), size.cast::<u32>().read())
    };
    if size == 0 {
        return None;
    }
    let thread: *const u8;
    // SAFETY: reads the thread pointer, relative to which the offset is given.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly));
        #[cfg(target_arch = "aarch64")]
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) thread, options(nostack, preserves_flags, nomem));
    }
    let word = thread.wrapping_offset(offset + CPU_ID).cast::<AtomicU32>();
    // SAFETY: within the area, which lives as long as the thread. The kernel writes negative
    // numbers while it is not in use.
    let cpu = unsafe { (*word).load(Ordering::Relaxed) };
    i32::try_from(cpu).is_ok().then_some(word)
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(any(miri, trimtab_model)))))]
fn registered_word() -> Option<*const AtomicU32> {
    None
}

#[cfg(all(test, not(any(miri, trimtab_model))))]
mod tests {
    use super::*;

    #[test]
    fn the_reader_follows_a_thread_to_another_cpu() {
        let masks = allowed();
        let cpus = (0..1024_usize).filter(|cpu| masks[cpu / 64] >> (cpu % 64) & 1 == 1);
        let reader = CpuReader::of_this_thread();
        for cpu in cpus.take(4) {
            // SAFETY: a set of bits, of this thread alone.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0);
            }
            assert_eq!(reader.cpu_by_any_means(), cpu as u32);
            assert!([NO_CPU, cpu as u32].contains(&reader.cpu()));
        }
    }
}
