//! `trimtab tune`: finds the setting in which a program runs best by running it, and stores it for
//! `trimtab run`.
//!
//! `core::tuning` chooses the next setting and judges the results; `grid_choices` lists the
//! settings to try, `trial` runs the program once, `record` is the record, and `page` formats the
//! text. Each run is recorded as soon as it ends, so that an interrupted tuning can be continued
//! with `--resume`.

mod grid_choices;
mod own;
mod page;
pub(crate) mod record;
mod trial;

use anyhow::{Context, Result, anyhow, bail};
use indicatif::ProgressBar;
use record::{Ended, Journal, LeftOut, Line, SCHEMA, TuningRun, TuningStart};
use regex::bytes::Regex;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};
use trial::TrialRunner;
use trimtab_cli::args::{PlaceArgs, TuneArgs, TuningsArgs};
use trimtab_cli::commands::tunings;
use trimtab_cli::tuning_store::{Conditions, Kept, Store};
use trimtab_core::setting::Setting;
use trimtab_core::stats::Better;
use trimtab_core::time::Span;
use trimtab_core::tuning::grid::product;
use trimtab_core::tuning::{Bench, End, Found, Ran, Rules, Stage, search};
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::sibling::{self, TRIMTAB};
use trimtab_front::{print, progress};
use trimtab_hold::site_facts::HOLD;
use trimtab_linux::program::{Program, resolve};

