use super::*;
use std::collections::BTreeSet;

#[test]
fn each_figure_is_complete_and_refers_only_to_its_own_parts() {
    let mut keys = BTreeSet::new();
    for name in NAMES {
        let figure = find(name).unwrap();
        assert_eq!(figure.name, *name);
        let names: BTreeSet<&str> = figure.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), figure.cells.len(), "{name}: a cell twice");
        assert!(figure.cells.iter().all(|cell| cell.scenario.name == cell.name && cell.runs > 0));
        assert!(!figure.points.is_empty() && !figure.notes.is_empty());
        // Any numbers show that all of them are found.
        let runs: Vec<Vec<f64>> = figure.cells.iter().map(|cell| vec![1.0; cell.runs as usize]).collect();
        let report = figure.report(&runs);
        assert!(report.points.iter().all(|point| point.y.is_finite()));
        for beside in &figure.beside {
            assert!(keys.insert(beside.published.key), "{} twice", beside.published.key);
        }
    }
    let all: BTreeSet<&str> = crate::published::all().map(|value| value.key).collect();
    assert_eq!(keys, all, "each published value has its place in a figure");
    assert!(matches!(find("fig7"), Err(FigureError::Unknown(_))));
}

#[test]
fn live_measurements_have_their_figures() {
    for (name, set) in LIVE.iter().zip(crate::measured_cases::SETS) {
        assert_eq!(*name, format!("live-{}", set.name));
        let figure = find(name).unwrap();
        assert_eq!(figure.beside.len(), set.cells().unwrap().len(), "{name}");
        assert_eq!(figure.cells.len(), figure.beside.len());
    }
}

#[test]
fn a_cell_run_twice_says_the_same() {
    let figure = find("stream").unwrap();
    let cell = figure.cells.iter().find(|cell| cell.name == "barcelona-8356 bound 1x4").unwrap();
    let found = cell.run(1);
    assert_eq!(found.to_bits(), cell.run(1).to_bits());
    assert!((found / 7.6 - 1.0).abs() < 0.05, "{found}");
}

#[test]
fn every_cell_can_be_written_as_a_scenario_file() {
    for name in NAMES {
        let figure = find(name).unwrap();
        // Writing includes reading back; a few cells of each figure are enough for that.
        for cell in figure.cells.iter().step_by(figure.cells.len() / 6 + 1) {
            let text = crate::scenario::file::write(&cell.scenario)
                .unwrap_or_else(|error| panic!("{}: {error}", cell.name));
            assert!(text.contains(&cell.name), "{text}");
        }
    }
}

#[test]
fn the_order_of_the_contestants_is_right_where_it_matters_most() {
    let figure = find("balancing").unwrap();
    let value =
        |name: &str| figure.cells.iter().find(|cell| cell.name == name).map(|cell| cell.run(0)).unwrap();
    let [fast, load, pinned] =
        ["SPEED", "LOAD", "PINNED"].map(|of| value(&format!("tigerton-e7310 15 {of} YIELD")));
    assert!(fast < 0.6 * load && fast < 0.6 * pinned, "{fast} {load} {pinned}");
    assert!((pinned * 8.0 / 379.0 - 1.0).abs() < 0.03, "two threads on one core: {pinned}");
}

/// Returns the runs of a cell of the figure of bias random migration.
fn migrated(name: &str, runs: u32) -> Vec<f64> {
    let figure = find("migration").unwrap();
    let cell = figure.cells.iter().find(|cell| cell.name == name).unwrap_or_else(|| panic!("{name}"));
    (0..runs).map(|run| cell.run(run)).collect()
}

#[test]
fn threads_find_their_memory_and_stay_there() {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let [credit, brm] = ["credit", "brm"].map(|of| migrated(&format!("micro 64M {of}"), 2));
    let hand = migrated("micro 64M bound 4+0", 1)[0];
    assert!(mean(&brm) < 0.95 * mean(&credit), "{brm:?} {credit:?}");
    assert!(mean(&brm) < 1.05 * hand, "{brm:?} {hand}");
    let least = brm.iter().copied().fold(f64::INFINITY, f64::min);
    let most = brm.iter().copied().fold(0.0, f64::max);
    assert!(most / least < 1.04, "{brm:?}");
    let [credit, serial] = ["credit", "serial"].map(|of| migrated(&format!("micro 16M {of}"), 2));
    assert!(mean(&serial) < mean(&credit), "{serial:?} {credit:?}");
}

#[test]
fn a_program_without_gain_loses_less_than_one_percent() {
    let [credit, brm, serial] =
        ["credit", "brm", "serial"].map(|of| migrated(&format!("ep, 8 threads {of}"), 1)[0]);
    assert!(brm < 1.01 * credit && serial < 1.01 * credit, "{credit} {brm} {serial}");
}
