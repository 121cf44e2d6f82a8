//! `trimtab advise`: what would run a program better, said from one run of it.
//!
//! What follows from what is `core::advise`'s; `look` finds out what the program met, `how` makes the command of what is advised, and `page` is what people
//! read. Nothing is tried here and nothing is kept.

mod how;
mod look;
mod page;

use crate::args::AdviseArgs;
use crate::commands::interrupt::Interrupt;
use crate::commands::print;
use crate::exit::{self, Exit};
use crate::machine::Which;
use crate::profile;
use crate::say::{self, Volume};
use crate::situation::HOLD;
use crate::world::World;
use anyhow::{Context, Result, anyhow, bail};
use how::How;
use look::Seen;
use serde::Serialize;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use trimtab_core::advise::{Advice, Conclusion, Topic, advise, together};
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::Profile;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;

/// The document's form.
const SCHEMA: &str = "trimtab.advice/1";
/// The longest file that can be a profile.
const PROFILE_MOST: u64 = 1 << 20;

/// Everything that is said.
#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    /// The program and its arguments; of a profile alone, what it was called.
    command: Vec<String>,
    /// What it ended with, in words, if that was not success.
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
    /// All changes together.
    setting: &'a Setting,
    /// The command to use; `None` where nothing is to be changed.
    run: Option<String>,
    cautions: &'a [String],
    /// What can be measured where it cannot be told.
    tune: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when there is no profile.
pub fn run(world: &World, args: &AdviseArgs) -> Result<u8, Exit> {
    advise_on(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn advise_on(world: &World, args: &AdviseArgs) -> Result<u8> {
    let (machine, _) = Which::Live.load(world)?;
    let (profile, seen, ended) = match &args.from {
        Some(path) => {
            let profile = kept(path)?;
            let seen = Seen::of_kept(args);
            (profile, seen, None)
        }
        None => measured(world, args)?,
    };
    let situation = seen.situation(world, args, &profile);
    let all = advise(&profile, &machine, &situation);
    let change = together(&all);
    let user = |name: &str| world.of_user(name);
    let how = How::of(args, &profile, &change, &situation.teams, &user);
    let words: Vec<String> = match args.command.is_empty() {
        true => vec![profile.program.clone()],
        false => args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
    };
    let failed = ended.as_ref().and_then(|ended: &Ended| failure(ended.status));
    let document = Document {
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
struct Ended {
    status: ExitStatus,
    /// What came from outside, to end it.
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
fn measured(world: &World, args: &AdviseArgs) -> Result<(Profile, Seen, Option<Ended>)> {
    if world.raw(HOLD).is_some() {
        bail!(
            "this is inside a trimtab run, whose cores and variables would be measured: start trimtab advise by itself"
        );
    }
    let setting = args.set.clone().unwrap_or_default();
    let looking = look::begin(world, args, &setting)?;
    let interrupt = Interrupt::listen()?;
    // What the program prints is not mixed with what is advised.
    let stdout = std::io::stderr().as_fd().try_clone_to_owned().map_or_else(|_| Stdio::null(), Stdio::from);
    let options: Vec<OsString> = looking.options().into_iter().map(OsString::from).collect();
    let begins = |child: &std::process::Child| interrupt.runs(child);
    let done = profile::measure(&args.command, &setting, &options, stdout, &begins);
    interrupt.ended();
    let (profile, status) = done?;
    let seen = looking.end(world, args);
    Ok((profile, seen, Some(Ended { status, signal: interrupt.came() })))
}

/// A profile from a file.
fn kept(path: &Path) -> Result<Profile> {
    let shown = path.display();
    let teaches = "trimtab profile --json -o FILE COMMAND writes one";
    let file = std::fs::File::open(path).with_context(|| format!("--from {shown} cannot be read"))?;
    let mut text = String::new();
    match file.take(PROFILE_MOST + 1).read_to_string(&mut text) {
        Ok(_) if text.len() as u64 <= PROFILE_MOST => {}
        Ok(_) => bail!("--from {shown} is no profile: it is too long ({teaches})"),
        Err(error) => bail!("--from {shown} is no profile: {error} ({teaches})"),
    }
    profile::read(&text).map_err(|error| {
        let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
        anyhow!("--from {shown}: {} ({teaches})", causes.join(": "))
    })
}

/// What `trimtab tune` would settle that the rules cannot.
fn tuning(args: &AdviseArgs, all: &[Advice], from: &Setting, command: &[String]) -> Option<String> {
    let unsure = all.iter().filter(|advice| advice.verdict == Conclusion::Unsure);
    let mut knobs: Vec<&str> =
        unsure.flat_map(|advice| knobs(advice.topic)).map(|knob| knob.word()).collect();
    knobs.dedup();
    if knobs.is_empty() {
        return None;
    }
    let mut words = vec!["trimtab".to_owned(), "tune".to_owned()];
    words.extend(look::bounds(args));
    words.extend(["--knobs".to_owned(), knobs.join(",")]);
    if !from.is_empty() {
        words.extend(["--from".to_owned(), from.to_string()]);
    }
    words.push("--".to_owned());
    words.extend(command.iter().cloned());
    Some(how::quoted(&words))
}

/// What can be tried of a topic.
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

/// What was left out of what a run of a profile from a file shows.
impl Document<'_> {
    /// Whether anything is advised.
    fn changes(&self) -> bool {
        !self.setting.is_empty()
    }

    /// What is to be said of trouble, before the advice.
    fn warn(&self) {
        if let Some(failed) = &self.failed {
            say::warning(
                Volume::Normal,
                &format!("the program failed, so what was measured may not be what it does: {failed}"),
            );
        }
    }
}
