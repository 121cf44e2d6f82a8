//! Counters of one thread, as one group: they count together, or none of them does.
//!
//! Properties: a group that never ran on the hardware reads as missing; a thread that ended keeps
//! its last counts; several events with one role are summed. One descriptor for each event, closed
//! with the value.

use super::event::{Event, Role};
use crate::process::Tid;
use crate::sys::perf;
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use trimtab_core::counts::Counts;
use trimtab_core::time::Span;

/// Events to count for each thread.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipe {
    /// The events and their roles, the most needed first.
    pub events: Vec<(Role, Event)>,
    /// Only events outside the kernel are counted: the kernel's settings allow no more.
    pub user_only: bool,
    /// Events of guests that the thread runs are not counted: a virtual machine with counters of
    /// its own runs here.
    pub no_guests: bool,
}

impl Recipe {
    /// Makes a recipe of these events, the most needed first.
    pub fn of(mut events: Vec<(Role, Event)>) -> Self {
        events.sort_by_key(|(role, _)| *role);
        events.truncate(perf::GROUP_MAX);
        Self { events, user_only: false, no_guests: false }
    }

    /// Returns the recipe with at most `most` events, the most needed ones. Several events of one
    /// role are kept together or dropped together, since they are a sum; at least one role stays.
    pub fn at_most(&self, most: usize) -> Self {
        let mut recipe = self.clone();
        while recipe.events.len() > most {
            let Some(last) = recipe.events.last().map(|(role, _)| *role) else { break };
            if recipe.events.iter().all(|(role, _)| *role == last) {
                break;
            }
            recipe.events.retain(|(role, _)| *role != last);
        }
        recipe
    }

    /// Returns whether any event has this role.
    pub fn has(&self, role: Role) -> bool {
        self.events.iter().any(|(of, _)| *of == role)
    }

    /// Returns whether the events may be switched off and on while their thread runs. The kernel's
    /// own events may not: Linux 6.18 starts its software clocks once between two context switches,
    /// and counts after that are lost.
    pub fn can_rest(&self) -> bool {
        self.events.iter().all(|(_, event)| !event.is_software())
    }

    /// Returns the counts of a reading, by role.
    fn counts(&self, reading: &perf::GroupReading) -> Option<Counts> {
        if reading.running == 0 {
            return None;
        }
        let sum = |role: Role| {
            let of = self.events.iter().zip(reading.counts()).filter(|((of, _), _)| *of == role);
            of.map(|(_, count)| *count).reduce(u64::saturating_add)
        };
        Some(Counts {
            enabled: Span(reading.enabled),
            running: Span(reading.running),
            busy: sum(Role::Busy),
            requests: sum(Role::Requests),
            cycles: sum(Role::Cycles),
            instructions: sum(Role::Instructions),
            llc_lookups: sum(Role::LlcLookups),
            llc_misses: sum(Role::LlcMisses),
            near: sum(Role::Near),
            far: sum(Role::Far),
        })
    }
}

/// The counters of one thread.
#[derive(Debug)]
pub struct Group {
    leader: OwnedFd,
    _members: Vec<OwnedFd>,
}

impl Group {
    /// Opens the counters of a thread, `None` for the calling one. They are off until
    /// [`Group::on`].
    ///
    /// # Errors
    /// As [`perf::open`]; then no descriptor stays open.
    pub fn open(recipe: &Recipe, task: Option<Tid>) -> Result<Self, Errno> {
        let mut events = recipe.events.iter();
        let attr = |event: &Event| perf::Attr {
            user_only: recipe.user_only,
            no_guests: recipe.no_guests,
            ..event.attr()
        };
        let (_, first) = events.next().ok_or(Errno::INVAL)?;
        let leader = perf::open(&perf::Attr { off: true, ..attr(first) }, task, None)?;
        let members: Result<Vec<OwnedFd>, Errno> =
            events.map(|(_, event)| perf::open(&attr(event), task, Some(leader.as_fd()))).collect();
        Ok(Self { _members: members?, leader })
    }

