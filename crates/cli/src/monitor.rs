//! Monitor of a run at the front end: the options of `run` and `profile` for
//! [`trimtab_agent::monitor`], its outputs, and the text at the end.

use crate::args::{ReportTo, RunOnly, report_to};
use crate::exit::{self, Exit};
use crate::profile::Profiling;
use crate::run_report::{ReportTarget, ReportedRun};
use crate::say::{self, Volume};
use crate::sync_text::unreached;
use crate::world::World;
use anyhow::{Context, Result, anyhow};
use std::sync::Arc;
use trimtab_agent::metrics::Offer;
use trimtab_agent::monitor::{self, MonitorOptions, MonitorOutputs, Monitored, MonitoredRun, RunRecord};
use trimtab_agent::narrator::Narrator;
use trimtab_agent::recorder::Recorder;
use trimtab_agent::sync_report::SyncPage;
use trimtab_core::balance::{Kind, Settings};
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_hold::budget_report::BudgetReport;
use trimtab_launch::EnvMode;
use trimtab_linux::budget::BudgetPage;
use trimtab_linux::child::Child;
use trimtab_linux::program::Program;

/// Monitoring that the options request.
#[derive(Debug)]
pub struct Asked {
    /// The policy.
    pub kind: Kind,
    /// Whether a policy was requested, and not only a record of the run.
    pub balances: bool,
    options: MonitorOptions,
}

/// Outputs, opened before the program begins.
#[derive(Debug)]
pub struct Outputs {
    monitor: MonitorOutputs,
    report: Option<ReportTarget>,
    profile: Option<Profiling>,
}

/// A run from its parent's view.
#[derive(Debug)]
pub struct Run {
    /// The machine.
    pub machine: Machine,
    /// The command as typed.
    pub label: String,
    /// Whether the shim's own report precedes in the same file.
    pub shim_reports: bool,
    /// The program.
    pub program: Program,
    /// How much is printed.
    pub volume: Volume,
    /// Page of the run's budget, if it has one.
    pub budget: Option<BudgetPage>,
}

impl Asked {
    /// Reads the options; none is carried out yet. `None` if the run needs no monitor.
    ///
    /// # Errors
    /// Options without effect here.
    pub fn by(args: &RunOnly) -> Result<Option<Self>> {
        let options = &args.watch;
        let given = [
            options.balance.is_some(),
            options.trace.is_some(),
            options.metrics.is_some(),
            args.report.is_some(),
            args.profile.is_some(),
            args.preempt.is_some(),
        ];
        if !given.contains(&true) {
            let counters = options.counting.counters.as_ref().map(|_| "--counters");
            return match options.policy.given().or(counters) {
                Some(option) => Err(anyhow!("{option} needs --balance, --trace, --metrics or --report")),
                None => Ok(None),
            };
        }
        let kind = options.balance.unwrap_or(Kind::Float);
        if let Some(why) = options.policy.unfit(kind) {
            return Err(anyhow!("{why}"));
        }
        if options.trace.as_deref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(anyhow!(
                "--trace -: standard output belongs to the program, so a trace needs a file"
            ));
        }
        let at_leisure = options.balance.is_none()
            && options.trace.is_none()
            && options.metrics.is_none()
            && options.policy.interval.is_none();
        let balances = options.balance.is_some();
        let options = MonitorOptions {
            kind,
            settings: options.policy.over(Settings::of(kind)),
            at_leisure,
            counting: options.counting.options(),
            audits: args.report.is_some(),
            profile: args.profile.as_ref().map(|ask| ask.setting.clone()),
            preempt: args.preempt.map(|period| Span::from_us(period.us().into())),
        };
        Ok(Some(Self { kind, balances, options }))
    }
}

impl Outputs {
    /// Opens the outputs that the options name.
    ///
    /// # Errors
    /// An output cannot be written, or would overwrite something else.
    pub fn open(args: &RunOnly) -> Result<Self> {
        let options = &args.watch;
        let report: Option<ReportTo> = args.report.as_ref().map(report_to);
        let recorder = options.trace.as_deref().map(|path| Recorder::open("--trace", path)).transpose()?;
        let report = report.map(ReportTarget::take).transpose()?;
        let metrics = options.metrics.as_ref().map(Offer::bind).transpose()?;
        let profile = args.profile.as_ref().map(Profiling::open).transpose()?;
        let counts = report.is_some() || profile.is_some();
        let sync = counts.then(|| SyncPage::create(args.env != EnvMode::Set));
        Ok(Self { monitor: MonitorOutputs { recorder, metrics, sync }, report, profile })
    }

    /// Returns the value that makes the shim count synchronisation, if it is to be counted.
    pub fn sync_page(&self) -> Option<String> {
        self.monitor.sync.as_ref().and_then(SyncPage::path)
    }
}

/// Stays as the parent of the program until it has ended, prints the observations, and returns its
/// status.
///
/// # Errors
/// The kernel does not allow waiting for it.
pub fn stay(world: &World, child: Child, asked: Asked, outputs: Outputs, run: Run) -> Result<u8, Exit> {
    let Run { machine, label, shim_reports, program, volume, budget } = run;
    let Asked { kind, balances, options } = asked;
    let Outputs { monitor: outputs, mut report, profile } = outputs;
    let unreached = if outputs.sync.is_some() { unreached(&program) } else { Vec::new() };
    let run = MonitoredRun { machine, label, program, unreached };
    let narrator: Arc<dyn Narrator> = Arc::new(volume);
    let Monitored { end, record } = monitor::stay(&world.paths(), child, options, outputs, &run, &narrator)
        .map_err(|cause| Exit::new(exit::RUN_FAILED, cause))?;
    let mut shown = Ok(());
    if let Some(RunRecord { headline, summary, sync, profile: measured }) = record {
        if balances {
            say::headline(volume, &format!("{kind}: {headline}"));
        }
        if let (Some(summary), Some(report)) = (&summary, &mut report) {
            let budget = budget.as_ref().and_then(BudgetPage::read).map(|page| BudgetReport::of(&page));
            let run =
                ReportedRun { audited: summary, met: &sync, budget: budget.as_ref(), command: &run.label };
            let written = report.write(&run, shim_reports);
            shown = written.context("cannot write the report");
        }
        if let (Some(measured), Some(profile)) = (&measured, &profile) {
            shown = shown.and(profile.write(measured, &sync, end));
        }
    }
    let failed = shown.inspect_err(|error| say::warning(Volume::Normal, &format!("{error:#}"))).is_err();
    // A missing report must not look like a report that was not requested; but the program's own
    // failure status takes precedence.
    Ok(match end.hand_on() {
        exit::DONE if failed => exit::RUN_FAILED,
        status => status,
    })
}
