//! The account in Prometheus' text format, version 0.0.4.
//!
//! Unknown values have no sample. Counters end in `_total`, times are seconds, shares are ratios.
//! Threads start and end, and each would remain a series in a database. So only the living threads
//! that ran longest have a series, and the number of the others is given.

use std::fmt::{Display, Write};
use trimtab_core::balance::Finding;
use trimtab_core::telemetry::account::{Account, ProgramAccount, ThreadAccount};

/// Bound of the threads that have series of their own.
pub(super) const THREADS_MAX: usize = 256;

/// Page under construction.
#[derive(Default)]
pub(super) struct Page(pub(super) String);

impl Page {
    /// Writes one metric with its help and its samples with labels; nothing at all without samples.
    pub(super) fn metric<V: Display>(
        &mut self,
        (name, kind, help): (&str, &str, &str),
        samples: impl IntoIterator<Item = (String, Option<V>)>,
    ) {
        let mut samples = samples.into_iter().filter_map(|(labels, value)| Some((labels, value?))).peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP trimtab_{name} {help}\n# TYPE trimtab_{name} {kind}");
        for (labels, value) in samples {
            let labels = if labels.is_empty() { labels } else { format!("{{{labels}}}") };
            let _ = writeln!(self.0, "trimtab_{name}{labels} {value}");
        }
    }
}

/// Returns the page.
pub(super) fn text(account: &Account) -> String {
    let mut page = Page::default();
    let one = |value: Option<f64>| [(String::new(), value)];
    page.metric(
        ("info", "gauge", "The version of trimtab."),
        [(label(&[("version", env!("CARGO_PKG_VERSION"))]), Some(1))],
    );
    page.metric(
        ("watched_seconds", "gauge", "Time since the first sample."),
        one(Some(account.watched().seconds())),
    );
    let count = |value: u64| [(String::new(), Some(value))];
    page.metric(("steps_total", "counter", "Samples taken."), count(account.steps()));
    page.metric(("decisions_total", "counter", "Decisions about threads."), count(account.decided()));
    page.metric(("clock_jumps_total", "counter", "Jumps of the clock."), count(account.jumps()));
    page.metric(("unread_total", "counter", "Readings of threads that failed."), count(account.unread()));
    page.metric(
        (
            "throttled_ratio",
            "gauge",
            "Share of the time that a CPU quota held the programs back, summed over CPUs.",
        ),
        one(account.throttled()),
    );
    page.metric(
        ("finding", "gauge", "Findings of the policy that hold now."),
        findings(account).into_iter().map(|finding| (label(&[("finding", finding)]), Some(1))),
    );
    programs(&mut page, account);
    threads(&mut page, account);
    let cpu = |read: &trimtab_core::telemetry::account::CpuAccount| label(&[("cpu", &read.cpu.to_string())]);
    page.metric(
        ("cpu_busy_ratio", "gauge", "Share of the time that a CPU ran anything."),
        account.cpus().iter().map(|read| (cpu(read), read.busy)),
    );
    page.metric(
        ("cpu_watched_ratio", "gauge", "Share of the time that a CPU ran watched threads."),
        account.cpus().iter().map(|read| (cpu(read), Some(read.ours))),
    );
    page.0
}

/// Returns the kinds of the findings: with their numbers, each would be a series.
fn findings(account: &Account) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = account.findings().iter().map(Finding::word).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn programs(page: &mut Page, account: &Account) {
    let labels = |program: &ProgramAccount| {
        let pid = program.info.as_ref().map(|info| info.pid.to_string()).unwrap_or_default();
        label(&[("program", &program.id.to_string()), ("pid", &pid), ("name", program.name())])
    };
    type FigureOf = fn(&ProgramAccount) -> Option<f64>;
    let figures: [(&str, &str, &str, FigureOf); 12] = [
        ("program_threads", "gauge", "Living threads.", |of| Some(of.threads as f64)),
        ("program_active_threads", "gauge", "Threads that wanted a CPU lately.", |of| Some(of.active as f64)),
        ("program_ended_threads_total", "counter", "Threads that ended.", |of| Some(of.ended as f64)),
        ("program_run_seconds_total", "counter", "Time on CPUs.", |of| Some(of.totals.run.seconds())),
        ("program_wait_seconds_total", "counter", "Time ready without a CPU.", |of| {
            of.totals.wait.map(|wait| wait.seconds())
        }),
        ("program_speed_ratio", "gauge", "Mean speed of its threads.", |of| of.speed),
        ("program_slowest_speed_ratio", "gauge", "The lowest speed of its threads.", |of| of.slowest),
        ("program_balance_ratio", "gauge", "Lowest over highest time of its cores.", |of| of.balance),
        ("program_expected_balance_ratio", "gauge", "Slowest over mean progress of its threads.", |of| {
            of.expected
        }),
        ("program_migrations_total", "counter", "Changes of core that were seen.", |of| {
            Some(of.totals.migrations as f64)
        }),
        ("program_node_migrations_total", "counter", "Changes of NUMA node that were seen.", |of| {
            Some(of.totals.node_migrations as f64)
        }),
        ("program_moves_total", "counter", "Moves by trimtab.", |of| Some(of.moves as f64)),
    ];
    for (name, kind, help, figure) in figures {
        page.metric((name, kind, help), account.programs().map(|program| (labels(program), figure(program))));
    }
}

fn threads(page: &mut Page, account: &Account) {
    let mut threads: Vec<&ThreadAccount> = account.threads().collect();
    let omitted = threads.len().saturating_sub(THREADS_MAX);
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.totals.run), thread.info.id));
    threads.truncate(THREADS_MAX);
    threads.sort_by_key(|thread| thread.info.id);
    page.metric(
        ("threads_omitted", "gauge", "Living threads that have no series of their own."),
        [(String::new(), Some(omitted))],
    );
    let labels = |thread: &ThreadAccount| {
        let info = &thread.info;
        label(&[("pid", &info.pid.to_string()), ("tid", &info.tid.to_string()), ("name", &info.name)])
    };
    type FigureOf = fn(&ThreadAccount) -> Option<f64>;
    let figures: [(&str, &str, &str, FigureOf); 6] = [
        ("thread_speed_ratio", "gauge", "Time on a CPU over time it wanted one.", |of| of.speed),
        ("thread_run_seconds_total", "counter", "Time on a CPU.", |of| Some(of.totals.run.seconds())),
        ("thread_wait_seconds_total", "counter", "Time ready without a CPU.", |of| {
            of.totals.wait.map(|wait| wait.seconds())
        }),
        ("thread_cpu", "gauge", "The CPU it ran on last.", |of| of.cpu.map(|cpu| f64::from(cpu.0))),
        ("thread_migrations_total", "counter", "Changes of core that were seen.", |of| {
            Some(of.totals.migrations as f64)
        }),
        ("thread_moves_total", "counter", "Moves by trimtab.", |of| Some(of.moves as f64)),
    ];
    for (name, kind, help, figure) in figures {
        page.metric((name, kind, help), threads.iter().map(|thread| (labels(thread), figure(thread))));
    }
}

/// Formats labels, with their values escaped as the format requires.
pub(super) fn label(pairs: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                letter => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}
