//! One run: the program, its competitor, and counters that are on during exactly its windows.
//!
//! The program names its threads, and sleeps until a line of input opens a window. Counters can
//! therefore be opened and switched on before a window, and switched off and read after it, while
//! all threads still live. Each group of counters has a window of its own, because groups that run
//! together would have to share the hardware. If the hardware counts nothing, the location of the
//! memory is read after the first window, provided that it can be far.

use super::super::harness::talk::Talk;
use super::matrix::Setup;
use anyhow::{Context, Result};
use rustix::io::Errno;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_core::counts::{Counts, Rung};
use trimtab_core::ids::{OsCpu, OsNode};
use trimtab_core::index_validation::{Reading, together};
use trimtab_core::time::Span;
use trimtab_front::interrupt::Interrupt;
use trimtab_linux::perf::locality::{self, Pages};
use trimtab_linux::perf::{Group, Recipe, Standing};
use trimtab_linux::process::{Pid, Tid};

/// A terminal's Ctrl-C reaches the program and trimtab together; trimtab has certainly noticed it
/// after this time.
const INTERRUPT_DELAY_MAX: Duration = Duration::from_millis(200);
/// Time for the kernel and the caches to adapt to a competitor.
const SETTLE_TIME: Duration = Duration::from_millis(20);

/// Result of running a variant.
#[derive(Debug)]
pub(super) enum WindowRun {
    Well(WindowMeasurement),
    /// The error in one line, and the program's standard error.
    Badly {
        error: String,
        stderr: String,
    },
    /// A signal to stop arrived.
    Stopped,
}

/// Measurement of the windows of a run.
#[derive(Debug)]
pub(super) struct WindowMeasurement {
    pub(super) reading: Reading,
    /// Reports of the program, one for each window.
    pub(super) reports: Vec<Value>,
    /// Why threads were not counted; `None` if they were.
    pub(super) uncounted: Option<Errno>,
}

/// Measurement of windows on this machine.
#[derive(Debug)]
pub(super) struct Window {
    seconds: f64,
    /// Reader of memory locations, if these are all that can be counted here.
    memory: Option<MemoryReader>,
}

/// Reader of the locations of a process's memory.
#[derive(Debug)]
struct MemoryReader {
    proc: PathBuf,
    nodes: BTreeMap<OsCpu, OsNode>,
    faults: bool,
}

impl Window {
    /// Creates a window of this length, with the counters that work here.
    pub(super) fn new(seconds: f64, standing: &Standing, proc: &Path, sys: &Path) -> Self {
        let by_memory = matches!(standing.rung, Rung::HintFaults | Rung::Residency);
        let memory = by_memory.then(|| MemoryReader {
            proc: proc.to_owned(),
            nodes: locality::nodes_of_cpus(sys),
            faults: standing.rung == Rung::HintFaults,
        });
        Self { seconds, memory }
    }

    /// Runs one variant of a case.
    pub(super) fn run(
        &self,
        setup: &Setup,
        folder: &Path,
        standing: &Standing,
        interrupt: &Interrupt,
    ) -> WindowRun {
        let groups = standing.groups.as_slice();
        let windows = groups.len().max(1);
        let mut talk = match Talk::start(&setup.command(folder, self.seconds, windows)) {
            Ok(talk) => talk,
            Err(error) => return WindowRun::Badly { error: format!("{error:#}"), stderr: String::new() },
        };
        interrupt.runs(talk.child());
        let measured = rival(setup, folder).and_then(|rival| {
            let measured = self.windows_of(&mut talk, setup, windows, groups);
            drop(rival);
            measured
        });
        let ended = match measured {
            Ok(measured) => talk.end().map(|()| measured).map_err(|error| (error, String::new())),
            Err(error) => Err((error, talk.stop())),
        };
        interrupt.ended();
        match ended {
            Ok(measured) => WindowRun::Well(measured),
            Err(_) if interrupt.came().is_some() || interrupt.comes_within(INTERRUPT_DELAY_MAX) => {
                WindowRun::Stopped
            }
            Err((error, stderr)) => WindowRun::Badly { error: format!("{error:#}"), stderr },
        }
    }

