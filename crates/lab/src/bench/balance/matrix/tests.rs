//! Tests of the matrix.

use super::*;
use std::collections::BTreeSet;

fn all(cores: usize, quick: bool) -> Vec<BalanceCell> {
    cells(BalanceScope { cores, quick, only: &[] })
}

fn names(cells: &[BalanceCell]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

#[test]
fn every_scenario_of_the_plan_is_there() {
    let cells = all(2, false);
    let scenarios: Vec<&str> = {
        let mut names: Vec<&str> = cells.iter().map(BalanceCell::scenario_name).collect();
        names.dedup();
        names
    };
    assert_eq!(
        scenarios,
        [
            "final-3",
            "final-5",
            "final-7",
            "barrier-1ms-3",
            "barrier-10ms-3",
            "barrier-100ms-3",
            "even-4",
            "hog-2",
            "hog-session-2",
            "hog-pinned-2",
            "hog-pinned-session-2",
            "slow-core-2",
            "freed-3",
            "omp-1ms-3",
            "omp-10ms-3",
            "omp-100ms-3",
            "omp-hog-1ms-2",
            "omp-hog-10ms-2",
            "omp-hog-100ms-2"
        ]
    );
    for quick in [false, true] {
        let names = names(&all(2, quick));
        let unique: BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len(), "no name twice");
    }
    let own = names(&all(2, false));
    for wait in ["spin", "yield", "sleep", "hyb"] {
        for way in ["kernel", "pinned", "speed", "exchange", "nudge", "auto"] {
            assert!(own.contains(&format!("final-3/{wait}/{way}")));
        }
        assert!(!own.contains(&format!("freed-3/{wait}/pinned")), "it binds itself in every way");
    }
    assert_eq!(names(&all(16, true))[0], "final-17/spin/kernel");
}

#[test]
fn each_has_something_to_be_compared_with() {
    for quick in [false, true] {
        let cells = all(2, quick);
        for cell in &cells {
            assert_eq!(cells.iter().filter(|other| other.is_baseline_of(cell)).count(), 1, "{cell}");
            if cell.goals.contains(&Goal::HalfOfSpinning) && !quick {
                assert_eq!(cells.iter().filter(|other| other.is_spinning_of(cell)).count(), 1, "{cell}");
            }
            assert!(cell.goals.is_empty() || cell.way.is_trimtabs(), "{cell}: only trimtab has goals");
        }
    }
}

#[test]
fn goals_are_those_that_were_set() {
    let cells = all(2, false);
    let first =
        |name: &str| cells.iter().find(|cell| cell.to_string() == name).unwrap().goals.first().copied();
    for (name, goal) in [
        ("final-3/sleep/auto", 1.02),
        ("final-7/yield/auto", 1.02),
        ("final-5/spin/auto", 1.04),
        ("freed-3/spin/auto", 1.05),
        ("hog-2/sleep/auto", 0.92),
        ("hog-pinned-session-2/yield/auto", 0.92),
        ("omp-1ms-3/runtime/wait-policy", 1.40),
        ("omp-10ms-3/runtime/wait-policy", 1.15),
        ("omp-100ms-3/runtime/wait-policy", 1.07),
    ] {
        assert_eq!(first(name), Some(Goal::AtMost(goal)), "{name}");
    }
    for name in ["final-3/sleep/speed", "final-3/sleep/kernel", "omp-1ms-3/runtime/omp-active"] {
        assert_eq!(first(name), None, "{name}");
    }
    assert_eq!(first("slow-core-2/sleep/auto"), Some(Goal::NoWorse));
    assert_eq!(first("omp-hog-1ms-2/runtime/wait-policy"), Some(Goal::NoWorse));
    assert_eq!(first("barrier-1ms-3/spin/auto"), Some(Goal::NoWorse));
}

#[test]
fn a_measurement_takes_as_long_as_is_said() {
    // The ideal, half as much again for slower variants, and a third of a second around each run.
    let minutes = |quick: bool| {
        let seconds: f64 = all(2, quick)
            .iter()
            .map(|cell| 1.5 * cell.scenario.work * cell.scenario.threads as f64 / 2.0 + 0.3)
            .sum();
        5.0 * seconds / 60.0
    };
    assert!(minutes(true) < 3.0, "{}", minutes(true));
    assert!(minutes(false) < 40.0, "{}", minutes(false));
}

#[test]
fn patterns_choose() {
    let only = ["hog-2/spin".to_owned(), "omp-1ms".to_owned(), "no-such".to_owned()];
    let mut some = cells(BalanceScope { cores: 2, quick: false, only: &only });
    some.retain(|cell| !matches!(cell.way, BalanceVariant::Balance(_)));
    assert_eq!(
        names(&some),
        [
            "hog-2/spin/kernel",
            "hog-2/spin/pinned",
            "omp-1ms-3/runtime/kernel",
            "omp-1ms-3/runtime/omp-active",
            "omp-1ms-3/runtime/wait-policy"
        ]
    );
}

#[test]
fn commands_match_the_names() {
    let cells = all(2, false);
    let words = |name: &str| {
        let cell = cells.iter().find(|cell| cell.to_string() == name).unwrap();
        let words = cell.command(Path::new("/t"), Path::new("/b"), 2, 7, Some(9));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        words("hog-2/yield/pinned"),
        "/b/balance_spmd --threads 2 --work 0.900000 --rate 7 --hog 9 --wait yield --pin"
    );
    assert_eq!(
        words("barrier-10ms-3/hyb/auto"),
        "/t run --no-rules --fit keep --survey none --cores 2 --balance=auto -- /b/balance_spmd --threads 3 --work 0.300000 --rate 7 \
         --phase 0.01 --hog 9 --wait hyb"
    );
    assert!(words("freed-3/spin/nudge").ends_with("--wait spin --pin"));
    assert!(!words("freed-3/spin/nudge").contains("--free"));
    assert!(words("freed-3/spin/auto").contains("--balance=auto --free -- /b/balance_spmd"));
    assert!(
        words("omp-1ms-3/runtime/wait-policy").contains("--wait-policy auto -- /b/balance_omp --threads 3")
    );
    let rival = |name: &str| {
        let cell = cells.iter().find(|cell| cell.to_string() == name).unwrap();
        let words = cell.rival(Path::new("/b"), OsCpu(1))?;
        Some(words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(rival("final-3/spin/kernel"), None);
    assert_eq!(rival("hog-session-2/spin/kernel").unwrap(), "/b/balance_hog --limit 120 --setsid");
    assert_eq!(rival("slow-core-2/spin/kernel").unwrap(), "/b/balance_hog --limit 120 --cpu 1 --duty 50");
}
