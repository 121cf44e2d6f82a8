//! A run that is watched: trimtab stays as the program's parent, and is not seen to.
//!
//! Two processes are made right before cores are reserved. The child does what any run does (it plans, reserves, sets masks,
//! execs), so that the hold, the plan and every failure are those of a run without a parent. The parent hands on signals, stops and
//! the exit status ([`trimtab_linux::child`]) in its first thread; in its second it waits until the program has begun, and
//! watches it.

use crate::args::{CountingArgs, ReportTo, RunOnly, report_to};
use crate::audit::Place;
use crate::exit::{self, Exit};
use crate::leftovers;
use crate::meetings::{Counting, Met};
use crate::metrics::{Figures, Offer};
use crate::profile::{Facts, Profiling, WORKED};
use crate::recorder::Recorder;
use crate::say::{self, Volume};
use crate::watched::Watched;
use crate::watching::Watching;
use crate::world::World;
use anyhow::{Context, anyhow};
use std::io::{PipeReader, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use trimtab_core::balance::{Kind, Policy, Settings, policy};
use trimtab_core::drive::Go;
use trimtab_core::set::CpuSet;
use trimtab_core::telemetry::run_summary::{CloseSample, RunSummary};
use trimtab_core::telemetry::{ReportSampler, counter_totals};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_core::trace::{Header, VERSION};
use trimtab_linux::child::{Child, End, Word};
use trimtab_linux::live::{Keeper, Live, LiveError, Options, Root, Stopper};
use trimtab_linux::process::Pid;
use trimtab_linux::program::Program;
use trimtab_linux::sys::usage;

/// What is to be done while the program runs.
#[derive(Debug)]
pub struct Asked {
    /// The policy.
    pub kind: Kind,
    /// Whether somebody asked for a policy, and not only for a record of what happens.
    pub balances: bool,
    settings: Settings,
    /// No option says how often to look.
    at_leisure: bool,
    counting: CountingArgs,
    report: Option<ReportTo>,
    profiles: bool,
}

/// Where it is told, open before the program begins.
#[derive(Debug)]
pub struct Told {
    recorder: Option<Recorder>,
    metrics: Option<Offer>,
    report: Option<Place>,
    profile: Option<Profiling>,
    /// Both tell of meetings.
    counting: Option<Counting>,
}

impl Told {
    /// Opens what the options name.
    ///
    /// # Errors
    /// What cannot be written, or would take the place of something else.
    pub fn open(args: &RunOnly) -> Result<Self, anyhow::Error> {
        let options = &args.watch;
        let report = args.report.as_ref().map(report_to);
        Ok(Self {
            recorder: options.trace.as_deref().map(|path| Recorder::open("--trace", path)).transpose()?,
            report: report.map(Place::take).transpose()?,
            metrics: options.metrics.as_ref().map(Offer::bind).transpose()?,
            profile: args.profile.as_ref().map(Profiling::open).transpose()?,
            counting: (args.report.is_some() || args.profile.is_some()).then(|| Counting::open(args.env)),
        })
    }

    /// What a guest must know to count meetings, if they are to be counted.
    pub fn meetings(&self) -> Option<String> {
        self.counting.as_ref().and_then(Counting::path)
    }
}

impl Asked {
    /// By the options, of which none is carried out yet; `None` when nobody needs to stay.
    ///
    /// # Errors
    /// Options that do nothing here.
    pub fn by(args: &RunOnly) -> Result<Option<Self>, anyhow::Error> {
        let options = &args.watch;
        let report = args.report.as_ref().map(report_to);
        if options.balance.is_none()
            && options.trace.is_none()
            && options.metrics.is_none()
            && report.is_none()
            && args.profile.is_none()
        {
            let counters = options.counting.counters.as_ref().map(|_| "--counters");
            return match options.policy.given().or(counters) {
                Some(option) => {
                    Err(anyhow!("{option} is about balancing: add --balance, --trace, --metrics or --report"))
                }
                None => Ok(None),
            };
        }
        let kind = options.balance.unwrap_or(Kind::Float);
        if let Some(why) = options.policy.unfit(kind) {
            return Err(anyhow!("{why}"));
        }
        if options.trace.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(anyhow!("--trace -: standard output is the program's, so a trace needs a file"));
        }
        let at_leisure = options.balance.is_none()
            && options.trace.is_none()
            && options.metrics.is_none()
            && options.policy.interval.is_none();
        Ok(Some(Self {
            kind,
            balances: options.balance.is_some(),
            settings: options.policy.over(Settings::of(kind)),
            at_leisure,
            counting: options.counting.clone(),
            report,
            profiles: args.profile.is_some(),
        }))
    }

    fn policy(&self, machine: &Machine) -> Box<dyn Policy> {
        if self.at_leisure {
            Box::new(ReportSampler::default())
        } else {
            policy(self.kind, machine, &self.settings)
        }
    }
}

