//! Programs that report the location of their memory.

use crate::shape::Cpus;
use crate::util::{Call, built, c, cpus, skip};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Number of pages that a program touches.
pub(crate) const PAGES_TOUCHED: u32 = 240;

/// Report of a program about itself.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) mask: Cpus,
    /// The policy, such as `bind`, and its nodes.
    pub(crate) policy: (String, BTreeSet<u32>),
    /// Number of its pages by node.
    pub(crate) pages: BTreeMap<u32, u32>,
}

impl Seen {
    /// Returns the nodes that its pages came from.
    pub(crate) fn nodes(&self) -> BTreeSet<u32> {
        self.pages.keys().copied().collect()
    }
}

/// Returns the program that reports it.
pub(crate) fn program() -> Option<PathBuf> {
    let program = c("pages.c");
    if program.is_none() {
        skip("no C compiler");
    }
    program
}

/// Runs the program.
#[track_caller]
pub(crate) fn seen(call: Call<'_>) -> Option<Seen> {
    Some(parse(&call.arg(program()?).arg(PAGES_TOUCHED.to_string()).ends().ok()))
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
    /// The nodes of the pages that it touched.
    pub(crate) nodes: BTreeSet<u32>,
}

/// Returns the program of nested OpenMP teams.
pub(crate) fn teams(compiler: &str) -> Option<PathBuf> {
    let program = built(compiler, "team_pages.c", &["-O1", "-fopenmp"]);
    if program.is_none() {
        skip(&format!("no {compiler} with OpenMP"));
    }
    program
}

/// Returns the threads of one OpenMP team of `count` threads.
#[track_caller]
pub(crate) fn threads(call: Call<'_>, count: usize) -> Option<Vec<Thread>> {
    Some(threads_of(&teams("gcc")?, call, count, 1))
}

/// Returns the threads of `outer` teams of `inner` threads, in the order of their paths.
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

/// Guests get the programs built: compiling is slow on an emulated processor.
#[test]
fn programs_are_built_before_guests_boot() {
    let teams = ["gcc", "clang"].map(teams);
    let others = ["pthreads.c", "elsewhere.c", "follows.c", "astray.c"].map(c);
    for made in [program()].into_iter().chain(teams).chain(others) {
        given!(made);
    }
}
