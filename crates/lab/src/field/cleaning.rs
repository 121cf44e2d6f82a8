//! What a field record may say: listed fields of a benchmark's record, with texts in which names of
//! this machine and its users are replaced.
//!
//! Problem: records of benchmarks have commands, folders and messages of programs, which tell the
//! user's name and the host's; a record that is sent to strangers must not. Idea: a list of the
//! fields that are kept, and every text that is kept loses paths, addresses and known names.

use regex::{Captures, Regex};
use serde_json::{Map, Value};
use std::path::Path;

/// Replacement of a path, an address, and a name.
const PATH: &str = "[path]";
const ADDRESS: &str = "[address]";
const NAME: &str = "[name]";
/// Longest text that is kept, in characters.
const TEXT_CHARS_MAX: usize = 300;
/// Shortest name that is replaced: a shorter one occurs in words by chance, and identifies nothing.
const NAME_CHARS_MIN: usize = 2;
/// Folders of the kernel. Their paths are the same everywhere and are kept.
const KERNEL: [&str; 3] = ["/proc/sys/", "/sys/kernel/", "/sys/devices/system/"];
/// Words with a slash that are no paths.
const WORDS: [&str; 8] = ["GB/s", "MB/s", "MiB/s", "B/s", "M/s", "1/s", "n/a", "I/O"];
/// Before the message of a program that failed, in the message of a benchmark.
const SAID: &str = "; it said";
/// Kept fields that are free text, or lists of it. All others are words and numbers of a fixed
/// vocabulary, which a host's name may be by chance.
const FREE: [&str; 3] = ["error", "left_out", "events"];

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
    /// Known folders, with the rest of a path in them: `None` if there is none.
    folders: Option<Regex>,
    quoted: Regex,
    paths: Regex,
    addresses: Regex,
}

