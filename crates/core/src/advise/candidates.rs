//! Selection of candidates: which changes the profile of one run suggests, best expected first.
//!
//! Problem: a program has hundreds of settings, and a user waits for a few runs. Idea: each rule
//! looks at one sign in the profile (more threads than CPUs, waiting, several processes with a
//! thread pool each) and proposes the changes that usually cure it. The formula of phases orders
//! them where it applies, and a value of experience elsewhere. The trials decide.
//!
//! Properties: at most [`CANDIDATES_MAX`] candidates, all different. No candidate asks for more
//! threads than it has CPUs (without `trimtab run`, all that the program may use), or sets a
//! variable that bounds nothing: `OMP_THREAD_LIMIT` does not bound the teams of several threads
//! together, so it is never proposed. A thread count that the command line states is changed there
//! and not by a variable.
//!
//! The values of experience were set on half of the programs of docs/advise.md.

use super::candidate::{Candidate, StartChange};
use super::known::ProgramFacts;
use super::libraries::{self, Library};
use super::load::WaitMode;
use super::{Advice, Conclusion, Gain, Situation, Topic, fitting, known};
use crate::place::{Fit, lower_stated, stated as stated_count};
use crate::profile::Profile;
use crate::setting::{Knob, Setting};
use crate::words::plural;
use std::collections::BTreeMap;

/// Candidates of a program, at most.
pub const CANDIDATES_MAX: usize = 4;
/// Share of waiting from which fewer threads are tried although each has a CPU.
const WAITING_MIN: f64 = 0.25;
/// Wall time below which the start of `trimtab run` is tried against none.
const SHORT_RUN_S: f64 = 0.5;
/// The same for a run in which this start may cost a tenth: it is tried without first.
const TINY_RUN_S: f64 = 0.15;
/// Changes of a short program that are tried without `trimtab run`, too.
const BARE_MAX: usize = 2;
/// Work of others, in CPUs, that counts.
const OTHERS_MIN: f64 = 0.25;
/// Memory from which huge pages are tried.
const HUGE_BYTES_MIN: u64 = 64 << 20;
/// Variables that set the wait policy.
const WAITING: [&str; 5] =
    ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OMPI_MCA_mpi_yield_when_idle"];
/// File names of launchers that take the number of ranks from `-n` or `-np`.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "orterun", "prterun", "mpiexec.hydra"];

/// Facts about the program and the machine.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Profile of the first run, which may have ended early.
    pub profile: &'a Profile,
    /// Environment of the run.
    pub situation: &'a Situation,
    /// Advice of the rules.
    pub advice: &'a [Advice],
    /// Variables that the user set.
    pub variables: &'a BTreeMap<String, String>,
    /// Command line.
    pub command: &'a [String],
    /// Libraries with pools of their own.
    pub libraries: &'a [Library],
    /// Largest number of processes that computed at the same time.
    pub processes: u32,
    /// Largest number of threads that had or wanted a CPU at the same time.
    pub computing: u32,
    /// Whether the first run was ended because its threads never slept.
    pub ended_early: bool,
    /// CPUs that the program may use without `trimtab run`.
    pub usable: u32,
    /// Memory nodes of the machine.
    pub nodes: u32,
    /// Whether huge pages can be requested.
    pub huge_pages: bool,
    /// Whether the kernel accepts time slices.
    pub slices: bool,
}

