//! The ladder of rungs: the counts of threads that this machine provides, from the penalty itself
//! down to nothing. Each rung is tested by counting.
//!
//! Problem: no document states whether an event counts. Manuals leave out events that work, virtual
//! machines pass through only some, security settings forbid counting, another program holds the
//! counters. Idea: try. An event is accepted if it counts while this thread walks through memory
//! and does not change while the thread computes. The first rung that works is taken, and for each
//! better one the reason of its failure is kept.
//!
//! Cost: a try with counters that can be opened takes some 5 ms, and at most seven are made; if
//! nothing can be opened, microseconds.

use super::choice::Choice;
use super::cpu::Cpu;
use super::event::{Event, EventError, Role, Spec};
use super::group::Recipe;
use super::table::{Events, Processor, Table};
use super::why::{Missing, Why};
use rustix::io::Errno;
use trimtab_core::counter_budget::{CounterThrottle, Price};
use trimtab_core::counts::{Counts, Rung};

/// Largest number of tries with open counters, some 4 ms each, up to the end of each rung that
/// counts, so that some are left for the lower rungs. Chosen: as often as the first rung's recipe
/// may shrink, and once more for each lower rung.
const TRIALS_MAX: [(Rung, u32); 3] = [(Rung::Exact, 5), (Rung::Proxy, 6), (Rung::Generic, 7)];
/// Least requests and least busy cycles per step: a step through memory is a request, and stalls
/// the thread for some cycles at least. Chosen, far below the values of any machine: a line of the
/// next cache takes 30 cycles or more.
const REQUESTS_PER_STEP_MIN: f64 = 0.25;
const BUSY_CYCLES_PER_STEP_MIN: f64 = 5.0;
/// Largest rate of an event while computing, relative to its rate while walking. Measured: 0.007.
const STILL_RATE_MAX: f64 = 0.2;
/// Smallest share of the time that accepted counters ran. Below it another user probably holds
/// them.
const RUNNING_SHARE_MIN: f64 = 0.1;

/// The machine that the ladder examines: this one, or one made up by a test.
pub trait LadderMachine {
    /// Returns the processor.
    fn cpu(&self) -> Option<Cpu>;
    /// Returns `kernel.perf_event_paranoid`.
    fn paranoid(&self) -> Option<i64>;
    /// Returns whether virtual machines get the counters themselves while they run. If so, counters
    /// that include guests are refused as long as such a machine runs and, worse, no such machine
    /// can be started as long as such counters are open.
    fn lends(&self) -> bool;
    /// Resolves an event to its numbers.
    ///
    /// # Errors
    /// [`EventError`].
    fn resolve(&self, spec: &Spec) -> Result<Event, EventError>;
    /// Counts on this thread while it walks and while it computes.
    ///
    /// # Errors
    /// The reason why the counters cannot be opened.
    fn trial(&mut self, recipe: &Recipe) -> Result<CountingTrial, Errno>;
    /// Returns the cost of counting with a recipe.
    fn price(&mut self, recipe: &Recipe) -> Option<Price>;
    /// Returns the number of nodes with memory.
    fn nodes(&self) -> usize;
    /// Returns whether the kernel observes on which nodes programs use their memory (NUMA
    /// balancing); `None` if it cannot.
    fn balancing(&self) -> Option<bool>;
    /// Checks that pages can be queried for their nodes.
    ///
    /// # Errors
    /// The reason why not.
    fn residency(&self) -> Result<(), Errno>;
}

/// Counts of a try; missing if the counters never ran.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountingTrial {
    /// Number of steps through memory.
    pub steps: u64,
    /// Counts during these steps.
    pub walk: Option<Counts>,
    /// Counts while computing.
    pub still: Option<Counts>,
}

/// Result of the ladder: the counts that this machine provides.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// The rung.
    pub rung: Rung,
    /// The processor, if it is known.
    pub cpu: Option<Cpu>,
    /// The processor's name in the table, if the table has it.
    pub processor: Option<String>,
    /// Events to count for each thread, on the rungs that count.
    pub recipe: Option<Recipe>,
    /// All events that can be counted, whatever the cost, in groups that each fit the hardware: for
    /// a measurement that runs its program once for each group.
    pub groups: Vec<Recipe>,
    /// Cost of the recipe.
    pub price: Option<Price>,
    /// Restrictions that follow from the cost.
    pub thrift: CounterThrottle,
    /// Reasons why better rungs are missing, best first.
    pub missing: Vec<Missing>,
}