    /// Returns the number of descriptors that a group holds for a recipe.
    pub fn descriptors(recipe: &Recipe) -> usize {
        recipe.events.len()
    }

    /// Switches the counters on.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn on(&self) -> Result<(), Errno> {
        perf::enable(&self.leader)
    }

    /// Switches the counters off; the counts stay.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn off(&self) -> Result<(), Errno> {
        perf::disable(&self.leader)
    }

    /// Reads the counts since the group was opened; `None` as long as it never ran: the thread
    /// slept, or another user of the hardware held the counters.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read(&self, recipe: &Recipe) -> Result<Option<Counts>, Errno> {
        perf::read(&self.leader).map(|reading| recipe.counts(&reading))
    }

    /// Returns how long the thread ran while the group was on, counted or not.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn enabled(&self) -> Result<Span, Errno> {
        perf::read(&self.leader).map(|reading| Span(reading.enabled))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skip::skipped;

    fn software(roles: &[(Role, &'static str)]) -> Recipe {
        let mut recipe =
            Recipe::of(roles.iter().map(|(role, name)| (*role, Event::generic(name).unwrap())).collect());
        recipe.user_only = true;
        recipe
    }

    #[test]
    fn with_few_counters_the_most_needed_events_stay() {
        let all = software(&[
            (Role::Cycles, "cpu-clock"),
            (Role::Requests, "page-faults"),
            (Role::Busy, "task-clock"),
            (Role::Busy, "cpu-clock"),
        ]);
        let roles = |recipe: &Recipe| recipe.events.iter().map(|(role, _)| *role).collect::<Vec<_>>();
        assert_eq!(roles(&all), [Role::Busy, Role::Busy, Role::Requests, Role::Cycles]);
        assert_eq!(roles(&all.at_most(3)), [Role::Busy, Role::Busy, Role::Requests]);
        // Half of a sum is useless; one role stays at any limit.
        assert_eq!(roles(&all.at_most(1)), [Role::Busy, Role::Busy]);
        assert!(!all.at_most(2).has(Role::Requests) && all.has(Role::Requests));
    }

    #[test]
    fn a_group_counts_its_thread_while_it_is_on_and_sums_by_role() {
        let recipe = software(&[
            (Role::Busy, "task-clock"),
            (Role::Busy, "cpu-clock"),
            (Role::Requests, "page-faults"),
        ]);
        let group = match Group::open(&recipe, None) {
            Ok(group) => group,
            Err(errno) => return skipped(format_args!("nothing may be counted here: {errno}")),
        };
        assert_eq!(group.read(&recipe), Ok(None), "never on, and missing is not zero");
        group.on().unwrap();
        let pages = std::hint::black_box(vec![1u8; 4 << 20]);
        group.off().unwrap();
        let counts = group.read(&recipe).unwrap().unwrap();
        assert_eq!(counts.cycles, None, "what has no event is missing");
        assert!(counts.running > Span::ZERO && counts.enabled >= counts.running);
        // Two clocks of the same time.
        assert!(counts.busy.unwrap() > counts.running.0, "{counts:?}");
        assert_eq!(group.read(&recipe).unwrap(), Some(counts), "off");
        assert_eq!(Group::descriptors(&recipe), 3);
        drop(pages);
    }

    #[test]
    fn a_member_that_cannot_be_counted_leaves_nothing_open() {
        let mut recipe = software(&[(Role::Busy, "task-clock"), (Role::Requests, "page-faults")]);
        recipe.events[1].1.config = [9_999, 0, 0];
        let open = || std::fs::read_dir("/proc/self/fd").map(Iterator::count).unwrap_or(0);
        let before = open();
        let refused: Vec<_> = (0..200).filter_map(|_| Group::open(&recipe, None).err()).collect();
        assert_eq!(refused.len(), 200);
        // Other tests open files meanwhile, but not hundreds.
        assert!(open() < before + 100);
        assert!(Group::open(&Recipe::of(Vec::new()), None).is_err());
    }
}