impl Facts<'_> {
    fn cpus(&self) -> u32 {
        if self.situation.cpus > 0 { self.situation.cpus } else { self.profile.cpus.max(1) }
    }

    /// Returns the number of threads that compute at once.
    fn threads(&self) -> u32 {
        let teams = self.situation.teams.iter().fold(1_u32, |all, &size| all.saturating_mul(size));
        self.computing.max(self.profile.workers).max(teams)
    }

    fn is_crowded(&self) -> bool {
        self.threads() > self.cpus()
    }

    fn has_openmp(&self) -> bool {
        self.profile.runtimes.iter().any(|runtime| runtime.is_openmp())
            || self.variables.contains_key("OMP_NUM_THREADS")
    }

    /// Returns the number of threads that the variables or the CPUs tell the program.
    fn told(&self) -> u32 {
        let said = self.variables.get("OMP_NUM_THREADS").and_then(|said| said.trim().parse().ok());
        said.or_else(|| self.profile.setting.number(Knob::Threads).map(|told| told as u32))
            .unwrap_or_else(|| self.cpus())
    }

    /// Returns whether several teams, or teams of a number that the program chooses, compute at
    /// once.
    fn has_teams_of_its_own(&self) -> bool {
        self.has_openmp()
            && self.situation.teams.is_empty()
            && self.is_crowded()
            && self.threads() > self.told()
    }

    /// Returns whether `trimtab run` lowers the user's counts by itself.
    fn is_fitted(&self) -> bool {
        self.variables.contains_key("OMP_NUM_THREADS") && self.is_crowded()
    }

    /// Returns whether the user's options fix a library's threads, so that its variable changes
    /// nothing.
    fn is_fixed(&self, library: &Library) -> bool {
        library.name == libraries::JAVA && libraries::is_java_fixed(self.command, self.variables)
    }

    /// Returns the variable that bounds a library's threads, and its value.
    fn bounded(&self, library: &Library, threads: u32) -> Option<(String, Option<String>)> {
        let set = self.variables.get(&library.variable).map(String::as_str);
        let (name, value) = library.bounded(threads, set)?;
        Some((name.to_owned(), Some(value)))
    }

    /// Returns the number of CPUs that other programs keep busy.
    fn rivals(&self) -> u32 {
        self.situation.others.filter(|others| *others >= OTHERS_MIN).map_or(0, |others| others.ceil() as u32)
    }

    fn is_short(&self) -> bool {
        self.profile.wall.seconds() < SHORT_RUN_S || self.ended_early
    }

    /// Returns the predicted ratio with this number of threads. The formula knows one team only.
    fn predicted(&self, threads: u32) -> Option<Gain> {
        if self.has_teams_of_its_own() {
            return None;
        }
        let profile = known::plausible(self.profile);
        let facts = ProgramFacts::of(&profile, self.situation);
        let mode = facts.mode?;
        if !facts.missing(true).is_empty() {
            return None;
        }
        facts.gain(&facts.now(mode), &facts.loads(threads, facts.cpus, facts.rivals.unwrap_or(0), mode))
    }

    /// Returns a candidate with a prediction, or with a value of experience.
    fn candidate(&self, change: StartChange, why: String, predicted: Option<Gain>, usual: f64) -> Candidate {
        // Of a run that was ended the profile has only the beginning.
        let predicted = predicted.filter(|_| !self.ended_early);
        let expected = predicted.map_or(usual, |gain| gain.likely);
        Candidate { change, why, predicted, expected }
    }
}

/// Proposes candidates, best expected first.
pub fn propose(facts: &Facts<'_>) -> Vec<Candidate> {
    let mut all = Vec::new();
    for rule in [stated, ranks, pools, teams_of_threads, shapes, counts, cores, waiting, memory, slices] {
        all.extend(rule(facts));
    }
    all.sort_by(|one, other| one.expected.total_cmp(&other.expected));
    let mut chosen: Vec<Candidate> = Vec::new();
    for candidate in all {
        let is_new = chosen.iter().all(|one| one.change != candidate.change);
        if is_new && candidate.change != StartChange::default() {
            chosen.push(candidate);
        }
    }
    if facts.is_short() {
        chosen = with_bare(facts, chosen);
    }
    chosen.truncate(CANDIDATES_MAX);
    chosen
}

/// Adds the best portable changes without `trimtab run`, whose start counts in a short run.
fn with_bare(facts: &Facts<'_>, chosen: Vec<Candidate>) -> Vec<Candidate> {
    // Of a run that was ended the length is not known.
    let (most, first) = match facts.ended_early {
        true => (1, false),
        false => (BARE_MAX, facts.profile.wall.seconds() < TINY_RUN_S),
    };
    let mut bare = 0;
    let mut all: Vec<Candidate> = Vec::new();
    for candidate in chosen {
        if bare == most || candidate.change.bare || !candidate.change.is_portable() {
            bare += usize::from(candidate.change.bare);
            all.push(candidate);
            continue;
        }
        bare += 1;
        let change = StartChange { bare: true, ..candidate.change.clone() };
        let why = format!("{}; without trimtab, whose start counts in a short run", candidate.why);
        let without = Candidate { change, why, ..candidate.clone() };
        all.extend(if first { [without, candidate] } else { [candidate, without] });
    }
    all
}