impl Standing {
    /// Returns how counting is kept cheap with these events: as follows from the cost, except that
    /// events that may not be switched off do not rest.
    pub fn thrift(&self) -> CounterThrottle {
        let rests = self.thrift.rests && self.recipe.as_ref().is_none_or(Recipe::can_rest);
        CounterThrottle { rests, ..self.thrift }
    }

    /// Returns the result for a user who asked to count nothing.
    fn off() -> Self {
        Self {
            rung: Rung::Nothing,
            cpu: None,
            processor: None,
            recipe: None,
            groups: Vec::new(),
            price: None,
            thrift: CounterThrottle::FREE,
            missing: vec![Missing { rung: Rung::Exact, why: Why::NotAsked }],
        }
    }
}

/// Finds the best rung that works. `barred` is the reason why hardware may not be counted any more,
/// if one has turned up.
pub fn climb(
    ground: &mut dyn LadderMachine,
    table: &Table,
    choice: &Choice,
    barred: Option<&Why>,
) -> Standing {
    if matches!(choice, Choice::Off | Choice::Rung(Rung::Nothing)) {
        return Standing::off();
    }
    let cpu = ground.cpu();
    let processor = cpu.as_ref().and_then(|cpu| table.of(cpu)).cloned();
    let from = match choice {
        Choice::Rung(rung) => *rung,
        _ => Rung::Exact,
    };
    let lends = ground.lends();
    let mut climber = Climber { ground, user_only: false, no_guests: lends, lends, trials: 0, most: 0 };
    let mut missing = Vec::new();
    let mut found = (Rung::Nothing, None);
    for rung in Rung::ALL {
        climber.most = TRIALS_MAX.iter().find(|(of, _)| *of == rung).map_or(0, |(_, most)| *most);
        let tried = match rung {
            _ if rung < from => Err(Why::NotAsked),
            Rung::Nothing => break,
            _ if rung.counts() && barred.is_some() => Err(barred.cloned().unwrap_or(Why::NotAsked)),
            _ if rung.counts() => match choice {
                Choice::Events(events) if rung == Rung::Exact => climber.named(events).map(Some),
                Choice::Events(_) => Err(Why::NotAsked),
                _ => climber.counting(rung, cpu.as_ref(), processor.as_ref()).map(Some),
            },
            // A rung that is chosen by name is tried even if its counts mean nothing here.
            _ if climber.ground.nodes() < 2 && *choice != Choice::Rung(rung) => Err(Why::OneNode),
            Rung::HintFaults => match climber.ground.balancing() {
                Some(true) => Ok(None),
                Some(false) => Err(Why::BalancingOff),
                None => Err(Why::NoBalancing),
            },
            _ => climber.ground.residency().map(|()| None).map_err(Why::NoResidency),
        };
        match tried {
            Ok(recipe) => {
                found = (rung, recipe);
                break;
            }
            Err(why) => missing.push(Missing { rung, why }),
        }
    }
    let (mut rung, recipe) = found;
    if let (Choice::Events(_), Some(recipe)) = (choice, &recipe)
        && !(recipe.has(Role::Busy) && recipe.has(Role::Requests))
    {
        rung = Rung::Generic;
    }
    let price = recipe.as_ref().and_then(|recipe| ground.price(recipe));
    let thrift = if recipe.is_some() { CounterThrottle::of(price.as_ref()) } else { CounterThrottle::FREE };
    let most = thrift.counters.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let groups = groups(recipe.as_ref(), processor.as_ref());
    let recipe = recipe.map(|recipe| recipe.at_most(most));
    Standing {
        rung,
        cpu,
        processor: processor.map(|known| known.name),
        recipe,
        groups,
        price,
        thrift,
        missing,
    }
}

