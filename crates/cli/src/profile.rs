//! The profile of a run: what guests counted inside, what was seen from outside, and what neither could see, as one value.
//!
//! The run itself is `trimtab run`'s, watched by its wrapper; this module brings the page file for guests, puts the pieces together when the
//! program has ended, and writes them. Who wants a profile as a value calls [`measure`].

use crate::guest::{self, Guest};
use crate::output::{self, Claim, Kind};
use crate::say;
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use trimtab_core::audit::{Audited, Close};
use trimtab_core::meetings::{Meetings, VARIABLE};
use trimtab_core::place::waiting::Waiting;
use trimtab_core::place::{Action, Variable};
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::words::plural;
use trimtab_linux::child::End;
use trimtab_linux::meetings::PageFile;
use trimtab_linux::program::{Family, Program, SecureExec};
use trimtab_linux::sys::usage::{self, Usage};

/// The document's form.
pub const SCHEMA: &str = "trimtab.profile/1";

/// A thread worked if it had at least this share of the CPU time of the one that had most.
const WORKED: f64 = 0.05;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// As JSON.
    pub json: bool,
    /// To this file.
    pub output: Option<PathBuf>,
    /// In which setting the program runs.
    pub setting: Setting,
}

/// A profile under way.
#[derive(Debug)]
pub struct Profiling {
    ask: Ask,
    page: PageFile,
    claim: Option<Claim>,
}

/// What only the program's own process knows, before it becomes the program.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// How threads wait.
    wait: String,
    /// What was used before the program began.
    user: Span,
    system: Span,
    faults: u64,
    voluntary: u64,
    involuntary: u64,
}

impl Facts {
    /// As it is now; `left` is what of waiting the user has decided.
    pub fn now(waiting: &Waiting, left: &[String]) -> Self {
        let used = usage::own().unwrap_or_default();
        let wait = if left.is_empty() { waiting.to_string() } else { left.join("; ") };
        let Usage { user, system, faults, voluntary, involuntary } = used;
        Self { wait, user: user.into(), system: system.into(), faults, voluntary, involuntary }
    }

    /// In one line.
    pub fn line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From that line.
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }
}

/// Lets guests count, also in programs that are not placed by a guest: launchers, whose ranks it reaches.
pub fn count_meetings(world: &World, program: &Program, environment: &mut Vec<Variable>, path: &str) {
    let reader = "trimtab's guest library";
    let variable =
        |name: &str, value: String| Variable { name: name.to_owned(), reader, action: Action::Set { value } };
    if !unreached(program).is_empty() && program.family != Some(Family::Launcher) {
        return;
    }
    let Ok(library) = guest::library() else { return };
    let preload = guest::preload(world, &library);
    match environment.iter_mut().find(|variable| variable.name == "LD_PRELOAD") {
        Some(variable) => variable.action = Action::Set { value: preload },
        None => environment.push(variable("LD_PRELOAD", preload)),
    }
    environment.push(variable(VARIABLE, path.to_owned()));
}

/// Why a guest cannot count in a program; empty where it can.
fn unreached(program: &Program) -> Vec<String> {
    let mut unseen = Vec::new();
    let mut say = |why: &str| unseen.push(format!("meetings: {why}"));
    match program.secure_exec {
        Some(SecureExec::SetUid | SecureExec::SetGid | SecureExec::Capabilities) => {
            say("it runs with more privilege than its user, so the loader ignores preloads");
        }
        None if program.takes_preload() == Some(false) => {
            say("it is statically linked, so that nothing can be preloaded")
        }
        None if program.takes_preload().is_none() => say("its file cannot be read"),
        None => {}
    }
    if let Err(why) = guest::library() {
        say(&why);
    }
    if program.binary.as_ref().is_some_and(|binary| binary.go) {
        say("goroutines wait inside Go's own runtime");
    }
    match program.family {
        Some(Family::Jvm) => say("Java's threads wait inside the JVM"),
        Some(Family::Node) => say("Node.js waits in its own loop"),
        _ => {}
    }
    if unseen.is_empty()
        && let Guest::Stays(why) = guest::decide(program, crate::args::PinMode::Auto, None, false)
        && program.family != Some(Family::Launcher)
    {
        let why = why.split(": threads").next().unwrap_or_default();
        unseen.push(format!("meetings: {why}"));
    }
    unseen
}

