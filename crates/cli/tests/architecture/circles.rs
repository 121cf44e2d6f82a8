//! Module circles. Modules of one room (children of one parent, each with everything below it)
//! should be ordered by their use; exceptions are listed in ARCHITECTURE.md with the reason.

use super::source::{crates, modules, quoted, table};
use std::collections::{BTreeMap, BTreeSet};

type Path = Vec<String>;
type Uses = BTreeMap<Path, BTreeSet<Path>>;

#[test]
fn modules_use_each_other_in_no_other_circles_than_those_listed() {
    let listed: BTreeSet<(String, String)> = table("Circles of modules")
        .iter()
        .map(|row| (quoted(&row[0]).join(""), quoted(&row[1]).join(" ")))
        .collect();
    let mut found = BTreeSet::new();
    for krate in crates() {
        for (room, circle) in circles(&modules(&krate)) {
            let room = if room.is_empty() { krate.clone() } else { format!("{krate}::{}", room.join("::")) };
            found.insert((room, circle.join(" ")));
        }
    }
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "break these circles, or list them with their reason: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these are listed in ARCHITECTURE.md and are there no more: {gone:#?}");
}

#[test]
fn a_circle_is_found_across_files_below_its_rooms() {
    let code =
        |path: &[&str], code: &str| (path.iter().map(|part| (*part).to_owned()).collect(), code.to_owned());
    let modules = BTreeMap::from([
        code(&[], "mod a; mod b; mod c;"),
        code(&["a"], "use crate::c::X; mod x;"),
        code(&["a", "x"], "use crate::{b::{self, Y}, c::Z}; use super::W;"),
        code(&["b"], "fn f() { crate::a::x::g() }"),
        code(&["c"], ""),
    ]);
    assert_eq!(circles(&modules), [(vec![], vec!["a".to_owned(), "b".to_owned()])]);
}

/// Returns the circles of each room, by the names of its modules.
fn circles(modules: &BTreeMap<Path, String>) -> Vec<(Path, Vec<String>)> {
    let mut rooms: BTreeMap<Path, Uses> = BTreeMap::new();
    for (from, code) in modules {
        for to in used(from, code, modules) {
            let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
            // A parent and its child are a room and a part of it.
            if shared < from.len() && shared < to.len() {
                let room = rooms.entry(from[..shared].to_vec()).or_default();
                room.entry(from[..=shared].to_vec()).or_default().insert(to[..=shared].to_vec());
            }
        }
    }
    let mut found = Vec::new();
    for (room, uses) in rooms {
        let mut seen: BTreeSet<Path> = BTreeSet::new();
        for module in uses.keys() {
            let circle: Vec<&Path> = uses
                .keys()
                .filter(|other| reaches(&uses, module, other) && reaches(&uses, other, module))
                .collect();
            if circle.len() > 1 && !seen.contains(module) {
                seen.extend(circle.iter().map(|path| (*path).clone()));
                found.push((room.clone(), circle.iter().map(|path| path[room.len()].clone()).collect()));
            }
        }
    }
    found
}

/// Returns whether one module uses another, directly or indirectly.
fn reaches(uses: &Uses, from: &Path, to: &Path) -> bool {
    let (mut open, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = open.pop() {
        for next in uses.get(at).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next) {
                open.push(next);
            }
        }
    }
    false
}

/// Returns the modules that a module's code names.
fn used(from: &Path, code: &str, modules: &BTreeMap<Path, String>) -> BTreeSet<Path> {
    let mut named = Vec::new();
    let mut rest = String::new();
    let mut words = code;
    while let Some(at) = words.find("use ") {
        let is_word = words[..at].ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let end = words[at..].find(';').map_or(words.len(), |end| at + end);
        if is_word || words[at..end].contains(['=', '(']) {
            rest.push_str(&words[..at + 4]);
            words = &words[at + 4..];
            continue;
        }
        rest.push_str(&words[..at]);
        expand("", &words[at + 4..end], &mut named);
        words = &words[end..];
    }
    rest.push_str(words);
    named.extend(inline(&rest));
    named.iter().filter_map(|path| resolve(from, path, modules)).filter(|to| to != from).collect()
}

/// Collects the paths of a use declaration, one for each of its leaves.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((prefix, list)) = tree.split_once('{') else {
        paths.push(format!("{before}{}", tree.split(" as ").next().unwrap_or(tree).trim()));
        return;
    };
    let list = list.trim_end().strip_suffix('}').unwrap_or(list);
    let (mut depth, mut begin) = (0, 0);
    let before = format!("{before}{}", prefix.trim());
    for (at, next) in list.char_indices() {
        match next {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&before, &list[begin..at], paths);
                begin = at + 1;
            }
            _ => {}
        }
    }
    if !list[begin..].trim().is_empty() {
        expand(&before, &list[begin..], paths);
    }
}

/// Returns the paths that begin with `crate`, `super` or `self` in other code.
fn inline(code: &str) -> Vec<String> {
    let is_word = |next: char| next.is_alphanumeric() || next == '_';
    let mut paths = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|last| is_word(last) || last == ':') {
                continue;
            }
            let end = code[at..]
                .find(|next: char| !is_word(next) && next != ':')
                .map_or(code.len(), |end| at + end);
            paths.push(code[at..end].to_owned());
        }
    }
    paths
}

/// Returns the module that a path leads to: the deepest one that is a file.
fn resolve(from: &Path, path: &str, modules: &BTreeMap<Path, String>) -> Option<Path> {
    let mut parts = path.split("::").map(str::trim).peekable();
    let mut at = match parts.peek().copied()? {
        "crate" => {
            parts.next();
            Vec::new()
        }
        "self" => {
            parts.next();
            from.clone()
        }
        "super" => {
            let mut at = from.clone();
            while parts.next_if_eq(&"super").is_some() {
                at.pop()?;
            }
            at
        }
        // A child of this module, or another crate.
        _ => from.clone(),
    };
    let own = at.len();
    for part in parts {
        at.push(part.to_owned());
        if !modules.contains_key(&at) {
            at.pop();
            break;
        }
    }
    let relative = matches!(path.split("::").next().map(str::trim), Some("crate" | "self" | "super"));
    (modules.contains_key(&at) && (relative || at.len() > own)).then_some(at)
}
