//! What a field record may say: listed fields of a benchmark's record, with texts in which names of
//! this machine and its users are replaced.
//!
//! Problem: records of benchmarks have commands, folders and messages of programs, which tell the
//! user's name and the host's; a record that is sent to strangers must not. Idea: a list of what is
//! kept, rather than of what is removed, and every text that is kept loses paths, addresses and
//! known names.

use regex::{Captures, Regex};
use serde_json::{Map, Value};

/// Replacement of a path, an address, and a name.
const PATH: &str = "[path]";
const ADDRESS: &str = "[address]";
const NAME: &str = "[name]";
/// Longest text that is kept, in characters.
const TEXT_CHARS_MAX: usize = 300;
/// Shortest name that is replaced: a shorter one occurs in words by chance, and identifies nothing.
const NAME_CHARS_MIN: usize = 2;
/// Folders of the kernel, whose paths are the same everywhere and are kept.
const KERNEL: [&str; 3] = ["/proc/sys/", "/sys/kernel/", "/sys/devices/system/"];

/// Kept fields of a record's lines, by the kind of line. `error` is kept as cleaned text.
const KEPT: [(&str, &[&str]); 5] = [
    (
        "start",
        &[
            "bench",
            "cores",
            "rounds",
            "repeats",
            "quick",
            "seed",
            "rate",
            "rung",
            "events",
            "left_out",
            "numa_balancing",
            "cases",
        ],
    ),
    (
        "run",
        &[
            "program", "outer", "inner", "variant", "round", "others", "cell", "rivals", "ratio", "noise",
            "clean", "case", "way", "reading", "value", "error",
        ],
    ),
    (
        "result",
        &[
            "program",
            "outer",
            "inner",
            "figure",
            "unit",
            "better",
            "unbound",
            "bound",
            "comparison",
            "cell",
            "clean",
            "noisy",
            "estimate",
            "spread",
            "against_kernel",
            "goals",
            "case",
            "ways",
            "time",
            "indices",
            "kind",
            "way",
            "samples",
            "against_linux",
        ],
    ),
    ("worth", &["experiment", "index", "levels", "changes", "signs"]),
    ("end", &["complete", "runs", "failed", "clean", "uncounted", "disturbed"]),
];

/// Cleaner of texts on one machine.
#[derive(Debug)]
pub(super) struct Cleaner {
    /// The machine's own names, and its user's: `None` if there is none.
    names: Option<Regex>,
    paths: Regex,
    addresses: Regex,
}

impl Cleaner {
    /// Creates a cleaner that replaces these names.
    ///
    /// # Errors
    /// The patterns are invalid.
    pub(super) fn new(names: &[String]) -> Result<Self, regex::Error> {
        let long = names.iter().filter(|name| name.chars().count() >= NAME_CHARS_MIN);
        let names: Vec<String> = long.map(|name| regex::escape(name)).collect();
        let pattern = format!(r"(?i)\b(?:{})\b", names.join("|"));
        Ok(Self {
            names: (!names.is_empty()).then(|| Regex::new(&pattern)).transpose()?,
            paths: Regex::new(r#"(^|[\s"'`=:(,;\[])(~?/[^\s"'`,;:)\]]*[^\s"'`,;:.)\]/][^\s"'`,;:)\]]*)"#)?,
            addresses: Regex::new(
                r"(?i)\b(?:[0-9a-f]{2}(?::[0-9a-f]{2}){5,}|(?:[0-9]{1,3}\.){3}[0-9]{1,3}|[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){3,7}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})\b",
            )?,
        })
    }

    /// Returns a text without names, such as a version, whose numbers may look like an address.
    pub(super) fn version(&self, text: &str) -> String {
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        match &self.names {
            Some(names) => names.replace_all(&text, NAME).into_owned(),
            None => text,
        }
    }

    /// Returns a text without paths, addresses and names.
    pub(super) fn text(&self, text: &str) -> String {
        let path = |found: &Captures<'_>| {
            let (before, path) = (&found[1], &found[2]);
            let kept = KERNEL.iter().any(|folder| path.starts_with(folder));
            format!("{before}{}", if kept { path } else { PATH })
        };
        let text: String = text.chars().take(TEXT_CHARS_MAX).collect();
        let text = self.paths.replace_all(&text, path);
        self.version(&self.addresses.replace_all(&text, ADDRESS))
    }

