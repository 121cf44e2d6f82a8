//! `trimtab sim figures`: published and simulated values, equal for any number of jobs.

use crate::util::{Sandbox, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use trimtab_front::chart::text::faults;

#[test]
fn a_figure_is_the_same_with_any_number_of_jobs_and_shows_published_values() {
    let sandbox = Sandbox::new();
    let lines = |jobs: &str| sandbox.lab(&format!("sim figures factors --json --jobs {jobs}")).ends().ok();
    let said = lines("1");
    assert_eq!(said, lines("3"));
    let all: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(all.iter().all(|line| line["schema"] == "trimtab.figures/1"));
    let records = |kind: &str| all.iter().filter(|line| line["record"] == kind).count();
    assert!(records("cell") > 50 && records("order") > 20 && records("value") == 3);
    let value = all.iter().find(|line| line["key"] == "factors/locality/4M").unwrap();
    assert_eq!((&value["used"], &value["value"]), (&"held-out".into(), &1.0.into()));
    let last = all.last().unwrap();
    assert_eq!((&last["figure"], &last["orders"]), (&"all".into(), &last["right"]));
}

#[test]
fn a_figure_is_the_kept_one_to_the_byte() {
    let sandbox = Sandbox::new();
    let (out, kept) =
        (sandbox.path("now"), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/simulator"));
    sandbox.lab("sim figures factors --out").arg(&out).ends().ok();
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    for file in ["factors/lines.jsonl", "factors/table.txt", "factors/picture.svg"] {
        let same = read(out.join(file)) == read(kept.join(file));
        assert!(
            same,
            "{file} is another one: trimtab sim figures --out experiments/simulator makes it again"
        );
    }
    let json = sandbox.lab("sim figures factors --json").ends().ok();
    // The last line is about all figures.
    let (lines, _all) = json.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(format!("{lines}\n"), read(kept.join("factors/lines.jsonl")));
}

#[test]
fn a_figure_is_kept_as_a_table_lines_a_picture_and_scenarios() {
    let sandbox = Sandbox::new();
    let out = sandbox.path("kept");
    let said = sandbox.lab("sim figures factors --out").arg(&out).ends().ok();
    let table = text(&out.join("factors/table.txt"));
    assert!(said.starts_with(&table) && table.contains("published orders right"), "{said}");
    let picture = text(&out.join("factors/picture.svg"));
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n") && !picture.contains("NaN"));
    assert_eq!(faults(&picture), Vec::<String>::new());
    assert!(text(&out.join("factors/scenarios.txt")).contains("#### locality 4M node 1"));
    assert_eq!(text(&out.join("factors/lines.jsonl")).lines().count(), {
        let json = sandbox.lab("sim figures factors --json").ends().ok();
        json.lines().count() - 1
    });
}

#[test]
fn a_cell_is_a_scenario_that_can_be_read() {
    let sandbox = Sandbox::new();
    let scenario = sandbox.lab("sim figures stream --scenario").arg("barcelona-8356 bound 1x4").ends().ok();
    assert!(scenario.contains("barcelona-8356") && scenario.contains("[[program]]"), "{scenario}");
    sandbox.lab("sim --check -").input(scenario).ends().ok();
    // A part of several names is ambiguous, unless all cells are written to files.
    let several = sandbox.lab("sim figures stream --scenario").arg("barcelona-8356 bound").ends();
    let words = [
        "\"barcelona-8356 bound\" is in the names of 4 cells",
        "\"barcelona-8356 bound 4x1\" (stream)",
        "--out DIR",
    ];
    several.fails(2, &words);
    let keep = || sandbox.lab("sim figures stream --out cells --scenario").arg("barcelona-8356 bound").ends();
    let told = keep().ok();
    assert_eq!((told.lines().count(), keep().ok()), (4, told.clone()), "written again, and the same");
    for file in told.lines() {
        let table = sandbox.lab("sim").arg(file).ends().ok();
        assert!(table.starts_with(&format!("{file}\n")), "{table}");
    }
    std::fs::write(sandbox.path("cells/stream-barcelona-8356-bound-4x1.toml"), "mine").unwrap();
    keep().fails(2, &["bound-4x1.toml exists with other contents"]);
    let none = sandbox.lab("sim figures stream --scenario nothing").ends();
    assert_eq!(none.code, Some(2));
    assert!(none.stderr.contains("no cell's name contains \"nothing\""), "{none}");
}

#[test]
fn figures_are_listed_and_others_refused() {
    let sandbox = Sandbox::new();
    let list = sandbox.lab("sim figures --list").ends().ok();
    for name in
        ["balancing", "barriers", "hog", "oversubscription", "waiting", "sharing", "factors", "stream"]
    {
        assert!(list.contains(name), "{list}");
    }
    let wrong = sandbox.lab("sim figures fig7").ends();
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("\"fig7\" is not a figure (known: balancing"), "{wrong}");
}