/// A count that the command line states: as many threads as CPUs.
fn stated(facts: &Facts<'_>) -> Vec<Candidate> {
    let words: Vec<&str> = facts.command.iter().map(String::as_str).collect();
    let launched = words.first().is_some_and(|first| is_launcher(first));
    let Some(stated) = stated_count(&words, launched).filter(|stated| stated.threads > facts.cpus()) else {
        return Vec::new();
    };
    let Some(command) = lower_stated(&words, launched, facts.cpus()) else { return Vec::new() };
    let why = format!("{stated}, and there are {}", plural(facts.cpus(), "CPU"));
    let change = StartChange { command: Some(command), ..StartChange::default() };
    vec![facts.candidate(change, why, None, 0.6)]
}

fn is_launcher(word: &str) -> bool {
    LAUNCHERS.contains(&word.rsplit('/').next().unwrap_or(word))
}

/// Ranks of MPI: as many as CPUs.
fn ranks(facts: &Facts<'_>) -> Vec<Candidate> {
    let found = facts.command.first().filter(|first| is_launcher(first)).and_then(|_| {
        let at = facts.command.iter().position(|word| matches!(word.as_str(), "-n" | "-np" | "--np"))? + 1;
        Some((at, facts.command.get(at)?.parse::<u32>().ok()?))
    });
    let Some((at, ranks)) = found.filter(|&(_, ranks)| ranks > facts.cpus()) else { return Vec::new() };
    let mut command = facts.command.to_vec();
    command[at] = facts.cpus().to_string();
    let why = format!(
        "{ranks} ranks on {}; valid only if the program accepts another number of ranks",
        plural(facts.cpus(), "CPU")
    );
    vec![facts.candidate(StartChange { command: Some(command), ..StartChange::default() }, why, None, 0.7)]
}

/// Several processes with a pool of threads each: the CPUs are divided among the processes.
fn pools(facts: &Facts<'_>) -> Vec<Candidate> {
    let mut all = Vec::new();
    let inner = (facts.cpus() / facts.processes.max(1)).max(1);
    // Without `trimtab run` a library starts a thread for each usable CPU.
    let threads = |library: &Library| {
        if library.processes > 1 { library.threads.max(facts.usable) } else { library.threads }
    };
    // One process with a pool is judged by its workers alone.
    let beyond = |library: &&Library| {
        threads(library) > inner && (library.processes > 1 || !library.is_pool()) && !facts.is_fixed(library)
    };
    let many: Vec<&Library> = facts.libraries.iter().filter(beyond).collect();
    let mut variables: BTreeMap<String, Option<String>> =
        many.iter().filter_map(|library| facts.bounded(library, inner)).collect();
    let bounded = |library: &&Library| !library.variable.is_empty();
    let mut signs: Vec<String> =
        many.iter().copied().filter(bounded).map(|library| library.words()).collect();
    if facts.processes > 1 && facts.has_openmp() && facts.computing > facts.processes.max(facts.cpus()) {
        variables.insert("OMP_NUM_THREADS".to_owned(), Some(inner.to_string()));
        signs.push(format!("{} in {} processes", plural(facts.computing, "thread"), facts.processes));
    }
    if facts.is_crowded() && !variables.is_empty() {
        let change = StartChange { variables, ..StartChange::default() };
        all.push(facts.candidate(
            change,
            format!("{}, on {}", signs.join("; "), plural(facts.cpus(), "CPU")),
            None,
            0.4,
        ));
    }
    // One process whose library has more threads than pay: one thread has no barriers.
    let one = |library: &&Library| library.processes <= 1 && library.threads > 1;
    if let Some(library) = facts.libraries.iter().filter(one).find(|library| !library.is_pool()) {
        let change = StartChange::variable(&library.variable, 1);
        all.push(facts.candidate(
            change,
            format!("{}: one thread has no barriers", library.words()),
            None,
            0.95,
        ));
    }
    all.extend(
        facts.libraries.iter().filter(one).filter(|one| one.is_pool()).filter_map(|one| pool(facts, one)),
    );
    all
}

