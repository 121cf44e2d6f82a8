//! `trimtab advise`: advice on how to run a program better, tested before it is given.
//!
//! `first_run` profiles one run and watches its threads. The rules of `core::advise` judge the
//! profile and propose candidates. `compare` runs the program as it is, under `trimtab run`, and in
//! the ways of the candidates, each as a `trial`. `command_line` builds commands, `page` formats
//! the text. `pair` does the same for two programs. Nothing is stored.

pub(crate) mod command_line;
pub(crate) mod compare;
mod first_run;
mod page;
mod pair;
mod run_facts;
mod tree;
pub(crate) mod trial;

use anyhow::{Context, Result, anyhow, bail};
use command_line::{CommandLine, change_of};
use compare::{Tested, compare, rules};
use first_run::{FirstRun, ThreadFindings, first_run};
use run_facts::RunFacts;
use rustix::fs::{SeekFrom, seek};
use rustix::stdio::stdin;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use trial::Trials;
use trimtab_cli::args::AdviseArgs;
use trimtab_cli::profile;
use trimtab_core::advise::candidates::{Facts, propose};
use trimtab_core::advise::choice::Choice;
use trimtab_core::advise::early::UNDECIDED_MAX;
use trimtab_core::advise::libraries::Library;
use trimtab_core::advise::race::Outcome;
use trimtab_core::advise::{Advice, Candidate, Conclusion, Situation, StartChange, Topic, advise, together};
use trimtab_core::place::waiting::Yield;
use trimtab_core::profile::Profile;
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_front::diagnostics::{self as say, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::machine::Which;
use trimtab_front::process_env::World;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_front::stdout::print;
use trimtab_linux::memory::{SystemHugePages, system_huge_pages};
use trimtab_linux::sys::slice;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.advice/2";
/// Expected ratio up to which the best candidate is tried before `trimtab run`.
const PROMISING: f64 = 0.5;
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
    /// The trials; `None` if nothing was tested.
    tested: Option<Tested>,
    /// The command to use; `None` if no change is advised.
    run: Option<String>,
    cautions: &'a [String],
    /// Number of threads that hardly ever slept, if the first run was ended for that.
    ended_early: Option<u32>,
    /// Number of threads that wanted a CPU, if the first run was ended for that and another way
    /// took less time.
    outrun: Option<u32>,
    /// Largest numbers of threads and of processes that computed at once; `None` if not watched.
    computing: Option<u32>,
    processes: Option<u32>,
    libraries: &'a [Library],
    profile: &'a Profile,
    cpus: u32,
    others: Option<f64>,
    quota: Option<u32>,
    yields: Yield,
    wake: Option<Span>,
    bound: Option<bool>,
    teams: &'a [u32],
    advice: &'a [Advice],
    /// All changes together that the rules advise.
    setting: &'a Setting,
    /// A `trimtab tune` command that measures the questions that the rules cannot decide.
    tune: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] without a profile.
pub fn run(world: &World, args: &AdviseArgs) -> Result<u8, Exit> {
    let done = match () {
        () if args.pair => pair::run(world, args),
        () if args.from.is_some() => from_file(world, args),
        () => from_runs(world, args),
    };
    done.map_err(|cause| Exit::new(exit::FAILED, cause))
}

/// Advises from a stored profile.
fn from_file(world: &World, args: &AdviseArgs) -> Result<u8> {
    let path = args.from.as_deref().ok_or_else(|| anyhow!("no profile is given"))?;
    let (machine, _) = Which::Live.load(world)?;
    let profile = kept(path)?;
    let facts = RunFacts::of_kept(args);
    let judged = Judged::of(world, args, &machine, &profile, &facts);
    let watched = ThreadFindings::default();
    let document = judged.document(args, &profile, &watched, None, None);
    answer(args, &document, facts.notes())?;
    Ok(if document.run.is_none() { exit::NO } else { exit::DONE })
}

