//! Report after a run, as text and as JSON: the samples of the program's threads, and the
//! synchronisation that shims counted. `core` computes every number in it.

use crate::args::ReportTo;
use crate::say;
use crate::sync_text;
use crate::table::{Align, Table};
use anyhow::{Context, bail};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::Write as _;
use std::os::unix::fs::FileTypeExt;
use trimtab_agent::output::{self, Claim, OutputKind};
use trimtab_agent::sync_report::SyncReport;
use trimtab_core::telemetry::run_summary::{CpuSummary, RunSummary, ThreadSummary};
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::units::run_time;
use trimtab_hold::budget_report::BudgetReport;

/// Most threads that are named: those that ran longest. The others are summed up. JSON lists more.
const THREADS_NAMED_MAX: usize = 24;
/// Most CPUs that are named for one thread.
const CPUS_NAMED_MAX: usize = 4;

/// Schema of the JSON document.
const SCHEMA: &str = "trimtab.audit/1";

/// Destination of the report.
#[derive(Debug)]
pub struct ReportTarget {
    to: ReportTo,
    /// The output file, open since the start of the run; `None` for standard error, and for pipes,
    /// because their readers may open late.
    claim: Option<Claim>,
}

/// Run that is reported.
#[derive(Clone, Copy, Debug)]
pub struct ReportedRun<'a> {
    /// Samples of its threads.
    pub audited: &'a RunSummary,
    /// Synchronisation of its threads.
    pub met: &'a SyncReport,
    /// Budget of its processes, if it had one.
    pub budget: Option<&'a BudgetReport>,
    /// The command as typed.
    pub command: &'a str,
}

impl ReportTarget {
    /// Opens the destination and checks that it can be written.
    ///
    /// # Errors
    /// The destination cannot be written, or the report would overwrite something else.
    pub fn take(to: ReportTo) -> Result<Self, anyhow::Error> {
        let Some(path) = &to.file else { return Ok(Self { to, claim: None }) };
        let name = format!("--report={}", path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            bail!("{name}: there is no folder {}", folder.display());
        }
        if std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_fifo()) {
            return Ok(Self { to, claim: None });
        }
        let mut claim = Claim::open(&name, path, OutputKind::Report, 0o666)?;
        claim.probe().with_context(|| format!("{name}: cannot write there"))?;
        Ok(Self { to, claim: Some(claim) })
    }

    /// Writes the report; with `append`, after the text that the shim has written into the same
    /// file.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn write(&mut self, run: &ReportedRun<'_>, append: bool) -> Result<(), anyhow::Error> {
        let text = if self.to.json { json(run)? } else { text(run) };
        let Some(path) = &self.to.file else {
            say::report(&text);
            return Ok(());
        };
        let written = match &mut self.claim {
            Some(claim) if append => claim.file().write_all(text.as_bytes()),
            _ => output::replace(path, |out| out.write_all(text.as_bytes())),
        };
        written.with_context(|| path.display().to_string())
    }
}

fn json(run: &ReportedRun<'_>) -> Result<String, anyhow::Error> {
    #[derive(Serialize)]
    struct RunReportJson<'a> {
        schema: &'static str,
        command: &'a str,
        #[serde(flatten)]
        audited: &'a RunSummary,
        meetings: &'a SyncReport,
        #[serde(skip_serializing_if = "Option::is_none")]
        budget: Option<&'a BudgetReport>,
    }
    let ReportedRun { audited, met, budget, command } = *run;
    Ok(serde_json::to_string(&RunReportJson { schema: SCHEMA, command, audited, meetings: met, budget })?
        + "\n")
}

fn percent(share: f64) -> String {
    format!("{:.0}%", (100.0 * share).round())
}

/// Formats `share` so that the rounded values of `first` and `share` add up to the rounded sum: two
/// halves of a per cent are one per cent, not two.
fn beside(first: f64, share: f64) -> String {
    let whole = |share: f64| (100.0 * share).round();
    format!("{:.0}%", whole(first + share) - whole(first))
}

fn known<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), show)
}

/// Formats the report as text.
pub fn text(run: &ReportedRun<'_>) -> String {
    let ReportedRun { audited, met, budget, .. } = *run;
    let mut out = String::new();
    let RunSummary {
        seconds,
        looks,
        run,
        spent,
        covered,
        balance,
        remote_pages,
        huge_pages,
        others,
        cpus,
        threads,
        folded,
        wait_share: _,
    } = audited;
    let mut line = |text: String| {
        let _ = writeln!(out, "trimtab: {text}");
    };
    if threads.is_empty() {
        let (took, ran) = (run_time(*seconds), spent.unwrap_or(*run));
        line(format!("{took}, {ran} on CPUs; it ended before the first sample of its threads"));
        sync_text::section(met).into_iter().chain(budget.map(BudgetReport::summary)).for_each(line);
        return out;
    }
    line(format!(
        "{}, {} on CPUs, {} seen in {}{}",
        run_time(*seconds),
        spent.unwrap_or(*run),
        plural(threads.len() as u64 + folded.threads, "thread"),
        plural(*looks, "sample"),
        covered.filter(|share| *share < 0.995).map_or_else(String::new, |share| {
            format!(" ({} of the CPU time; the rest fell between samples)", percent(share))
        })
    ));
    line(format!(
        "balance {} (lowest/highest CPU time of its cores), other programs used {} of these CPUs",
        known(*balance, |balance| format!("{balance:.2}")),
        known(*others, percent),
    ));
    if remote_pages.or(*huge_pages).is_some() {
        let (remote, huge) = (known(*remote_pages, percent), known(*huge_pages, percent));
        line(format!(
            "{remote} of its pages are on other nodes than its threads, {huge} of its private memory is in huge pages"
        ));
    }
    sync_text::section(met).into_iter().chain(budget.map(BudgetReport::summary)).for_each(line);
    out.push_str(&of_threads(audited));
    out.push_str(&of_cpus(cpus));
    out
}