/// What is known when the program has ended.
#[derive(Debug)]
pub struct Rest<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// CPUs the program might use.
    pub usable: &'a CpuSet,
    /// How long it ran.
    pub wall: Duration,
    /// What its processes used, with what was used before it began.
    pub used: Usage,
    /// What its process said before.
    pub facts: Option<&'a Facts>,
    /// What looks saw of it.
    pub audited: Option<&'a Audited>,
    /// What close looks saw of it.
    pub close: &'a Close,
    /// What caches missed.
    pub misses_per_kilo: Option<f64>,
    /// What it is.
    pub program: &'a Program,
    /// How it ended.
    pub end: End,
}

impl Profiling {
    /// Makes sure that it can be written, and makes the page file.
    ///
    /// # Errors
    /// It cannot, or something else would be lost.
    pub fn open(ask: &Ask) -> Result<Self> {
        let claim = match &ask.output {
            Some(path) => {
                Some(Claim::open(&format!("--output {}", path.display()), path, Kind::Profile, 0o666)?)
            }
            None => None,
        };
        let page = PageFile::create().context("no memory can be had in which meetings are counted")?;
        Ok(Self { ask: ask.clone(), page, claim })
    }

    /// What a guest is told.
    pub fn meetings(&self) -> String {
        self.page.path()
    }

    /// Puts it together and writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self, rest: &Rest<'_>) -> Result<()> {
        let met = self.page.read().unwrap_or_default();
        let profile = assemble(&self.ask.setting, &met, rest);
        let text = if self.ask.json { json(&profile)? } else { words(&profile, &met, rest.end) };
        match (&self.claim, &self.ask.output) {
            (Some(_), Some(path)) => output::replace(path, |out| out.write_all(text.as_bytes()))
                .with_context(|| format!("the profile cannot be written: {}", path.display())),
            _ => {
                say::report(&text);
                Ok(())
            }
        }
    }
}

fn assemble(setting: &Setting, met: &Meetings, rest: &Rest<'_>) -> Profile {
    let mut unseen = unreached(rest.program);
    let Rest { machine, usable, used, close, audited, .. } = rest;
    let before = rest.facts.cloned().unwrap_or_default();
    let core = |cpu| machine.pu(cpu).map(|pu| machine.core_of(pu));
    let cores: BTreeSet<_> = usable.iter().filter_map(core).collect();
    let threads = audited.map_or(&[][..], |audited| &audited.threads);
    let longest = threads.iter().map(|thread| thread.run).max().unwrap_or_default();
    let worked = threads
        .iter()
        .filter(|thread| thread.run > Span::ZERO && thread.run >= longest.times(WORKED))
        .count();
    let waits = threads.iter().filter_map(|thread| Some((thread.run, thread.wait?)));
    let (ran, waited) = waits.fold((Span::ZERO, Span::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    let is_counted = met.guests > 0;
    if unseen.is_empty() && !is_counted {
        unseen.push("meetings: the guest library did not get into the program".to_owned());
    }
    if is_counted && met.intervals.is_none() {
        unseen.push(
            "meetings: none through libgomp, libomp, MPI, teams of trimtab's or POSIX barriers; flags of its own and runtimes linked statically are not seen"
                .to_owned(),
        );
    }
    if met.lost > 0 {
        unseen.push(format!("meetings of {}, for which there was no room", plural(met.lost, "thread")));
    }
    if threads.is_empty() {
        unseen.push("its threads: it ended before a look could find them".to_owned());
    }
    if rest.misses_per_kilo.is_none() {
        unseen.push("cache misses: hardware was not counted (trimtab counters says why)".to_owned());
    }
    if close.remote.is_none() {
        unseen.push("remote memory: the kernel did not say on which nodes its pages were".to_owned());
    }
    if close.touched.is_none() {
        unseen.push(
            "working set: it ended before touched pages could be looked at twice; what was resident is taken"
                .to_owned(),
        );
    }
    Profile {
        program: rest.program.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        setting: setting.clone(),
        cpus: u32::try_from(usable.len()).unwrap_or(u32::MAX),
        cores: u32::try_from(cores.len()).unwrap_or(u32::MAX),
        wall: rest.wall.into(),
        user: Span::from(used.user).less(before.user),
        system: Span::from(used.system).less(before.system),
        workers: u32::try_from((worked as u64).max(met.threads)).unwrap_or(u32::MAX),
        runtimes: met.runtimes.clone(),
        intervals: met.intervals,
        waiting: met.waiting,
        wait: rest.facts.map(|facts| facts.wait.clone()),
        balance: audited.filter(|_| cores.len() > 1).and_then(|audited| audited.balance),
        kept_waiting: waited.share_of(ran + waited),
        misses_per_kilo: rest.misses_per_kilo,
        huge_share: close.huge,
        remote_share: close.remote,
        resident: close.resident,
        working_set: close.touched.or(close.resident),
        faults: Some(used.faults.saturating_sub(before.faults)),
        switches: Some((
            used.voluntary.saturating_sub(before.voluntary),
            used.involuntary.saturating_sub(before.involuntary),
        )),
        yields: is_counted.then_some(met.yields),
        overhead: met.cost.and_then(|cost| cost.share_of(rest.wall.into())),
        unseen,
    }
}

fn json(profile: &Profile) -> Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        schema: &'static str,
        #[serde(flatten)]
        profile: &'a Profile,
    }
    Ok(serde_json::to_string(&Document { schema: SCHEMA, profile })? + "\n")
}