/// Returns the recipe that was found to work and, if the processor's events of its LLC did not fit
/// beside it, a second group of these.
fn groups(recipe: Option<&Recipe>, known: Option<&Processor>) -> Vec<Recipe> {
    let Some(recipe) = recipe else { return Vec::new() };
    let mut groups = vec![recipe.clone()];
    if !(recipe.has(Role::LlcMisses) && recipe.has(Role::LlcLookups)) {
        let of_cache = |(role, _): &&(Role, Event)| matches!(role, Role::LlcMisses | Role::LlcLookups);
        let events: Events = known.iter().flat_map(|known| &known.beside).filter(of_cache).cloned().collect();
        let more = Recipe { user_only: recipe.user_only, no_guests: recipe.no_guests, ..Recipe::of(events) };
        if more.has(Role::LlcMisses) && more.has(Role::LlcLookups) {
            groups.push(more);
        }
    }
    groups
}

/// Climber of the ladder, which stores the permissions that it found.
struct Climber<'a> {
    ground: &'a mut dyn LadderMachine,
    user_only: bool,
    no_guests: bool,
    lends: bool,
    trials: u32,
    most: u32,
}

/// Evidence that a try must show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Events of waiting for memory.
    Waiting,
    /// Cycles and instructions.
    Working,
    /// Any counts: a user named the events.
    Any,
}

impl Climber<'_> {
    /// Tries a rung's recipes, best first.
    fn counting(&mut self, rung: Rung, cpu: Option<&Cpu>, known: Option<&Processor>) -> Result<Recipe, Why> {
        let generic = |names: &[(Role, &'static str)]| -> Events {
            names.iter().filter_map(|(role, name)| Some((*role, Event::generic(name)?))).collect()
        };
        let base = generic(&[(Role::Cycles, "cycles"), (Role::Instructions, "instructions")]);
        let (recipes, proof) = match (rung, known) {
            (Rung::Generic, _) => {
                // The kernel's "cache" misses leave the private caches on AMD, the last one on
                // Intel, and the first one on Arm, where the event is useless.
                let vendor = match cpu {
                    Some(Cpu::X86 { vendor, .. }) => vendor.as_str(),
                    _ => "",
                };
                let misses = match vendor {
                    "AuthenticAMD" | "HygonGenuine" => generic(&[(Role::Requests, "cache-misses")]),
                    "GenuineIntel" => {
                        generic(&[(Role::LlcMisses, "cache-misses"), (Role::LlcLookups, "cache-references")])
                    }
                    _ => Vec::new(),
                };
                (vec![[base, misses].concat()], Proof::Working)
            }
            (_, None) => return Err(Why::UnknownCpu(cpu.cloned())),
            (rung, Some(known)) => {
                let pairs = if rung == Rung::Exact { &known.exact } else { &known.proxy };
                let whole = |pair: &Events| [pair.clone(), base.clone(), known.beside.clone()].concat();
                (pairs.iter().map(whole).collect(), Proof::Waiting)
            }
        };
        let mut first = None;
        for events in recipes {
            match self.shrinking(Recipe::of(events), proof) {
                Ok(recipe) => return Ok(recipe),
                Err(why) => {
                    let ends = !why.is_about_events();
                    first.get_or_insert(why);
                    if ends {
                        break;
                    }
                }
            }
        }
        Err(first.unwrap_or(Why::NoSuchEvents))
    }

    /// Tries events that a user named.
    fn named(&mut self, events: &[(Role, Spec)]) -> Result<Recipe, Why> {
        let resolved: Result<Events, EventError> =
            events.iter().map(|(role, spec)| Ok((*role, self.ground.resolve(spec)?))).collect();
        self.shrinking(Recipe::of(resolved.map_err(Why::Event)?), Proof::Any)
    }

    /// Tries a recipe and, if the hardware has too few counters, its most needed events.
    fn shrinking(&mut self, recipe: Recipe, proof: Proof) -> Result<Recipe, Why> {
        let all = recipe.events.len();
        let least = match proof {
            Proof::Waiting => 2,
            Proof::Working => 2,
            Proof::Any => all,
        };
        let mut why = Why::NoSuchEvents;
        let sizes =
            [all, 6, 4, 3, 2].into_iter().filter(|size| *size == all || (*size < all && *size >= least));
        let mut before = None;
        for size in sizes {
            let fewer = recipe.at_most(size);
            if before.replace(fewer.events.len()) == Some(fewer.events.len()) {
                continue;
            }
            match self.permitted(fewer, proof) {
                Ok(recipe) => return Ok(recipe),
                // The earlier reason is more specific.
                Err(Why::NotTried) if size < all => break,
                Err(failed) => {
                    let ends = !matches!(failed, Why::NoSuchEvents | Why::Taken);
                    why = failed;
                    if ends {
                        break;
                    }
                }
            }
        }
        Err(why)
    }

    /// Tries a recipe with all that may be counted, and with less if that is refused.
    fn permitted(&mut self, recipe: Recipe, proof: Proof) -> Result<Recipe, Why> {
        // Each of the two settings can be given up once.
        for _ in 0..3 {
            let (user_only, no_guests) = (self.user_only, self.no_guests);
            let recipe = Recipe { user_only, no_guests, ..recipe.clone() };
            if self.trials >= self.most {
                return Err(Why::NotTried);
            }
            match self.ground.trial(&recipe) {
                Ok(trial) => {
                    self.trials += 1;
                    return judge(&recipe, &trial, proof).map(|()| recipe);
                }
                Err(Errno::ACCESS | Errno::PERM) if !user_only => self.user_only = true,
                Err(Errno::OPNOTSUPP) if !no_guests => self.no_guests = true,
                Err(Errno::OPNOTSUPP) => {
                    // Guests were not the cause.
                    self.no_guests = self.lends;
                    return Err(Why::NoSuchEvents);
                }
                Err(Errno::ACCESS | Errno::PERM) => {
                    return Err(Why::NotPermitted { paranoid: self.ground.paranoid() });
                }
                Err(errno) => return Err(Why::of(errno)),
            }
        }
        Err(Why::NotPermitted { paranoid: self.ground.paranoid() })
    }
}

