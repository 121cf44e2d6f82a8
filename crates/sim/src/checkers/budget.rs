//! Checker of budgets: the processes of a hold share its cores.
//!
//! - A team has at least one thread, and none has more threads than its process asks for.
//! - A team has the threads that its process asks for, or at least an equal part of the hold's
//!   cores, rounded down, however much the others ask for: so no process starves, and one that
//!   lent its cores gets its part back with its next team. A process examines the others at most
//!   once a millisecond, so this is checked from a millisecond after the last process started or
//!   ended.
//! - Teams that opened 10 ms or more after the last process started or came back from a pause have
//!   at most as many threads together as the hold has cores, or one for each process, also with the
//!   team with which that process came: others give back what they borrowed with their next teams.
//!   Other teams that opened before keep their sizes until they end. Of processes that came at the
//!   same time, each may have opened its team before the others were there; one whose pauses are
//!   shorter than a millisecond may come with an old examination.
//! - A process that gets no CPU for some milliseconds in a region, while its initial thread sleeps
//!   at the barrier, is taken for one that waits, and counts as back from a pause 10 ms later. A
//!   thread of it must have waited for a CPU then.
//!
//! The 10 ms are the promise of [`trimtab_core::budget`]; the rest is the division of cores,
//! counted here from the sizes of teams alone.

use super::{Checker, Invariant, Scene, Terms, ThreadKey, ViolationLog};
use crate::program::Body;
use crate::world::BudgetView;
use std::collections::BTreeMap;
use trimtab_core::time::{Moment, Span};

/// Time after which lent cores are back.
const RETURN_MAX: Span = Span::from_ms(10);
/// Time for which a process uses its last examination of the others.
const EXAMINATION_SPAN: Span = Span::from_ms(1);
/// Time in which a thread of a process that is passed over must have waited for a CPU: 8 ms for
/// which a reading of its CPU time is used, and an eighth of the time between two readings, for
/// which it may have computed before the last one. Chosen for teams and pauses of two seconds.
const READING_SPAN: Span = Span::from_ms(258);

/// Checker of budgets: the processes of each hold, and since when there are no others; when a
/// thread of a process last waited for a CPU.
#[derive(Debug, Default)]
pub(crate) struct BudgetChecker {
    holds: BTreeMap<u32, (Vec<usize>, Moment)>,
    waited: BTreeMap<usize, Moment>,
}

impl Checker for BudgetChecker {
    fn inspect(&mut self, terms: &Terms, before: &Scene, now: &Scene, found: &mut ViolationLog) {
        for (_, thread) in now.since(before).filter(|(then, thread)| thread.wait > then.wait) {
            self.waited.insert(thread.program, now.at);
        }
        let mut holds: BTreeMap<u32, Vec<(usize, BudgetView)>> = BTreeMap::new();
        for (at, program) in now.programs.iter().enumerate() {
            if let Some(budget) = program.budget {
                holds.entry(budget.hold).or_default().push((at, budget));
            }
        }
        self.holds.retain(|hold, _| holds.contains_key(hold));
        for (hold, processes) in &holds {
            let places: Vec<usize> = processes.iter().map(|(at, _)| *at).collect();
            let known = self.holds.entry(*hold).or_insert_with(|| (places.clone(), now.at));
            if known.0 != places {
                *known = (places, now.at);
            }
            parts(processes, known.1, found);
            passed_over(processes, &self.waited, found);
            sum(terms, *hold, processes, found);
        }
    }
}

/// Checks the size of each team. `since`: the time from which the hold has these processes.
fn parts(processes: &[(usize, BudgetView)], since: Moment, found: &mut ViolationLog) {
    let count = u32::try_from(processes.len()).unwrap_or(u32::MAX);
    for &(program, BudgetView { cores, asked, size, opened, .. }) in processes {
        let part = (cores / count).max(1).min(asked);
        let text = match size {
            0 => continue,
            _ if size > asked => format!("has {size} threads in a team and asks for {asked}"),
            _ if size < part && opened >= since + EXAMINATION_SPAN => {
                format!("has {size} threads in a team; an equal part of {cores} cores is {part}")
            }
            _ => continue,
        };
        found.add(Invariant::Budget, Some(ThreadKey { program, rank: 0 }), text);
    }
}

/// Checks that only processes that got no CPU were taken for waiting ones within a region.
fn passed_over(
    processes: &[(usize, BudgetView)],
    waited: &BTreeMap<usize, Moment>,
    found: &mut ViolationLog,
) {
    for (program, process) in processes {
        let last = waited.get(program).copied().unwrap_or(Moment(0));
        if process.passed_over > last + READING_SPAN {
            let text = "is taken for a process that waits, and its threads compute".to_owned();
            found.add(Invariant::Budget, Some(ThreadKey { program: *program, rank: 0 }), text);
        }
    }
}

/// Checks that cores are not divided twice.
fn sum(terms: &Terms, hold: u32, processes: &[(usize, BudgetView)], found: &mut ViolationLog) {
    let came = |process: &BudgetView| process.came.max(process.passed_over);
    let Some(last) = processes.iter().map(|(_, process)| came(process)).max() else { return };
    let is_alone = processes.iter().filter(|(_, process)| came(process) == last).count() == 1;
    let examines = |program: usize| match terms.programs.get(program).map(|spec| &spec.body) {
        Some(Body::Teams { pause, .. }) => pause.is_none_or(|pause| pause >= EXAMINATION_SPAN),
        _ => false,
    };
    let counts = |program: usize, process: &BudgetView| {
        let is_last = is_alone && process.came == last && process.opened == last;
        is_last && examines(program) || process.opened >= last + RETURN_MAX
    };
    let (mut threads, mut cores) = (0, 0);
    for (_, process) in processes.iter().filter(|(program, process)| counts(*program, process)) {
        threads += u64::from(process.size);
        cores = u64::from(process.cores);
    }
    let most = cores.max(processes.len() as u64);
    if threads > most {
        let text = format!(
            "the team with which the last process of hold {hold} came, and those that opened {RETURN_MAX} \
             later, have {threads} threads: at most {most}"
        );
        found.add(Invariant::Budget, None, text);
    }
}
