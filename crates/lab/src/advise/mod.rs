//! `trimtab advise`: advice on how to run a program better, derived from one run of it.
//!
//! The rules are in `core::advise`; `run_facts` gathers the facts of the run, `command_line` builds
//! the command that applies the advice, and `page` formats the text. Nothing is tried and nothing
//! is stored.

mod command_line;
mod page;
mod run_facts;

use anyhow::{Context, Result, anyhow, bail};
use command_line::CommandLine;
use run_facts::RunFacts;
use serde::Serialize;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use trimtab_cli::args::{AdviseArgs, CountingArgs, ProfileArgs};
use trimtab_cli::commands::profile::Measurement;
use trimtab_cli::profile;
use trimtab_core::advise::{Advice, Conclusion, Topic, advise, together};
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::Profile;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_front::diagnostics::{self as say, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_front::stdout::print;
use trimtab_hold::site_facts::HOLD;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.advice/1";
/// Largest profile file in bytes.
const PROFILE_BYTES_MAX: u64 = 1 << 20;

/// The whole answer.
#[derive(Debug, Serialize)]
struct AdviceReport<'a> {
    schema: &'static str,
    /// The program and its arguments; for a profile from a file, the name that it holds.
    command: Vec<String>,
    /// How the program failed, in words; `None` on success.
    failed: Option<String>,
    profile: &'a Profile,
    cpus: u32,
    others: Option<f64>,
    quota: Option<u32>,
    yields: Yield,
    wake: Option<Span>,
    bound: Option<bool>,
    teams: &'a [u32],
    advice: &'a [Advice],
    /// All advised changes together.
    setting: &'a Setting,
    /// The command to use; `None` if no change is advised.
    run: Option<String>,
    cautions: &'a [String],
    /// A `trimtab tune` command that measures the questions that the rules cannot decide.
    tune: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] without a profile.
