//! Facts about a program in the terms of the rules, from a profile and a situation, with the gaps
//! that they leave.
//!
//! A *step* is the work of a thread from one barrier or collective to the next: the mean interval
//! less its share of waiting, less the share that threads were kept from CPUs. A step is never more
//! than the CPU time of all threads, divided among threads and barriers.

use super::load::{PhaseLoad, WAKE_S, WaitMode};
use super::{ERROR_BESIDE, ERROR_CROWDED, ERROR_LEAST, Gain, Situation};
use crate::place::runtimes::Runtime;
use crate::place::waiting::{WaitPolicy, Yield};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::time::Span;

/// Work of others below a quarter of a CPU is noise: daemons, and the measurement itself.
const NOISE_CPUS: f64 = 0.25;

/// Known facts about a program.
#[derive(Clone, Debug)]
pub(super) struct ProgramFacts<'a> {
    pub profile: &'a Profile,
    pub situation: &'a Situation,
    pub threads: u32,
    pub cpus: u32,
    /// Computing threads of others on those CPUs.
    pub rivals: Option<u32>,
    /// Steps of a thread as it ran, in seconds: expected, and from the 10th and the 90th percentile
    /// of the intervals.
    steps: Option<[f64; 3]>,
    /// Number of threads among which the work of a phase was divided in the measured run.
    divided: u32,
    pub mode: Option<WaitMode>,
    pub auto: bool,
}

