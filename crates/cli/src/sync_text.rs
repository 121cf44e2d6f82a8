//! Synchronisation statistics as text: the reason why the shim cannot count in a program, and its
//! counts.
//!
//! A profile and the report of a run use the same text. A value that could not be counted is left
//! out, and the reason is in the list of missing values.

use trimtab_agent::sync_report::SyncReport;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::units::{percent_of_any_size as percent, time};
use trimtab_launch::preload::uncounted;
use trimtab_linux::launch::preload_library;
use trimtab_linux::program::Program;

/// Returns why the shim cannot count in a program; empty if it can.
pub fn unreached(program: &Program) -> Vec<String> {
    let why = uncounted(&program.facts(&[], None), &preload_library());
    why.into_iter().map(|why| format!("barriers and collectives: {why}")).collect()
}

/// Returns one line each on the intervals between synchronisations, their meaning, the share of
/// waiting, and the kind of waiting.
pub fn lines(stats: &SyncReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(meet) = stats.intervals {
        let by: Vec<String> = stats
            .runtimes
            .iter()
            .filter_map(|runtime| Some(serde_json::to_value(runtime).ok()?.as_str()?.to_owned()))
            .collect();
        lines.push(format!(
            "threads synchronise every {} ({} by {}; 10 % below {}, half below {}, 10 % above {})",
            time(meet.mean),
            plural(meet.count, "interval"),
            by.join(", "),
            time(meet.tenth),
            time(meet.median),
            time(meet.ninetieth),
        ));
        lines.push(format!("this is {}", grain(meet.mean)));
    }
    if let Some(waiting) = stats.waiting {
        let between = stats.waiting_between.map_or_else(String::new, |(least, most)| {
            // Threads that start and end have no share of their own, and the total may lie outside
            // the range of the others.
            let whose = if (least..=most).contains(&waiting) { "thread" } else { "permanent thread" };
            format!(" ({} to {} per {whose})", percent(least), percent(most))
        });
        lines.push(format!("{} of the parallel time is waiting at barriers{between}", percent(waiting)));
    }
    lines.extend(stats.wait.clone());
    lines
}

/// Returns the cost of counting; `None` if it was not measured.
pub fn cost(stats: &SyncReport) -> Option<String> {
    let record = stats.record_ns.map_or_else(String::new, |ns| format!(" ({ns:.0} ns per event)"));
    Some(format!("counting took {} of its time{record}", percent(stats.overhead?)))
}

/// Returns the section of a report. A program without synchronisation gets only the reasons why
/// nothing was counted.
pub fn section(stats: &SyncReport) -> Vec<String> {
    let mut lines = Vec::new();
    if stats.intervals.is_some() || stats.waiting.is_some() {
        lines.extend(stats.workers.map(|workers| format!("{} synchronised", plural(workers, "thread"))));
        lines.extend(self::lines(stats));
        lines.extend(cost(stats));
    }
    lines.extend(stats.unseen.iter().map(|unseen| format!("not seen: {unseen}")));
    lines
}

/// Interprets the interval.
fn grain(mean: Span) -> &'static str {
    match mean.seconds() {
        fine if fine < 1e-4 => {
            "very fine-grained: a delay of one thread delays all; use one CPU per thread, without other programs"
        }
        fine if fine < 1e-3 => {
            "fine-grained: other programs on its CPUs, or more threads than CPUs, slow it down"
        }
        coarse if coarse < 5e-2 => "medium-grained: sharing CPUs has a cost if threads wait by spinning",
        _ => "coarse-grained: threads rarely wait for each other",
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
    fn missing_counts_are_missing_and_their_reason_is_said_once() {
        let nothing = met(&SyncStats::default(), &[]);
        assert_eq!((nothing.workers, nothing.yields, nothing.overhead), (None, None, None));
        assert_eq!(
            section(&nothing),
            ["not seen: barriers and collectives: the preload library did not get into the program"]
        );
        let kept = met(&SyncStats::default(), &["barriers and collectives: it is statically linked"]);
        assert_eq!(section(&kept), ["not seen: barriers and collectives: it is statically linked"]);
        let alone = met(&SyncStats { guests: 1, ..SyncStats::default() }, &[]);
        assert!(section(&alone).len() == 1 && section(&alone)[0].contains("none through"), "{alone:?}");
        assert_eq!((alone.workers, alone.yields), (None, Some(0)));
        // A rank that is not the first: its waiting was counted, its intervals by the first rank.
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
    fn counts_are_printed_in_lines() {
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
            "1 thread synchronised",
            "threads synchronise every 1.0 ms (9 intervals by libgomp; 10 % below 1.0 ms, half below 1.0 ms, 10 % above 1.0 ms)",
            "this is medium-grained: sharing CPUs has a cost if threads wait by spinning",
            "2.5% of the parallel time is waiting at barriers (0.0% to 5.0% per thread)",
            "as it is",
            "counting took 0.2% of its time (45 ns per event)",
            "not seen: meetings of 1 thread, for which there was no room",
        ];
        assert_eq!(lines, wanted);
        let short = SyncStats { waiting: Some(0.4), ..counted };
        assert!(section(&met(&short, &[]))[3].ends_with("(0.0% to 5.0% per permanent thread)"));
    }
}