/// One process with a pool of more threads than the CPUs that it has for itself: as many as
/// these.
fn pool(facts: &Facts<'_>, library: &Library) -> Option<Candidate> {
    let rivals = facts.rivals();
    let free = facts.cpus().saturating_sub(rivals).max(1);
    // Threads that serve the runtime also run at times. Without a count of the user there are as
    // many workers as CPUs.
    let is_told = facts.variables.contains_key(&library.variable) || library.service > 0;
    let workers = library.workers;
    let workers = if is_told { workers } else { workers.min(facts.usable.max(facts.cpus())) };
    if workers <= free || facts.is_fixed(library) {
        return None;
    }
    let why = match rivals {
        0 => format!("{}, on {}", library.words(), plural(facts.cpus(), "CPU")),
        _ => format!("{}, and other programs leave {} free", library.words(), plural(free, "CPU")),
    };
    let change = match facts.bounded(library, free) {
        Some((name, value)) => {
            StartChange { variables: BTreeMap::from([(name, value)]), ..StartChange::default() }
        }
        // Without a variable the CPUs decide.
        None => {
            let setting = Setting::new().with(Knob::Cores, free.to_string()).ok()?;
            StartChange { setting, ..StartChange::default() }
        }
    };
    Some(facts.candidate(change, why, None, 0.9))
}

/// OpenMP teams that several threads of one process open at once.
fn teams_of_threads(facts: &Facts<'_>) -> Vec<Candidate> {
    let told = facts.told().max(1);
    if !facts.has_openmp()
        || !facts.situation.teams.is_empty()
        || !facts.is_crowded()
        || facts.threads() <= told
    {
        return Vec::new();
    }
    let teams = facts.threads().div_ceil(told).max(2);
    let inner = (facts.cpus() / teams).max(1);
    let why = format!(
        "{} computed at once although {told} were set: the program starts several teams, or chooses a number",
        plural(facts.threads(), "thread")
    );
    let limit = StartChange { fit: Some(Fit::Limit), ..StartChange::default() };
    let budget = StartChange { fit: Some(Fit::Budget), ..StartChange::default() };
    vec![
        facts.candidate(StartChange::variable("OMP_NUM_THREADS", inner), why.clone(), None, 0.6),
        facts.candidate(limit, why.clone(), facts.predicted(facts.cpus()), 0.7),
        facts.candidate(budget, why, None, 0.75),
    ]
}

/// Shapes of nested teams, outer times inner, that fit the CPUs.
fn shapes(facts: &Facts<'_>) -> Vec<Candidate> {
    let teams = &facts.situation.teams;
    if teams.len() < 2 || !facts.is_crowded() {
        return Vec::new();
    }
    let cpus = facts.cpus();
    let predicted = facts.predicted(cpus);
    let list = |sizes: &[u32]| sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let outer = fitting(teams, cpus);
    let reversed: Vec<u32> = teams.iter().rev().copied().collect();
    let inner: Vec<u32> = fitting(&reversed, cpus).into_iter().rev().collect();
    let said = format!("{} nested threads on {}", list(teams).replace(',', " x "), plural(cpus, "CPU"));
    let mut all = Vec::new();
    let usual = predicted.map_or(0.3, |gain| gain.likely);
    for (sizes, share) in [(&outer, 1.0), (&inner, 1.1)] {
        let why = format!("{said}: teams of {}", list(sizes).replace(',', " x "));
        // `trimtab run` keeps outer teams before inner ones by itself.
        let bare = sizes == &outer && facts.is_fitted();
        if bare && !facts.is_short() {
            continue;
        }
        let change = StartChange { bare, ..StartChange::variable("OMP_NUM_THREADS", list(sizes)) };
        all.push(Candidate { expected: usual * share, ..facts.candidate(change, why, predicted, usual) });
    }
    let ones = vec![1; teams.len()];
    if ones != outer && ones != inner {
        let change = StartChange::variable("OMP_NUM_THREADS", list(&ones));
        all.push(facts.candidate(change, format!("{said}: one thread has no barriers"), None, usual * 1.3));
    }
    if let [outermost, next, ..] = outer.as_slice() {
        let change = StartChange {
            variables: BTreeMap::from([("OMP_NUM_THREADS".to_owned(), None)]),
            nest: Some(format!("{outermost},scatter,{next},subcompact")),
            ..StartChange::default()
        };
        all.push(facts.candidate(change, format!("{said}: each team placed"), None, usual * 1.2));
    }
    all.extend(on_all_cpus(facts, teams));
    all
}