/// If the metric is the time, a run is stopped when it takes this multiple of the best setting's
/// time.
const TIME_RATIO_MAX: f64 = 2.0;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the program fails in its start setting, or a request cannot be met.
pub fn run(world: &World, args: &TuneArgs) -> Result<u8, Exit> {
    if let Some(command) = &args.kept {
        return tunings::run(world, &TuningsArgs { command: Some(command.clone()), json: false });
    }
    tune(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn tune(world: &World, args: &TuneArgs) -> Result<u8> {
    if world.raw(HOLD).is_some() {
        bail!(
            "trimtab tune runs inside a trimtab run, whose cores and variables would distort the measurement: start it outside"
        );
    }
    let metric = args.metric.as_deref().map(Regex::new).transpose();
    let metric = metric.map_err(|error| anyhow!("--metric: {}", one_line(&error.to_string())))?;
    let search_path = world.raw("PATH");
    let name = args.command.first().ok_or_else(|| anyhow!("no command is given"))?;
    let path = resolve(name, search_path).map_err(|error| unless_team(name, error.into()))?;
    let program = Program::look(&path, search_path)?;
    let mut trial = TrialRunner {
        trimtab: sibling::find(TRIMTAB)?,
        options: options(args),
        cores: args.cores.map(|cores| format!("--cores={cores}")),
        command: args.command.clone(),
        metric,
        same: args.verify,
        check: args.verify_command.clone(),
        timeout: args.timeout,
        proc: world.proc(),
    };
    let cores = grid_choices::cores(world, args)?;
    if args.cpus.is_none() {
        // The count stays the same for every run, however busy other programs are.
        trial.cores = Some(format!("--cores={cores}"));
    }
    let (choices, left) = grid_choices::choices(world, args, cores)?;
    let place =
        PlaceArgs { cores: args.cores, cpus: args.cpus.clone().map(Into::into), ..PlaceArgs::default() };
    let start = TuningStart {
        schema: SCHEMA.to_owned(),
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        conditions: Conditions::of(&program.path, &args.command, &place, cores)?,
        from: args.from.clone(),
        metric: args.metric.clone().unwrap_or_else(|| "time".to_owned()),
        higher: args.higher,
        gain_min: args.gain,
        seed: args.seed,
        verify: match &args.verify_command {
            Some(command) => command.clone(),
            None => if args.verify { "same" } else { "no" }.to_owned(),
        },
        timeout: args.timeout,
        grid: product(&choices),
        choices,
        left_out: left.into_iter().map(|left| LeftOut { knob: left.knob, why: left.why }).collect(),
    };
    if args.dry_run {
        let text = if args.json { Line::Start(&start).text()? } else { page::planned(&start, args.budget) };
        print(&text)?;
        return Ok(exit::DONE);
    }
    measure(world, args, &trial, &start)
}

/// Names the command for teams to a user who wrote `trimtab tune team`.
fn unless_team(name: &OsStr, error: anyhow::Error) -> anyhow::Error {
    if name == "team" { anyhow!("{error}; to tune teams of ranks: trimtab tune-team") } else { error }
}

fn measure(world: &World, args: &TuneArgs, trial: &TrialRunner, start: &TuningStart) -> Result<u8> {
    let data = world.data().ok_or_else(|| {
        anyhow!("neither XDG_DATA_HOME nor HOME is set, so there is no folder for the record of runs")
    })?;
    let path = data.join("tunings").join(format!("{}.jsonl", start.conditions.name()));
    let earlier = if args.resume { record::earlier(&path, start)? } else { Vec::new() };
    let interrupt = Interrupt::listen()?;
    let journal = Journal::begin(&path, start, &earlier)?;
    let rules = Rules {
        better: if args.higher { Better::More } else { Better::Less },
        gain_min: args.gain,
        budget: args.budget,
        cap: args.metric.is_none().then_some(TIME_RATIO_MAX),
        seed: args.seed,
    };
    let mut bench = Runner {
        trial,
        interrupt: &interrupt,
        bar: progress::bar(1),
        json: args.json,
        earlier: earlier.into(),
        number: 0,
        journal,
        reference: None,
        trouble: None,
    };
    if args.json {
        out(&Line::Start(start).text()?)?;
    } else {
        diagnostics::notice(Volume::Normal, &page::begins(start, args.budget));
    }
    let own = own::settings(world, args, start.conditions.cores);
    let mut faster = None;
    if !own.is_empty() {
        let tested = own::compare(world, args, &own, &trial.common(), &interrupt)?;
        if args.json {
            out(&Line::Own(&tested).text()?)?
        } else {
            print(&own::words(&tested))?
        }
        faster = own::faster(&tested);
    }
    let found = search(&rules, &start.choices, &start.from, &mut bench);
    bench.bar.finish_and_clear();
    let Runner { journal, trouble, .. } = bench;
    if let Some(trouble) = trouble {
        return Err(trouble.context(format!("the measurements are stored in {}", path.display())));
    }
    let profile = found.winner.as_ref().map(|_| kept(start, &found)).transpose()?.flatten();
    let name = match (&profile, Store::of(world)) {
        (Some(profile), Some(store)) if !args.no_store => Some(store.write(profile)?),
        _ => None,
    };
    let signal = interrupt.came();
    let stopped = found.end == End::Stopped;
    let own = faster.as_ref().map(|one| one.command.clone());
    let ended = Ended { found, kept: name, profile, own };
    if args.json {
        out(&Line::End(&ended).text()?)?;
    } else {
        print(&page::ended(start, &ended, &path, faster.map(|one| one.words).as_deref()))?;
    }
    // If the budget is spent, the tuning can continue with a larger one.
    if !stopped && ended.found.end != End::Spent {
        journal.remove();
    }
    if let End::Failed { why } = &ended.found.end {
        bail!("the program fails in its start setting, so it cannot be tuned: {why}");
    }
    match signal.filter(|_| stopped) {
        Some(signal) => Ok(exit::by_signal(signal)),
        None => Ok(if ended.profile.is_some() || ended.own.is_some() { exit::DONE } else { exit::NO }),
    }
}

/// Returns the tuning to store.
fn kept(start: &TuningStart, found: &Found) -> Result<Option<Kept>> {
    let Some(winner) = &found.winner else { return Ok(None) };
    let gain = winner.comparison.gain.context("a winner without a gain")?;
    let interval = gain.interval.context("a winner without an interval")?;
    Ok(Some(Kept {
        setting: winner.setting.clone(),
        from: start.from.clone(),
        conditions: start.conditions.clone(),
        metric: start.metric.clone(),
        higher: start.higher,
        gain: gain.median,
        low: interval.low,
        high: interval.high,
        before: winner.before.clone(),
        after: winner.after.clone(),
        adds: winner.adds.clone(),
        when: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }))
}

/// Returns the options of `trimtab run` for every setting.
fn options(args: &TuneArgs) -> Vec<String> {
    let mut options = Vec::new();
    if let Some(cpus) = &args.cpus {
        options.push(format!("--cpus={cpus}"));
    }
    if args.share {
        options.push("--share".to_owned());
    }
    options
}

/// Writes a line to standard output and flushes it, for readers that follow.
fn out(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Runs the program for the search.
struct Runner<'a> {
    trial: &'a TrialRunner,
    interrupt: &'a Interrupt,
    bar: ProgressBar,
    json: bool,
    /// Runs of an earlier tuning that this one continues.
    earlier: VecDeque<TuningRun>,
    number: usize,
    journal: Journal,
    /// Hash of the first run's output.
    reference: Option<String>,
    trouble: Option<anyhow::Error>,
}

impl Runner<'_> {
    fn one(&mut self, setting: &Setting, stage: Stage, limit: Option<Span>) -> Result<Option<Ran>> {
        let again = self.earlier.pop_front().filter(|old| old.setting == *setting && old.stage == stage);
        let replayed = again.is_some();
        let run = match again {
            Some(run) => run,
            None => {
                // The later runs are in another order, which only another version produces.
                self.earlier.clear();
                if self.interrupt.came().is_some() {
                    return Ok(None);
                }
                self.bar.set_message(format!("{}: {setting}", stage.word()));
                self.bar.tick();
                let Some(tried) =
                    self.trial.run(setting, limit, self.reference.as_deref(), self.interrupt)?
                else {
                    return Ok(None);
                };
                TuningRun {
                    number: self.number,
                    stage,
                    setting: setting.clone(),
                    ran: tried.ran,
                    output: tried.output,
                }
            }
        };
        self.number += 1;
        if self.reference.is_none() {
            self.reference.clone_from(&run.output);
        }
        let line = Line::Run(&run);
        if !replayed {
            self.journal.add(&line)?;
        }
        if self.json {
            out(&line.text()?)?;
        }
        self.bar.inc(1);
        Ok(Some(run.ran))
    }
}

impl Bench for Runner<'_> {
    fn run(&mut self, setting: &Setting, stage: Stage, limit: Option<Span>) -> Option<Ran> {
        self.one(setting, stage, limit).unwrap_or_else(|trouble| {
            self.trouble = Some(trouble);
            None
        })
    }

    fn ahead(&mut self, runs: usize) {
        self.bar.set_length(self.bar.position() + runs as u64);
    }
}