/// Returns the table of the threads that ran longest, and one line that sums up all others.
fn of_threads(audited: &RunSummary) -> String {
    let RunSummary { threads, folded, .. } = audited;
    let mut longest: Vec<&ThreadSummary> = threads.iter().collect();
    longest.sort_by_key(|thread| (std::cmp::Reverse(thread.run), thread.tid));
    let mut table = Table::new(&[
        ("THREAD", Align::Right),
        ("NAME", Align::Left),
        ("CPU TIME", Align::Right),
        ("WAITED", Align::Right),
        ("SLEEPS", Align::Right),
        ("PREEMPTED", Align::Right),
        ("MOVED", Align::Right),
        ("RAN ON", Align::Left),
    ]);
    for thread in longest.iter().take(THREADS_NAMED_MAX) {
        table.row([
            thread.tid.to_string(),
            thread.name.clone(),
            thread.run.to_string(),
            known(thread.wait_share, percent),
            known(thread.sleeps, |count| count.to_string()),
            known(thread.preempted, |count| count.to_string()),
            known(thread.migrations.or(Some(thread.moved_at_least)), |count| count.to_string()),
            places(thread),
        ]);
    }
    let mut out = if table.is_empty() { String::new() } else { table.to_string() };
    let rest = longest.get(THREADS_NAMED_MAX..).unwrap_or_default();
    let more = rest.len() as u64 + folded.threads;
    if more > 0 {
        let ran = rest.iter().map(|thread| thread.run).sum::<Span>() + folded.run;
        let _ = writeln!(out, "and {} more, {ran} in total", plural(more, "thread"));
    }
    out
}

/// Returns the table of CPUs: the program's share of each CPU, and the share of other programs.
fn of_cpus(cpus: &[CpuSummary]) -> String {
    let mut table = Table::new(&[
        ("CPU", Align::Right),
        ("NODE", Align::Right),
        ("PROGRAM", Align::Right),
        ("OTHERS", Align::Right),
    ]);
    for cpu in cpus {
        table.row([
            cpu.cpu.to_string(),
            known(cpu.node, |node| node.to_string()),
            known(cpu.ours, percent),
            known(cpu.others, |others| beside(cpu.ours.unwrap_or(0.0), others)),
        ]);
    }
    if table.is_empty() { String::new() } else { table.to_string() }
}

/// Lists the CPUs on which a thread ran most.
fn places(thread: &ThreadSummary) -> String {
    let mut cpus: Vec<_> = thread.cpus.iter().filter(|(_, share)| *share > 0.0).collect();
    cpus.sort_by(|(one, a), (other, b)| b.total_cmp(a).then(one.cmp(other)));
    let named: Vec<String> =
        cpus.iter().take(CPUS_NAMED_MAX).map(|(cpu, share)| format!("{cpu} ({})", percent(*share))).collect();
    match cpus.len().saturating_sub(CPUS_NAMED_MAX) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::telemetry::Accumulator;
    use trimtab_core::telemetry::run_summary::CloseSample;

    #[test]
    fn a_cpu_is_never_busy_more_than_all_the_time() {
        for ours in 0..=1_000u32 {
            let ours = f64::from(ours) / 1_000.0;
            let number = |text: String| text.trim_end_matches('%').parse::<f64>().unwrap();
            assert_eq!(number(percent(ours)) + number(beside(ours, 1.0 - ours)), 100.0, "{ours}");
        }
        assert_eq!(
            (beside(0.215, 0.785), beside(0.0, 0.004), beside(1.0, 0.0)),
            ("78%".into(), "0%".into(), "0%".into())
        );
    }

    #[test]
    fn a_run_of_which_nothing_was_seen_says_so() {
        let machine = trimtab_core::topology::parse_synthetic("core:2").unwrap();
        let (totals, spent) = (Accumulator::default(), Some(Span::from_ms(5)));
        let audited = RunSummary::of(&totals, &machine, &machine.cpus(), spent, &CloseSample::default());
        assert_eq!(
            text(&ReportedRun { audited: &audited, met: &SyncReport::default(), budget: None, command: "" }),
            "trimtab: 0 ms, 5.0 ms on CPUs; it ended before the first sample of its threads\n"
        );
    }
}