impl<'a> ProgramFacts<'a> {
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
                .map(|others| if others < NOISE_CPUS { 0 } else { others.ceil() as u32 }),
            steps: steps(profile, threads, situation.teams.len() > 1),
            divided: threads.max(1),
            mode: None,
            auto: profile.setting.get(Knob::Balance).is_some_and(|kind| kind != "none"),
        };
        known.mode = known.wait_mode_under(profile.setting.get(Knob::Wait));
        known
    }

    /// Names the facts that a rule needs and that are unknown.
    pub(super) fn missing(&self, mode: bool) -> Vec<String> {
        let mut missing = Vec::new();
        let mut lacks = |is: bool, what: &str| {
            if is {
                missing.push(what.to_owned());
            }
        };
        lacks(self.threads == 0, "the number of threads that worked at once");
        lacks(self.cpus == 0, "the number of CPUs it may use");
        lacks(self.steps.is_none(), "the synchronisation intervals");
        lacks(self.rivals.is_none(), "the load of other programs on these CPUs");
        lacks(mode && self.mode.is_none(), "the wait policy in use");
        missing
    }

    /// Returns whether there are more threads than CPUs, with those of others.
    pub(super) fn is_crowded(&self) -> bool {
        self.threads.saturating_add(self.rivals.unwrap_or(0)) > self.cpus
    }

    /// Returns the load of the program with these numbers of threads, CPUs and foreign threads, for
    /// the expected step and for both ends.
    pub(super) fn loads(&self, threads: u32, cpus: u32, rivals: u32, mode: WaitMode) -> Vec<PhaseLoad> {
        let share = f64::from(self.divided) / f64::from(threads.max(1));
        let load = |step: f64| PhaseLoad {
            threads,
            cpus,
            rivals,
            step: step * share,
            mode,
            bound: self.situation.bound == Some(true),
            posix: self.situation.yields == Yield::Posix,
            auto: self.auto,
            wake: self.situation.wake.map_or(WAKE_S, Span::seconds),
        };
        self.steps.iter().flatten().map(|&step| load(step)).collect()
    }

    /// Returns the present load.
    pub(super) fn now(&self, mode: WaitMode) -> Vec<PhaseLoad> {
        self.loads(self.threads, self.cpus, self.rivals.unwrap_or(0), mode)
    }

    /// Returns the gain from phases as they are to phases after a change, scaled to the part of the
    /// run that consists of phases.
    pub(super) fn gain(&self, before: &[PhaseLoad], after: &[PhaseLoad]) -> Option<Gain> {
        let ratios: Vec<f64> =
            before.iter().zip(after).map(|(before, after)| after.phase() / before.phase()).collect();
        let error = match self.rivals {
            Some(0) => ERROR_LEAST,
            // Beside others, more threads also get a larger share of the CPUs, which a change gives
            // up.
            _ if self.threads > self.cpus => ERROR_CROWDED,
            _ => ERROR_BESIDE,
        };
        Some(Gain::around(&ratios, error)?.of_part(self.part()))
    }

    /// Returns the share of the run in which threads go from barrier to barrier.
    pub(super) fn part(&self) -> f64 {
        let Some(intervals) = self.profile.intervals else { return 0.0 };
        let all = intervals.mean.times(intervals.count as f64);
        all.share_of(self.profile.wall).map_or(0.0, |part| part.clamp(0.0, 1.0))
    }

    /// Applies an advised change.
    pub(super) fn follow(&mut self, setting: &Setting) {
        let number = |knob| setting.number(knob).map(|number| number as u32);
        if let Some(cores) = number(Knob::Cores) {
            self.cpus = cores;
            // The advice was a set of cores without others.
            self.rivals = self.rivals.map(|_| 0);
        }
        if let Some(threads) = number(Knob::Threads) {
            self.threads = threads;
        }
        let wait = setting.get(Knob::Wait).or(self.profile.setting.get(Knob::Wait));
        self.mode = self.wait_mode_under(wait);
        self.auto |= setting.get(Knob::Balance).is_some_and(|kind| kind != "none");
    }

    /// Returns how the threads wait under a policy, which depends on whether there are fewer CPUs
    /// than threads.
    pub(super) fn wait_mode_under(&self, word: Option<&str>) -> Option<WaitMode> {
        let policy = word.and_then(|word| word.parse().ok()).unwrap_or(WaitPolicy::Auto);
        let short = self.is_crowded() || self.quota_is_short();
        match policy {
            WaitPolicy::Spin => Some(self.spinning()),
            WaitPolicy::Yield => Some(WaitMode::Yield),
            WaitPolicy::Sleep => Some(WaitMode::Sleep),
            // A setting that the user gave to the runtime is left alone, so the launcher's default
            // does not apply.
            WaitPolicy::Auto | WaitPolicy::Keep if self.left().is_some() => self.left().flatten(),
            WaitPolicy::Auto if short => Some(WaitMode::Moment),
            WaitPolicy::Auto | WaitPolicy::Keep => self.by_itself(),
        }
    }

    /// Returns the user's own setting, if there is one: the profile quotes the variables.
    fn left(&self) -> Option<Option<WaitMode>> {
        let words = self.profile.wait.as_deref()?.to_ascii_lowercase();
        let names =
            ["omp_wait_policy", "gomp_spincount", "kmp_blocktime", "kmp_library", "ompi_mca", "upcxx"];
        names.iter().any(|name| words.contains(name)).then(|| match () {
            () if words.contains("passive") => Some(WaitMode::Sleep),
            () if words.contains("active") => Some(self.spinning()),
            () => None,
        })
    }

    /// Returns the way in which runtimes wait whose wait policy is spinning. OpenMP runtimes do not
    /// insist if they have more threads than CPUs (libgomp spins a thousand rounds, libomp yields,
    /// by their sources).
    fn spinning(&self) -> WaitMode {
        match self.profile.runtimes.as_slice() {
            [runtime] => WaitMode::of(runtime.row().spins.of(self.threads > self.cpus)),
            _ => WaitMode::Spin,
        }
    }

    /// Returns how runtimes wait by default; `None` if several differ or none was seen.
    fn by_itself(&self) -> Option<WaitMode> {
        // A runtime counts only its own threads.
        let mode = |runtime: &Runtime| WaitMode::of(runtime.row().waits.of(self.threads > self.cpus));
        let mut modes: Vec<WaitMode> = self.profile.runtimes.iter().map(mode).collect();
        modes.dedup();
        (modes.len() == 1).then(|| modes.first().copied()).flatten()
    }

    /// Returns whether a control group grants less than the CPUs.
    pub(super) fn quota_is_short(&self) -> bool {
        self.situation.quota.is_some_and(|quota| u64::from(quota) < 1000 * u64::from(self.cpus))
    }

    /// Describes the observed steps and waiting in words.
    pub(super) fn evidence(&self) -> Vec<String> {
        let mut seen = vec![format!("{} threads on {} CPUs", self.threads, self.cpus)];
        if let Some(rivals) = self.rivals.filter(|&rivals| rivals > 0) {
            seen.push(format!("other programs use {rivals} of the CPUs"));
        }
        if let Some(intervals) = self.profile.intervals {
            seen.push(format!("threads synchronise every {} ({} times)", intervals.mean, intervals.count));
        }
        if let Some([step, ..]) = self.steps {
            seen.push(format!("a thread works {} of each interval", Span((step * 1e9) as u64)));
        }
        if let Some(waiting) = self.profile.waiting {
            seen.push(format!("{:.0} % of the parallel time is waiting", 100.0 * waiting));
        }
        match self.mode {
            Some(WaitMode::Spin) => seen.push("waiting threads spin".to_owned()),
            Some(WaitMode::Yield) => seen.push("waiting threads yield".to_owned()),
            Some(WaitMode::Sleep) => seen.push("waiting threads sleep".to_owned()),
            Some(WaitMode::Moment) => seen.push("waiting threads spin for a moment, then sleep".to_owned()),
            None => {}
        }
        seen
    }
}

/// Returns the profile with valid shares: an impossible value is treated as not seen.
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

/// Returns the expected, the short and the long step of a thread, in seconds. `None` if too few
/// barriers were seen.
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
    // Nested teams have intervals of their own at each level, and one team's intervals are long
    // while another team has the CPUs: their spread is not that of the work.
    let end = |span: Span| if span > Span::ZERO && !nested { step(span) } else { mean };
    let all = [mean, end(intervals.tenth), end(intervals.ninetieth)];
    all.iter().all(|step| step.is_finite() && *step > 0.0).then_some(all)
}
