//! Programs that say where their memory is.

use crate::shape::Cpus;
use crate::util::{Call, built, c, cpus, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How many pages a program touches.
pub(crate) const PAGES: u32 = 240;

/// What a program saw of itself.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) mask: Cpus,
    /// `bind`, and the nodes it is over.
    pub(crate) policy: (String, BTreeSet<u32>),
    /// How many of its pages came from which node.
    pub(crate) pages: BTreeMap<u32, u32>,
}

impl Seen {
    /// The nodes its pages came from.
    pub(crate) fn nodes(&self) -> BTreeSet<u32> {
        self.pages.keys().copied().collect()
    }
}

/// The program that says it.
pub(crate) fn program() -> Option<PathBuf> {
    let program = c("pages.c");
    if program.is_none() {
        skip("no C compiler");
    }
    program
}

/// Runs it.
#[track_caller]
pub(crate) fn seen(call: Call<'_>) -> Option<Seen> {
    Some(parse(&call.arg(program()?).arg(PAGES.to_string()).ends().ok()))
}

#[track_caller]
pub(crate) fn parse(said: &str) -> Seen {
    let line = |name: &str| {
        let found = said.lines().find_map(|line| line.strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name} is missing: {said}")).trim()
    };
    let (policy, nodes) = line("policy").split_once(' ').unwrap_or((line("policy"), ""));
    Seen {
        mask: cpus(line("mask")),
        policy: (policy.to_owned(), nodes.split_whitespace().map(|node| node.parse().unwrap()).collect()),
        pages: line("pages").split_whitespace().map(page).collect(),
    }
}

/// `N0=12`
fn page(word: &str) -> (u32, u32) {
    let (node, count) = word.trim_start_matches('N').split_once('=').unwrap_or_else(|| panic!("{word}"));
    (node.parse().unwrap(), count.parse().unwrap())
}

/// A thread of an OpenMP program.
#[derive(Clone, Debug)]
pub(crate) struct Thread {
    pub(crate) outer: usize,
    pub(crate) inner: usize,
    pub(crate) mask: Cpus,
    pub(crate) cpu: u32,
    /// The nodes that the pages came from which it touched.
    pub(crate) nodes: BTreeSet<u32>,
}

/// The program of nested OpenMP teams.
pub(crate) fn teams(compiler: &str) -> Option<PathBuf> {
    let program = built(compiler, "team_pages.c", &["-O1", "-fopenmp"]);
    if program.is_none() {
        skip(&format!("no {compiler} with OpenMP"));
    }
    program
}

/// The threads of one OpenMP team of so many.
#[track_caller]
pub(crate) fn threads(call: Call<'_>, count: usize) -> Option<Vec<Thread>> {
    Some(threads_of(&teams("gcc")?, call, count, 1))
}

/// The threads of so many teams of so many, in the order of their paths.
#[track_caller]
pub(crate) fn threads_of(teams: &Path, call: Call<'_>, outer: usize, inner: usize) -> Vec<Thread> {
    let said = call.arg(teams).args([outer.to_string(), inner.to_string()]).ends().ok();
    let mut threads: Vec<Thread> = said.lines().map(thread).collect();
    threads.sort_by_key(|thread| (thread.outer, thread.inner));
    let paths: Vec<_> = threads.iter().map(|thread| (thread.outer, thread.inner)).collect();
    let wanted: Vec<_> = (0..outer).flat_map(|at| (0..inner).map(move |below| (at, below))).collect();
    assert_eq!(paths, wanted, "{said}");
    threads
}

/// `thread 0.1 mask 2-3 cpu 2 pages N0=16`
fn thread(line: &str) -> Thread {
    let words: Vec<&str> = line.split(' ').collect();
    let ["thread", path, "mask", mask, "cpu", cpu, "pages", pages @ ..] = words.as_slice() else {
        panic!("{line}")
    };
    let (outer, inner) = path.split_once('.').unwrap();
    Thread {
        outer: outer.parse().unwrap(),
        inner: inner.parse().unwrap(),
        mask: cpus(mask),
        cpu: cpu.parse().unwrap(),
        nodes: pages.iter().map(|word| page(word).0).collect(),
    }
}

/// Guests find the programs built: compiling is slow where the processor is emulated.
#[test]
fn programs_are_built_before_guests_boot() {
    let teams = ["gcc", "clang"].map(teams);
    let others = ["pthreads.c", "elsewhere.c", "follows.c", "astray.c"].map(c);
    for made in [program()].into_iter().chain(teams).chain(others) {
        given!(made);
    }
}