/// Checks whether a try shows the required evidence.
fn judge(recipe: &Recipe, trial: &CountingTrial, proof: Proof) -> Result<(), Why> {
    let (Some(walk), Some(still)) = (trial.walk, trial.still) else { return Err(Why::Taken) };
    let shared = |counts: &Counts| {
        counts.running.share_of(counts.enabled).is_some_and(|share| share < RUNNING_SHARE_MIN)
    };
    if shared(&walk) || shared(&still) {
        return Err(Why::Taken);
    }
    let often = |count: Option<u64>, counts: &Counts| {
        count.filter(|_| counts.running.0 > 0).map(|count| count as f64 / counts.running.0 as f64)
    };
    // Counters that shared the hardware saw only a part of the steps.
    let steps = trial.steps as f64 * walk.running.share_of(walk.enabled).unwrap_or(1.0);
    let waits = |role: Role, of: fn(&Counts) -> Option<u64>, least: f64| {
        let (walked, stood) = (often(of(&walk), &walk), often(of(&still), &still));
        match (of(&walk), walked, stood) {
            (Some(count), Some(walked), Some(stood)) if count as f64 >= least * steps => {
                if stood <= STILL_RATE_MAX * walked { Ok(()) } else { Err(Why::Noisy(role)) }
            }
            _ => Err(Why::Silent(role)),
        }
    };
    let counts = |role: Role, count: Option<u64>| match count {
        Some(count) if count > 0 => Ok(()),
        _ if !recipe.has(role) => Ok(()),
        _ => Err(Why::Silent(role)),
    };
    match proof {
        Proof::Waiting => {
            waits(Role::Busy, |counts| counts.busy, BUSY_CYCLES_PER_STEP_MIN)?;
            waits(Role::Requests, |counts| counts.requests, REQUESTS_PER_STEP_MIN)
        }
        Proof::Working => {
            counts(Role::Cycles, still.cycles)?;
            counts(Role::Instructions, still.instructions)
        }
        Proof::Any => Ok(()),
    }
}

#[cfg(test)]
mod tests;