/// Fewer threads of one OpenMP team.
fn counts(facts: &Facts<'_>) -> Vec<Candidate> {
    let cpus = facts.cpus();
    let one_team = facts.situation.teams.is_empty() && !facts.has_teams_of_its_own();
    if !facts.has_openmp() || !one_team || facts.threads() < 2 {
        return Vec::new();
    }
    let waits = facts.profile.waiting.is_none_or(|waiting| waiting >= WAITING_MIN);
    if !facts.is_crowded() && !waits {
        return Vec::new();
    }
    let mut sizes = vec![cpus.saturating_sub(facts.rivals()).max(1), cpus.div_ceil(2), 1];
    if facts.is_crowded() {
        sizes.insert(0, cpus);
    }
    sizes.dedup();
    // `trimtab run` lowers the user's count to the CPUs by itself.
    let is_run = |size: u32| size == cpus && facts.is_fitted();
    let sizes =
        sizes.into_iter().filter(|&size| size < facts.threads() && (!is_run(size) || facts.is_short()));
    let proposals = sizes.map(|size| {
        let why =
            format!("{} for {}: {size} instead", plural(facts.threads(), "thread"), plural(cpus, "CPU"));
        // A variable also works without `trimtab run`, whose start counts in a short run.
        let change = if facts.variables.contains_key("OMP_NUM_THREADS") || facts.is_short() {
            StartChange { bare: is_run(size), ..StartChange::variable("OMP_NUM_THREADS", size) }
        } else {
            let setting = Setting::new().with(Knob::Threads, size.to_string()).unwrap_or_default();
            StartChange { setting, ..StartChange::default() }
        };
        let usual = match (facts.is_crowded(), size == cpus) {
            (true, true) => 0.5,
            (true, false) => 0.8,
            (false, _) => 0.97,
        };
        facts.candidate(change, why, facts.predicted(size), usual)
    });
    proposals.chain(on_all_cpus(facts, &[])).collect()
}

/// As many threads as the program has CPUs without `trimtab run`, if that would take fewer, which
/// other programs leave free: shared CPUs can be faster than fewer ones.
fn on_all_cpus(facts: &Facts<'_>, teams: &[u32]) -> Option<Candidate> {
    let usable = facts.usable;
    if usable <= facts.cpus() || facts.threads() <= usable {
        return None;
    }
    let sizes = if teams.is_empty() { vec![usable] } else { fitting(teams, usable) };
    let value = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let why = format!(
        "{} for {}, which other programs use too: {value} on all of them",
        plural(facts.threads(), "thread"),
        plural(usable, "CPU")
    );
    let change = StartChange { bare: true, ..StartChange::variable("OMP_NUM_THREADS", value) };
    Some(facts.candidate(change, why, None, 0.6))
}

/// Cores that other programs leave free, from the rule about sharing.
fn cores(facts: &Facts<'_>) -> Vec<Candidate> {
    by_rule(facts, Topic::Sharing, 0.9)
}

/// Returns the advice of a rule as a candidate.
fn by_rule(facts: &Facts<'_>, topic: Topic, usual: f64) -> Vec<Candidate> {
    let advised = facts.advice.iter().find(|one| one.topic == topic && one.verdict == Conclusion::Change);
    let change =
        advised.map(|one| (StartChange { setting: one.setting.clone(), ..StartChange::default() }, one));
    change
        .map(|(change, one)| facts.candidate(change, one.words.clone(), one.gain, usual))
        .into_iter()
        .collect()
}

