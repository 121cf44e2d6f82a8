//! Weight of the tree: long raw records are kept compressed, and functions are short.

use super::source::{crates, root};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Longest file of the tree that is not compressed, in bytes.
const PLAIN_BYTES_MAX: u64 = 200_000;

#[test]
fn long_records_are_kept_compressed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        return crate::skip("this is not a checkout of git: the files of the tree cannot be listed");
    };
    let names = String::from_utf8(listed.stdout).unwrap();
    let mut seen = 0;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that is deleted but not committed is still listed.
        let Ok(about) = root.join(name).metadata() else { continue };
        seen += 1;
        let packed = [".gz", ".png"].iter().any(|end| name.ends_with(end));
        assert!(packed || about.len() <= PLAIN_BYTES_MAX, "{name} has {} bytes: compress it", about.len());
    }
    assert!(seen > 500, "only {seen} files are listed");
}

/// Most lines of code of a function, which clippy counts (`too_many_lines`).
const FUNCTION_LINES_MAX: i64 = 80;

#[test]
fn every_crate_has_the_same_bound_on_the_length_of_functions() {
    // Clippy reads the nearest file of this name only, so that one at the root would not be read.
    let packages = crates().into_iter().map(|krate| root().join("crates").join(krate));
    for package in packages.chain([root().join("python")]) {
        let read = |name: &str| -> toml::Table {
            let text = fs::read_to_string(package.join(name)).unwrap_or_default();
            text.parse().unwrap()
        };
        let bound = read("clippy.toml").get("too-many-lines-threshold").and_then(toml::Value::as_integer);
        assert_eq!(bound, Some(FUNCTION_LINES_MAX), "clippy.toml of {}", package.display());
        let manifest = read("Cargo.toml");
        let lints = &manifest["lints"];
        let on = lints.get("workspace").is_some() || lints["clippy"].get("too_many_lines").is_some();
        assert!(on, "lints of {}", package.display());
    }
}
