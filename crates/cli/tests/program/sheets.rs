//! `trimtab report` of records other than traces: studies, profiles, tunings.

use crate::report::{browse_as, browser};
use crate::util::{Sandbox, need, text, two};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HOSTILE: &str = "</td><script>document.title='owned'</script><img src=x onerror=alert(1)>\u{202e}";

/// Returns a study of one program in three ways, in three rounds, with given times.
fn study() -> String {
    let mut text = String::from(
        r#"{"schema":"trimtab.bench/1","record":"start","bench":"oversub","trimtab":"0.1.0","machine":"m","summary":"2 cores","kernel":"6.18","cpus":"0-1","cores":2,"yields":{"yield":"posix"},"rounds":3,"seed":1,"limit":10.0,"rate":null,"programs":"p","left_out":["mpich: it is not here"]}"#,
    );
    text.push('\n');
    for round in 1..=3 {
        for (program, per_core, slow) in [("cg", 2, 1.5), ("ep", 2, 0.8), ("NAME", 4, 12.0)] {
            let seconds = slow * (1.0 + 0.01 * f64::from(round));
            let _ = writeln!(
                text,
                r#"{{"schema":"trimtab.bench/1","record":"sample","program":"{program}","class":"W","family":"nas","runtime":"libgomp","threads":{},"cores":2,"per_core":{per_core},"grip":"floating","wait":"keep","company":null,"round":{round},"status":"done","seconds":{seconds},"beside":1.0,"wall":1.0,"user":1.0,"system":0.0,"balance":0.9,"interval":0.0001,"foreign":0.0,"error":null}}"#,
                2 * per_core
            );
        }
    }
    text.replace("NAME", &HOSTILE.replace('"', "'"))
}

fn shown(sandbox: &Sandbox, name: &str, record: impl AsRef<[u8]>) -> PathBuf {
    let file = sandbox.write(name, record);
    let said = sandbox.trimtab("report").arg(&file).ends().ok();
    let page = file.with_extension("html");
    assert!(said.contains("open it in any browser") && said.contains(page.to_str().unwrap()), "{said}");
    page
}

/// Returns the cells of the first column of a document's first table.
fn names(document: &str) -> Vec<String> {
    let body = document.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    body.split("<tr>")
        .skip(1)
        .map(|row| row.split(['<', '>']).nth(2).unwrap_or_default().to_owned())
        .collect()
}

fn opened(sandbox: &Sandbox, browser: &Path, page: &Path, query: &str) -> String {
    let document = browse_as(sandbox, browser, page, query, &[]);
    assert!(!document.contains("data-error"), "{}", document.lines().nth(1).unwrap_or_default());
    document
}

#[test]
fn a_study_is_sortable_tables_and_pictures_without_network_requests() {
    let sandbox = Sandbox::new();
    let page = shown(&sandbox, "study.jsonl", study());
    let source = text(&page);
    assert!(!source.contains("<img") && !source.contains("</td><script") && !source.contains('\u{202e}'));
    assert!(source.contains("mpich: it is not here"));
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let document = opened(&sandbox, &browser, &page, "");
    assert!(document.contains("data-drawn=\"tables 1 rows 3 pictures 1\""));
    assert!(document.contains("<title>More threads than cores - trimtab report</title>"));
    let narrow = browse_as(&sandbox, &browser, &page, "", &["--window-size=420,900"]);
    assert!(narrow.contains("data-over=\"0\""), "{}", narrow.lines().nth(1).unwrap_or_default());
    let smallest: f64 =
        narrow.split("data-smallest=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
    assert!(smallest >= 9.0, "{smallest} pixels");
    let hostile = "&lt;/td&gt;&lt;script&gt;";
    let order = |query: &str| -> Vec<String> {
        let all = names(&opened(&sandbox, &browser, &page, query));
        all.iter().map(|name| name.chars().take(hostile.len()).collect()).collect()
    };
    let (cg, ep) = ("cg.W".to_owned(), "ep.W".to_owned());
    // By name in the given order; by slow-down, in both directions.
    assert_eq!(order(""), [hostile.to_owned(), cg.clone(), ep.clone()]);
    let up = order("?sort=1.6");
    assert_eq!((up[0].as_str(), up[1].as_str()), ("ep.W", "cg.W"));
    let down = order("?sort=1.6&sort=1.6");
    assert!(down[0].starts_with("&lt;/td") && down[2] == ep, "{down:?}");
    assert_eq!(order("?sort=9.9&sort=x")[1..], [cg, ep], "columns that are not there");
}

#[test]
fn a_profile_is_a_sheet_that_names_missing_measurements() {
    let sandbox = Sandbox::new();
    let profile = r#"{"schema":"trimtab.profile/1","program":"NAME","setting":{"wait":"sleep"},"cpus":2,"cores":2,"wall":1000000000,"user":1900000000,"system":0,"workers":2,
        "runtimes":["libgomp"],"intervals":{"count":20000,"mean":50000,"median":48000,"tenth":40000,"ninetieth":70000},"waiting":0.25,"unseen":["cache misses: no counters"]}"#;
    let page =
        shown(&sandbox, "app.json", profile.replace("NAME", &HOSTILE.replace('"', "'")).replace('\n', ""));
    let source = text(&page);
    assert!(!source.contains("<img") && !source.contains("</td><script"));
    for word in [
        "not seen: cache misses: no counters",
        "threads synchronise every 50.0 us",
        ">25.0 %<",
        "<figure class=\"strip\"",
    ] {
        assert!(source.contains(word), "{word}");
    }
    // A missing value is not zero.
    assert!(
        source.contains(
            "<td data-column=\"WHAT\">page faults</td><td class=\"n\" data-column=\"MEASURED\">not seen</td>"
        ),
        "{source}"
    );
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    assert!(opened(&sandbox, &browser, &page, "").contains("data-drawn=\"tables 1 rows 15 pictures 1\""));
}