impl Cleaner {
    /// Creates a cleaner that replaces these names, and everything in these folders. Only of known
    /// folders a path is recognised that has blanks.
    ///
    /// # Errors
    /// The patterns are invalid.
    pub(super) fn new(names: &[String], folders: &[&Path]) -> Result<Self, regex::Error> {
        let long = names.iter().filter(|name| name.chars().count() >= NAME_CHARS_MIN);
        let names = any_of(long.map(String::as_str));
        let texts: Vec<String> = folders.iter().map(|folder| folder.to_string_lossy().into_owned()).collect();
        // The root, and an empty name, are part of anything.
        let long = texts.iter().map(|folder| folder.trim_end_matches('/')).filter(|folder| folder.len() > 1);
        // A path ends before ": ", a quote, or the end of the line.
        let folders = any_of(long).map(|any| format!("{any}{}", r#"(?:[^:"'`\n]|:[^\s"'`])*"#));
        Ok(Self {
            names: names.map(|any| Regex::new(&format!("(?i){any}"))).transpose()?,
            folders: folders.map(|pattern| Regex::new(&pattern)).transpose()?,
            quoted: Regex::new(
                r#""(?:~|\.{1,2})?/[^"\n]*"|'(?:~|\.{1,2})?/[^'\n]*'|`(?:~|\.{1,2})?/[^`\n]*`"#,
            )?,
            paths: Regex::new(r#"[^\s"'`=:(,;)\[\]]*/[^\s"'`=:(,;)\[\]]*"#)?,
            addresses: Regex::new(concat!(
                r"(?i)[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
                r"|[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5,}",
                r"|(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6}::(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})?",
                r"|::[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){0,6})(?:(?:\.[0-9]{1,3}){3})?(?:%[0-9a-z_.-]+)?",
                r"|[0-9a-f]{1,4}(?::[0-9a-f]{1,4}){3,7}",
                r"|(?:[0-9]{1,3}\.){3}[0-9]{1,3}",
                r"|enx[0-9a-f]{12}|[0-9a-f]{32,}",
            ))?,
        })
    }

    /// Returns a text without names, such as a version, whose numbers may look like an address.
    pub(super) fn version(&self, text: &str) -> String {
        self.without_names(text).chars().take(TEXT_CHARS_MAX).collect()
    }

    /// Returns a text without paths, addresses and names, and without what a program said.
    pub(super) fn text(&self, text: &str) -> String {
        let text = text.split(SAID).next().unwrap_or_default();
        let text = match &self.folders {
            Some(folders) => folders.replace_all(text, PATH),
            None => text.into(),
        };
        let text = self.quoted.replace_all(&text, |found: &Captures<'_>| {
            let quote = &found[0][..1];
            format!("{quote}{PATH}{quote}")
        });
        let kernel = |found: &str| KERNEL.iter().any(|folder| found.starts_with(folder));
        let text = self.addresses.replace_all(&text, ADDRESS);
        let text = self.paths.replace_all(&text, |found: &Captures<'_>| {
            let found = &found[0];
            let is_path = found.chars().any(char::is_alphanumeric) && !WORDS.contains(&found);
            match found.strip_suffix('.') {
                _ if !is_path || kernel(found) => found.to_owned(),
                Some(_) => format!("{PATH}."),
                None => PATH.to_owned(),
            }
        });
        // It is cut last: half a name is not recognised.
        self.version(&text)
    }

    /// Replaces names that are not part of a longer word. Digits and `_` beside a letter end it.
    fn without_names(&self, text: &str) -> String {
        let Some(names) = &self.names else { return text.to_owned() };
        let joined = |one: Option<char>, other: Option<char>| {
            let pair = one.zip(other);
            pair.is_some_and(|(one, other)| {
                one.is_alphabetic() && other.is_alphabetic() || one.is_numeric() && other.is_numeric()
            })
        };
        let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
        let mut from = 0;
        while let Some(found) = names.find_at(text, from) {
            let (before, after) = (&text[..found.start()], &text[found.end()..]);
            let name = found.as_str();
            let inside = joined(before.chars().next_back(), name.chars().next())
                || joined(name.chars().next_back(), after.chars().next());
            if inside {
                from = found.start() + name.chars().next().map_or(1, char::len_utf8);
                continue;
            }
            clean.push_str(&text[done..found.start()]);
            clean.push_str(NAME);
            (from, done) = (found.end(), found.end());
        }
        clean.push_str(&text[done..]);
        clean
    }

    /// Returns the kept part of a line of a benchmark's record; `None` for a line of unknown kind.
    pub(super) fn line(&self, line: &Value) -> Option<Value> {
        let record = line["record"].as_str()?;
        let (kind, fields) = KEPT.iter().find(|(kind, _)| *kind == record)?;
        let mut kept = Map::new();
        kept.insert("record".to_owned(), Value::from(*kind));
        for field in *fields {
            if let Some(value) = line.get(field) {
                let free = FREE.contains(field);
                kept.insert((*field).to_owned(), self.value(value, free, *field == "events"));
            }
        }
        Some(Value::Object(kept))
    }

    /// Returns a value with its free texts cleaned. `names` says that only names are replaced: an
    /// event of a counter has slashes.
    fn value(&self, value: &Value, free: bool, names: bool) -> Value {
        match value {
            Value::String(text) if names => Value::String(self.version(text)),
            // No word of the vocabulary begins so.
            Value::String(text) if free || text.starts_with(['/', '~', '.']) => {
                Value::String(self.text(text))
            }
            Value::Array(all) => all.iter().map(|value| self.value(value, free, names)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.value(value, free, names))).collect()
            }
            other => other.clone(),
        }
    }
}

