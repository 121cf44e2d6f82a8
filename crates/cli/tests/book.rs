//! The guide as a book: every page of its contents exists, every page is in the contents, and every
//! link resolves.
//!
//! `mdbook` itself is not needed. Links inside this repository are followed, including headings;
//! links to other sites are not, since tests use no network.

#![allow(clippy::unwrap_used, reason = "all of it is test")]

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns all Markdown files below a folder of the book, except its contents.
fn pages(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|ending| ending == "md") && !path.ends_with("SUMMARY.md") {
            found.insert(path);
        }
    }
    found
}

/// Returns a page without its code (fenced, indented, and between backticks), in which brackets
/// have other meanings.
fn prose(text: &str) -> String {
    let mut kept = String::new();
    let mut fence: Option<&str> = None;
    let mut list = false;
    let mut blank = true;
    for line in text.lines() {
        let begin = line.trim_start();
        let ticks = ["````", "```"].into_iter().find(|ticks| begin.starts_with(ticks));
        if fence.is_some() {
            if ticks == fence {
                fence = None;
            }
        } else if ticks.is_some() {
            fence = ticks;
        } else if !line.starts_with("    ") || list || !blank {
            kept.push_str(line);
            // In a list, indented lines are text.
            list = begin.starts_with("- ")
                || begin.starts_with(|c: char| c.is_ascii_digit())
                || (list && !line.is_empty());
        }
        blank = line.is_empty();
        kept.push('\n');
    }
    Regex::new("`[^`\n]*`").unwrap().replace_all(&kept, "`code`").into_owned()
}

/// Returns the targets of the links and images of a page.
fn links(text: &str) -> Vec<String> {
    let link = Regex::new(r#"\]\(([^()\s]+)\)|(?:src|href)="([^"]+)""#).unwrap();
    let text = prose(text);
    let found = link.captures_iter(&text).filter_map(|found| found.get(1).or_else(|| found.get(2)));
    found.map(|target| target.as_str().to_owned()).collect()
}

/// Returns the names by which headings can be linked to, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let name: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let count = times.entry(name.clone()).or_default();
        found.insert(if *count == 0 { name } else { format!("{name}-{count}") });
        *count += 1;
    }
    found
}

/// Removes `.` and `..`, without access to the file system.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the fault of a link on this page, if it has one.
fn fault(page: &Path, link: &str) -> Option<String> {
    if let Some((scheme, rest)) = link.split_once(':') {
        let known = ["https", "http"].contains(&scheme) && rest.starts_with("//") && rest.len() > 4;
        return (!known).then(|| "neither a page of the web nor a path".to_owned());
    }
    if link.starts_with('/') {
        return Some("an absolute path, which is another one at every reader's".to_owned());
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() { page.to_owned() } else { plain(&page.parent().unwrap().join(path)) };
    if !target.starts_with(root()) {
        return Some("outside of the repository".to_owned());
    }
    if !target.exists() {
        return Some("nothing is there".to_owned());
    }
    let anchor = anchor?;
    let known = fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(anchor));
    (!known).then(|| format!("{} has no heading {anchor}", target.display()))
}

#[test]
fn every_page_is_in_the_contents_once_and_every_chapter_exists() {
    let folder = root().join("docs");
    let summary = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let named: Vec<PathBuf> = links(&summary).into_iter().map(|link| folder.join(link)).collect();
    let set: BTreeSet<PathBuf> = named.iter().cloned().collect();
    assert_eq!(set.len(), named.len(), "a chapter is in docs/SUMMARY.md twice");
    let pages = pages(&folder);
    let missing: Vec<_> = set.difference(&pages).collect();
    assert!(missing.is_empty(), "docs/SUMMARY.md names {missing:?}, which do not exist");
    let left: Vec<_> = pages.difference(&set).collect();
    assert!(left.is_empty(), "{left:?} are not in docs/SUMMARY.md");
}

