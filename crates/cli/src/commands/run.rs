//! `trimtab run`: gathers facts, decides, reserves cores, decides again on the reserved cores,
//! applies the plan, prints the reasons, and then becomes the program.

use super::ranks;
use crate::args::{RunArgs, report_to};
use crate::exit::{self, Exit};
use crate::gather::{self, Gathered};
use crate::monitor::{self, Asked, Outputs, Run};
use crate::narrate::{environment_table, narrate};
use crate::say::{self, Volume};
use crate::world::World;
use anyhow::{Context, anyhow};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, Instant};
use trimtab_agent::jobserver::{self, Jobserver};
use trimtab_agent::monitor::announcement::{ChildFacts, announce, retract};
use trimtab_agent::narrator::Narrator;
use trimtab_agent::restoration;
use trimtab_core::balance::Kind;
use trimtab_core::budget::VARIABLE;
use trimtab_core::hold_claim::HoldClaim;
use trimtab_core::queue::QueueRules;
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::topology::Machine;
use trimtab_hold::facts;
use trimtab_hold::grower::{self, GrowthOrder};
use trimtab_hold::outsiders::unseen;
use trimtab_hold::queue::priority_beyond;
use trimtab_hold::reserve::{ReserveOptions, reserve};
use trimtab_hold::site_facts::{OpenLedger, Situation};
use trimtab_launch::budget;
use trimtab_launch::jobserver::set_up;
use trimtab_launch::request::variables_of_hold;
use trimtab_launch::{Changes, EnvMode, LaunchFacts, LaunchPlan, LaunchRequest};
use trimtab_linux::budget::BudgetPage;
use trimtab_linux::child::{self, Two, Word};
use trimtab_linux::launch::{ApplyError, apply, become_program};
use trimtab_linux::ledger::{Held, Ledger, Level};
use trimtab_linux::partitions::is_enforced;
use trimtab_linux::program::Program;
use trimtab_linux::text::printable;
use trimtab_linux::users::Users;

/// Longest wait until the service that enforces holds releases CPUs of a hold that has ended: it
/// looks once a second, and some seconds later while it reads very many processes.
const RELEASE_MAX: Duration = Duration::from_secs(10);
/// Pause between two attempts meanwhile.
const RELEASE_PAUSE: Duration = Duration::from_millis(20);

/// Runs the command.
///
/// # Errors
/// Any failure between the options and the running program; see [`exit`] for the statuses.
pub fn run(world: &World, args: &RunArgs) -> Result<u8, Exit> {
    if args.run.teams
        && let Some(failed) = super::teams::start(args.place.strict)
    {
        return Err(failed);
    }
    let volume = Volume::of(args.run.quiet, args.run.verbose);
    let program = find(world, args)?;
    let situation = Situation::live(world, !args.place.no_rules).map_err(failed)?;
    let gathered = gather::request(world, args, situation, Some(&program))?;
    if let Some(ranks) = gathered.request.ranks {
        return ranks::run(args, ranks);
    }
    // A ledger that cannot be opened is opened again, and the fault reported, when cores are taken.
    let opened = OpenLedger::of(world).ok();
    match &opened {
        Some(OpenLedger { location, ledger }) => {
            restoration::tidy_beside(ledger, location, &world.proc(), &volume);
        }
        None => restoration::tidy(&world.paths(), &volume),
    }
    let ledger = opened.map(|opened| opened.ledger);
    if args.run.with_parent {
        // If a tuner is killed, the programs that it tries must end, too.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
    }
    let Gathered { request, situation, watch } = gathered;
    // `--env print` needs no parent that stays, and no output file.
    let watch = watch.filter(|_| request.env != EnvMode::Print);
    let watch = match watch {
        Some(asked) => Some((asked, Outputs::open(&args.run).map_err(failed)?)),
        None => None,
    };
    for warning in &situation.warnings {
        say::note(volume, warning);
    }
    let survey = Some(args.place.survey);
    let mut facts = facts::facts(world, &situation, Some(&program), &args.command, survey, ledger.as_ref());
    facts::look_at_memory(world, &request, args.place.survey, &mut facts);
    facts::look_for_libraries(&request, &mut facts);
    facts.build = gather::build_facts(world, &request, Some(&program));
    facts.meetings = watch.as_ref().and_then(|(_, outputs)| outputs.sync_page());
    let queue = situation.policy.site.queue();
    if let Some(lower) = priority_beyond(args.run.priority, &queue) {
        say::warning(volume, &lower);
    }
    let page = budget::rule(&request).and_then(|_| budget_page(volume));
    // The cores are not known yet; whether there is a jobserver does not depend on them.
    let jobserver = set_up(&request, &facts, 1).and_then(Result::ok).and_then(|_| jobserver(volume));
    // A parent that stays keeps no ledger open; the program's process opens it again.
    let ledger = ledger.filter(|_| watch.is_none() && jobserver.is_none());
    let mut launch =
        Launch { world, args, request: &request, program: &program, volume, queue, page, jobserver };
    // From here on there may be two processes; the rest belongs to the program's process.
    match launch.split(watch, &facts.machine)? {
        Split::Ended(status) => Ok(status),
        Split::Program(word) => launch.start(facts, ledger, word),
    }
}

