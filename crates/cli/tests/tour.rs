//! Test that the guide's tour shows real output: its examples that do not depend on the machine are
//! run and compared.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "all of it is test")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the examples of the tour: a command after `    $ `, and the lines below it with the same
/// indentation.
fn examples(text: &str) -> Vec<(String, String)> {
    let mut examples: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in text.lines() {
        match line.strip_prefix("    ") {
            Some(inner) if inner.starts_with("$ ") => {
                examples.push((inner[2..].to_owned(), String::new()));
                open = true;
            }
            Some(inner) if open => {
                let (_, output) = examples.last_mut().unwrap();
                output.push_str(inner.trim_end());
                output.push('\n');
            }
            None if line.is_empty() && open => {
                let (_, output) = examples.last_mut().unwrap();
                output.push('\n'); // perhaps a blank line of the output
            }
            _ => open = false,
        }
    }
    examples
}

fn topologies() -> PathBuf {
    std::env::var_os("TRIMTAB_TOPOLOGIES").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/topologies"),
        PathBuf::from,
    )
}

#[test]
fn the_tours_examples_are_what_trimtab_prints() {
    let folder = tempfile::tempdir().unwrap();
    let mut compared = 0;
    for (line, shown) in examples(include_str!("../../../docs/tour.md")) {
        if !line.contains("--machine") {
            continue; // depends on the reader's machine
        }
        let needs_file = line.contains(".xml");
        if needs_file && !topologies().is_dir() {
            eprintln!("SKIPPED: no captured machines in {} for: {line}", topologies().display());
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(if needs_file { topologies() } else { folder.path().to_owned() })
            .env(
                "PATH",
                format!(
                    "{}:{}",
                    Path::new(env!("CARGO_BIN_EXE_trimtab")).parent().unwrap().display(),
                    std::env::var("PATH").unwrap()
                ),
            )
            .env("TRIMTAB_CONFIG", folder.path())
            .output()
            .unwrap();
        let printed: String = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        assert_eq!(
            shown.trim_end(),
            printed.trim_end(),
            "tour: {line}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        compared += 1;
    }
    assert!(compared >= 3, "only {compared} examples were found in the tour");
}
