//! What holds a program back, from some tenths of a second of watching it.
//!
//! Unit: shares of the time, and seconds of work. Problem: today's kernel rotates threads by itself, sleepers must not be bound,
//! quotas and fine barriers cannot be helped by moving, and bound threads can be helped a lot: what is right in one case
//! costs up to 40 % in another. Idea: first look, then say what it is, in this order (the first that holds decides):
//!
//! | seen | finding | treatment |
//! |---|---|---|
//! | nobody computes | nothing waits | none |
//! | no thread is ours to move | hands off | none |
//! | a quota throttles | quota | none |
//! | some CPUs hold more bound threads than others | bound | free them: sleepers to all CPUs of their program, others in turns |
//! | several threads compute on one CPU, the only one they may use | one CPU | none |
//! | waiting is not counted | no wait times | none |
//! | threads sleep again and again | sleepers | none |
//! | nobody waits, cores are alike | nothing waits | none |
//! | threads give their CPU up thousands of times a second | too fine | none |
//! | each thread is the only one of its process that computes | lone | none (bound ones are freed) |
//! | threads wait although there are CPUs enough | hog | one core each, in turns |
//! | the last is not far behind the mean | kernel rotates | none |
//! | the last is far behind, cores differ | asymmetric | in turns |
//! | the last is far behind | uneven | in turns |
//!
//! Properties: a function of what was watched; equal watching, equal diagnosis. What cannot be seen from outside is how much of
//! the running is spinning: a program that spins in barriers finer than the bound looks like one that computes, and taking
//! turns neither helps nor costs it more than the moves.
//!
//! Source: runs of spinning, yielding and sleeping programs on kernels 6.1, 6.12 and 6.18 under each of the other policies; the
//! bound is that of Hofmeyr, Iancu and Blagojević's analysis.

use super::Finding;
use super::doze::{OFTEN, SOME};
use super::ground::Seat;
use super::lone;
use super::seating::Seating;
use super::sitter::LIGHT_MAX;
use crate::ids::ThreadId;
use crate::set::CpuSet;
use crate::time::{Moment, Span};
use std::collections::{BTreeMap, BTreeSet};

/// With CPUs enough, all threads together wait for at least this much of a CPU when somebody else is there: a pinned hog
/// costs them half a CPU, one that roams nearly a whole one, one that runs half of the time a quarter.
const OTHERS_MIN: f64 = 0.2;

/// On many CPUs so much comes together by timer ticks alone: then each must wait for this share of what it wants, or one for
/// [`OTHERS_MIN`].
const WAIT_MIN: f64 = 0.005;

/// Makes of cores this near in speed are alike.
const ALIKE: f64 = 0.02;

/// Throttled above this share of the time, a quota is what holds the program back.
const QUOTA_MIN: f64 = 0.02;

/// Of a second's involuntary switches per thread, from here on threads give way to each other: preemption alone makes at
/// most one a tick (250 a second on most kernels, 1,000 on some), yielding waiters of fine barriers make ten thousands.
const YIELDS_MIN: f64 = 2_000.0;

/// A thread that is less than this part of the mean progress behind does not matter.
const LAG_SHARE_MIN: f64 = 0.01;

/// Bound threads are uneven if some CPUs hold this many times what they would hold if all were free.
const UNEVEN_MIN: f64 = 1.02;

/// What one thread did while it was watched.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    id: ThreadId,
    span: f64,
    run: f64,
    wait: Option<f64>,
    /// Involuntary switches and sleeps, and the time in which they were counted.
    switches: (f64, f64),
    sleeps: f64,
    before: f64,
}

/// Some time of watching a program.
#[derive(Clone, Debug, Default)]
pub(super) struct Window {
    began: Option<Moment>,
    rows: Vec<Row>,
    throttled: Option<f64>,
    looks: u32,
}

/// What was watched, summed up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sight {
    /// The computing threads, as places in the seating.
    pub(super) threads: Vec<usize>,
    /// Those of them that are lone and stay free ([`lone::stay_free`]), ascending.
    pub(super) lone: Vec<usize>,
    /// How many CPUs they may use together.
    pub(super) cpus: u32,
    /// How many of them are somebody else's to place.
    pub(super) kept: u32,
    /// The share of what they wanted in which they waited; `None` where that is not counted.
    pub(super) waited: Option<f64>,
    /// The same of the one that waited most.
    pub(super) worst: f64,
    /// The share of the time in which they wanted no CPU, the mean of all.
    pub(super) idle: f64,
    /// How fast they got on, the mean of all: work a second.
    pub(super) pace: f64,
    /// How fast the one that is furthest behind got on.
    pub(super) last_pace: f64,
    /// How far the last is behind the mean, in seconds of work.
    pub(super) lag: f64,
    /// The mean work of all, in seconds.
    pub(super) work: f64,
    /// Their involuntary switches a second, the mean of all.
    pub(super) switches: Option<f64>,
    /// How often a second they went to sleep, the mean of all; `None` where that was not read.
    pub(super) sleeps: Option<f64>,
    /// The share of the time in which a quota kept them off.
    pub(super) throttled: f64,
    /// The slowest core they may use, as a part of the fastest.
    pub(super) slowest: f64,
}

