//! Files and holds of version 0.1.0, which wrote those in `tests/written-by-0.1.0`: this version
//! reads them, and refuses what a later one wrote.

use crate::util::{Sandbox, need, python, text, two};
use std::path::{Path, PathBuf};

/// Returns a file that version 0.1.0 wrote.
fn written(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/written-by-0.1.0").join(name)
}

/// Returns the id in the names of the ledger's files.
fn boot(sandbox: &Sandbox) -> String {
    let names = std::fs::read_dir(sandbox.path("ledger")).unwrap().flatten().map(|entry| entry.file_name());
    let locks = names.filter_map(|name| name.to_str()?.strip_suffix(".locks").map(str::to_owned)).next();
    locks.unwrap().strip_prefix("trimtab-").unwrap().to_owned()
}

#[test]
fn a_hold_of_0_1_0_counts_and_ours_counts_for_it() {
    let ([a, b], python) = (need!(two(), "two cores are needed"), need!(python(), "no Python"));
    let sandbox = Sandbox::new();
    // It holds memory too, which version 0.1.0 did not know.
    let ours = sandbox.hold(&format!("--cpus {b} --mem-size 1M"));
    let older = |cpu: &str| {
        let script = [written("hold.py"), sandbox.path("ledger")];
        sandbox.shell("exec \"$@\"").arg("sh").arg(&python).args(script).arg(boot(&sandbox)).arg(cpu)
    };
    // A hold of this version is respected, and its record readable.
    let refused = older(&b.to_string()).ends().ok();
    assert!(refused.starts_with("refused sh -c "), "{refused}");

    let mut running = older(&a.to_string()).begins();
    assert_eq!(running.line(), "held");
    let ps = sandbox.ps();
    let holds = ps["holds"].as_array().unwrap();
    let row = holds.iter().find(|row| row["cpus"] == a.to_string().as_str()).unwrap();
    assert_eq!((&row["command"], &row["pid"]), (&"a run of 0.1.0".into(), &running.pid().into()), "{ps}");
    assert_eq!(row["memory"], serde_json::json!([]), "{ps}");
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().fails(124, &["held by others"]);
    running.ends().ok();
    sandbox.run(&format!("--cpus {a}")).arg("true").ends().ok();
    drop(ours);
}

#[test]
fn files_of_0_1_0_are_read() {
    let sandbox = Sandbox::new();
    // It belongs to another machine, and is kept for it.
    let imported = sandbox.trimtab("tune import").arg(written("kept.json")).ends();
    assert!(imported.code == Some(0) && imported.out().contains("4556fb18-535d2804"), "{imported}");
    let shown = sandbox.trimtab("tune show 4556").ends().ok();
    assert!(shown.contains("--threads=1") && shown.contains("evidence"), "{shown}");
    // Policies may decide otherwise in each version, so the decisions are not compared.
    let replayed = sandbox.trimtab("replay").arg(written("trace.jsonl")).ends().ok();
    assert!(replayed.contains("speed then, speed now, 24 steps"), "{replayed}");
    for record in ["trace.jsonl", "profile.json"] {
        let page = sandbox.trimtab("report -o -").arg(written(record)).ends().ok();
        assert!(page.contains("</html>"), "{record}");
    }
    let advised = sandbox.trimtab("advise --others 0 --from").arg(written("profile.json")).ends();
    assert!(advised.code == Some(1) && advised.out().contains("2 working threads on 2 CPUs"), "{advised}");
    let checked = sandbox.trimtab("check").arg(written("plan.json")).ends();
    assert_eq!(checked.code, Some(0), "{checked}");
}

#[test]
fn files_of_a_later_version_are_refused_with_a_word() {
    let sandbox = Sandbox::new();
    for (command, name, now, later) in [
        ("tune import", "kept.json", "trimtab.kept/1", "trimtab.kept/2"),
        ("replay", "trace.jsonl", "\"trimtab-trace\":1", "\"trimtab-trace\":2"),
        ("report -o -", "trace.jsonl", "\"trimtab-trace\":1", "\"trimtab-trace\":2"),
        ("report -o -", "profile.json", "trimtab.profile/1", "trimtab.profile/2"),
        ("advise --others 0 --from", "profile.json", "trimtab.profile/1", "trimtab.profile/2"),
        ("check", "plan.json", "trimtab.plan/2", "trimtab.plan/3"),
    ] {
        let known = text(&written(name));
        assert!(known.contains(now), "{name}");
        let file = sandbox.write(name, known.replace(now, later));
        let said = sandbox.trimtab(command).arg(&file).ends();
        assert!(said.code != Some(0) && said.stdout.is_empty(), "{command}: {said}");
        let version = later.rsplit(['/', ':']).next().unwrap();
        assert!(said.stderr.contains(version) && said.stderr.contains("reads"), "{command}: {said}");
    }
}