/// Returns a pattern for any of these texts, the longest first; `None` for none.
fn any_of<'a>(texts: impl Iterator<Item = &'a str>) -> Option<String> {
    let mut texts: Vec<&str> = texts.collect();
    texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
    let texts: Vec<String> = texts.into_iter().map(regex::escape).collect();
    (!texts.is_empty()).then(|| format!("(?:{})", texts.join("|")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn cleaner() -> Cleaner {
        let names = ["alice", "node-17.example.org", "linux", "x"].map(str::to_owned);
        Cleaner::new(&names, &[Path::new("/srv/Acme Inc, 2: final"), Path::new("/")]).unwrap()
    }

    #[test]
    fn names_paths_and_addresses_are_replaced() {
        for (text, cleaned) in [
            ("cannot start /home/alice/bin/x: no", "cannot start [path]: no"),
            ("(/opt/My_Dir/a.b) and ~/c", "([path]) and [path]"),
            ("in clients/acme/bench, ../x/y; ./z.", "in [path], [path]; [path]."),
            ("no /srv/Acme Inc, 2: final/my file, two: gone", "no [path]: gone"),
            ("no \"/opt/a b/c: d\" and '../my file'", "no \"[path]\" and '[path]'"),
            ("Alice at node-17.example.org", "[name] at [name]"),
            (
                "malice alicex 6.12.1-alice_dev alice2 alice alice",
                "malice alicex 6.12.1-[name]_dev [name]2 [name] [name]",
            ),
            ("aa:bb:cc:dd:ee:ff, 10.1.2.3 and fe80::1:2:3", "[address], [address] and [address]"),
            (
                "fe80::1, ::1, fe80::1%eth0, 2001:db8::, _10.1.2.3_",
                "[address], [address], [address], [address], _[address]_",
            ),
            ("0f3c6f8e-52aa-4c1d-9a44-0123456789ab", "[address]"),
            ("sysctl /proc/sys/kernel/numa_balancing", "sysctl /proc/sys/kernel/numa_balancing"),
            ("6.12.1-generic; GB/s; 1.5 / 2.0", "6.12.1-generic; GB/s; 1.5 / 2.0"),
            ("it failed; it said: segment of customers", "it failed"),
        ] {
            assert_eq!(cleaner().text(text), cleaned);
        }
    }

    #[test]
    fn a_version_keeps_its_numbers() {
        assert_eq!(cleaner().version("6.6.87.2-alice+"), "6.6.87.2-[name]+");
        assert_eq!(cleaner().version("cpu/event=0x3c,umask=0/"), "cpu/event=0x3c,umask=0/");
    }

    #[test]
    fn a_text_is_cut_after_its_names_are_replaced() {
        for blanks in 290..301 {
            let text = format!("{}alice", " ".repeat(blanks));
            let clean = cleaner().text(&text);
            assert!(
                clean.chars().count() <= TEXT_CHARS_MAX && !clean.contains('a') || clean.contains("[na"),
                "{clean}"
            );
        }
    }

    #[test]
    fn lines_keep_listed_fields_only_and_words_as_they_are() {
        let line = json!({
            "schema": "trimtab.bench/1", "record": "run", "case": "placed/far", "way": "linux", "value": 3.5,
            "command": ["/home/alice/x"], "stderr": "alice", "error": "in /home/alice on linux",
            "report": {"tid": 7}, "programs": [{"home": 3}], "program": "/home/alice/x"
        });
        let kept = json!({"record": "run", "case": "placed/far", "way": "linux", "value": 3.5,
            "error": "in [path] on [name]", "program": "[path]"});
        assert_eq!(cleaner().line(&line), Some(kept));
        assert_eq!(cleaner().line(&json!({"record": "secret", "case": 1})), None);
        assert_eq!(cleaner().line(&json!({"case": 1})), None);
    }

    proptest! {
        #[test]
        fn a_name_never_survives(
            before in "[ -~]{0,40}", left in "[^a-z]", right in "[^a-z]", after in "[ -~]{0,400}"
        ) {
            prop_assume!(!left.chars().chain(right.chars()).any(char::is_alphabetic));
            let text = format!("{before}{left}alice{right}{after}");
            let clean = cleaner().text(&text);
            prop_assert!(!clean.contains(&format!("{left}alice{right}")), "{}", clean);
        }

        #[test]
        fn a_path_never_survives(
            start in "(/|~/|\\./|(\\.\\./){1,2}|)",
            folders in prop::collection::vec("[a-zA-Z0-9_.,:-]{0,9}zz[a-z]{1,9}", 1..5),
            file in "zz[a-zA-Z0-9_.-]{1,20}",
            before in "(|[ a-y]{0,9}[ =:'\"(,])",
        ) {
            let clean = cleaner().text(&format!("{before}{start}{}/{file}", folders.join("/")));
            prop_assert!(!clean.contains("zz"), "{}", clean);
        }

        #[test]
        fn a_path_with_blanks_in_a_known_folder_never_survives(
            rest in "(/zz[a-zA-Z0-9_., -]{0,20}){1,4}(:[a-z]{1,9})?", before in "[ a-y]{0,9}[ =:'\"(,]?"
        ) {
            let folder = "/srv/Acme Inc, 2: final";
            let clean = cleaner().text(&format!("{before}{folder}{rest}"));
            prop_assert!(!clean.contains("Acme") && !clean.contains("zz"), "{}", clean);
        }
    }
}