fn failed(cause: anyhow::Error) -> Exit {
    Exit::new(exit::RUN_FAILED, cause)
}

/// A launch in progress.
struct Launch<'a> {
    world: &'a World,
    args: &'a RunArgs,
    request: &'a LaunchRequest,
    program: &'a Program,
    volume: Volume,
    /// The site's rules for the queue.
    queue: QueueRules,
    /// Page of the run's budget, if it has one: the program's, and its parent's to read.
    page: Option<BudgetPage>,
    /// Jobserver of the run, if it has one: the program's, and its parent's to keep up.
    jobserver: Option<Jobserver>,
}

/// The process after it may have become two.
enum Split {
    /// The parent: the program has ended with this status.
    Ended(u8),
    /// The process that becomes the program, with its channel to a parent.
    Program(Option<Word>),
}

impl Launch<'_> {
    /// Forks if the program is monitored or has a jobserver: the first process stays as its parent.
    fn split(&mut self, watch: Option<(Asked, Outputs)>, machine: &Machine) -> Result<Split, Exit> {
        if watch.is_none() && self.jobserver.is_none() {
            return Ok(Split::Program(None));
        }
        match child::two().context("cannot create a process for the program").map_err(failed)? {
            Two::Program(word) => Ok(Split::Program(Some(word))),
            Two::Parent(child) => {
                if let Some(jobserver) = self.jobserver.take() {
                    let narrator: Arc<dyn Narrator> = Arc::new(self.volume);
                    jobserver.keep_up(self.world.proc(), child.pid(), &narrator);
                }
                let Some((asked, outputs)) = watch else {
                    let end = jobserver::stay(child).map_err(failed)?;
                    return Ok(Split::Ended(end.hand_on()));
                };
                let report = self.args.run.report.as_ref().map(report_to);
                let to_text = report.is_some_and(|to| to.file.is_some() && !to.json);
                let run = Run {
                    machine: machine.clone(),
                    label: printable(label(&self.args.command).as_bytes()),
                    shim_reports: self.request.nest.is_some() && to_text,
                    program: self.program.clone(),
                    volume: self.volume,
                    budget: self.page.take(),
                };
                monitor::stay(self.world, child, asked, outputs, run).map(Split::Ended)
            }
        }
    }

    /// Reserves, decides, applies the plan and becomes the program.
    fn start(
        &self,
        mut facts: LaunchFacts,
        mut ledger: Option<Ledger>,
        mut word: Option<Word>,
    ) -> Result<u8, Exit> {
        if word.is_some() {
            facts.pid = std::process::id(); // the facts were read by the parent
        }
        let label = label(&self.args.command);
        let order = ReserveOptions {
            grants: true,
            wait: self.args.run.wait,
            label: &label,
            tell: &|line| say::headline(self.volume, line),
            goes_on: &|| true,
            priority: self.args.run.priority.unwrap_or(0),
            rules: self.queue,
            holder: None,
        };
        let (held, plan) = reserved(self.world, self.request, &mut facts, &order, &mut ledger)
            .inspect_err(|_| narrate(&self.request.reasons, self.volume))?;
        narrate(&plan.reasons, self.volume);
        if self.request.env == EnvMode::Print {
            let table = environment_table(&plan.environment);
            crate::commands::print(&table).map_err(|error| failed(error.into()))?;
            return Ok(exit::DONE);
        }
        for missing in self.applied(&plan).map_err(|error| failed(error.into()))? {
            say::warning(self.volume, &missing);
        }
        let mut changes = Changes::new();
        if self.request.env == EnvMode::Set {
            changes = self.request.environment.changes(&plan.environment);
        }
        self.grow(held.as_ref(), &facts)?;
        self.keep(held, &mut changes)?;
        self.budget(&plan, &facts, &mut changes);
        let command = self.jobserver(&plan, &mut changes);
        if let Some(word) = &mut word {
            let counts = facts.meetings.is_some();
            let known = counts.then(|| ChildFacts::now(&plan.wait.waiting, &plan.wait.left_to_user));
            announce(word, &plan.placement.mask, known.as_ref());
        }
        if self.args.run.with_parent {
            // A forked process has another parent.
            let _ = set_parent_process_death_signal(Some(Signal::KILL));
        }
        let environment = self.request.environment.changed(&changes);
        let error = become_program(self.program, &command, &environment);
        if let Some(word) = &mut word {
            retract(word);
        }
        let status = if error.is_missing() { exit::NOT_FOUND } else { exit::CANNOT_EXECUTE };
        Err(Exit::new(status, error))
    }

    /// Applies the plan. The CPUs of an enforced hold that has just ended are withheld until the
    /// service looks at the ledger again, and the kernel refuses to bind to them.
    fn applied(&self, plan: &LaunchPlan) -> Result<Vec<String>, ApplyError> {
        let begin = Instant::now();
        loop {
            match apply(plan) {
                // A mask is set first, and nothing else if that fails.
                Err(ApplyError::Mask { .. } | ApplyError::Differs { .. })
                    if begin.elapsed() < RELEASE_MAX && is_enforced(&self.world.root) =>
                {
                    std::thread::sleep(RELEASE_PAUSE);
                }
                done => return done,
            }
        }
    }

    /// Hands the page of the budget to the program.
    fn budget(&self, plan: &LaunchPlan, facts: &LaunchFacts, changes: &mut Changes) {
        let (Some(budget), Some(page)) = (plan.budget, &self.page) else { return };
        // Processes of a run that grows take part on all CPUs that it may get.
        let mask = &plan.placement.mask;
        let cpus = if self.request.grow.is_some() { mask.union(&facts.bounds.allowed) } else { mask.clone() };
        match page.hand_over(budget.cores, budget.rule, &cpus) {
            Ok(text) => {
                changes.insert(VARIABLE.to_owned(), Some(OsString::from(text)));
            }
            Err(error) => no_budget(self.volume, &error),
        }
    }

    /// Starts the process that lets the hold grow.
    fn grow(&self, held: Option<&Held>, facts: &LaunchFacts) -> Result<(), Exit> {
        let Some(most) = self.request.grow else { return Ok(()) };
        let allowed = &facts.bounds.allowed;
        let within = self
            .request
            .place
            .cpus
            .as_ref()
            .map_or_else(|| allowed.clone(), |cpus| allowed.intersection(cpus));
        let survey = self.args.place.survey;
        let started = match held.and_then(|held| Some((held, held.id()?.number()))) {
            Some((held, hold)) => {
                let yield_to = self.yield_to(held.level(), facts.ledger.private.as_deref())?;
                let order = GrowthOrder { hold, most, survey, within, yield_to };
                grower::start(self.world, held, &order, self.volume == Volume::Verbose)
            }
            None => Err(anyhow!("no cores are reserved that could be more")),
        };
        let Err(why) = started else { return Ok(()) };
        let text = format!("--grow has no effect: {why:#}");
        if self.request.strict {
            return Err(failed(anyhow!(text)));
        }
        say::warning(self.volume, &text);
        Ok(())
    }

    /// Returns the programs outside of holds to which the run gives cores back, their users by
    /// number. Faults of the option are refused under `--strict`, those of the site's rule are
    /// told.
    fn yield_to(&self, level: Level, private: Option<&str>) -> Result<YieldTo, Exit> {
        let is_asked = self.args.run.yield_to.is_some();
        let mut to = self.request.yield_to.clone();
        if level != Level::MACHINE && !is_asked {
            return Ok(YieldTo::Runs);
        }
        let mut faults = Vec::new();
        if to != YieldTo::Runs {
            let users = Users::read(&self.world.root.join("etc/passwd")).unwrap_or_default();
            let (known, unknown) = to.numbered(|name| users.number(name));
            if !unknown.is_empty() {
                faults.push(format!(
                    "no cores are given back to programs of {}: /etc/passwd does not name them; state their numbers",
                    unknown.join(", ")
                ));
            }
            to = known;
        }
        faults.extend(unseen(self.world, level, &to, private));
        for fault in faults {
            let text = format!("--yield-to: {fault}");
            if self.request.strict && is_asked {
                return Err(failed(anyhow!(text)));
            }
            say::warning(self.volume, &text);
        }
        Ok(to)
    }

    /// Hands the jobserver to the program, and returns the command to start.
    fn jobserver(&self, plan: &LaunchPlan, changes: &mut Changes) -> Vec<OsString> {
        let typed = &self.args.command;
        let (Some(jobs), Some(jobserver)) = (&plan.jobserver, &self.jobserver) else { return typed.clone() };
        match jobserver.hand_over(jobs.tokens, jobs.form) {
            Ok(auth) => {
                changes.extend(jobs.environment(&auth));
                jobs.command(typed)
            }
            Err(error) => {
                no_jobserver(self.volume, &error);
                typed.clone()
            }
        }
    }

    /// Keeps the hold for the program, and passes its position in the ledger on.
    fn keep(&self, held: Option<Held>, changes: &mut Changes) -> Result<(), Exit> {
        let Some(held) = held else { return Ok(()) };
        if let Some(error) = held.unnamed() {
            say::note(self.volume, &format!("trimtab ps cannot show this run's name: {error}"));
        }
        let claim = held.claim();
        let descriptor = held.keep().context("cannot keep the cores reserved").map_err(failed)?;
        let claim = HoldClaim { descriptor, ..claim };
        let variables = variables_of_hold(&self.request.environment, Some(claim.to_string()));
        changes.extend(variables.into_iter().map(|(name, value)| (name, value.map(OsString::from))));
        Ok(())
    }
}

