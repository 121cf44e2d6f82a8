//! Sources of the workspace: crates, modules, and their text without comments, literals and tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns the crates, by the names of their folders.
pub(crate) fn crates() -> Vec<String> {
    let entries = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().join("Cargo.toml").exists())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(names.len() >= 8, "{names:?}");
    names
}

/// Returns the rows of the first table below a heading of ARCHITECTURE.md, without its head.
pub(crate) fn table(heading: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let below =
        text.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}")).1;
    let section = below.split("\n## ").next().unwrap();
    let rows =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let line = line.trim().trim_matches('|');
        line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = rows.skip(2).map(cells).collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

/// Returns the words between backticks of a cell.
pub(crate) fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns the modules of a crate that are files, by their paths (the crate's root is empty), with
/// their code. Tests are left out.
pub(crate) fn modules(krate: &str) -> BTreeMap<Vec<String>, String> {
    modules_with(krate, code)
}

/// Returns the same modules with what `read` takes from their text.
pub(crate) fn modules_with(krate: &str, read: fn(&str) -> String) -> BTreeMap<Vec<String>, String> {
    let root = root().join("crates").join(krate).join("src");
    let mut files = Vec::new();
    list(&root, &mut files);
    files.sort();
    let mut modules = BTreeMap::new();
    for file in files {
        let path = file.strip_prefix(&root).unwrap().with_extension("");
        let mut path: Vec<String> = path.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        if matches!(path.last().map(String::as_str), Some("mod" | "lib" | "main")) {
            path.pop();
        }
        let is_test = |part: &String| part == "tests" || part.ends_with("_tests");
        if !path.iter().any(is_test) {
            let text = read(&fs::read_to_string(&file).unwrap());
            modules.entry(path).or_insert_with(String::new).push_str(&text);
        }
    }
    modules
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Returns the code of a file: no comments, no literals, no test modules.
pub(crate) fn code(text: &str) -> String {
    let text = without_literals(text);
    match test_module(&text) {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

/// Returns the lines of a file that are neither comments nor tests, with their literals.
pub(crate) fn without_comments_and_tests(text: &str) -> String {
    let text = &text[..test_module(text).unwrap_or(text.len())];
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(|line| line.to_owned() + "\n")
        .collect()
}

/// Returns the start of the test module, which is the last item of its file.
fn test_module(text: &str) -> Option<usize> {
    text.match_indices("#[cfg(").map(|(at, _)| at).find(|at| {
        let item = &text[*at..];
        let (condition, rest) = item.split_once(']').unwrap_or((item, ""));
        let mut rest = rest.trim_start();
        while let Some(attribute) = rest.strip_prefix("#[") {
            rest = attribute.split_once(']').map_or("", |(_, rest)| rest).trim_start();
        }
        let line = rest.lines().next().unwrap_or("");
        condition.contains("test") && line.contains("mod ") && line.ends_with('{')
    })
}

fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (String::new(), 0);
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest).filter(|_| !is_word(bytes, at)) {
            length
        } else if rest.starts_with('"') {
            string(rest)
        } else if rest.starts_with('\'') {
            character(rest)
        } else {
            0
        };
        if skipped > 0 {
            // A literal leaves a blank; a comment leaves only the end of its line.
            out.push(' ');
            at += skipped;
        } else {
            let next = rest.chars().next().unwrap();
            out.push(next);
            at += next.len_utf8();
        }
    }
    out
}

/// Returns whether a word continues here.
fn is_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_')
}

fn raw_string(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('r').or_else(|| rest.strip_prefix("br"))?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    let body = inner[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = body.find(&end)? + end.len();
    Some(rest.len() - body.len() + length)
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, next) in rest.char_indices().skip(1) {
        match next {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut inner = rest[1..].char_indices();
    match inner.next() {
        Some((_, '\\')) => rest[2..]
            .find('\'')
            .map_or(0, |end| end + 3)
            .max(if rest[1..].starts_with("\\'") { 4 } else { 0 }),
        Some((_, _)) => match inner.next() {
            Some((at, '\'')) => at + 2,
            _ => 0,
        },
        None => 0,
    }
}

#[test]
fn code_excludes_comments_literals_and_tests() {
    let text = r##"
use a::b; // crate::no
/* unsafe */ let s = "unsafe { \" }"; let c = '"'; let q = '\''; fn f<'a>(x: &'a str) {}
let r = r#"unsafe "quoted" "#;
#[cfg(test)]
mod tests {
    unsafe {}
}
"##;
    let code = code(text);
    assert!(
        !code.contains("unsafe") && !code.contains("no") && code.contains("fn f<'a>(x: &'a str)"),
        "{code}"
    );
}
