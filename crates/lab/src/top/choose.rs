//! Choice of programs to watch when none were named.
//!
//! Programs that hold cores, and the busiest of the user's own processes. Pure: the processes and
//! their CPU time are arguments.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use trimtab_linux::process::Pid;
use trimtab_linux::survey::ProcessTime;

/// Most busy processes that are watched.
const BUSY_PROCESSES_MAX: usize = 8;
/// Least share of a CPU of a busy process. Chosen: it excludes editors and shells.
const BUSY_SHARE_MIN: f64 = 0.1;

/// Returns the first processes of the programs to watch, holders first. Of processes that descend
/// from each other only the first is returned; but a holder of cores is shown as itself, not as a
/// part of the busy shell or test that started it.
pub(super) fn choose(
    holders: &[u32],
    before: &BTreeMap<Pid, ProcessTime>,
    after: &BTreeMap<Pid, ProcessTime>,
    span: Duration,
    own: Pid,
) -> Vec<Pid> {
    let mut busy: Vec<(Duration, Pid)> = after
        .iter()
        .filter_map(|(&pid, now)| {
            let same = before.get(&pid).filter(|before| before.start == now.start);
            // A new process used all its CPU time since then.
            let cpu = same.map_or(now.cpu, |before| now.cpu.saturating_sub(before.cpu));
            (pid != own && cpu >= span.mul_f64(BUSY_SHARE_MIN)).then_some((cpu, pid))
        })
        .collect();
    busy.sort_by_key(|&(cpu, pid)| (std::cmp::Reverse(cpu), pid));
    busy.truncate(BUSY_PROCESSES_MAX);
    let holders: Vec<Pid> = holders.iter().map(|&pid| Pid(pid)).collect();
    busy.retain(|&(_, pid)| !holders.iter().any(|&holder| below(holder, &[pid].into(), after)));
    let mut chosen: Vec<Pid> = Vec::new();
    for pid in holders.into_iter().chain(busy.into_iter().map(|(_, pid)| pid)) {
        if !chosen.contains(&pid) {
            chosen.push(pid);
        }
    }
    let all: BTreeSet<Pid> = chosen.iter().copied().collect();
    chosen.retain(|&pid| !below(pid, &all, after));
    chosen
}

/// Returns whether an ancestor of a process is in `among`.
fn below(pid: Pid, among: &BTreeSet<Pid>, processes: &BTreeMap<Pid, ProcessTime>) -> bool {
    let mut at = pid;
    // Process trees are shallow; the bound only guards against cycles in inconsistent tables.
    for _ in 0..1_000 {
        match processes.get(&at).map(|process| process.parent) {
            Some(parent) if parent != pid && among.contains(&parent) => return true,
            Some(parent) if parent.0 > 1 => at = parent,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_linux::process::StartTime;

    fn table(rows: &[(u32, u32, u64)]) -> BTreeMap<Pid, ProcessTime> {
        let row = |&(pid, parent, ms): &(u32, u32, u64)| {
            let cpu = Duration::from_millis(ms);
            (Pid(pid), ProcessTime { start: StartTime(u64::from(pid)), parent: Pid(parent), cpu })
        };
        rows.iter().map(row).collect()
    }

    #[test]
    fn holders_come_first_then_the_busiest_and_no_child_of_either() {
        let before = table(&[(10, 1, 500), (11, 10, 0), (20, 1, 0), (30, 1, 0), (40, 1, 0), (41, 40, 0)]);
        let after = table(&[(10, 1, 500), (11, 10, 100), (20, 1, 60), (30, 1, 5), (40, 1, 90), (41, 40, 99)]);
        let chosen = choose(&[10, 7], &before, &after, Duration::from_millis(100), Pid(999));
        assert_eq!(chosen, [10, 7, 40, 20].map(Pid));
        assert_eq!(choose(&[], &after, &after, Duration::from_millis(100), Pid(1)), []);
    }

    #[test]
    fn a_busy_parent_of_a_holder_gives_way() {
        let after = table(&[(40, 1, 90), (41, 40, 0), (42, 41, 50), (50, 1, 20)]);
        let chosen = choose(&[41], &BTreeMap::new(), &after, Duration::from_millis(100), Pid(999));
        assert_eq!(chosen, [41, 50].map(Pid));
    }

    #[test]
    fn a_number_used_again_is_another_process_and_we_are_none() {
        let before = table(&[(5, 1, 10_000)]);
        let mut after = table(&[(5, 1, 50), (6, 1, 100)]);
        after.get_mut(&Pid(5)).unwrap().start = StartTime(77);
        assert_eq!(choose(&[], &before, &after, Duration::from_millis(100), Pid(6)), [Pid(5)]);
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let after = table(&[(5, 6, 100), (6, 5, 0), (7, 8, 100), (8, 9, 0), (9, 8, 0)]);
        assert_eq!(choose(&[], &BTreeMap::new(), &after, Duration::from_millis(100), Pid(0)).len(), 2);
    }
}