/// Makes the page of the run's budget. Without one, the run continues.
fn budget_page(volume: Volume) -> Option<BudgetPage> {
    BudgetPage::create().inspect_err(|error| no_budget(volume, error)).ok()
}

fn no_budget(volume: Volume, error: &std::io::Error) {
    say::warning(volume, &format!("teams are not bounded: there is no memory for the budget ({error})"));
}

/// Makes the run's jobserver. Without one, the run continues.
fn jobserver(volume: Volume) -> Option<Jobserver> {
    Jobserver::create().inspect_err(|error| no_jobserver(volume, error)).ok()
}

fn no_jobserver(volume: Volume, error: &std::io::Error) {
    say::warning(volume, &format!("no jobserver: it needs four descriptors ({error})"));
}

/// Reserves cores, and decides on the reserved cores. `ledger` is the ledger, if it is open, and
/// the open ledger afterwards.
///
/// # Errors
/// The cores are not available, or the decision refuses.
pub(crate) fn reserved(
    world: &World,
    request: &LaunchRequest,
    facts: &mut LaunchFacts,
    order: &ReserveOptions<'_>,
    ledger: &mut Option<Ledger>,
) -> Result<(Option<Held>, LaunchPlan), Exit> {
    let held = reserve(world, request, facts, order, ledger)?;
    let plan = facts::settle(world, request, facts).map_err(gather::GatherError::from)?;
    Ok((held, plan))
}

