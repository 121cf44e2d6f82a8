//! The profile of a run: what guests counted inside, what was seen from outside, and what neither could see, as one value.
//!
//! The run itself is `trimtab run`'s, watched by its wrapper, which has meetings counted ([`crate::meetings`]); this module puts the pieces together when
//! the program has ended, and writes them. Who wants a profile as a value calls [`measure`].

use crate::meetings::{Met, percent, time};
use crate::output::{self, Claim, Kind};
use crate::say;
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
use trimtab_core::place::waiting::Waiting;
use trimtab_core::profile::Profile;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::Setting;
use trimtab_core::telemetry::run_summary::{CloseSample, RunSummary};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::words::plural;
use trimtab_linux::child::End;
use trimtab_linux::program::Program;
use trimtab_linux::sys::usage::{self, Usage};

/// The document's form.
pub const SCHEMA: &str = "trimtab.profile/1";

/// A thread worked if it had at least this share of the CPU time of the one that had most.
pub const WORKED: f64 = 0.05;

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
    claim: Option<Claim>,
}

/// What only the program's own process knows, before it becomes the program.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Facts {
    /// How threads wait.
    pub wait: String,
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
    /// What was counted of meetings.
    pub met: &'a Met,
    /// What looks saw of it.
    pub audited: Option<&'a RunSummary>,
    /// Threads that worked at the same time, as looks saw.
    pub worked: u64,
    /// What close looks saw of it.
    pub close: &'a CloseSample,
    /// What caches missed.
    pub misses_per_kilo: Option<f64>,
    /// What it is.
    pub program: &'a Program,
    /// How it ended.
    pub end: End,
}

impl Profiling {
    /// Makes sure that it can be written.
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
        Ok(Self { ask: ask.clone(), claim })
    }

    /// Puts it together and writes it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn finish(&mut self, rest: &Rest<'_>) -> Result<()> {
        let profile = assemble(&self.ask.setting, rest);
        let text = if self.ask.json { json(&profile)? } else { words(&profile, rest.met, rest.end) };
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

fn assemble(setting: &Setting, rest: &Rest<'_>) -> Profile {
    let Rest { machine, usable, used, close, audited, met, .. } = rest;
    let mut unseen = met.unseen.clone();
    let before = rest.facts.cloned().unwrap_or_default();
    let core = |cpu| machine.pu(cpu).map(|pu| machine.core_of(pu));
    let cores: BTreeSet<_> = usable.iter().filter_map(core).collect();
    let threads = audited.map_or(&[][..], |audited| &audited.threads);
    let waits = threads.iter().filter_map(|thread| Some((thread.run, thread.wait?)));
    let (ran, waited) = waits.fold((Span::ZERO, Span::ZERO), |sum, one| (sum.0 + one.0, sum.1 + one.1));
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
        workers: u32::try_from(rest.worked.max(met.workers.unwrap_or(0))).unwrap_or(u32::MAX),
        runtimes: met.runtimes.clone(),
        intervals: met.intervals,
        waiting: met.waiting,
        wait: met.wait.clone(),
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
        yields: met.yields,
        overhead: met.overhead,
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

fn bytes(bytes: u64) -> String {
    let mb = bytes as f64 / f64::from(1 << 20);
    if mb < 1024.0 { format!("{mb:.0} MiB") } else { format!("{:.1} GiB", mb / 1024.0) }
}

/// In words.
fn words(profile: &Profile, met: &Met, end: End) -> String {
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
    met.lines().into_iter().for_each(&mut line);
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
    met.cost().into_iter().for_each(&mut line);
    for unseen in &profile.unseen {
        line(format!("not seen: {unseen}"));
    }
    out
}

/// A profile in words, a line for each thing.
pub fn in_words(profile: &Profile) -> String {
    words(profile, &Met::in_profile(profile), End::Exited(0))
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
