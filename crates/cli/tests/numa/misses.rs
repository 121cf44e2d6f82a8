//! Threads that begin far from their memory: their cache misses for memory of their own node and of
//! others, counted by the emulator (`testbed/numacount.c`), which the judged policy cannot read.

use crate::shape::{Cpus, Shape, testbed};
use crate::util::{Running, Sandbox, c, cpus, need, skip};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// Longest wait: an emulated machine is slow, and a trial of one move takes seconds when memory is
/// read twice a second. Shorter than the guest's lifetime, so that a test that times out can still
/// say what it waited for.
const WAIT_MAX: Duration = Duration::from_secs(200);
/// Number of threads that begin on the wrong node.
const STRAY_THREADS: usize = 4;
/// Least misses of a measurement.
const MISSES_MIN: u64 = 1_000_000;

/// Waits for slow events, with rare checks: each check takes the one CPU that all CPUs of the guest
/// share.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < WAIT_MAX, "not within {WAIT_MAX:?}: {what}");
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Returns the file of counts, which exists if the guest was started with it.
fn counted() -> Option<String> {
    let path = std::env::var("TRIMTAB_TESTBED_COUNTS").ok();
    if path.is_none() {
        skip("nobody counts this machine's misses: testbed/guest -n does");
    }
    path
}

/// Misses so far, for memory of the CPU's node and of others.
#[derive(Clone, Default, Debug)]
struct Misses {
    near: u64,
    far: u64,
    /// Misses by the node of the memory.
    on: BTreeMap<u32, u64>,
}

impl Misses {
    fn read(path: &str, shape: &Shape) -> Self {
        let mut misses = Self::default();
        // The file may be missing for a moment while a new one replaces it.
        for line in fs::read_to_string(path).unwrap_or_default().lines() {
            let mut words = line.split(' ').map(|word| word.parse::<u64>().unwrap());
            let home = shape.node_of(u32::try_from(words.next().unwrap()).unwrap());
            for (node, count) in (0..).zip(words) {
                *(if node == home { &mut misses.near } else { &mut misses.far }) += count;
                *misses.on.entry(node).or_insert(0) += count;
            }
        }
        misses
    }

    fn all(&self) -> u64 {
        self.near + self.far
    }

    /// Returns the misses from now on, until there are enough.
    fn next(path: &str, shape: &Shape) -> Self {
        let mut begin = Self::default();
        until("there is a count", || {
            begin = Self::read(path, shape);
            begin.all() > 0
        });
        let mut now = Self::default();
        until("enough misses are counted", || {
            now = Self::read(path, shape);
            now.all() >= begin.all() + MISSES_MIN
        });
        Self { near: now.near - begin.near, far: now.far - begin.far, on: BTreeMap::new() }
    }

    /// Prints the values for the record that `experiments/numa/measure` keeps.
    #[expect(clippy::print_stdout, reason = "a result of the test, shown where it is asked for")]
    fn tell(&self, how: &str) {
        println!("misses: {how}: near {}, far {}", self.near, self.far);
    }

    fn far_share(&self) -> f64 {
        self.far as f64 / self.all() as f64
    }
}

/// Returns a CPU of a node.
pub(crate) fn first(shape: &Shape, node: u32) -> u32 {
    *shape.of_node(node).iter().next().unwrap()
}

/// Returns a thread or process for each of the first nodes, with its memory there and started on
/// the next one.
fn astray(shape: &Shape) -> Vec<String> {
    let homes = shape.homes();
    let nexts = homes.iter().cycle().skip(1);
    homes
        .iter()
        .zip(nexts)
        .take(STRAY_THREADS)
        .map(|(&home, &next)| format!("{}:{}", first(shape, home), first(shape, next)))
        .collect()
}

/// Returns the threads, each with the node of its memory.
fn homes(shape: &Shape, said: &[String]) -> BTreeMap<u32, u32> {
    let pair = |line: &String| {
        let (tid, home) = line.split_once(' ').unwrap();
        (tid.parse().unwrap(), shape.node_of(home.parse().unwrap()))
    };
    said.iter().map(pair).collect()
}