fn percent(share: f64) -> String {
    match 100.0 * share {
        tiny if tiny > 0.0 && tiny < 0.1 => "below 0.1%".to_owned(),
        small if small < 10.0 => format!("{small:.1}%"),
        share => format!("{share:.0}%"),
    }
}

fn bytes(bytes: u64) -> String {
    let mb = bytes as f64 / f64::from(1 << 20);
    if mb < 1024.0 { format!("{mb:.0} MiB") } else { format!("{:.1} GiB", mb / 1024.0) }
}

/// A time of any size.
fn time(span: Span) -> String {
    match span.seconds() {
        short if short < 1e-3 => format!("{:.1} us", 1e6 * short),
        short if short < 1.0 => format!("{:.1} ms", 1e3 * short),
        long => format!("{long:.2} s"),
    }
}

/// What the interval means.
fn grain(mean: Span) -> &'static str {
    match mean.seconds() {
        fine if fine < 1e-4 => {
            "very fine-grained: whatever delays one thread delays all; a CPU for each thread, and nobody else there"
        }
        fine if fine < 1e-3 => {
            "fine-grained: it suffers from others on its CPUs, and from more threads than CPUs"
        }
        coarse if coarse < 5e-2 => "medium: sharing CPUs costs something where threads wait by spinning",
        _ => "coarse-grained: threads hardly depend on each other's moment",
    }
}

/// In words.
fn words(profile: &Profile, met: &Meetings, end: End) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        let _ = writeln!(out, "profile: {text}");
    };
    let Profile { program, wall, user, system, cores, cpus, workers, .. } = profile;
    if let End::Killed(signal) = end {
        line(format!("{program} was ended by signal {signal}; this is what was seen of it"));
    }
    line(format!(
        "{program}: {} on {} ({}), {} in the program and {} in the kernel, {} worked",
        time(*wall),
        plural(u64::from(*cores), "core"),
        plural(u64::from(*cpus), "CPU"),
        time(*user),
        time(*system),
        plural(u64::from(*workers), "thread"),
    ));
    if !profile.setting.is_empty() {
        line(format!("in the setting {}", profile.setting));
    }
    if let Some(meet) = profile.intervals {
        let by: Vec<String> = profile
            .runtimes
            .iter()
            .filter_map(|runtime| Some(serde_json::to_value(runtime).ok()?.as_str()?.to_owned()))
            .collect();
        line(format!(
            "threads meet every {} ({} by {}; a tenth below {}, half below {}, a tenth above {})",
            time(meet.mean),
            plural(meet.count, "interval"),
            by.join(", "),
            time(meet.tenth),
            time(meet.median),
            time(meet.ninetieth),
        ));
        line(format!("that is {}", grain(meet.mean)));
    }
    if let Some(waiting) = profile.waiting {
        let between = met.waiting_between.map_or_else(String::new, |(least, most)| {
            format!(" (from {} to {} of a thread's)", percent(least), percent(most))
        });
        line(format!("{} of the parallel time is waiting for each other{between}", percent(waiting)));
    }
    if let Some(wait) = &profile.wait {
        line(wait.clone());
    }
    if let Some(balance) = profile.balance {
        line(format!("balance {balance:.2} (lowest over highest time of its cores)"));
    }
    if let Some(kept) = profile.kept_waiting {
        line(format!("{} of the wanted time threads were kept from a CPU", percent(kept)));
    }
    if let Some(misses) = profile.misses_per_kilo {
        line(format!("{misses:.2} misses of the last cache for 1,000 instructions"));
    }
    if let Some(resident) = profile.resident {
        let huge = profile
            .huge_share
            .map_or_else(String::new, |huge| format!(", {} of it in huge pages", percent(huge)));
        let remote =
            profile.remote_share.map_or_else(String::new, |far| format!(", {} of it remote", percent(far)));
        line(format!("{} of memory at the most{huge}{remote}", bytes(resident)));
    }
    if let Some(set) = profile.working_set {
        line(format!("working set about {}", bytes(set)));
    }
    if let (Some(faults), Some((own, forced))) = (profile.faults, profile.switches) {
        let yields =
            profile.yields.map_or_else(String::new, |yields| format!(", {}", plural(yields, "yield")));
        line(format!("{}, {own} switches by itself, {forced} forced{yields}", plural(faults, "page fault")));
    }
    if let Some(overhead) = profile.overhead {
        let record = met.record_ns.map_or_else(String::new, |ns| format!(" ({ns:.0} ns a meeting)"));
        line(format!("counting took {} of its time{record}", percent(overhead)));
    }
    for unseen in &profile.unseen {
        line(format!("not seen: {unseen}"));
    }
    out
}

