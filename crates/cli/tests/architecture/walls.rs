//! Walls between crates, and names that must not be used behind them.

use super::source::{crates, modules, modules_with, quoted, root, table, without_comments_and_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Names that read a clock, a file, the environment or the network, start a thread, or keep mutable
/// global state. Atomic types of any width are found by [`is_atomic`]. Not among these: a constant
/// that is parsed once (`LazyLock`), and cells, of which no global can be made.
const IMPURE: [&str; 25] = [
    "std::env",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::thread",
    "Instant",
    "SystemTime",
    "stdin",
    "stdout",
    "stderr",
    "println",
    "eprintln",
    "static mut",
    "thread_local",
    "OnceLock",
    "OnceCell",
    "Once",
    "Mutex",
    "RwLock",
    "Condvar",
    "mpsc",
    "rustix",
    "libc",
    "unsafe",
];
/// Modules of std among those.
const IMPURE_MODULES: [&str; 6] = ["env", "fs", "net", "os", "process", "thread"];
/// Collections with an order that differs between runs.
const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];

/// Returns the crates that ARCHITECTURE.md allows each crate to use, and its properties.
fn said() -> BTreeMap<String, (BTreeSet<String>, String)> {
    let rows = table("The crates").into_iter();
    rows.map(|row| (quoted(&row[0]).join(""), (quoted(&row[2]).into_iter().collect(), row[3].clone())))
        .collect()
}

/// Returns the crates of the workspace that a crate's manifest names, except for its tests.
fn dependencies(krate: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("crates").join(krate).join("Cargo.toml")).unwrap();
    let manifest: toml::Table = text.parse().unwrap();
    let mut found = BTreeSet::new();
    let mut add = |table: Option<&toml::Value>| {
        for name in table.and_then(toml::Value::as_table).into_iter().flat_map(|table| table.keys()) {
            found.insert(name.clone());
        }
    };
    add(manifest.get("dependencies"));
    add(manifest.get("build-dependencies"));
    for target in
        manifest.get("target").and_then(toml::Value::as_table).into_iter().flat_map(|all| all.values())
    {
        add(target.get("dependencies"));
    }
    found
}

#[test]
fn crates_use_those_that_the_page_says_and_no_circle() {
    let said = said();
    assert_eq!(said.keys().cloned().collect::<Vec<_>>(), crates(), "the table names each crate");
    for (krate, (uses, _)) in &said {
        let own = dependencies(krate).into_iter().filter_map(|name| match name.as_str() {
            "trimtab" => Some("cli".to_owned()),
            name => Some(name.strip_prefix("trimtab-")?.to_owned()),
        });
        assert_eq!(&own.collect::<BTreeSet<_>>(), uses, "what {krate} uses");
    }
    // In an order in which each crate uses only earlier ones.
    let mut placed: BTreeSet<&String> = BTreeSet::new();
    while placed.len() < said.len() {
        let next = said.iter().find(|(krate, (uses, _))| {
            !placed.contains(krate) && uses.iter().all(|used| placed.contains(used))
        });
        placed.insert(next.expect("crates use each other in a circle").0);
    }
}

#[test]
fn only_the_helper_links_hwloc() {
    let linking: Vec<String> =
        crates().into_iter().filter(|krate| dependencies(krate).contains("hwlocality")).collect();
    assert_eq!(linking, ["discover"]);
}

#[test]
fn pure_crates_name_no_clock_file_variable_global_or_unsafe_code() {
    let pure: Vec<String> =
        said().into_iter().filter(|(_, (_, what))| what.contains("pure")).map(|(krate, _)| krate).collect();
    assert!(pure.contains(&"core".to_owned()) && pure.contains(&"sim".to_owned()), "{pure:?}");
    let mut found = Vec::new();
    for krate in pure {
        for (module, code) in modules(&krate) {
            let named = impure(&code).into_iter();
            found.extend(named.map(|name| format!("{krate}::{} names {name}", module.join("::"))));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Returns what code names of the things that a pure crate must not name.
fn impure(code: &str) -> Vec<String> {
    // Lists of std's modules are paths like the others.
    let lists = code.split("std::{").skip(1).filter_map(|rest| rest.split(';').next());
    let listed = lists.flat_map(|list| IMPURE_MODULES.into_iter().filter(|name| names(list, name)));
    let mut found: Vec<String> = listed.map(|name| format!("std::{name}")).collect();
    let single = IMPURE.iter().chain(&UNORDERED).filter(|name| names(code, name));
    found.extend(single.map(|name| (*name).to_owned()));
    let words = code.split(|next: char| !next.is_alphanumeric() && next != '_');
    found.extend(words.filter(|word| is_atomic(word)).map(str::to_owned));
    found
}

/// Returns whether a word is an atomic type: `AtomicU32`, `AtomicPtr`.
fn is_atomic(word: &str) -> bool {
    word.strip_prefix("Atomic").is_some_and(|rest| rest.starts_with(char::is_uppercase))
}

#[test]
fn impure_names_are_found_in_lists_and_by_any_width() {
    for (code, name) in [
        ("use std::{fmt, fs};", "std::fs"),
        ("use std::sync::{Arc, Mutex};", "Mutex"),
        ("static N: std::sync::RwLock<u8>;", "RwLock"),
        ("use std::sync::atomic::{AtomicI64, Ordering};", "AtomicI64"),
        ("fn f(at: &AtomicPtr<u8>) {}", "AtomicPtr"),
        ("let now = Instant::now();", "Instant"),
        ("let all: HashMap<u8, u8>;", "HashMap"),
    ] {
        assert_eq!(impure(code), [name], "{code}");
    }
    assert_eq!(impure("use std::sync::Arc; struct Atomic; let instant = RefCell::new(1);"), [""; 0]);
}

#[test]
fn unsafe_code_stands_where_the_page_says() {
    let said = said();
    for krate in crates() {
        let whole = said[&krate].1.contains("unsafe");
        for (module, code) in modules(&krate) {
            let system = krate == "linux" && module.first().is_some_and(|first| first == "sys");
            assert!(
                whole && krate != "linux" || system || !names(&code, "unsafe"),
                "{krate}::{} has unsafe code",
                module.join("::")
            );
        }
    }
}

/// Names of the program's own file.
const OWN_FILE: [&str; 2] = ["current_exe", "/proc/self/exe"];

#[test]
fn the_programs_own_file_is_named_only_where_the_page_gives_a_purpose() {
    let mut found = BTreeSet::new();
    for krate in crates() {
        for (module, text) in modules_with(&krate, without_comments_and_tests) {
            if OWN_FILE.iter().any(|name| text.contains(name)) {
                found.insert([vec![krate.clone()], module].concat().join("::"));
            }
        }
    }
    let rows = table("The program's own file");
    let said: BTreeSet<String> = rows.iter().map(|row| quoted(&row[0]).join("")).collect();
    assert_eq!(found, said);
    assert!(rows.iter().all(|row| !row[1].is_empty()));
}

/// Returns whether code contains a name as a whole word.
fn names(code: &str, name: &str) -> bool {
    let is_word = |next: char| next.is_alphanumeric() || next == '_';
    code.match_indices(name)
        .any(|(at, _)| !code[..at].ends_with(is_word) && !code[at + name.len()..].starts_with(is_word))
}