/// Runs the program, and tests what its profile suggests.
fn from_runs(world: &World, args: &AdviseArgs) -> Result<u8> {
    let (machine, _) = Which::Live.load(world)?;
    let trimtab = sibling::find(TRIMTAB)?;
    let FirstRun { profile, facts, watched, status, interrupt, input_at } = first_run(world, args)?;
    let judged = Judged::of(world, args, &machine, &profile, &facts);
    let failed = failure(status).filter(|_| !watched.was_ended());
    let tested = if failed.is_some() || args.once || interrupt.came().is_some() {
        None
    } else {
        let candidates = judged.candidates(world, args, &machine, &profile, &watched);
        let trials = Trials::begin(trimtab, world.proc(), args.command.clone())?;
        let run = CommandLine::of(args, &StartChange::default());
        let others = candidates.iter().map(|one| CommandLine::of(args, &one.change));
        let lines: Vec<CommandLine> = [CommandLine::plain(), run].into_iter().chain(others).collect();
        if watched.undecided.is_some() && !outran(&trials, &lines, &candidates, profile.wall, &interrupt)? {
            return Err(to_the_end(input_at));
        }
        let rules = rules(args.budget, profile.wall, watched.was_ended());
        let mut tested = compare(&trials, rules, &lines, &interrupt)?;
        tested.explain(&candidates);
        Some(tested)
    };
    let plain_failed = tested.as_ref().and_then(|tested| tested.variants[0].entrant.rejected.clone());
    let document = judged.document(args, &profile, &watched, failed.or(plain_failed), tested);
    answer(args, &document, facts.notes())?;
    if let Some(signal) = interrupt.came() {
        return Ok(exit::by_signal(signal));
    }
    if document.failed.is_some() {
        return Ok(exit::FAILED);
    }
    Ok(if document.run.is_none() { exit::NO } else { exit::DONE })
}

/// Returns whether another way ends within the time of the first run, which was ended, and within
/// some seconds: the best candidate, if much is expected of it, or `trimtab run`. True if the user
/// stopped it.
fn outran(
    trials: &Trials,
    lines: &[CommandLine],
    candidates: &[Candidate],
    limit: Span,
    interrupt: &Interrupt,
) -> Result<bool> {
    let limit = limit.min(UNDECIDED_MAX);
    let promising = candidates.first().is_some_and(|first| first.expected <= PROMISING);
    let ways = promising.then_some(2).into_iter().chain([1]);
    for line in ways.filter_map(|at| lines.get(at)) {
        match trials.run(line, limit.into(), interrupt)? {
            Some(Outcome::Ended { .. }) | None => return Ok(true),
            Some(Outcome::Stopped { .. } | Outcome::Rejected { .. }) => {}
        }
    }
    Ok(false)
}

/// Starts this command again, with the first run to its end. `input_at` is the place in the input
/// file at which it began, since the run that was ended has read a part. Returns only if that
/// fails.
fn to_the_end(input_at: u64) -> anyhow::Error {
    if let Err(error) = seek(stdin(), SeekFrom::Start(input_at)) {
        return anyhow::Error::new(error).context("the input cannot be read again from its beginning");
    }
    say::notice(
        Volume::Normal,
        "the first run was ended, because more threads than CPUs wanted a CPU for some seconds; no other way ends sooner, so it now runs to its end (--complete)",
    );
    let mut words = Vec::new();
    for word in std::env::args_os().skip(1) {
        let is_command = word == "advise" && !words.contains(&word);
        words.push(word);
        if is_command {
            words.push("--complete".into());
        }
    }
    match std::env::current_exe() {
        Ok(own) => anyhow::Error::new(Command::new(own).args(words).exec())
            .context("cannot start trimtab advise again"),
        Err(error) => anyhow::Error::new(error).context("cannot find this program"),
    }
}

