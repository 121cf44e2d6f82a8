//! Tests of the indices on recorded counters: against arithmetic on the recorded text, and against
//! the documented quality.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use trimtab_core::counts::Counts;
use trimtab_core::penalty::{Index, Mean, change, level};

const RECORDED: &str = include_str!("zen3.csv");

/// A recorded line: its cells by the names of the columns.
type RecordedLine = BTreeMap<&'static str, f64>;

fn recorded() -> BTreeMap<(&'static str, u64), RecordedLine> {
    let mut lines = RECORDED.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            let numbers = names.iter().zip(&cells).skip(2).map(|(name, cell)| (*name, cell.parse().unwrap()));
            ((cells[0], cells[1].parse().unwrap()), numbers.collect())
        })
        .collect()
}

fn counts(line: &RecordedLine) -> Counts {
    let of = |name: &str| Some(line[name] as u64);
    Counts {
        busy: of("busy"),
        requests: of("requests"),
        cycles: of("cycles"),
        instructions: of("instructions"),
        llc_lookups: of("llc_lookups"),
        llc_misses: of("llc_misses"),
        ..Counts::default()
    }
}

/// Returns the counts of a machine without the processor's own events.
fn generic(line: &RecordedLine) -> Counts {
    Counts { requests: Some(line["misses"] as u64), busy: None, ..counts(line) }
}

#[test]
fn each_index_is_the_quotient_that_it_is_said_to_be() {
    let lines = recorded();
    assert_eq!(lines.len(), 99);
    for ((mode, bytes), line) in &lines {
        let near = |found: Option<f64>, above: f64, below: f64| {
            let wanted = above / below;
            let found = found.unwrap();
            assert!((found - wanted).abs() <= 1e-9 * wanted.abs(), "{mode} {bytes}: {found}, not {wanted}");
        };
        let all = counts(line);
        near(Index::Penalty.of(&all), line["busy"], line["requests"]);
        near(Index::Busy.of(&all), line["busy"], line["instructions"]);
        near(Index::Share.of(&all), line["busy"], line["cycles"]);
        near(Index::Cpi.of(&all), line["cycles"], line["instructions"]);
        near(Index::MissRate.of(&all), line["llc_misses"], line["llc_lookups"]);
        let unexplained = line["cycles"] - 6.0 * line["instructions"] / 10.0;
        near(Index::Estimate.of(&generic(line)), unexplained.max(0.0), line["misses"]);
        assert_eq!(Index::Penalty.of(&generic(line)), None);
        assert_eq!(Index::Far.of(&all), None);
    }
}

#[test]
fn groups_are_summed_as_on_paper() {
    let lines = recorded();
    let of = |mode: &'static str| lines.iter().filter(move |((of, _), _)| *of == mode).map(|(_, line)| line);
    for mode in ["solo", "pair4", "hogT"] {
        let sum = |name: &str| of(mode).map(|line| line[name]).sum::<f64>();
        let threads = || of(mode).map(|line| Some(counts(line))).chain([None, Some(Counts::default())]);
        let weighted = level(Index::Penalty, Mean::Weighted, threads());
        assert_eq!((weighted.counted, weighted.missing), (11, 2));
        assert!((weighted.value.unwrap() / (sum("busy") / sum("requests")) - 1.0).abs() < 1e-12);
        let plain: f64 = of(mode).map(|line| line["busy"] / line["requests"]).sum();
        assert!((level(Index::Penalty, Mean::Sum, threads()).value.unwrap() / plain - 1.0).abs() < 1e-12);
    }
    // From alone to beside another: the same requests at the new price.
    let (before, after): (Vec<Counts>, Vec<Counts>) =
        (of("solo").map(counts).collect(), of("pair").map(counts).collect());
    let price: f64 = of("solo").zip(of("pair")).map(|(a, b)| a["requests"] * b["busy"] / b["requests"]).sum();
    let was: f64 = of("solo").map(|line| line["busy"]).sum();
    let found = change(Index::Penalty, Mean::Weighted, before.iter().zip(&after)).unwrap();
    assert!((found / (price / was) - 1.0).abs() < 1e-12, "{found}");
}

/// Returns the number of recorded changes, from alone to beside others and above a twentieth of the
/// run time, in which an index has the right direction, and the number of these changes.
fn right(index: Index, counted: fn(&RecordedLine) -> Counts) -> (usize, usize) {
    let lines = recorded();
    let (mut agree, mut all) = (0, 0);
    for ((mode, bytes), alone) in lines.iter().filter(|((mode, _), _)| mode.starts_with("solo")) {
        for beside in ["pair", "hog"] {
            let beside = mode.replacen("solo", beside, 1);
            let Some((_, loaded)) = lines.iter().find(|((of, at), _)| *of == beside && at == bytes) else {
                continue;
            };
            let slower = loaded["cycles"] / alone["cycles"] - 1.0;
            if slower.abs() > 0.05 {
                let found = index.of(&counted(loaded)).unwrap() - index.of(&counted(alone)).unwrap();
                all += 1;
                agree += usize::from((found > 0.0) == (slower > 0.0));
            }
        }
    }
    (agree, all)
}

#[test]
fn the_value_of_the_indices_is_that_of_the_documentation() {
    let share = |(agree, all): (usize, usize)| agree as f64 / all as f64;
    let busy = share(right(Index::Busy, counts));
    let penalty = share(right(Index::Penalty, counts));
    let miss_rate = share(right(Index::MissRate, counts));
    let estimate = share(right(Index::Estimate, generic));
    assert!(right(Index::Busy, counts).1 > 30, "enough of them");
    assert!(busy >= 0.97, "busy cycles an instruction: {busy}");
    assert!((0.5..0.8).contains(&penalty), "the penalty: {penalty}");
    assert!(miss_rate < 0.75 && miss_rate < busy, "the miss rate: {miss_rate}");
    assert!((0.5..0.8).contains(&estimate), "the estimate: {estimate}");
}

#[test]
fn the_penalty_sees_parallel_misses_and_the_miss_rate_does_not() {
    let lines = recorded();
    let (one, four) = (&lines[&("solo", 64 << 20)], &lines[&("solo4", 64 << 20)]);
    let of = |index: Index, line: &RecordedLine| index.of(&counts(line)).unwrap();
    assert!((of(Index::MissRate, one) - of(Index::MissRate, four)).abs() < 0.05);
    assert!(one["cycles"] > 3.0 * four["cycles"]);
    assert!(of(Index::Penalty, one) > 2.5 * of(Index::Penalty, four));
}