/// Finds the program before anything is reserved.
fn find(world: &World, args: &RunArgs) -> Result<Program, Exit> {
    let search = world.raw("PATH");
    let Some(name) = args.command.first() else {
        return Err(Exit::new(exit::RUN_FAILED, anyhow!("no command is given")));
    };
    Program::find(name, search).map_err(|error| {
        let status = error.exit_status();
        match taken_for_program(args) {
            Some(hint) => Exit::new(status, anyhow!("{error}; {hint}")),
            None => Exit::new(status, error),
        }
    })
}

/// Returns a hint for a program that does not exist, if its name is a valid value of an option that
/// was given without a value. Such options take their value only after an equals sign, because
/// otherwise the program could be mistaken for it.
fn taken_for_program(args: &RunArgs) -> Option<String> {
    let (word, run) = (args.command.first()?.to_str()?, &args.run);
    let option = if run.watch.balance.is_some() && word.parse::<Kind>().is_ok() {
        "--balance"
    } else if run.wait.is_some() && crate::args::time::wait(word).is_ok() {
        "--wait"
    } else if run.report.is_some()
        && (["text", "json", "stderr"].contains(&word) || word.ends_with(".json") || word.ends_with(".txt"))
    {
        "--report"
    } else {
        return None;
    };
    Some(format!("if it is the value of {option}, write {option}={word}"))
}

/// Returns the holder's name in `trimtab ps`: the command line as typed.
fn label(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
