//! What the library shows to the loader.

mod common;

use std::process::Command;

#[test]
fn exactly_the_intended_symbols_are_exported() {
    let Ok(output) = Command::new("nm").args(["-D", "--defined-only"]).arg(common::library()).output() else {
        return common::skip("nm is not installed");
    };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut symbols: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().last()).collect();
    symbols.sort_unstable();
    assert_eq!(symbols, ["get_nprocs", "get_nprocs_conf", "pthread_create", "sysconf"]);
}

#[test]
fn the_library_is_never_unloaded() {
    let Ok(output) = Command::new("readelf").arg("-d").arg(common::library()).output() else {
        return common::skip("readelf is not installed");
    };
    assert!(String::from_utf8(output.stdout).unwrap().contains("NODELETE"));
}
