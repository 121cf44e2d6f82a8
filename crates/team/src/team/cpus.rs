//! The CPUs that this thread may use: its mask, and the quota of its control group.

use crate::shared_layout::Mask;

/// Returns whether `ranks` ranks are more than this thread's CPUs, by its mask and the quota of its
/// control group.
///
/// # Examples
/// ```
/// use trimtab_team::team::crowded_here;
///
/// assert!(!crowded_here(1));
/// assert!(crowded_here(u32::MAX));
/// ```
pub fn crowded_here(ranks: u32) -> bool {
    let usable = allowed().iter().map(|word| word.count_ones()).sum::<u32>().min(quota().unwrap_or(u32::MAX));
    ranks > usable.max(1)
}

/// Returns the CPUs that this thread may use.
pub(super) fn allowed() -> [u64; Mask::WORD_COUNT] {
    let mut words = [0_u64; Mask::WORD_COUNT];
    // SAFETY: the kernel fills at most the number of bytes that it is given.
    let filled =
        unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, size_of_val(&words), words.as_mut_ptr()) };
    // The machine has more CPUs than fit: enough for any team.
    if filled < 0 { [u64::MAX; 16] } else { words }
}

/// Returns the CPU quota of this process's control group (version 2), in CPUs, if it is bounded.
pub(super) fn quota() -> Option<u32> {
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
