//! Recipes of CONTRIBUTING.md: the files and types that they name exist.

use super::source::{crates, modules, root};
use std::collections::BTreeSet;
use std::fs;

/// Names of types that no source of this workspace defines.
const FOREIGN: [&str; 2] = ["Display", "FromStr"];

/// Returns the words between backticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    // Blocks of code are lines that begin with four blanks here, and have no backticks.
    text.split('`').skip(1).step_by(2).filter(|word| !word.contains(char::is_whitespace)).collect()
}

fn recipes() -> String {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    text.split_once("\n## Adding\n").unwrap().1.split("\n## ").next().unwrap().to_owned()
}

#[test]
fn files_that_recipes_name_exist() {
    let text = recipes();
    let top: BTreeSet<String> = fs::read_dir(root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let begins = |path: &str| path.split_once('/').is_some_and(|(first, _)| top.contains(first));
    let paths: Vec<&str> = quoted(&text).into_iter().filter(|path| begins(path)).collect();
    assert!(paths.len() > 30, "{paths:?}");
    for path in paths.iter().filter(|path| !path.contains("NAME") && !path.starts_with("target/")) {
        assert!(root().join(path).exists(), "{path} is not there any more");
    }
}

#[test]
fn types_that_recipes_name_are_defined() {
    let text = recipes();
    let is_type = |word: &&str| {
        word.starts_with(char::is_uppercase)
            && word.contains(char::is_lowercase)
            && word.chars().all(char::is_alphanumeric)
    };
    let mut names: BTreeSet<&str> = quoted(&text).into_iter().filter(is_type).collect();
    names.retain(|name| !FOREIGN.contains(name));
    assert!(names.len() > 10, "{names:?}");
    let codes: Vec<String> = crates().iter().flat_map(|krate| modules(krate).into_values()).collect();
    for name in names {
        let defined = ["struct", "enum", "trait", "type"].iter().any(|kind| {
            let declaration = format!("{kind} {name}");
            let ends = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
            codes.iter().any(|code| {
                code.match_indices(&declaration).any(|(at, _)| ends(&code[at + declaration.len()..]))
            })
        });
        assert!(defined, "no type is called {name}");
    }
}
