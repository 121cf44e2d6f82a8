//! What a profile and a situation say of a program, in the terms of the rules; and what they leave open.
//!
//! *Step*, the work of a thread from one meeting to the next, is the mean interval less its share of waiting; where threads were kept from CPUs, less
//! that too; and never more than the CPU time that all threads had, divided among threads and meetings.

use super::load::{Load, WAKE, Way};
use super::{ERROR_BESIDE, ERROR_CROWDED, ERROR_LEAST, Gain, Situation};
use crate::place::runtimes::Runtime;
use crate::place::waiting::{WaitPolicy, Yield};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::time::Span;

/// A quarter of a CPU that others take is noise: daemons, and the looking itself.
const NOISE: f64 = 0.25;

/// What is known.
#[derive(Clone, Debug)]
pub(super) struct Known<'a> {
    pub profile: &'a Profile,
    pub situation: &'a Situation,
    pub threads: u32,
    pub cpus: u32,
    /// Threads of others that compute on those CPUs.
    pub rivals: Option<u32>,
    /// Of a thread, as it ran: expected, and at the tenth and the ninetieth of a hundred intervals.
    steps: Option<[f64; 3]>,
    /// Threads among which the work of a phase was divided then.
    divided: u32,
    pub way: Option<Way>,
    pub auto: bool,
}

impl<'a> Known<'a> {
    pub(super) fn of(profile: &'a Profile, situation: &'a Situation) -> Self {
        let teams = situation.teams.iter().fold(1_u32, |all, &size| all.saturating_mul(size));
        let cpus = if situation.cpus > 0 { situation.cpus } else { profile.cpus };
        let threads = if situation.teams.len() > 1 { teams } else { profile.workers };
        let mut known = Self {
            profile,
            situation,
            threads,
            cpus,
            rivals: situation
                .others
                .filter(|others| others.is_finite())
                .map(|others| if others < NOISE { 0 } else { others.ceil() as u32 }),
            steps: steps(profile, threads, situation.teams.len() > 1),
            divided: threads.max(1),
            way: None,
            auto: profile.setting.get(Knob::Balance).is_some_and(|kind| kind != "none"),
        };
        known.way = known.find_way(profile.setting.get(Knob::Wait));
        known
    }

    /// What of this a rule needs and nobody knows.
    pub(super) fn missing(&self, way: bool) -> Vec<String> {
        let mut missing = Vec::new();
        let mut lacks = |is: bool, what: &str| {
            if is {
                missing.push(what.to_owned());
            }
        };
        lacks(self.threads == 0, "how many threads worked at once");
        lacks(self.cpus == 0, "how many CPUs it may use");
        lacks(self.steps.is_none(), "how often threads meet (intervals)");
        lacks(self.rivals.is_none(), "what others do on these CPUs");
        lacks(way && self.way.is_none(), "how threads wait");
        missing
    }

    /// Whether there are more threads than CPUs, strangers among them.
    pub(super) fn is_crowded(&self) -> bool {
        self.threads.saturating_add(self.rivals.unwrap_or(0)) > self.cpus
    }

    /// The program with so many threads on so many CPUs with so many strangers, its steps as expected and at both ends.
    pub(super) fn loads(&self, threads: u32, cpus: u32, rivals: u32, way: Way) -> Vec<Load> {
        let share = f64::from(self.divided) / f64::from(threads.max(1));
        let load = |step: f64| Load {
            threads,
            cpus,
            rivals,
            step: step * share,
            way,
            bound: self.situation.bound == Some(true),
            posix: self.situation.yields == Yield::Posix,
            auto: self.auto,
            wake: self.situation.wake.map_or(WAKE, Span::seconds),
        };
        self.steps.iter().flatten().map(|&step| load(step)).collect()
    }

    /// As it is now.
    pub(super) fn now(&self, way: Way) -> Vec<Load> {
        self.loads(self.threads, self.cpus, self.rivals.unwrap_or(0), way)
    }

    /// Of phases as they are, and as they would be; scaled to the part of the run that consists of phases.
    pub(super) fn gain(&self, before: &[Load], after: &[Load]) -> Option<Gain> {
        let ratios: Vec<f64> =
            before.iter().zip(after).map(|(before, after)| after.phase() / before.phase()).collect();
        let error = match self.rivals {
            Some(0) => ERROR_LEAST,
            // More threads have more of the CPUs beside strangers, too, which changes give away.
            _ if self.threads > self.cpus => ERROR_CROWDED,
            _ => ERROR_BESIDE,
        };
        Some(Gain::around(&ratios, error)?.of_part(self.part()))
    }

    /// Which part of the run threads go from meeting to meeting.
    pub(super) fn part(&self) -> f64 {
        let Some(intervals) = self.profile.intervals else { return 0.0 };
        let all = intervals.mean.times(intervals.count as f64);
        all.share_of(self.profile.wall).map_or(0.0, |part| part.clamp(0.0, 1.0))
    }

    /// Takes a change over.
    pub(super) fn follow(&mut self, setting: &Setting) {
        let number = |knob| setting.number(knob).map(|number| number as u32);
        if let Some(cores) = number(Knob::Cores) {
            self.cpus = cores;
            // Cores of its own are what was advised.
            self.rivals = self.rivals.map(|_| 0);
        }
        if let Some(threads) = number(Knob::Threads) {
            self.threads = threads;
        }
        let wait = setting.get(Knob::Wait).or(self.profile.setting.get(Knob::Wait));
        self.way = self.find_way(wait);
        self.auto |= setting.get(Knob::Balance).is_some_and(|kind| kind != "none");
    }

