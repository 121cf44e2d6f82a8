//! The ladder: what of threads can be counted here, from the penalty itself down to nothing, each rung tried for real.
//!
//! Problem: whether an event counts is written nowhere. Manuals leave out events that work, virtual machines pass through some, security
//! settings forbid, another program holds the counters. Idea: try. Events are believed that count while this thread walks through
//! memory and stand still while it computes; the first rung that works is taken, and for each better one it is kept why
//! it did not.
//!
//! Cost: a try that can be opened takes some 5 ms, at most seven are made; where nothing can be opened, microseconds.

use super::choice::Choice;
use super::cpu::Cpu;
use super::event::{Event, EventError, Role, Spec};
use super::group::Recipe;
use super::table::{Events, Processor, Table};
use super::why::{Missing, Why};
use rustix::io::Errno;
use trimtab_core::counter_budget::{Price, Thrift};
use trimtab_core::counts::{Counts, Rung};

/// So often events are tried by working at most, some 4 ms each, by the end of each rung that counts: something is left for the lower
/// ones. Chosen: as often as the first may shrink, and once more for each.
const TRIALS_MAX: [(Rung, u32); 3] = [(Rung::Exact, 5), (Rung::Proxy, 6), (Rung::Generic, 7)];
/// A step through memory is a request, and keeps the thread waiting for some cycles at least. Chosen, far below what any machine
/// shows: a line of the next cache takes 30 cycles or more.
const REQUESTS_A_STEP: f64 = 0.25;
const BUSY_A_STEP: f64 = 5.0;
/// While computing events come less often than this part of how often they came while walking. Measured: 0.007.
const STILL: f64 = 0.2;
/// Two counters that ran for a smaller part of the time than this are rather somebody else's.
const SHARED: f64 = 0.1;

/// What the ladder stands on: this machine, or one made up by a test.
pub trait Ground {
    /// Which processor this is.
    fn cpu(&self) -> Option<Cpu>;
    /// `kernel.perf_event_paranoid`.
    fn paranoid(&self) -> Option<i64>;
    /// Whether virtual machines get the counters themselves while they run: then counters that look into guests are refused as long as
    /// there is such a machine, and, worse, none can be started as long as there are such counters.
    fn lends(&self) -> bool;
    /// What an event is called by number.
    ///
    /// # Errors
    /// [`EventError`].
    fn resolve(&self, spec: &Spec) -> Result<Event, EventError>;
    /// Counts on this thread while it walks and while it computes.
    ///
    /// # Errors
    /// Why the counters cannot be opened.
    fn trial(&mut self, recipe: &Recipe) -> Result<Trial, Errno>;
    /// What counting so costs.
    fn price(&mut self, recipe: &Recipe) -> Option<Price>;
    /// How many nodes have memory.
    fn nodes(&self) -> usize;
    /// Whether the kernel looks on which nodes programs use their memory; `None` where it cannot.
    fn balancing(&self) -> Option<bool>;
    /// Whether pages can be asked for their nodes.
    ///
    /// # Errors
    /// Why not.
    fn residency(&self) -> Result<(), Errno>;
}

/// What was counted in a try; missing where the counters never ran.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// How many steps through memory were made ...
    pub steps: u64,
    /// ... and what was counted meanwhile.
    pub walk: Option<Counts>,
    /// What was counted while computing.
    pub still: Option<Counts>,
}

/// What can be counted here.
#[derive(Clone, PartialEq, Debug)]
pub struct Standing {
    /// The rung.
    pub rung: Rung,
    /// Which processor this is, if it says so.
    pub cpu: Option<Cpu>,
    /// What the table calls it, if it knows it.
    pub processor: Option<String>,
    /// What is counted of each thread, on the rungs that count.
    pub recipe: Option<Recipe>,
    /// All that can be counted, whatever it costs, in groups that each fit the hardware: for a measurement that runs its program once
    /// for each.
    pub groups: Vec<Recipe>,
    /// What that costs.
    pub price: Option<Price>,
    /// What follows from the cost.
    pub thrift: Thrift,
    /// Why better rungs are missing, best first.
    pub missing: Vec<Missing>,
}

impl Standing {
    /// How counting is kept cheap with these events: as follows from the cost, but that what may not be switched off does not rest.
    pub fn thrift(&self) -> Thrift {
        let rests = self.thrift.rests && self.recipe.as_ref().is_none_or(Recipe::can_rest);
        Thrift { rests, ..self.thrift }
    }

    /// Nothing is counted, since that was asked for.
    fn off() -> Self {
        Self {
            rung: Rung::Nothing,
            cpu: None,
            processor: None,
            recipe: None,
            groups: Vec::new(),
            price: None,
            thrift: Thrift::FREE,
            missing: vec![Missing { rung: Rung::Exact, why: Why::NotAsked }],
        }
    }
}

/// Climbs as high as it goes. `barred` is why hardware is not to be counted any more, if that has turned out.
pub fn climb(ground: &mut dyn Ground, table: &Table, choice: &Choice, barred: Option<&Why>) -> Standing {
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
            // Asked for by name it is tried where it can tell nothing, too.
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
    let thrift = if recipe.is_some() { Thrift::of(price.as_ref()) } else { Thrift::FREE };
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

/// What was found to work, and what the processor has about its last cache, if that did not fit beside it.
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

/// Tries, and remembers what was learned about permissions.
struct Climber<'a> {
    ground: &'a mut dyn Ground,
    user_only: bool,
    no_guests: bool,
    lends: bool,
    trials: u32,
    most: u32,
}

/// What a try must show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// Events of waiting for memory.
    Waiting,
    /// Cycles and instructions.
    Working,
    /// Whatever it counts: somebody named it.
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
                // What the kernel calls a miss of "the cache" leaves the private ones with AMD, the last one with Intel, and the first
                // one with Arm, where it is no use.
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

    /// Tries events that somebody named.
    fn named(&mut self, events: &[(Role, Spec)]) -> Result<Recipe, Why> {
        let resolved: Result<Events, EventError> =
            events.iter().map(|(role, spec)| Ok((*role, self.ground.resolve(spec)?))).collect();
        self.shrinking(Recipe::of(resolved.map_err(Why::Event)?), Proof::Any)
    }

    /// Tries a recipe, and what is most needed of it if the hardware has not as many counters.
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
                // What was found out before says more.
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

    /// Tries a recipe with all that may be seen, and with less if that is refused.
    fn permitted(&mut self, recipe: Recipe, proof: Proof) -> Result<Recipe, Why> {
        // Each of the two can be given up once.
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
                    // It was not for guests.
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

/// Whether a try shows what it should.
fn judge(recipe: &Recipe, trial: &Trial, proof: Proof) -> Result<(), Why> {
    let (Some(walk), Some(still)) = (trial.walk, trial.still) else { return Err(Why::Taken) };
    let shared =
        |counts: &Counts| counts.running.share_of(counts.enabled).is_some_and(|share| share < SHARED);
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
                if stood <= STILL * walked { Ok(()) } else { Err(Why::Noisy(role)) }
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
            waits(Role::Busy, |counts| counts.busy, BUSY_A_STEP)?;
            waits(Role::Requests, |counts| counts.requests, REQUESTS_A_STEP)
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