/// Another wait policy than the present one.
fn waiting(facts: &Facts<'_>) -> Vec<Candidate> {
    if facts.profile.runtimes.is_empty() || facts.threads() < 2 {
        return Vec::new();
    }
    let profile = known::plausible(facts.profile);
    let program = ProgramFacts::of(&profile, facts.situation);
    let set = WAITING.iter().filter(|name| facts.variables.contains_key(**name));
    let variables: BTreeMap<String, Option<String>> = set.map(|name| ((*name).to_owned(), None)).collect();
    let openmp = facts.profile.runtimes.iter().all(|runtime| runtime.is_openmp());
    let short = facts.is_short() && !facts.ended_early && openmp;
    let policy = |word: &str, why: &str, usual: f64| {
        let setting = Setting::new().with(Knob::Wait, word).unwrap_or_default();
        let gain = program
            .mode
            .zip(program.wait_mode_under(Some(word)))
            .filter(|_| program.missing(true).is_empty());
        let gain = gain.filter(|_| !facts.has_teams_of_its_own());
        let gain = gain.and_then(|(now, then)| program.gain(&program.now(now), &program.now(then)));
        let mut change = StartChange { setting, variables: variables.clone(), ..StartChange::default() };
        // A variable also works without `trimtab run`, whose start counts in a short run.
        let by_variable = match word {
            "sleep" => Some("passive"),
            "spin" => Some("active"),
            _ => None,
        };
        if let Some(value) = by_variable.filter(|_| short) {
            change.variables.insert("OMP_WAIT_POLICY".to_owned(), Some(value.to_owned()));
            change.setting = Setting::new();
        }
        facts.candidate(change, why.to_owned(), gain, usual)
    };
    let crowded = program.is_crowded() || facts.is_crowded();
    match program.mode {
        Some(WaitMode::Sleep) if crowded => Vec::new(),
        _ if crowded => vec![policy("sleep", "waiting threads keep CPUs from threads that work", 0.9)],
        Some(WaitMode::Spin) => Vec::new(),
        _ => vec![policy("spin", "each thread has a CPU, and waking takes longer than spinning", 0.96)],
    }
}

/// Huge pages, and the nodes of memory.
fn memory(facts: &Facts<'_>) -> Vec<Candidate> {
    let mut all = Vec::new();
    let knob = |knob: Knob, value: &str| StartChange {
        setting: Setting::new().with(knob, value).unwrap_or_default(),
        ..StartChange::default()
    };
    let large = facts.profile.resident.is_some_and(|resident| resident >= HUGE_BYTES_MIN);
    let small_pages = facts.profile.huge_share.is_none_or(|share| share < 0.5);
    if facts.huge_pages && large && small_pages && !facts.variables.contains_key("GLIBC_TUNABLES") {
        let rule = facts.advice.iter().find(|one| one.topic == Topic::HugePages);
        let gain = rule.and_then(|one| one.gain);
        let why = "its memory is large and in small pages: fewer page faults and translations";
        all.push(facts.candidate(knob(Knob::Thp, "on"), why.to_owned(), gain, 0.95));
    }
    if facts.nodes > 1 && facts.profile.remote_share.is_none_or(|share| share > 0.2) {
        let why = "part of its memory is on another node than the thread's: pages on all nodes in turn";
        all.push(facts.candidate(knob(Knob::Memory, "interleave"), why.to_owned(), None, 0.95));
    }
    all
}

/// Shorter time slices, for threads that spin in the program's own code.
fn slices(facts: &Facts<'_>) -> Vec<Candidate> {
    if !facts.slices || !facts.is_crowded() || !facts.ended_early {
        return Vec::new();
    }
    let setting = Setting::new().with(Knob::Slice, "0.1").unwrap_or_default();
    let why = "threads spin in the program's own code: shorter slices waste less";
    vec![facts.candidate(StartChange { setting, ..StartChange::default() }, why.to_owned(), None, 0.98)]
}