#[test]
fn a_tuning_and_its_kept_settings_are_sheets() {
    let sandbox = Sandbox::new();
    need!(two(), "two cores are needed");
    let program = sandbox
        .script("app", "#!/bin/sh\nrate=1\n[ \"$OMP_NUM_THREADS\" = 1 ] && rate=2\necho \"rate: $rate.0\"\n");
    let words = "tune -c 2 --knobs threads --metric rate:.([0-9.]+) --higher --from threads=2 --json --";
    let ended = sandbox.trimtab(words).arg(&program).ends();
    assert_eq!(ended.code, Some(0), "{ended}");
    let lines = String::from_utf8(ended.stdout.clone()).unwrap();
    let page = shown(&sandbox, "tuning.jsonl", &lines);
    let source = text(&page);
    let runs = lines.lines().filter(|line| line.contains("\"record\":\"run\"")).count();
    assert!(runs > 5, "{lines}");
    let last = source.rsplit("<tbody>").next().unwrap();
    assert_eq!(last.matches("<tr>").count(), runs, "every run is there");
    assert!(source.contains("Settings tried") && source.contains("threads=2"));
    let name = sandbox.trimtab("tune list --json").ends().ok();
    let name = name.split("\"name\":").nth(1).unwrap().split('"').nth(1).unwrap().to_owned();
    let exported = sandbox.trimtab("tune export").arg(&name).ends().ok();
    let page = shown(&sandbox, "kept.json", exported);
    assert!(text(&page).contains("The evidence") && text(&page).contains("is better than threads=2"));
    // The page of a tuning that was cut off says so.
    let half: Vec<&str> = lines.lines().take(4).collect();
    let page = shown(&sandbox, "half.jsonl", half.join("\n"));
    assert!(text(&page).contains("stopped before its end"));
}

#[test]
fn a_file_that_is_no_record_is_refused_with_a_message() {
    let sandbox = Sandbox::new();
    let refuse = |name: &str, content: &str, words: &[&str]| {
        let file = sandbox.write(name, content);
        sandbox.trimtab("report").arg(&file).ends().fails(2, words);
        assert!(!file.with_extension("html").exists());
    };
    refuse("a.json", "{\"schema\":\"other/1\"}", &["other/1", "bench oversub --json"]);
    refuse("b.json", "{\"schema\":\"trimtab.profile/1\"", &["b.json", "not a profile"]);
    refuse(
        "c.jsonl",
        "{\"schema\":\"trimtab.bench/1\",\"record\":\"start\",\"bench\":\"nested\"}\n",
        &["oversub"],
    );
    refuse("d.jsonl", "{\"record\":\"start\",\"schema\":\"trimtab.tune/1\"}\n", &["d.jsonl", "line 1"]);
    refuse(
        "e.json",
        "{\"schema\":\"trimtab.kept/1\",\"checksum\":\"0\",\"profile\":{}}",
        &["e.json", "checksum"],
    );
    refuse("f.json", "{}", &["f.json", "not a trimtab trace"]);
    let file = sandbox.write("study.jsonl", study());
    sandbox.trimtab("report --json").arg(&file).ends().fails(2, &["need a trace"]);
    // A foreign file is never overwritten.
    sandbox.write("study.html", "mine");
    sandbox.trimtab("report").arg(&file).ends().fails(2, &["study.html"]);
    assert_eq!(text(&sandbox.path("study.html")), "mine");
}

#[test]
fn records_of_the_tree_are_shown_or_refused_with_the_right_command() {
    let sandbox = Sandbox::new();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    // A compressed record is read as it is.
    let page = sandbox.path("study.html");
    let study = kept.join("oversub/results/quick-6.18.44-20261123.jsonl.gz");
    sandbox.trimtab("report").arg(&study).arg("-o").arg(&page).ends().ok();
    assert!(text(&page).contains("<h3>pipeline.W</h3>"));
    let refused = |file: &str, words: &[&str]| {
        sandbox
            .trimtab("report -o")
            .arg(sandbox.path("none.html"))
            .arg(kept.join(file))
            .ends()
            .fails(2, words);
    };
    refused("tune/results/cg-A-20261123.json", &["experiments/tune/measure", "tune --json"]);
    refused(
        "profile/results/all-20261123.json",
        &["experiments/profile/measure", ".md file", "profile --json"],
    );
    refused("advise/results/strong-20261123.json", &["experiments/advise/strong", "docs/advise.md"]);
    refused("uncore/results/zen3-guest-1.jsonl", &["bench uncore --from", "--svg FILE"]);
    refused(
        "nested/results/nested-gcc-20261122.jsonl.gz",
        &["bench nested", "when it measures", "bench oversub"],
    );
    refused("simulator/hog/lines.jsonl", &["trimtab.figures/1", "sim figures --out FOLDER"]);
    refused("advise/simulated.csv.gz", &["not a trimtab trace"]);
    assert!(!sandbox.path("none.html").exists());
}
