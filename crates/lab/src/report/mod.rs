//! `trimtab report`: a trace as one HTML page, for Perfetto, or as JSON; and other records as a
//! page.

mod chrome;
mod input;
mod markup;
mod of_field;
mod of_profile;
mod of_study;
mod of_tuning;
mod page;
mod sheet;
mod strip_plot;

use crate::args::ReportArgs;
use crate::field::findings;
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use trimtab_agent::output::{self, OutputKind};
use trimtab_cli::traces;
use trimtab_core::balance::Finding;
use trimtab_core::telemetry::account::{CpuAccount, Move, ProgramAccount, ThreadAccount, Timeline};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::draw;
use trimtab_core::trace::Trace;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit::{self, Exit};
use trimtab_front::print;
use trimtab_front::process_env::World;

/// Schema of the JSON document.
pub const SCHEMA: &str = "trimtab.report/1";

/// Time columns of the page: more than a screen can show.
const COLUMNS_MAX: usize = 600;
/// Most threads on the page; with this number of columns the page stays below 6 MB.
const THREADS_DRAWN_MAX: usize = 1_500;
/// Most moves that the page lists: the latest.
const MOVES_LISTED_MAX: usize = 20_000;

/// The JSON document of a trace.
#[derive(Serialize)]
struct TraceJson<'a> {
    schema: &'static str,
    command: &'a str,
    policy: &'static str,
    seed: u64,
    metric: trimtab_core::observe::Metric,
    interval_ns: Span,
    began_s: Option<u64>,
    machine: String,
    steps: usize,
    watched_ns: Span,
    /// Whether the trace has its end record.
    complete: bool,
    end: Option<&'a trimtab_core::trace::End>,
    clock_jumps: u64,
    programs: Vec<&'a ProgramAccount>,
    threads: Vec<&'a ThreadAccount>,
    cpus: &'a [CpuAccount],
    decided: u64,
    moves: &'a [Move],
    findings: Vec<TimedFindings<'a>>,
}

/// A finding of the policy, with its time.
#[derive(Serialize)]
struct TimedFindings<'a> {
    at_ns: Moment,
    findings: &'a [Finding],
}

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when the trace cannot be read or a file cannot be written.
pub fn run(_world: &World, args: &ReportArgs) -> Result<u8, Exit> {
    report(args).map_err(|cause| Exit::new(exit::FAILED, cause))?;
    Ok(exit::DONE)
}

fn report(args: &ReportArgs) -> Result<()> {
    let trace = match input::read(&args.trace)? {
        input::ReportInput::Trace(trace) => *trace,
        input::ReportInput::Sheet(sheet) => return show(&sheet, args),
        input::ReportInput::Field(record) => {
            show(&of_field::sheet(&record), args)?;
            let to_stdout = args.output.as_ref().is_some_and(|file| file.as_os_str() == "-");
            return if to_stdout { Ok(()) } else { Ok(print(&findings::text(&record))?) };
        }
    };
    let wanted = !args.json && (args.output.is_some() || args.chrome.is_none());
    let page = wanted.then(|| args.output.clone().unwrap_or_else(|| beside(&args.trace)));
    let outputs = args
        .chrome
        .iter()
        .map(|file| (file, OutputKind::Chrome))
        .chain(page.iter().map(|file| (file, OutputKind::Page)));
    for (file, kind) in outputs.filter(|(file, _)| file.as_os_str() != "-") {
        traces::keeps(&args.trace, file)?;
        output::spare(&file.display().to_string(), file, kind)?;
    }
    if let Some(file) = &args.chrome {
        write(file, |out| chrome::write(&trace, out))?;
    }
    if args.json {
        return data(&trace);
    }
    if trace.steps.is_empty() {
        let name = args.trace.display();
        diagnostics::warning(
            Volume::Normal,
            &format!("{name} contains no sample: there is nothing to show of the program"),
        );
    }
    if let Some(file) = page {
        let timeline = Timeline::of(&trace, COLUMNS_MAX, THREADS_DRAWN_MAX, MOVES_LISTED_MAX);
        let text = page::page(&trace, &timeline)?;
        write(&file, |out| out.write_all(text.as_bytes()))?;
        if file.as_os_str() != "-" {
            print(&format!("{}: open it in any browser", file.display()))?;
        }
    }
    if let Some(file) = args.chrome.as_ref().filter(|file| file.as_os_str() != "-") {
        print(&format!("{}: open it in https://ui.perfetto.dev or chrome://tracing", file.display()))?;
    }
    Ok(())
}

/// Shows a record other than a trace as a page.
fn show(sheet: &sheet::Sheet, args: &ReportArgs) -> Result<()> {
    if args.json || args.chrome.is_some() {
        bail!("{} is JSON, not a trace: --json and --chrome need a trace", args.trace.display());
    }
    let file = args.output.clone().unwrap_or_else(|| beside(&args.trace));
    if file.as_os_str() != "-" {
        traces::keeps(&args.trace, &file)?;
        output::spare(&file.display().to_string(), &file, OutputKind::Page)?;
    }
    write(&file, |out| out.write_all(sheet.page().as_bytes()))?;
    if file.as_os_str() != "-" {
        print(&format!("{}: open it in any browser", file.display()))?;
    }
    Ok(())
}

/// Returns the output file: `run.trace` becomes `run.html`; standard input goes to standard output.
fn beside(trace: &Path) -> PathBuf {
    if trace.as_os_str() == "-" { trace.to_owned() } else { trace.with_extension("html") }
}

fn data(trace: &Trace) -> Result<()> {
    let timeline = Timeline::of(trace, 1, usize::MAX, usize::MAX);
    let Timeline { account, moves, lanes, .. } = &timeline;
    let document = TraceJson {
        schema: SCHEMA,
        command: &trace.header.command,
        policy: trace.header.policy.word(),
        seed: trace.header.settings.seed,
        metric: trace.header.settings.metric,
        interval_ns: trace.header.settings.interval,
        began_s: trace.header.began,
        machine: draw::summary(&trace.header.machine),
        steps: trace.steps.len(),
        watched_ns: account.watched(),
        complete: trace.end.is_some(),
        end: trace.end.as_ref(),
        clock_jumps: account.jumps(),
        programs: account.programs().collect(),
        threads: lanes.iter().map(|lane| &lane.thread).collect(),
        cpus: account.cpus(),
        decided: account.decided(),
        moves,
        findings: timeline
            .findings
            .iter()
            .map(|(at, findings)| TimedFindings { at_ns: *at, findings })
            .collect(),
    };
    Ok(print(&serde_json::to_string_pretty(&document)?)?)
}

/// Writes a file, or standard output for `-`.
fn write(file: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    if file.as_os_str() == "-" {
        let mut out = BufWriter::new(std::io::stdout().lock());
        fill(&mut out)?;
        return Ok(out.flush()?);
    }
    output::replace(file, fill).with_context(|| format!("cannot write {}", file.display()))
}