    /// Returns the kept part of a line of a benchmark's record; `None` for a line of unknown kind.
    pub(super) fn line(&self, line: &Value) -> Option<Value> {
        let record = line["record"].as_str()?;
        let (kind, fields) = KEPT.iter().find(|(kind, _)| *kind == record)?;
        let mut kept = Map::new();
        kept.insert("record".to_owned(), Value::from(*kind));
        for field in *fields {
            if let Some(value) = line.get(field) {
                kept.insert((*field).to_owned(), self.value(value));
            }
        }
        Some(Value::Object(kept))
    }

    /// Returns a value with all its texts cleaned.
    fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(all) => all.iter().map(|value| self.value(value)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.value(value))).collect()
            }
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn cleaner() -> Cleaner {
        Cleaner::new(&["alice".to_owned(), "node-17.example.org".to_owned(), "x".to_owned()]).unwrap()
    }

    #[test]
    fn names_paths_and_addresses_are_replaced() {
        for (text, cleaned) in [
            ("cannot start /home/alice/bin/x: no", "cannot start [path]: no"),
            ("(/opt/My_Dir/a.b) and ~/c", "([path]) and [path]"),
            ("Alice at node-17.example.org", "[name] at [name]"),
            ("malice", "malice"),
            ("aa:bb:cc:dd:ee:ff, 10.1.2.3 and fe80::1:2:3", "[address], [address] and [address]"),
            ("0f3c6f8e-52aa-4c1d-9a44-0123456789ab", "[address]"),
            ("sysctl /proc/sys/kernel/numa_balancing", "sysctl /proc/sys/kernel/numa_balancing"),
            ("final-3/sleep/auto", "final-3/sleep/auto"),
            ("6.12.1-generic; GB/s; 1.5 / 2.0", "6.12.1-generic; GB/s; 1.5 / 2.0"),
            ("cycles:u=cpu/event=0x3c,umask=0/", "cycles:u=cpu/event=0x3c,umask=0/"),
        ] {
            assert_eq!(cleaner().text(text), cleaned);
        }
    }

    #[test]
    fn a_version_keeps_its_numbers() {
        assert_eq!(cleaner().version("6.6.87.2-alice+"), "6.6.87.2-[name]+");
    }

    #[test]
    fn lines_keep_listed_fields_only() {
        let line = json!({
            "schema": "trimtab.bench/1", "record": "run", "case": "placed/far", "way": "brm", "value": 3.5,
            "command": ["/home/alice/x"], "stderr": "alice", "error": "in /home/alice", "report": {"tid": 7},
            "programs": [{"home": 3}]
        });
        let kept =
            json!({"record": "run", "case": "placed/far", "way": "brm", "value": 3.5, "error": "in [path]"});
        assert_eq!(cleaner().line(&line), Some(kept));
        assert_eq!(cleaner().line(&json!({"record": "secret", "case": 1})), None);
        assert_eq!(cleaner().line(&json!({"case": 1})), None);
    }

    proptest! {
        #[test]
        fn a_name_never_survives(before in "[ -~]{0,40}", after in "[ -~]{0,40}") {
            let text = format!("{before} alice {after}");
            let cleaned = cleaner().text(&text);
            prop_assert!(!cleaned.contains(" alice "), "{}", cleaned);
        }

        #[test]
        fn a_path_never_survives(path in "/[a-zA-Z0-9_.-]{1,20}(/[a-zA-Z0-9_.-]{1,20}){1,4}", before in "(|[ a-z]{0,9}[ =:'\"(])") {
            let cleaned = cleaner().text(&format!("{before}{path}"));
            let known = KERNEL.iter().any(|folder| path.starts_with(folder));
            let dots = path.chars().all(|letter| letter == '/' || letter == '.');
            prop_assert!(known || dots || cleaned.ends_with(PATH), "{}", cleaned);
        }
    }
}