/// A run, as its parent knows it.
#[derive(Debug)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// What was typed.
    pub label: String,
    /// Whether the guest's own report goes into the same file before.
    pub guest_reports: bool,
    /// What the program is.
    pub program: Program,
    /// How much is said.
    pub volume: Volume,
}

/// What the child says before it becomes the program.
pub fn begins(word: &mut Word, usable: &CpuSet, facts: Option<&Facts>) {
    let facts = facts.map_or_else(String::new, |facts| format!("\t{}", facts.line()));
    word.say(&format!("{usable}{facts}"));
}

/// What it says when it could not.
pub fn failed(word: &mut Word) {
    word.say("failed");
}

/// The CPUs of a program that has begun; `None` if it did not. Waits until one is known.
fn begun(mut word: PipeReader) -> Option<(CpuSet, Option<Facts>)> {
    let mut said = String::new();
    word.read_to_string(&mut said).ok()?;
    let mut lines = said.lines();
    let line = lines.next()?;
    let (usable, facts) = line.split_once('\t').unwrap_or((line, ""));
    let begun = (usable.parse().ok()?, Facts::read(facts));
    lines.next().is_none().then_some(begun)
}

/// Ends the watching when the program ends, whichever of the two begins first.
#[derive(Debug, Default)]
struct Bell(Mutex<(bool, Option<Stopper>)>);

impl Bell {
    fn hang(&self, stopper: Stopper) {
        let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bell.0 {
            stopper.stop();
        }
        bell.1 = Some(stopper);
    }

    fn ring(&self) {
        let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bell.0 = true;
        if let Some(stopper) = &bell.1 {
            stopper.stop();
        }
    }
}

/// What was seen of a program that began.
struct Seen {
    watching: Watching,
    usable: CpuSet,
    close: CloseSample,
    facts: Option<Facts>,
    began: Instant,
}

/// What the watching thread is given.
struct Post {
    proc: PathBuf,
    pid: Pid,
    asked: Asked,
    recorder: Option<Recorder>,
    figures: Option<Figures>,
    keeper: Option<Keeper>,
    machine: Machine,
    label: String,
    volume: Volume,
}

/// Stands in for the program until it has ended, and ends as it did.
///
/// # Errors
/// The kernel does not let us wait for it.
pub fn stay(world: &World, mut child: Child, asked: Asked, told: Told, run: &Run) -> Result<u8, Exit> {
    let spent_before = usage::of_children().unwrap_or_default();
    let used_before = usage::of_all_children().unwrap_or_default();
    let bell = Arc::new(Bell::default());
    let (kind, balances) = (asked.kind, asked.balances);
    let Told { recorder, metrics, mut report, profile, counting } = told;
    // Who asks gets an answer from now on, also while the program waits for its cores.
    let offered = metrics.map(|offer| Figures::on(offer, &run.machine, &asked.settings, run.volume));
    let figures = offered.and_then(|figures| {
        figures.inspect_err(|error| say::warning(run.volume, &format!("{error:#}"))).ok()
    });
    let keeper = (kind != Kind::Float).then(|| leftovers::keeper(world, run.volume)).flatten();
    let watcher = child.word().map(|word| {
        let post = Post {
            proc: world.proc(),
            pid: child.pid(),
            asked,
            recorder,
            figures,
            keeper,
            machine: run.machine.clone(),
            label: run.label.clone(),
            volume: run.volume,
        };
        let bell = Arc::clone(&bell);
        let thread = std::thread::Builder::new().name("watcher".to_owned());
        thread.spawn(move || Some(post.watch(begun(word)?, &bell)))
    });
    let attended = child.attend(|| bell.ring());
    bell.ring();
    let ended = Instant::now();
    let watched = watcher.and_then(|watcher| match watcher {
        Ok(thread) => thread.join().unwrap_or_default(),
        Err(error) => {
            say::warning(run.volume, &format!("the program was not watched: no thread can be had ({error})"));
            None
        }
    });
    let end = attended
        .and_then(|()| child.collect())
        .context("cannot wait for the program")
        .map_err(|cause| Exit::new(exit::RUN_FAILED, cause))?;
    let mut reported = Ok(());
    if let Some(mut seen) = watched {
        let spent = usage::of_children().ok().map(|spent| Span::from(spent.saturating_sub(spent_before)));
        let wall = ended.saturating_duration_since(seen.began);
        let wait = seen.facts.as_ref().map(|facts| facts.wait.clone());
        let met = counting.map(|counting| counting.read(&run.program, wait, wall.into())).unwrap_or_default();
        reported = finish(&mut seen, end, (kind, balances), report.as_mut(), spent, &met, run);
        if let Some(mut profile) = profile {
            let used = usage::of_all_children().unwrap_or_default().since(used_before);
            let Seen { watching, usable, close, facts, .. } = &seen;
            let totals = watching.totals.as_ref();
            let summary = totals.map(|totals| RunSummary::of(totals, &run.machine, usable, spent, close));
            let rest = crate::profile::Rest {
                machine: &run.machine,
                usable,
                wall,
                used,
                facts: facts.as_ref(),
                met: &met,
                audited: summary.as_ref(),
                worked: totals.map_or(0, |totals| totals.at_once(WORKED)),
                close,
                misses_per_kilo: totals.and_then(counter_totals::misses_per_kilo),
                program: &run.program,
                end,
            };
            reported = reported.and(profile.finish(&rest));
        }
    }
    let failed = reported.inspect_err(|error| say::warning(Volume::Normal, &format!("{error:#}"))).is_err();
    // A report that is missing is not to be taken for one that was not asked for; but a failure of the program's own is
    // worth more.
    Ok(match end.hand_on() {
        exit::DONE if failed => exit::RUN_FAILED,
        status => status,
    })
}