/// Threads, as places in the seating, and how far each may go from now on.
pub(super) type Freed = Vec<(usize, CpuSet)>;

impl Sight {
    /// Whether there is more waiting than ticks and daemons cause.
    pub(super) fn others(&self) -> bool {
        let waited = self.waited.unwrap_or(0.0);
        let together = waited * self.threads.len() as f64 >= OTHERS_MIN;
        together && (waited >= WAIT_MIN || self.worst >= OTHERS_MIN)
    }

    /// Whether no thread seems to sleep, nor was seen going to sleep.
    pub(super) fn sleepless(&self) -> bool {
        self.idle < SOME && self.sleeps.is_none_or(|sleeps| sleeps <= 0.0)
    }
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Treatment {
    /// Nothing.
    Still,
    /// Threads whose own masks crowd them may go to these CPUs, each to its own set; the kernel spreads them.
    Spread(Freed),
    /// One core each, in turns; the threads named here may go beyond their own masks.
    Turns {
        /// Because others take part of the cores.
        fence: bool,
        /// Who is let out of its own mask, and how far.
        freed: Freed,
    },
}

impl Window {
    /// A new one from now on.
    pub(super) fn restart(&mut self, at: Moment) {
        *self = Self { began: Some(at), ..Self::default() };
    }

    /// For how long it has been.
    pub(super) fn span(&self, at: Moment) -> Span {
        self.began.map_or(Span::ZERO, |began| at.since(began))
    }

    /// How many looks it holds.
    pub(super) fn looks(&self) -> u32 {
        self.looks
    }

    /// Takes the last step in. `members` are the program's threads, ascending.
    pub(super) fn add(&mut self, seating: &Seating, members: &[usize], throttled: Option<f64>) {
        self.looks += 1;
        if let Some(share) = throttled {
            let before = self.throttled.unwrap_or(0.0);
            self.throttled = Some(before + (share - before) / f64::from(self.looks));
        }
        let mut before = std::mem::take(&mut self.rows).into_iter().peekable();
        for &i in members {
            let sitter = &seating.sitters[i];
            while before.next_if(|row| row.id < sitter.id).is_some() {}
            let known = before.next_if(|row| row.id == sitter.id);
            let Some(rates) = &sitter.rates else {
                self.rows.extend(known);
                continue;
            };
            let seconds = rates.span.seconds();
            let row = known.unwrap_or_else(|| {
                let zero = |there: bool| there.then_some(0.0);
                let did = sitter.last_work;
                Row {
                    id: sitter.id,
                    before: sitter.work - did,
                    wait: zero(rates.wait.is_some()),
                    ..Row::default()
                }
            });
            let switches = rates.slices.zip(rates.sleeps).map(|(slices, sleeps)| (slices - sleeps).max(0.0));
            let counted = switches.map_or(row.switches, |a_second| {
                (row.switches.0 + a_second * seconds, row.switches.1 + seconds)
            });
            self.rows.push(Row {
                span: row.span + seconds,
                run: row.run + rates.run * seconds,
                wait: row.wait.zip(rates.wait).map(|(wait, share)| wait + share * seconds),
                switches: counted,
                sleeps: row.sleeps + switches.and(rates.sleeps).unwrap_or(0.0) * seconds,
                ..row
            });
        }
    }