/// Prints the answer.
fn answer(args: &AdviseArgs, document: &AdviceReport<'_>, notes: &[String]) -> Result<()> {
    let text = if args.json { serde_json::to_string(document)? } else { page::words(document, notes) };
    Ok(print(&text)?)
}

/// The judgement of the rules about a profile.
struct Judged {
    situation: Situation,
    advice: Vec<Advice>,
    setting: Setting,
    /// The change that carries out the setting.
    change: StartChange,
    cautions: Vec<String>,
}

impl Judged {
    fn of(world: &World, args: &AdviseArgs, machine: &Machine, profile: &Profile, facts: &RunFacts) -> Self {
        let situation = facts.situation(world, args, profile);
        let advice = advise(profile, machine, &situation);
        let setting = together(&advice);
        let user = |name: &str| world.of_user(name);
        let (change, cautions) = change_of(&setting, profile, &situation.teams, &user);
        Self { situation, advice, setting, change, cautions }
    }

    /// Returns the ways to start the program that are worth a trial.
    fn candidates(
        &self,
        world: &World,
        args: &AdviseArgs,
        machine: &Machine,
        profile: &Profile,
        watched: &ThreadFindings,
    ) -> Vec<Candidate> {
        let names = world.names().map(str::to_owned);
        let variables: BTreeMap<String, String> =
            names.filter_map(|name| Some((name.clone(), world.of_user(&name)?))).collect();
        let command: Vec<String> =
            args.command.iter().filter_map(|word| word.to_str().map(str::to_owned)).collect();
        // A command with other letters than text keeps its words.
        let command = if command.len() == args.command.len() { command } else { Vec::new() };
        let facts = Facts {
            profile,
            situation: &self.situation,
            advice: &self.advice,
            variables: &variables,
            command: &command,
            libraries: &watched.libraries,
            processes: watched.processes,
            computing: watched.computing,
            ended_early: watched.was_ended(),
            usable: u32::try_from(std::thread::available_parallelism().map_or(1, usize::from))
                .unwrap_or(u32::MAX),
            nodes: u32::try_from(machine.nodes().len()).unwrap_or(u32::MAX),
            huge_pages: !matches!(
                system_huge_pages(&world.sys()),
                Ok(None | Some(SystemHugePages::Never)) | Err(_)
            ),
            slices: matches!(slice::get(), Ok(Some(_))),
        };
        propose(&facts)
    }

    fn document<'a>(
        &'a self,
        args: &AdviseArgs,
        profile: &'a Profile,
        watched: &'a ThreadFindings,
        failed: Option<String>,
        tested: Option<Tested>,
    ) -> AdviceReport<'a> {
        let words: Vec<String> = match args.command.is_empty() {
            true => vec![profile.program.clone()],
            false => args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        };
        let situation = &self.situation;
        let run = match &tested {
            Some(tested) => match tested.choice {
                Choice::Use { entrant } => tested.variants.get(entrant).map(|one| one.command.clone()),
                Choice::Keep | Choice::Unsure { .. } | Choice::Unknown => None,
            },
            None => (!self.setting.is_empty()).then(|| CommandLine::of(args, &self.change).line(&words)),
        };
        let cautions = if tested.is_some() { &[][..] } else { &self.cautions[..] };
        AdviceReport {
            schema: SCHEMA,
            failed,
            run,
            cautions,
            ended_early: watched.ended_early,
            outrun: watched.undecided,
            computing: (watched.computing > 0).then_some(watched.computing),
            processes: (watched.processes > 0).then_some(watched.processes),
            libraries: &watched.libraries,
            profile,
            cpus: if situation.cpus > 0 { situation.cpus } else { profile.cpus },
            others: situation.others,
            quota: situation.quota,
            yields: situation.yields,
            wake: situation.wake,
            bound: situation.bound,
            teams: &situation.teams,
            advice: &self.advice,
            setting: &self.setting,
            tune: tuning(args, &self.advice, &profile.setting, &words),
            command: words,
            tested,
        }
    }
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

impl AdviceReport<'_> {
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
