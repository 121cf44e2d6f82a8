//! Examples of the libraries' documentation: each crate's front page has one that the tests run.
//! Each entry point of `trimtab-launch` and `trimtab-team` has one, or names the one that shows it.

use crate::source::{crates, root};
use std::fs;

/// Files of `trimtab-team` with what a caller uses. The others are its mechanism.
const TEAM: [&str; 18] = [
    "call.rs",
    "error.rs",
    "membership.rs",
    "publish.rs",
    "rank.rs",
    "rank/calls.rs",
    "rank/pending.rs",
    "reduce/element.rs",
    "reduce/half.rs",
    "reduce/kernel.rs",
    "reduce/kind.rs",
    "segment/meet.rs",
    "shared.rs",
    "team.rs",
    "team/options.rs",
    "tune/explain.rs",
    "tune/mod.rs",
    "tune/store.rs",
];

/// Items of these files that serve the mechanism.
const MECHANISM: [&str; 12] = [
    "Posted",
    "Sealed",
    "bytes",
    "check",
    "describe",
    "is_same_call",
    "is_whole",
    "mismatch",
    "mismatch_of_others",
    "signature",
    "what",
    "wake",
];

/// Returns the public items of a file that have no example and name none.
fn without_example(text: &str) -> Vec<String> {
    let text = text.split("\n#[cfg(test)]\nmod ").next().unwrap();
    let mut docs = String::new();
    let mut found = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if let Some(doc) = line.strip_prefix("///") {
            docs.push_str(doc);
        } else if !line.starts_with("#[") {
            let item = line.strip_prefix("pub ").and_then(name);
            let shown = ["```", "has an example", "have examples", "which has an example"];
            if let Some(item) = item
                && !shown.iter().any(|words| docs.contains(words))
            {
                found.push(item.to_owned());
            }
            docs.clear();
        }
    }
    found
}

/// Returns the name of a function or type from its declaration.
fn name(declaration: &str) -> Option<&str> {
    let mut words = declaration.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '"' && c != '$');
    let kinds = ["fn", "struct", "enum", "trait"];
    let before = ["const", "unsafe", "extern", "\"C\""];
    let kind = words.find(|word| !before.contains(word))?;
    if kinds.contains(&kind) { words.next() } else { None }
}

#[test]
fn every_entry_point_of_launch_and_team_has_an_example_or_names_one() {
    let folder = root().join("crates/launch/src");
    let launch = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let team = TEAM.map(|file| root().join("crates/team/src").join(file));
    let mut files = 0;
    for file in launch.chain(team).filter(|file| file.extension().is_some_and(|end| end == "rs")) {
        let missing = without_example(&fs::read_to_string(&file).unwrap());
        // A macro's name is not known here.
        let missing: Vec<String> = missing
            .into_iter()
            .filter(|item| !MECHANISM.contains(&item.as_str()) && !item.starts_with('$'))
            .collect();
        assert!(missing.is_empty(), "{}: {missing:?} have no example", file.display());
        files += 1;
    }
    assert!(files > TEAM.len() + 15, "{files}");
}

#[test]
fn every_front_page_has_an_example_that_is_run() {
    let mut without = Vec::new();
    for name in crates() {
        let text = fs::read_to_string(root().join("crates").join(&name).join("src/lib.rs")).unwrap();
        // A fence with words, such as `text` or `no_run`, is not run.
        let mut open = false;
        let mut run = false;
        for line in text.lines().filter_map(|line| line.strip_prefix("//! ```")) {
            run |= !open && line.is_empty();
            open = !open;
        }
        if !run {
            without.push(name);
        }
    }
    assert!(without.is_empty(), "{without:?}");
}

/// The check finds what it is made for.
#[test]
fn items_without_examples_are_found() {
    let text = [
        "/// One.\n/// ```\n/// ```\n#[inline]\npub fn one() {}\n",
        "/// Two.\npub unsafe fn two() {}\n",
        "/// Three. [`one`] has an\n/// example.\npub const fn three() {}\n",
        "pub(crate) fn four() {}\npub struct Five;\npub mod six;\n",
    ]
    .concat();
    assert_eq!(without_example(&text), ["two", "Five"]);
}