    /// What was seen; `None` when nobody computes.
    pub(super) fn sum_up(&self, seating: &Seating) -> Option<Sight> {
        let mut sight = Sight { throttled: self.throttled.unwrap_or(0.0), ..Sight::default() };
        let (mut wanted, mut waited, mut counted) = (0.0, 0.0, true);
        let (mut switches, mut sleeps, mut known) = (0.0, 0.0, true);
        let (mut last_before, mut last_now, mut longest) = (f64::INFINITY, f64::INFINITY, 0.0_f64);
        let (mut union, mut rooms) = (CpuSet::new(), BTreeSet::new());
        for row in &self.rows {
            let Ok(i) = seating.sitters.binary_search_by_key(&row.id, |sitter| sitter.id) else { continue };
            let sitter = &seating.sitters[i];
            let wants = row.run + row.wait.unwrap_or(0.0);
            if row.span <= 0.0 || wants / row.span < LIGHT_MAX || !sitter.active() {
                continue;
            }
            sight.threads.push(i);
            sight.kept += u32::from(sitter.kept());
            wanted += wants;
            match row.wait {
                Some(wait) => {
                    waited += wait;
                    sight.worst = sight.worst.max(wait / wants);
                }
                None => counted = false,
            }
            sight.idle += (1.0 - wants / row.span).max(0.0);
            match row.switches {
                (count, span) if span > 0.0 => {
                    switches += count / span;
                    sleeps += row.sleeps / span;
                }
                _ => known = false,
            }
            sight.pace += (sitter.work - row.before) / row.span;
            sight.work += sitter.work;
            last_before = last_before.min(row.before);
            last_now = last_now.min(sitter.work);
            longest = longest.max(row.span);
            // Thousands of threads share a few rooms.
            if rooms.insert(seating.room_number(i)) {
                union = union.union(seating.room(i));
            }
        }
        let count = sight.threads.len();
        if count == 0 {
            return None;
        }
        let mean = |sum: f64| sum / count as f64;
        sight.lone = lone::stay_free(&seating.sitters, &sight.threads);
        sight.cpus = u32::try_from(union.len()).unwrap_or(u32::MAX);
        sight.waited = (counted && wanted > 0.0).then(|| waited / wanted);
        (sight.idle, sight.pace, sight.work) = (mean(sight.idle), mean(sight.pace), mean(sight.work));
        sight.switches = known.then(|| mean(switches));
        sight.sleeps = known.then(|| mean(sleeps));
        sight.last_pace = (last_now - last_before) / longest;
        sight.lag = sight.work - last_now;
        let weights = || {
            let seats = union.iter().filter_map(|os| seating.ground.seat(os));
            seats.map(|seat: Seat| seating.ground.place(seat).weight)
        };
        sight.slowest = weights().fold(1.0, f64::min) / weights().fold(f64::MIN_POSITIVE, f64::max);
        Some(sight)
    }
}

/// What it is, and what helps. `period` is the time between two exchanges if there were any.
pub(super) fn diagnose(
    sight: &Sight,
    seating: &Seating,
    sleeps: bool,
    period: Span,
    across_nodes: bool,
    why: impl Fn(usize) -> String,
) -> (Vec<Finding>, Treatment) {
    let threads = u32::try_from(sight.threads.len()).unwrap_or(u32::MAX);
    // Waits that are not counted yet look like sleep; who never goes to sleep does not.
    let sleeps = sleeps || sight.idle > SOME && sight.sleeps.is_none_or(|often| often >= OFTEN);
    let still = |finding: Finding| (vec![finding], Treatment::Still);
    if sight.kept == threads {
        return still(Finding::HandsOff { threads, why: why(sight.threads[0]) });
    }
    if sight.throttled > QUOTA_MIN {
        return still(Finding::Quota { throttled: sight.throttled });
    }
    let lone = sight.lone.len() == sight.threads.len();
    let sleepers = || Finding::Sleepers { idle: sight.idle };
    if let Some(Crowd { threads: bound, cpus, freed }) = crowded(sight, seating, across_nodes) {
        let mut findings = vec![Finding::Bound { threads: bound, cpus }];
        if sleeps || sight.waited.is_none() {
            findings.push(if sight.waited.is_none() { Finding::NoWaitTimes } else { sleepers() });
            return (findings, Treatment::Spread(freed));
        }
        if lone {
            findings.push(Finding::Lone { processes: threads });
            return (findings, Treatment::Spread(freed));
        }
        return (findings, Treatment::Turns { fence: false, freed });
    }
    if sight.cpus == 1 && threads > 1 {
        return still(Finding::OneCpu { threads });
    }
    let Some(waited) = sight.waited else { return still(Finding::NoWaitTimes) };
    if sleeps {
        return still(sleepers());
    }
    let alike = sight.slowest > 1.0 - ALIKE;
    if !sight.others() && alike {
        return still(Finding::NothingWaits);
    }
    if lone {
        return still(Finding::Lone { processes: threads });
    }
    let turns = |finding| (vec![finding], Treatment::Turns { fence: false, freed: Vec::new() });
    if sight.switches.is_some_and(|switches| switches > YIELDS_MIN) {
        return still(Finding::TooFine { bound: bound(threads, sight.cpus, period) });
    }
    if threads <= sight.cpus && sight.others() {
        let finding = Finding::Hog { cpus: waiting(sight, seating), share: waited };
        return (vec![finding], Treatment::Turns { fence: true, freed: Vec::new() });
    }
    // Half a period is about what turns would leave.
    let limit = (period.seconds() / 2.0).max(LAG_SHARE_MIN * sight.work);
    if sight.lag <= limit {
        return still(Finding::KernelRotates {
            spread: if sight.work > 0.0 { sight.lag / sight.work } else { 0.0 },
        });
    }
    if !alike {
        return turns(Finding::Asymmetric { slowest: sight.slowest });
    }
    turns(Finding::Uneven { threads, cpus: sight.cpus })
}

/// The shortest time between barriers that exchanges every `period` can help: 2 ⌈SQ/FQ⌉ B / (T + 1).
pub(super) fn bound(threads: u32, cpus: u32, period: Span) -> Span {
    let cpus = cpus.max(1);
    let slow = threads % cpus;
    let steps = 2 * slow.div_ceil(cpus - slow);
    period.times(f64::from(steps) / f64::from(threads / cpus + 1))
}

/// The CPUs on which they waited, as far as known.
fn waiting(sight: &Sight, seating: &Seating) -> CpuSet {
    let waits = |&&i: &&usize| {
        let rates = seating.sitters[i].rates.as_ref();
        rates.and_then(|rates| rates.wait).is_some_and(|wait| wait > ALIKE)
    };
    let seats = sight.threads.iter().filter(waits).filter_map(|&i| seating.sitters[i].seat);
    seats.map(|seat| seating.ground.place(seat).os).collect()
}

/// Threads that their own masks crowd.
struct Crowd {
    /// How many.
    threads: u32,
    /// To how many CPUs they are bound, together.
    cpus: u32,
    /// Who may go how far.
    freed: Freed,
}

/// The threads that their own masks crowd, if some CPUs hold more of them than others. They may go to all CPUs that the
/// program's threads call theirs, within their memory node unless threads may leave it.
fn crowded(sight: &Sight, seating: &Seating, across_nodes: bool) -> Option<Crowd> {
    let node_of = |cpus: &CpuSet| -> Option<usize> {
        if across_nodes {
            return None;
        }
        let mut nodes =
            cpus.iter().filter_map(|os| seating.ground.seat(os)).map(|seat| seating.ground.place(seat).node);
        let first = nodes.next()?;
        nodes.all(|node| node == first).then(|| first.index())
    };
    // By number of home first: thousands of threads share a few.
    let mut homes: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for &i in &sight.threads {
        homes.entry(seating.room_number(i)).or_default().push(i);
    }
    let mut scopes: BTreeMap<Option<usize>, Vec<(&CpuSet, Vec<usize>)>> = BTreeMap::new();
    for (_, members) in homes {
        let room = seating.room(members[0]);
        if !room.is_empty() {
            scopes.entry(node_of(room)).or_default().push((room, members));
        }
    }
    let (mut threads, mut cpus, mut freed) = (0, 0, Vec::new());
    for groups in scopes.into_values() {
        let union = groups.iter().fold(CpuSet::new(), |union, (room, _)| union.union(room));
        let count: usize = groups.iter().map(|(_, members)| members.len()).sum();
        let even = (count as f64 / union.len() as f64).max(1.0);
        // All that must run within one set of CPUs: its own threads, and those bound to a part of it.
        let crowd = |room: &CpuSet| -> usize {
            groups.iter().filter(|(other, _)| other.is_subset(room)).map(|(_, members)| members.len()).sum()
        };
        let narrow: Vec<_> = groups.iter().filter(|(room, _)| room.len() < union.len()).collect();
        // Many different masks, each a thread's own: who is crowded is told by equal masks alone.
        let few = narrow.len() <= 64;
        let density =
            |room: &CpuSet, own: usize| (if few { crowd(room) } else { own }) as f64 / room.len() as f64;
        if !narrow.iter().any(|(room, members)| density(room, members.len()) > even * UNEVEN_MIN) {
            continue;
        }
        for (room, members) in narrow {
            cpus += u32::try_from(room.len()).unwrap_or(u32::MAX);
            let ours = members.iter().filter(|&&i| !seating.sitters[i].kept());
            for &i in ours {
                threads += 1;
                freed.push((i, union.clone()));
            }
        }
    }
    freed.sort_by_key(|(i, _)| *i);
    (!freed.is_empty()).then_some(Crowd { threads, cpus, freed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_analytical_model() {
        let ms = |threads, cpus| bound(threads, cpus, Span::from_ms(100)).0 / 1_000_000;
        // 3, 5, 7 on 2; 17, 33, 31 on 16.
        assert_eq!([ms(3, 2), ms(5, 2), ms(7, 2)], [100, 66, 50]);
        assert_eq!([ms(17, 16), ms(33, 16), ms(31, 16)], [100, 66, 1_500]);
        assert_eq!(ms(4, 2), 0);
        assert_eq!(ms(0, 0), 0);
    }
}
