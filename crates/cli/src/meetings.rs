//! Synchronisation statistics at the front end: how the preload library gets into a program to
//! count, and what was counted in words.
//!
//! A profile and the report of a run say the same here. What could not be counted is missing, and
//! why is among what was not seen.

use trimtab_agent::sync_report::SyncReport;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_launch::preload::uncounted;
use trimtab_linux::launch::preload_library;
use trimtab_linux::program::Program;

/// Why the preload library cannot count in a program; empty where it can.
pub fn unreached(program: &Program) -> Vec<String> {
    let why = uncounted(&program.facts(&[], None), &preload_library());
    why.into_iter().map(|why| format!("meetings: {why}")).collect()
}

/// How often threads meet, what that means, how long they wait, and how: a line each.
pub fn lines(stats: &SyncReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(meet) = stats.intervals {
        let by: Vec<String> = stats
            .runtimes
            .iter()
            .filter_map(|runtime| Some(serde_json::to_value(runtime).ok()?.as_str()?.to_owned()))
            .collect();
        lines.push(format!(
            "threads meet every {} ({} by {}; a tenth below {}, half below {}, a tenth above {})",
            time(meet.mean),
            plural(meet.count, "interval"),
            by.join(", "),
            time(meet.tenth),
            time(meet.median),
            time(meet.ninetieth),
        ));
        lines.push(format!("that is {}", grain(meet.mean)));
    }
    if let Some(waiting) = stats.waiting {
        let between = stats.waiting_between.map_or_else(String::new, |(least, most)| {
            // Of threads that come and go no shares are told, and all together may lie beyond those
            // of the others.
            let whose = if (least..=most).contains(&waiting) { "a thread's" } else { "those that stay" };
            format!(" (from {} to {} of {whose})", percent(least), percent(most))
        });
        lines.push(format!("{} of the parallel time is waiting for each other{between}", percent(waiting)));
    }
    lines.extend(stats.wait.clone());
    lines
}

/// What counting cost; `None` where it was not measured.
pub fn cost(stats: &SyncReport) -> Option<String> {
    let record = stats.record_ns.map_or_else(String::new, |ns| format!(" ({ns:.0} ns a meeting)"));
    Some(format!("counting took {} of its time{record}", percent(stats.overhead?)))
}

/// The section of a report: of a program that met nobody no more than why nothing was seen.
pub fn section(stats: &SyncReport) -> Vec<String> {
    let mut lines = Vec::new();
    if stats.intervals.is_some() || stats.waiting.is_some() {
        lines.extend(stats.workers.map(|workers| format!("{} met others", plural(workers, "thread"))));
        lines.extend(self::lines(stats));
        lines.extend(cost(stats));
    }
    lines.extend(stats.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
    lines
}

/// A share, finer where it is small.
pub fn percent(share: f64) -> String {
    match 100.0 * share {
        tiny if tiny > 0.0 && tiny < 0.1 => "below 0.1%".to_owned(),
        small if small < 10.0 => format!("{small:.1}%"),
        share => format!("{share:.0}%"),
    }
}

/// A time of any size.
pub fn time(span: Span) -> String {
    match span.seconds() {
        short if short < 1e-3 => format!("{:.1} us", 1e6 * short),
        short if short < 1.0 => format!("{:.1} ms", 1e3 * short),
        long => format!("{long:.2} s"),
    }
}

/// What the interval means.
fn grain(mean: Span) -> &'static str {
    match mean.seconds() {
        fine if fine < 1e-4 => {
            "very fine-grained: whatever delays one thread delays all; a CPU for each thread, and nobody else there"
        }
        fine if fine < 1e-3 => {
            "fine-grained: it suffers from others on its CPUs, and from more threads than CPUs"
        }
        coarse if coarse < 5e-2 => "medium: sharing CPUs costs something where threads wait by spinning",
        _ => "coarse-grained: threads hardly depend on each other's moment",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::place::runtimes::Runtime;
    use trimtab_core::profile::Intervals;
    use trimtab_core::sync_stats::SyncStats;

    fn met(met: &SyncStats, why: &[&str]) -> SyncReport {
        let why = why.iter().map(ToString::to_string).collect();
        SyncReport::of(met, why, Some("as it is".to_owned()), Span::from_ms(10))
    }

    #[test]
    fn what_was_not_counted_is_missing_and_why_is_said_once() {
        let nothing = met(&SyncStats::default(), &[]);
        assert_eq!((nothing.workers, nothing.yields, nothing.overhead), (None, None, None));
        assert_eq!(section(&nothing), ["not seen: meetings: the guest library did not get into the program"]);
        let kept = met(&SyncStats::default(), &["meetings: it is statically linked"]);
        assert_eq!(section(&kept), ["not seen: meetings: it is statically linked"]);
        let alone = met(&SyncStats { guests: 1, ..SyncStats::default() }, &[]);
        assert!(section(&alone).len() == 1 && section(&alone)[0].contains("none through"), "{alone:?}");
        assert_eq!((alone.workers, alone.yields), (None, Some(0)));
        // A rank that is not the first: it waited, and others count how often.
        let rank = SyncStats {
            guests: 1,
            threads: 1,
            runtimes: vec![Runtime::Mpich],
            waiting: Some(0.5),
            ..SyncStats::default()
        };
        let lines = section(&met(&rank, &[])).join("\n");
        assert!(lines.contains("50% of the parallel time") && lines.contains("first rank"), "{lines}");
        assert!(!lines.contains("none through"), "{lines}");
    }

    #[test]
    fn what_was_counted_is_told_in_lines() {
        let ms = Span::from_ms(1);
        let counted = SyncStats {
            guests: 1,
            threads: 1,
            runtimes: vec![Runtime::Libgomp],
            intervals: Some(Intervals { count: 9, mean: ms, median: ms, tenth: ms, ninetieth: ms }),
            waiting: Some(0.025),
            waiting_between: Some((0.0, 0.05)),
            cost: Some(Span(20_000)),
            record_ns: Some(45.4),
            lost: 1,
            ..SyncStats::default()
        };
        let lines = section(&met(&counted, &[]));
        let wanted = [
            "1 thread met others",
            "threads meet every 1.0 ms (9 intervals by libgomp; a tenth below 1.0 ms, half below 1.0 ms, a tenth above 1.0 ms)",
            "that is medium: sharing CPUs costs something where threads wait by spinning",
            "2.5% of the parallel time is waiting for each other (from 0.0% to 5.0% of a thread's)",
            "as it is",
            "counting took 0.2% of its time (45 ns a meeting)",
            "not seen: meetings of 1 thread, for which there was no room",
        ];
        assert_eq!(lines, wanted);
        let short = SyncStats { waiting: Some(0.4), ..counted };
        assert!(section(&met(&short, &[]))[3].ends_with("(from 0.0% to 5.0% of those that stay)"));
    }
}