pub fn run(world: &World, args: &AdviseArgs) -> Result<u8, Exit> {
    advise_on(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn advise_on(world: &World, args: &AdviseArgs) -> Result<u8> {
    let (machine, _) = Which::Live.load(world)?;
    let (profile, seen, ended) = match &args.from {
        Some(path) => {
            let profile = kept(path)?;
            let seen = RunFacts::of_kept(args);
            (profile, seen, None)
        }
        None => measured(world, args)?,
    };
    let situation = seen.situation(world, args, &profile);
    let all = advise(&profile, &machine, &situation);
    let change = together(&all);
    let user = |name: &str| world.of_user(name);
    let how = CommandLine::of(args, &profile, &change, &situation.teams, &user);
    let words: Vec<String> = match args.command.is_empty() {
        true => vec![profile.program.clone()],
        false => args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let failed = ended.as_ref().and_then(|ended: &RunEnd| failure(ended.status));
    let document = AdviceReport {
        schema: SCHEMA,
        failed,
        profile: &profile,
        cpus: if situation.cpus > 0 { situation.cpus } else { profile.cpus },
        others: situation.others,
        quota: situation.quota,
        yields: situation.yields,
        wake: situation.wake,
        bound: situation.bound,
        teams: &situation.teams,
        advice: &all,
        setting: &change,
        run: (!change.is_empty()).then(|| how.line(&words)),
        cautions: &how.cautions,
        tune: tuning(args, &all, &profile.setting, &words),
        command: words.clone(),
    };
    if args.json {
        print(&serde_json::to_string(&document)?)?;
    } else {
        print(&page::words(&document, seen.notes()))?;
    }
    if let Some(signal) = ended.as_ref().and_then(|ended| ended.signal) {
        return Ok(exit::by_signal(signal));
    }
    if document.failed.is_some() {
        return Ok(exit::FAILED);
    }
    Ok(if change.is_empty() { exit::NO } else { exit::DONE })
}

/// How a run ended.
struct RunEnd {
    status: ExitStatus,
    /// The signal from outside that ended the program.
    signal: Option<i32>,
}

fn failure(status: ExitStatus) -> Option<String> {
    match (status.code(), status.signal()) {
        (Some(0), _) => None,
        (Some(code), _) if code > 128 => Some(format!("it ended with status {code}: signal {}", code - 128)),
        (Some(code), _) => Some(format!("it ended with status {code}")),
        (None, Some(signal)) => Some(format!("it was ended by signal {signal}")),
        (None, None) => Some(format!("it ended with {status}")),
    }
}

/// Runs the program once.
fn measured(world: &World, args: &AdviseArgs) -> Result<(Profile, RunFacts, Option<RunEnd>)> {
    if world.raw(HOLD).is_some() {
        bail!(
            "trimtab advise runs inside a trimtab run, whose cores and variables would distort the measurement: start it outside"
        );
    }
    let setting = args.set.clone().unwrap_or_default();
    let looking = run_facts::begin(world, args, &setting)?;
    let run = ProfileArgs {
        place: looking.place(),
        json: true,
        output: None,
        set: Some(setting),
        wait_policy: None,
        pin: None,
        counting: CountingArgs::default(),
        verbose: false,
        quiet: true,
        command: args.command.clone(),
    };
    // Before signals are heard, which is the work of another thread.
    let measurement = Measurement::prepare(world, run)?;
    let interrupt = Interrupt::listen()?;
    interrupt.runs_process(measurement.process());
    let done = measurement.carry_out();
    interrupt.ended();
    let (profile, status) = done?;
    let seen = looking.end(world, args);
    Ok((profile, seen, Some(RunEnd { status, signal: interrupt.came() })))
}

/// Reads a profile from a file.
fn kept(path: &Path) -> Result<Profile> {
    let shown = path.display();
    let teaches = "trimtab profile --json -o FILE COMMAND writes one";
    let file = std::fs::File::open(path).with_context(|| format!("--from {shown} cannot be read"))?;
    let mut text = String::new();
    match file.take(PROFILE_BYTES_MAX + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 <= PROFILE_BYTES_MAX => {}
        Ok(_) => bail!("--from {shown} is not a profile: the file is too large ({teaches})"),
        Err(error) => bail!("--from {shown} is not a profile: {error} ({teaches})"),
    }
    profile::read(&text).map_err(|error| {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        anyhow!("--from {shown}: {} ({teaches})", causes.join(": "))
    })
}

/// Returns the `trimtab tune` command that decides the questions that the rules cannot.
fn tuning(args: &AdviseArgs, all: &[Advice], from: &Setting, command: &[String]) -> Option<String> {
    let unsure = all.iter().filter(|advice| advice.verdict == Conclusion::Unsure);
    let mut knobs: Vec<&str> =
        unsure.flat_map(|advice| knobs(advice.topic)).map(|knob| knob.word()).collect();
    knobs.dedup();
    if knobs.is_empty() {
        return None;
    }
    let mut words = vec!["trimtab".to_owned(), "tune".to_owned()];
    words.extend(run_facts::bounds(args));
    words.extend(["--knobs".to_owned(), knobs.join(",")]);
    if !from.is_empty() {
        words.extend(["--from".to_owned(), from.to_string()]);
    }
    words.push("--".to_owned());
    words.extend(command.iter().cloned());
    Some(command_line::quoted(&words))
}

/// Returns the knobs to try for a topic.
fn knobs(topic: Topic) -> &'static [Knob] {
    match topic {
        Topic::Sharing => &[Knob::Cores],
        Topic::Threads => &[Knob::Threads],
        Topic::Wait => &[Knob::Wait],
        Topic::Balance => &[Knob::Balance],
        Topic::Placement => &[Knob::Strategy, Knob::Memory],
        Topic::HugePages => &[Knob::Thp],
        Topic::Slice => &[Knob::Slice],
    }
}

/// Fields that are left out for a profile from a file.
impl AdviceReport<'_> {
    /// Returns whether a change is advised.
    fn changes(&self) -> bool {
        !self.setting.is_empty()
    }

    /// Prints warnings about the run, before the advice.
    fn warn(&self) {
        if let Some(failed) = &self.failed {
            say::warning(
                Volume::Normal,
                &format!("the program failed, so the measurement may not represent a normal run: {failed}"),
            );
        }
    }
}