impl Post {
    /// Watches a program that has begun, until the bell rings.
    fn watch(self, (usable, facts): (CpuSet, Option<Facts>), bell: &Bell) -> Seen {
        let began = Instant::now();
        let mut policy = self.asked.policy(&self.machine);
        let profiles = self.asked.profiles;
        let reports = self.asked.report.is_some() || profiles;
        let header = Header {
            version: VERSION,
            policy: self.asked.kind,
            settings: self.asked.settings,
            command: self.label,
            began: now(),
            usable: usable.clone(),
            machine: self.machine.clone(),
        };
        let volume = self.volume;
        let mut watching = Watching::begin(header, self.recorder, self.figures, volume).accumulating(reports);
        let counting = self.asked.counting.choice();
        // The run bound its program on purpose: that holds also when a cpuset grows.
        let options = Options { keep: self.keeper, counting, bound: true, ..Options::default() };
        let mut host = match Live::with(&self.proc, &[Root::Tree(self.pid)], &usable, options) {
            Ok(live) => {
                bell.hang(live.stopper());
                let counts = self.asked.counting.always() || profiles;
                // Of what cannot be counted a profile tells by itself.
                let said = if profiles { Volume::Quiet } else { volume };
                Watched::new(live).closely(reports).touching(profiles).counting(counts, said)
            }
            // It may have ended before the first look.
            Err(LiveError::Ended(_) | LiveError::NoProcess(_)) => {
                return Seen { watching, usable, close: CloseSample::default(), facts, began };
            }
            Err(error) => {
                say::warning(volume, &format!("the program is not watched: {error}"));
                return Seen { watching, usable, close: CloseSample::default(), facts, began };
            }
        };
        if let Err(error) = watching.watch(&mut host, &mut *policy, &usable, &mut |_, _| Go::On) {
            say::warning(volume, &format!("the program is not watched any more: {error}"));
        }
        let (restored, fault) = host.restore();
        leftovers::tell(restored, fault, volume);
        Seen { watching, usable, close: host.close(&self.machine), facts, began }
    }
}

/// Seconds since 1970.
pub fn now() -> Option<u64> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Says what there is to say when all is over.
///
/// # Errors
/// The report cannot be written.
fn finish(
    seen: &mut Seen,
    end: End,
    (kind, balances): (Kind, bool),
    report: Option<&mut Place>,
    spent: Option<Span>,
    met: &Met,
    run: &Run,
) -> Result<(), anyhow::Error> {
    let Seen { watching, usable, close, .. } = seen;
    let why = match end {
        End::Exited(status) => format!("the program ended with status {status}"),
        End::Killed(signal) => format!("the program ended by signal {signal}"),
    };
    watching.record(|recorder| recorder.end(&why, Some(end.status())));
    if balances {
        say::headline(run.volume, &format!("{kind}: {}", watching.summary()));
    }
    if let (Some(totals), Some(report)) = (&watching.totals, report) {
        let summary = RunSummary::of(totals, &run.machine, usable, spent, close);
        report.write(&summary, met, &run.label, run.guest_reports).context("the report cannot be written")?;
    }
    Ok(())
}