#[test]
fn every_page_begins_with_one_title() {
    for page in pages(&root().join("docs")) {
        let text = fs::read_to_string(&page).unwrap();
        assert!(text.starts_with("# "), "{} does not begin with its title", page.display());
        let titles = prose(&text).lines().filter(|line| line.starts_with("# ")).count();
        assert_eq!(titles, 1, "{} has {titles} titles", page.display());
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut pages = pages(&root().join("docs"));
    pages.extend(
        [
            "docs/SUMMARY.md",
            "README.md",
            "CONTRIBUTING.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "bench/README.md",
        ]
        .map(|name| root().join(name)),
    );
    let mut followed = 0;
    let mut faults = Vec::new();
    for page in &pages {
        for link in links(&fs::read_to_string(page).unwrap()) {
            followed += 1;
            faults.extend(fault(page, &link).map(|fault| format!("{}: ({link}): {fault}", page.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(followed > 50, "only {followed} links were found");
}

/// Pages name others without a link, too.
#[test]
fn every_page_that_is_named_is_there() {
    let name = Regex::new(r"\b(?:docs|bench|experiments|examples)/[A-Za-z0-9_./-]*\.md\b").unwrap();
    let mut pages = pages(&root().join("docs"));
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)),
    );
    for page in &pages {
        let text = fs::read_to_string(page).unwrap();
        for found in name.find_iter(&text) {
            assert!(root().join(found.as_str()).exists(), "{} names {}", page.display(), found.as_str());
        }
    }
}

/// The checks find the faults that they are made for.
#[test]
fn faults_of_links_are_found() {
    let page = root().join("docs/guide/threads.md");
    for good in [
        "../json.md",
        "#how-threads-wait",
        "../../README.md#three-commands",
        "https://www.example.org/x",
        "../../examples/sim",
    ] {
        assert_eq!(fault(&page, good), None, "{good}");
    }
    for bad in [
        "no.md",
        "#no",
        "/docs/json.md",
        "../../../elsewhere.md",
        "../json.md#no",
        "file:../json.md",
        "https://",
        "mailto:x",
    ] {
        assert!(fault(&page, bad).is_some(), "{bad}");
    }
    let text = "# A `b` c, d!\n## Twice\n## Twice\n```\n# no\n[x](no)\n```\n`[x](no)` [x](y)\n\n    [x](no)\n\n<img src=\"i.png\">\n- [p](q)\n    [r](s)\n";
    assert_eq!(links(text), ["y", "i.png", "q", "s"]);
    assert_eq!(anchors(text), BTreeSet::from(["a-b-c-d", "twice", "twice-1"].map(str::to_owned)));
}

/// The guide's table of thread counts has the rows of the program's table, with the tried versions.
#[test]
fn the_table_of_thread_counts_is_that_of_the_program() {
    let page = fs::read_to_string(root().join("docs/guide/threads.md")).unwrap();
    let rows = trimtab_core::place::THREAD_COUNTS;
    for row in &rows {
        let shown = page.lines().find(|line| line.starts_with(&format!("| `{}` | ", row.name)));
        let shown = shown.unwrap_or_else(|| panic!("no row of {}", row.name));
        let cells: Vec<&str> = shown.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!((cells[1], cells[4]), (row.reader, row.tried), "{shown}");
        assert_eq!(cells[3].starts_with("never"), row.never.is_some(), "{shown}");
    }
}

/// Every command line of trimtab on the page for users of other tools is accepted by the parser.
#[test]
fn lines_for_users_of_other_tools_are_valid() {
    use clap::Parser;
    let page = fs::read_to_string(root().join("docs/coming-from.md")).unwrap();
    let line = Regex::new(r"`[^`]*?(trimtab [a-z][^`]*)`").unwrap();
    let mut parsed = 0;
    for found in line.captures_iter(&page) {
        let words = found[1].replace(" PID", " 1");
        let words: Vec<&str> = words.split(' ').collect();
        trimtab_cli::args::Cli::try_parse_from(&words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        parsed += 1;
    }
    assert!(parsed >= 30, "only {parsed} lines were found");
}

/// Returns the command lines of trimtab on a page: between backticks, and as lines of code. A line
/// of code ends where the shell would end the command. Marks of a synopsis (`...`, `[=VALUE]`) are
/// left out.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let within = Regex::new(r"`(?:[A-Z_]+=\S+ )*(trimtab [a-z][^`]*)`").unwrap();
    let code = Regex::new(r"^ *(?:\$ )?(trimtab [a-z].*)$").unwrap();
    let word = Regex::new(r#"'[^']*'|"[^"]*"|[^\s'"]+(?:'[^']*')?"#).unwrap();
    let ends = ["|", "||", "&", "&&", ">", "2>", "<", "#"];
    let mut lines = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let line_of = if fenced || line.starts_with("    ") { &code } else { &within };
        for found in line_of.captures_iter(line) {
            let command = found[1].split(';').next().unwrap_or_default();
            let words = word.find_iter(command).map(|word| word.as_str());
            let words = words.take_while(|word| !ends.contains(word)).filter(|word| *word != "...");
            let words = words.map(|word| word.split("[=").next().unwrap_or_default());
            lines.push(words.map(|word| word.replace(['\'', '"'], "")).collect());
        }
    }
    lines
}

/// Most lines of the README, which is read in one sitting.
const README_LINES: usize = 130;
/// Most lines of a page of the book. Longer pages are split by task.
const PAGE_LINES: usize = 400;

#[test]
fn no_page_is_too_long_to_be_read_at_once() {
    let lines = |page: &Path| fs::read_to_string(page).unwrap().lines().count();
    let readme = lines(&root().join("README.md"));
    assert!(readme <= README_LINES, "README.md has {readme} lines, and {README_LINES} are the most");
    let pages = pages(&root().join("docs"));
    let long: Vec<String> = pages
        .iter()
        .map(|page| (page, lines(page)))
        .filter(|(_, count)| *count > PAGE_LINES)
        .map(|(page, count)| format!("{}: {count} lines", page.display()))
        .collect();
    assert!(long.is_empty(), "split by task what has more than {PAGE_LINES} lines:\n{}", long.join("\n"));
}

/// Pages name no command and no option that the parser does not know. Values and missing words are
/// not judged: pages have placeholders for them.
#[test]
fn commands_and_options_that_pages_name_exist() {
    use clap::Parser;
    use clap::error::ErrorKind;
    let mut pages = pages(&root().join("docs"));
    pages.extend(["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let (mut parsed, mut faults) = (0, Vec::new());
    for page in &pages {
        for words in command_lines(&fs::read_to_string(page).unwrap()) {
            parsed += 1;
            let Err(error) = trimtab_cli::args::Cli::try_parse_from(&words) else { continue };
            if matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
                let line = error.to_string().lines().next().unwrap_or_default().to_owned();
                faults.push(format!("{}: {}: {line}", page.display(), words.join(" ")));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(parsed > 200, "only {parsed} lines were found");
}

#[test]
fn command_lines_end_where_the_shell_ends_them() {
    let text = "trimtab is a program. Try `trimtab ps`, or `A=1 trimtab top PID`:\n\n\
                \x20   $ trimtab plan --machine 'pack:2 core:4' -c 2  # both\n\
                ```\n$ trimtab report x | less\ntrimtab: a message\n```\n";
    let lines: Vec<String> = command_lines(text).iter().map(|words| words.join("|")).collect();
    assert_eq!(
        lines,
        ["trimtab|ps", "trimtab|top|PID", "trimtab|plan|--machine|pack:2 core:4|-c|2", "trimtab|report|x",]
    );
}