pub(crate) fn mask(tid: u32) -> Cpus {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
    cpus(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap_or_default())
}

/// Returns the CPU on which a thread ran last.
fn runs_on(tid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    // The fields after the name, which may contain any character.
    stat.rsplit(')').next()?.split_whitespace().nth(36)?.parse().ok()
}

/// Returns the node of most of a thread's memory at the address of number `i`, as the kernel
/// reports it.
fn memory_of(tid: u32, i: u64) -> Option<u32> {
    let begin = format!("{:x} ", 0x1000_0000_0000_u64 + (i << 32));
    let maps = fs::read_to_string(format!("/proc/{tid}/numa_maps")).ok()?;
    let line = maps.lines().find(|line| line.starts_with(&begin))?;
    let nodes = line.split(' ').filter_map(|word| {
        let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
        Some((pages.parse::<u64>().ok()?, node.parse::<u32>().ok()?))
    });
    nodes.max().map(|(_, node)| node)
}

fn stop(program: Running<'_>) {
    assert_eq!(program.ends().code, Some(9));
}

#[test]
fn processes_far_from_their_memory_are_moved_to_it_and_miss_it_no_more() {
    let path = given!(counted());
    given!(testbed());
    let shape = given!(Shape::here());
    let program = need!(c("astray.c"), "no C compiler");
    // Otherwise the kernel would move pages and threads by itself.
    fs::write("/proc/sys/kernel/numa_balancing", "0").unwrap();
    let sandbox = Sandbox::new();

    // When the last node's memory is used, the emulator shows which kind of addresses it counts.
    let last = first(&shape, *shape.homes().last().unwrap());
    let mut used = sandbox.shell(&format!("exec {} processes {last}:{last}", program.display())).begins();
    used.lines(1);
    until("the last node's memory was used", || {
        Misses::read(&path, &shape).on.get(&shape.node_of(last)).is_some_and(|count| *count > MISSES_MIN)
    });
    stop(used);

    let mut plain =
        sandbox.shell(&format!("exec {} processes {}", program.display(), astray(&shape).join(" "))).begins();
    plain.lines(STRAY_THREADS);
    let before = Misses::next(&path, &shape);
    stop(plain);
    before.tell("not balanced");
    if before.far_share() < 0.3 {
        // The policy spreads load and ignores memory.
        return skip("the kernel has met the nodes of their memory by chance");
    }

    for candidates in ["auto", "all"] {
        let options = format!(
            "-c {} --mem none --pin mask --balance=brm --candidates {candidates} --budget 50%",
            shape.cpus().len()
        );
        let call = sandbox.run(&options).arg(&program).arg("processes").args(astray(&shape));
        let mut balanced = call.begins();
        let homes = homes(&shape, &balanced.lines(STRAY_THREADS));
        let home = |(tid, node): (&u32, &u32)| {
            let (mask, node) = (mask(*tid), &shape.nodes[node].cpus);
            // A thread that the kernel brought home by chance is not moved, unless all are
            // candidates.
            let by_chance = || runs_on(*tid).is_some_and(|cpu| node.contains(&cpu));
            mask == *node || candidates == "auto" && mask == shape.cpus() && by_chance()
        };
        // A thread may be on a trial elsewhere at this moment.
        let mut after = before.clone();
        until("each is kept on the node of its memory, and uses it from there", || {
            if homes.iter().all(home) {
                after = Misses::next(&path, &shape);
            }
            after.far_share() < 0.1 && homes.iter().all(home)
        });
        for (i, (tid, node)) in (0..).zip(&homes) {
            assert_eq!(memory_of(*tid, i), Some(*node), "memory stays where it is");
        }
        after.tell(&format!("brm, candidates {candidates}"));
        stop(balanced);
    }
}