    /// How its threads wait under a policy, since that depends on whether CPUs are short.
    pub(super) fn find_way(&self, word: Option<&str>) -> Option<Way> {
        let policy = word.and_then(|word| word.parse().ok()).unwrap_or(WaitPolicy::Auto);
        let short = self.is_crowded() || self.quota_is_short();
        match policy {
            WaitPolicy::Spin => Some(self.spinning()),
            WaitPolicy::Yield => Some(Way::Yield),
            WaitPolicy::Sleep => Some(Way::Sleep),
            // What the user told the runtime is left alone, so what the launcher would do says nothing.
            WaitPolicy::Auto | WaitPolicy::Keep if self.left().is_some() => self.left().flatten(),
            WaitPolicy::Auto if short => Some(Way::Moment),
            WaitPolicy::Auto | WaitPolicy::Keep => self.by_itself(),
        }
    }

    /// What the user's variables say, where there are any: the profile quotes them.
    fn left(&self) -> Option<Option<Way>> {
        let words = self.profile.wait.as_deref()?.to_ascii_lowercase();
        let names =
            ["omp_wait_policy", "gomp_spincount", "kmp_blocktime", "kmp_library", "ompi_mca", "upcxx"];
        names.iter().any(|name| words.contains(name)).then(|| match () {
            () if words.contains("passive") => Some(Way::Sleep),
            () if words.contains("active") => Some(self.spinning()),
            () => None,
        })
    }

    /// What runtimes do that are told to spin: those of OpenMP do not insist where they have more threads themselves than CPUs (libgomp spins a
    /// thousand rounds, libomp yields, by their sources).
    fn spinning(&self) -> Way {
        match self.profile.runtimes.as_slice() {
            [runtime] => Way::of(runtime.row().spins.of(self.threads > self.cpus)),
            _ => Way::Spin,
        }
    }

    /// What runtimes do that nobody tells anything; `None` where several differ or none was seen.
    fn by_itself(&self) -> Option<Way> {
        // A runtime sees its own threads only.
        let way = |runtime: &Runtime| Way::of(runtime.row().waits.of(self.threads > self.cpus));
        let mut ways: Vec<Way> = self.profile.runtimes.iter().map(way).collect();
        ways.dedup();
        (ways.len() == 1).then(|| ways.first().copied()).flatten()
    }

    /// Whether a control group grants less than the CPUs.
    pub(super) fn quota_is_short(&self) -> bool {
        self.situation.quota.is_some_and(|quota| u64::from(quota) < 1000 * u64::from(self.cpus))
    }

    /// What was seen of steps and waiting, in words.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut seen = vec![format!("{} threads on {} CPUs", self.threads, self.cpus)];
        if let Some(rivals) = self.rivals.filter(|&rivals| rivals > 0) {
            seen.push(format!("others keep {rivals} of the CPUs busy"));
        }
        if let Some(intervals) = self.profile.intervals {
            seen.push(format!("threads meet every {} ({} times)", intervals.mean, intervals.count));
        }
        if let Some([step, ..]) = self.steps {
            seen.push(format!("of that a thread works {}", Span((step * 1e9) as u64)));
        }
        if let Some(waiting) = self.profile.waiting {
            seen.push(format!("{:.0} % of the parallel time is waiting", 100.0 * waiting));
        }
        match self.way {
            Some(Way::Spin) => seen.push("waiting threads spin".to_owned()),
            Some(Way::Yield) => seen.push("waiting threads yield".to_owned()),
            Some(Way::Sleep) => seen.push("waiting threads sleep".to_owned()),
            Some(Way::Moment) => seen.push("waiting threads spin for a moment, then sleep".to_owned()),
            None => {}
        }
        seen
    }
}

/// A profile whose shares are shares: what cannot be one is taken as not seen.
pub(super) fn plausible(profile: &Profile) -> Profile {
    let number = |value: Option<f64>| value.filter(|value| value.is_finite() && *value >= 0.0);
    let share = |value: Option<f64>| number(value).map(|share| share.min(1.0));
    Profile {
        waiting: share(profile.waiting),
        kept_waiting: share(profile.kept_waiting),
        huge_share: share(profile.huge_share),
        remote_share: share(profile.remote_share),
        misses_per_kilo: number(profile.misses_per_kilo),
        ..profile.clone()
    }
}

/// Of a thread: the expected step, the short and the long ones. `None` where meetings were not seen, or too few to tell.
fn steps(profile: &Profile, threads: u32, nested: bool) -> Option<[f64; 3]> {
    let intervals =
        profile.intervals.filter(|intervals| intervals.count >= 2 && intervals.mean > Span::ZERO)?;
    let works = 1.0 - profile.waiting.unwrap_or(0.0).clamp(0.0, 0.999);
    let runs = 1.0 - profile.kept_waiting.unwrap_or(0.0).clamp(0.0, 0.999);
    let threads = f64::from(threads.max(1));
    let share = (profile.user + profile.system).seconds() / (threads * intervals.count as f64);
    let step = |span: Span| {
        let step = span.seconds() * works * runs;
        if share > 0.0 {
            step.min(share * (span.seconds() / intervals.mean.seconds()).max(1e-3))
        } else {
            step
        }
    };
    let mean = step(intervals.mean);
    // Teams within teams have intervals of their own at each level, and one team's are long while another has the CPUs: their spread is not the work's.
    let end = |span: Span| if span > Span::ZERO && !nested { step(span) } else { mean };
    let all = [mean, end(intervals.tenth), end(intervals.ninetieth)];
    all.iter().all(|step| step.is_finite() && *step > 0.0).then_some(all)
}
