//! Tests of scenarios that once broke an invariant, shrunk by the swarm: each is a file whose first
//! lines describe the fault.

#![expect(clippy::disallowed_methods, reason = "the simulator does no I/O; this test reads files for it")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trimtab_sim::checkers::check;
use trimtab_sim::scenario::file::File;

#[test]
fn scenarios_that_once_broke_an_invariant_hold_it_now() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/seeds/files");
    let files: BTreeSet<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 3);
    for path in files {
        let (name, text) = (path.display().to_string(), fs::read_to_string(&path).unwrap());
        assert!(text.starts_with("# "), "{name} says what the fault was");
        let file = File::open(&name, &text, &[], &mut |_| Err("no machine files here".to_owned())).unwrap();
        for run in 0..file.len() {
            let (_, violations) = check(&file.scenario(run).unwrap());
            assert_eq!(violations, [], "{name}");
        }
    }
}
