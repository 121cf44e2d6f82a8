//! `trimtab tune-team`: results are stored where the environment says, shown, checked and removed.
//! Nothing is asserted about times.

use crate::util::{Call, Sandbox, eventually};
use rustix::process::Signal;
use serde_json::Value;

/// Returns a call with the test's own cache folder: other tunings stay untouched.
fn tune<'s>(sandbox: &'s Sandbox, options: &str) -> Call<'s> {
    sandbox.trimtab(&format!("tune-team {options}")).env("XDG_CACHE_HOME", sandbox.path("cache"))
}

fn json(call: Call<'_>) -> Value {
    let text = call.arg("--json").ends().out();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn files(sandbox: &Sandbox) -> usize {
    std::fs::read_dir(sandbox.path("cache/trimtab/teams")).map_or(0, Iterator::count)
}

const SMALL: &str = "--ranks 2 --ops barrier,bcast --bytes 65536 --accept-noise";

#[test]
fn a_tuning_is_kept_shown_checked_and_removed() {
    let sandbox = Sandbox::new();
    let page = tune(&sandbox, "--show").ends().ok();
    assert!(page.contains("nothing is stored for this machine"), "{page}");
    let tuned = json(tune(&sandbox, SMALL));
    assert_eq!(
        (&tuned["schema"], &tuned["what"], &tuned["complete"]),
        (&"trimtab.tune-team/1".into(), &"tuned".into(), &true.into())
    );
    let team = &tuned["teams"][0];
    assert_eq!((&team["ranks"], team["cells"].as_array().unwrap().len()), (&2.into(), 2));
    assert!(team["key"].as_str().unwrap().starts_with("2 ranks"), "{team}");
    for cell in team["cells"].as_array().unwrap() {
        let candidates = cell["candidates"].as_array().unwrap();
        let winner = &candidates[usize::try_from(cell["verdict"]["winner"].as_u64().unwrap()).unwrap()];
        assert_eq!((&winner["batches"], &candidates[0]["batches"]), (&24.into(), &24.into()), "{cell}");
        assert_eq!((&cell["judged"], &cell["origin"]), (&true.into(), &"offline".into()));
    }
    assert_eq!(tuned["file"].as_str().map(|file| std::path::Path::new(file).exists()), Some(true));
    assert_eq!(files(&sandbox), 1);

    // Later cells are stored beside the earlier ones.
    let page =
        tune(&sandbox, "--ranks 2 --ops allgather --bytes 65536 --modes strict --accept-noise").ends().out();
    assert!(page.contains("allgather") && page.contains("strict") && page.contains("stored in "), "{page}");
    let kept = json(tune(&sandbox, "--show"));
    assert_eq!((&kept["what"], kept["teams"][0]["cells"].as_array().unwrap().len()), (&"kept".into(), 3));
    let page = tune(&sandbox, "--show").ends().ok();
    for wanted in ["barrier", "broadcast", "ranks by thread", "tuned 20", "machine: "] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }

    let outcome = tune(&sandbox, &format!("{SMALL} --check --json")).ends();
    let checked: Value = serde_json::from_str(&outcome.out()).unwrap();
    let verdict = &checked["verdict"];
    assert_eq!(checked["teams"][0]["cells"].as_array().unwrap().len(), 2);
    assert_eq!(verdict["judged"].as_u64().unwrap() + verdict["noisy"].as_u64().unwrap(), 2, "{verdict}");
    assert_eq!(outcome.code, Some(if verdict["met"] == false { 1 } else { 0 }), "{outcome}");
    assert!(
        checked["teams"][0]["cells"][1]["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .all(|one| one["batches"] == 30)
    );

    let outcome = tune(&sandbox, "--forget --ranks 4").ends();
    assert!(outcome.code == Some(1) && outcome.out().contains("nothing to remove"), "{outcome}");
    let page = tune(&sandbox, "--forget --ranks 2").ends().ok();
    assert!(page.contains("removed: 2 ranks"), "{page}");
    assert!(json(tune(&sandbox, "--show"))["teams"].as_array().unwrap().is_empty());
}

#[test]
fn processes_and_mixtures_come_to_the_same_file() {
    let sandbox = Sandbox::new();
    for (ranks, kind) in [(2, "process"), (4, "2x2")] {
        let options = format!("--ranks {ranks} --kind {kind} --pin --ops barrier --accept-noise");
        let tuned = json(tune(&sandbox, &options));
        let team = &tuned["teams"][0];
        assert_eq!((&team["ranks"], &team["left"]), (&ranks.into(), &0.into()), "{tuned}");
        assert_eq!(team["how"], format!("ranks by {kind}, bound"));
    }
    assert_eq!(files(&sandbox), 1);
    assert_eq!(json(tune(&sandbox, "--show"))["teams"].as_array().unwrap().len(), 2);
}

#[test]
fn the_planned_measurements_are_listed() {
    let sandbox = Sandbox::new();
    let page = tune(&sandbox, "--list --ranks 2,3 --modes stream,loose").ends().ok();
    for wanted in [
        "2 ranks",
        "3 ranks",
        "  barrier/mine: ",
        "  broadcast/1048576/loose: whole cells, pieces of 4096",
        "  allreduce/1048576/heavy-mine: ",
        "slices of 8192",
    ] {
        assert!(page.contains(wanted), "{wanted}: {page}");
    }
    // A size that fits beside a flag, or goes in one round, has no choice.
    assert!(!page.contains("allreduce/256/") && !page.contains("allreduce/32768/"), "{page}");
    let planned = json(tune(&sandbox, "--list --ranks 2 --ops barrier"));
    assert_eq!(planned["teams"][0]["cells"].as_array().unwrap().len(), 1);
    assert_eq!(files(&sandbox), 0);
}

#[test]
fn an_impossible_tuning_is_refused() {
    let sandbox = Sandbox::new();
    for (options, why) in [
        ("--ops sum", "is not one of barrier"),
        ("--bytes 12", "multiple of 8"),
        ("--ranks 1", "2..=512"),
        ("--ranks 3 --kind 2x2", "2x2 cannot make 3 ranks"),
        ("--budget 1e9", "86400"),
        ("--ops broadcast --bytes 64", "there is nothing to choose"),
        ("--show --check", "cannot be used with"),
        ("--as-rank {}", "invalid plan"),
    ] {
        let outcome = tune(&sandbox, options).ends();
        assert!(outcome.code == Some(2) && outcome.stderr.contains(why), "{options}: {outcome}");
    }
    sandbox.write("cache", "no folder");
    let outcome = tune(&sandbox, SMALL).ends();
    assert!(outcome.code == Some(2) && outcome.stderr.contains("cannot be kept"), "{outcome}");
}

#[test]
fn a_signal_ends_it_and_finished_cells_are_kept() {
    let sandbox = Sandbox::new();
    for kind in ["thread", "process"] {
        let running =
            tune(&sandbox, &format!("--ranks 2 --kind {kind} --accept-noise --budget 3000 --json")).begins();
        // Long enough for one cell of hundreds.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        running.signal(Signal::INT);
        let outcome = running.ends();
        assert_eq!(outcome.code, Some(130), "{outcome}");
        let said: Value = serde_json::from_str(&outcome.out()).unwrap();
        assert_eq!((&said["complete"], &said["signal"]), (&false.into(), &2.into()), "{said}");
        let (cells, left) = (said["teams"][0]["cells"].as_array().unwrap().len(), &said["teams"][0]["left"]);
        assert!(left.as_u64().unwrap() > 0, "{said}");
        if cells > 0 {
            eventually("it is kept", || {
                json(tune(&sandbox, "--show"))["teams"][0]["cells"]
                    .as_array()
                    .is_some_and(|kept| kept.len() >= cells)
            });
        }
        tune(&sandbox, "--forget").ends();
    }
}

#[test]
fn a_budget_that_is_spent_leaves_the_rest_as_usual() {
    let sandbox = Sandbox::new();
    let outcome = tune(&sandbox, "--ranks 2 --budget 0 --accept-noise").ends();
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert!(
        outcome.out().contains("were not measured within the time")
            && outcome.out().contains("nothing was stored"),
        "{outcome}"
    );
    assert_eq!(files(&sandbox), 0);
}

#[test]
fn a_damaged_file_is_reported_and_made_again() {
    let sandbox = Sandbox::new();
    tune(&sandbox, "--ranks 2 --ops barrier --accept-noise").ends().out();
    let folder = sandbox.path("cache/trimtab/teams");
    let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replacen("offline", "oftline", 1)).unwrap();
    let page = tune(&sandbox, "--show").ends().warns(&["is ignored: its checksum is wrong"]);
    assert!(page.contains("nothing is stored"), "{page}");
    let outcome = tune(&sandbox, "--ranks 2 --ops barrier --accept-noise").ends();
    assert!(outcome.code == Some(0) && outcome.out().contains("stored in"), "{outcome}");
    assert_eq!(json(tune(&sandbox, "--show"))["teams"].as_array().unwrap().len(), 1);
}