    fn windows_of(
        &self,
        talk: &mut Talk,
        setup: &Setup,
        windows: usize,
        groups: &[Recipe],
    ) -> Result<WindowMeasurement> {
        let threads = talk.threads()?;
        let mut counts = Vec::new();
        let mut reports = Vec::new();
        let mut uncounted = None;
        for window in 0..windows {
            let group = groups.get(window);
            let counters = group.map(|recipe| CounterGroups::open(recipe, &threads));
            let counters = match counters.transpose() {
                Ok(counters) => counters,
                Err(errno) => {
                    uncounted = Some(errno);
                    None
                }
            };
            talk.open()?;
            reports.push(talk.report()?);
            match counters.map(CounterGroups::read).transpose() {
                Ok(counted) => counts.extend(counted.flatten()),
                Err(errno) => uncounted = Some(errno),
            }
        }
        // Time and the most important indices are from the same window, the first. The other
        // windows count the events that did not fit into it.
        let first = reports.first().context("it has no window")?;
        let seconds = |name: &str| first[name].as_f64();
        // A spinning thread uses the same CPU time however long the other threads take.
        let spent = match setup.barriers {
            None => seconds("cpu_seconds"),
            Some(_) => seconds("seconds").map(|seconds| seconds * setup.cpus.len() as f64),
        };
        let accesses = first["steps"].as_u64().zip(first["adds"].as_u64()).map(|(steps, adds)| steps + adds);
        let ran = Span((1e9 * spent.unwrap_or(0.0)) as u64);
        if let Some(memory) = &self.memory {
            counts.extend(memory.counts(talk.pid(), &threads, &setup.cpus, ran));
        }
        let reading = accesses
            .zip(spent)
            .and_then(|(accesses, seconds)| Reading::of(accesses, seconds, counts))
            .context("its report lacks steps, adds or cpu_seconds")?;
        Ok(WindowMeasurement { reading, reports, uncounted })
    }
}

impl MemoryReader {
    /// Returns the pages near the threads of a process and far from them: the pages that the
    /// threads accessed if the kernel records it, else all resident pages.
    fn counts(&self, pid: Pid, threads: &[Tid], cpus: &[OsCpu], ran: Span) -> Option<Counts> {
        let fetched = |tid: &Tid| {
            let pages = self.faults.then(|| locality::faults(&self.proc, pid, *tid).ok()).flatten();
            pages.filter(|pages| !pages.is_empty())
        };
        let by_thread: Option<Vec<Pages>> = threads.iter().map(fetched).collect();
        let by_thread = by_thread.or_else(|| {
            let there = locality::resident(&self.proc, pid, 0).ok().filter(|pages| !pages.is_empty())?;
            Some(vec![there; threads.len()])
        })?;
        near_and_far(&by_thread, cpus, &self.nodes).map(|(near, far)| Counts {
            enabled: ran,
            running: ran,
            near: Some(near),
            far: Some(far),
            ..Counts::default()
        })
    }
}

/// Sums pages of threads, each as seen from the node of its CPU; `None` if a CPU's node is unknown.
fn near_and_far(pages: &[Pages], cpus: &[OsCpu], nodes: &BTreeMap<OsCpu, OsNode>) -> Option<(u64, u64)> {
    let mut both = (0_u64, 0_u64);
    for (pages, cpu) in pages.iter().zip(cpus) {
        let (near, far) = locality::split(pages, *nodes.get(cpu)?);
        both = (both.0.saturating_add(near), both.1.saturating_add(far));
    }
    Some(both)
}

/// Starts the competitor, if there is one, and waits until it runs.
fn rival(setup: &Setup, folder: &Path) -> Result<Option<Talk>> {
    let Some(rival) = &setup.rival else { return Ok(None) };
    let mut talk = Talk::start(&rival.command(folder))?;
    talk.threads().context("the competitor")?;
    std::thread::sleep(SETTLE_TIME);
    Ok(Some(talk))
}

/// One group of counters for each thread, switched on.
struct CounterGroups<'a> {
    recipe: &'a Recipe,
    groups: Vec<Group>,
}

impl<'a> CounterGroups<'a> {
    fn open(recipe: &'a Recipe, threads: &[Tid]) -> Result<Self, Errno> {
        let groups: Result<Vec<Group>, Errno> =
            threads.iter().map(|tid| Group::open(recipe, Some(*tid))).collect();
        let groups = groups?;
        groups.iter().try_for_each(Group::on)?;
        Ok(Self { recipe, groups })
    }

    /// Switches the counters off, and returns the sum over all threads; `None` if a thread was
    /// never counted.
    fn read(self) -> Result<Option<Counts>, Errno> {
        self.groups.iter().try_for_each(Group::off)?;
        let read: Result<Vec<Option<Counts>>, Errno> =
            self.groups.iter().map(|group| group.read(self.recipe)).collect();
        Ok(together(read?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_memory_depends_on_the_place_of_each_thread() {
        let nodes = BTreeMap::from([(OsCpu(0), OsNode(0)), (OsCpu(1), OsNode(1))]);
        let pages = |on_0, on_1| Pages::from([(OsNode(0), on_0), (OsNode(1), on_1)]);
        let of = |pages: &[Pages], cpus: &[u32]| {
            near_and_far(pages, &cpus.iter().map(|cpu| OsCpu(*cpu)).collect::<Vec<_>>(), &nodes)
        };
        assert_eq!(of(&[pages(30, 10)], &[0]), Some((30, 10)));
        assert_eq!(of(&[pages(30, 10)], &[1]), Some((10, 30)));
        assert_eq!(of(&[pages(30, 10), pages(0, 5)], &[0, 1]), Some((35, 10)));
        assert_eq!(of(&[pages(30, 10)], &[7]), None, "nobody knows where that CPU is");
    }
}