/// A profile in words, a line for each thing.
pub fn in_words(profile: &Profile) -> String {
    words(profile, &Meetings::default(), End::Exited(0))
}

/// Runs a command once in a setting and measures it, by this program's own `trimtab profile`; `options` are more of that command's options
/// (`-c 4`). The program's output goes to `stdout`. `begins` gets the process that runs it, to which a signal may be sent.
///
/// # Errors
/// The program cannot be started; then there is no profile. A program that fails or is killed has one.
pub fn measure(
    command: &[OsString],
    setting: &Setting,
    options: &[OsString],
    stdout: Stdio,
    begins: &dyn Fn(&Child),
) -> Result<(Profile, ExitStatus)> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Nobody else can put anything in the place of a folder of our own.
    let folder = std::env::temp_dir().join(format!("trimtab-profile-{}-{number}", std::process::id()));
    DirBuilder::new()
        .mode(0o700)
        .create(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let done = measure_in(&folder, command, setting, options, stdout, begins);
    let _ = std::fs::remove_dir_all(&folder);
    done
}

fn measure_in(
    folder: &Path,
    command: &[OsString],
    setting: &Setting,
    options: &[OsString],
    stdout: Stdio,
    begins: &dyn Fn(&Child),
) -> Result<(Profile, ExitStatus)> {
    let file = folder.join("profile.json");
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let mut run = Command::new(own);
    run.args(["profile", "--quiet", "--json", "--output"]).arg(&file).args(options);
    if !setting.is_empty() {
        run.args(["--set", &setting.to_string()]);
    }
    let run = run.arg("--").args(command).stdout(stdout);
    let mut child = run.spawn().context("trimtab cannot be started again")?;
    begins(&child);
    let status = child.wait().context("the end of the program cannot be waited for")?;
    match std::fs::read_to_string(&file) {
        Ok(text) if !text.is_empty() => Ok((read(&text)?, status)),
        _ => bail!("there is no profile: the program could not be started ({status})"),
    }
}

/// Reads a profile that was written as JSON.
///
/// # Errors
/// It is none, or of a later form.
pub fn read(text: &str) -> Result<Profile> {
    let document: serde_json::Value = serde_json::from_str(text).context("this is no profile")?;
    match document.get("schema").and_then(|schema| schema.as_str()) {
        Some(SCHEMA) => serde_json::from_value(document).context("this is no profile"),
        Some(other) => Err(anyhow!("this is {other}, and not {SCHEMA}")),
        None => Err(anyhow!("this is no profile of trimtab: it does not say so")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_is_written_is_read_again_and_others_are_refused() {
        let profile = Profile { program: "a".to_owned(), waiting: Some(0.25), ..Profile::default() };
        assert_eq!(read(&json(&profile).unwrap()).unwrap(), profile);
        assert!(read("{}").unwrap_err().to_string().contains("no profile"));
        assert!(read(r#"{"schema":"trimtab.profile/2"}"#).unwrap_err().to_string().contains("profile/2"));
        assert!(read("profile: x").is_err());
    }

    #[test]
    fn facts_travel_in_a_line() {
        let facts = Facts { wait: "as\tit is\n".to_owned(), faults: 3, ..Facts::default() };
        assert_eq!(facts.line().lines().count(), 1);
        assert_eq!(Facts::read(&facts.line()), Some(facts));
        assert_eq!(Facts::read(""), None);
    }
}
