//! Figure of bias random migration with 4 to 32 threads on 2 to 8 nodes, beyond the sizes of the
//! study.

use super::draft::{Contestant, Draft, LOAD, scenario};
use super::migration::{HOST_SLEEP, host, observer_cost, published};
use super::{Figure, FigureError, Measure, Metric};
use crate::model::shipped::{NotShipped, SHIPPED};
use crate::model::{Model, file};
use crate::program::mixes::micro;
use crate::program::{Bind, PagePlacement, ProgramSpec, WaitMode, jobs};
use crate::scenario::Scenario;
use trimtab_core::balance::Kind;
use trimtab_core::ids::OsCpu;
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

const RUNS_PER_CELL: u32 = 2;
/// Work of each thread: with waits, about fifteen seconds.
const WALK_WORK: Span = Span::from_ms(1_000);
const SWEEP_WORK: Span = Span::from_ms(6_000);
/// Cores of each node, and threads of each program.
const CORES_PER_NODE: u32 = 8;
const TEAM_THREADS: u32 = 4;
/// Numbers of threads and nodes.
const SIZES: [(u32, u32); 5] = [(4, 2), (8, 2), (16, 4), (16, 8), (32, 8)];

const XEN: Contestant = Contestant { name: "credit", kernel: "xen-4.0", ..LOAD };
const LINUX: Contestant = Contestant { name: "eevdf", kernel: "linux-6.12", ..LOAD };

/// Returns a contestant with a policy.
fn under(of: Contestant, name: &'static str, kind: Kind) -> Contestant {
    Contestant { name, policy: Some(kind), ..of }
}

/// Differences from the machine of the study: twice the cores a node have twice the cache, and
/// controllers and links of twice the width.
const LARGER: [(&str, &str); 5] = [
    ("smt = [1.0, 1.25]", "smt = [1.0]"),
    ("shared = \"12M\"", "shared = \"24M\""),
    ("node_gbs = 19", "node_gbs = 38"),
    ("link_gbs = 9", "link_gbs = 18"),
    ("name = \"westmere-e5620\"", "name = \"westmere-like\""),
];

/// Returns a machine like the study's, of this number of nodes of eight cores each, at equal
/// distances.
fn westmere(nodes: u32) -> Result<Model, FigureError> {
    let shipped = SHIPPED.iter().find(|shipped| shipped.name == "westmere-e5620");
    let text = shipped.ok_or_else(|| NotShipped::Machine("westmere-e5620".to_owned()))?.text;
    let text = text.split("[source]").next().unwrap_or_default();
    let topology = format!("pack:{nodes} numa:1(memory=8GB) l3:1 core:{CORES_PER_NODE} pu:1");
    let text = text.replace("pack:2 numa:1(memory=8GB) l3:1 core:4 pu:2", &topology);
    let text = LARGER.iter().fold(text, |text, (from, to)| text.replace(from, to));
    Ok(file::read("westmere-like.toml", &text).map_err(NotShipped::File)?)
}

/// Returns programs of four threads, list walks and sweeps in turn. The memory of each is on one
/// node, and the nodes follow each other.
fn programs(threads: u32, nodes: u32) -> Result<Vec<ProgramSpec>, FigureError> {
    let milc = jobs::find("milc").ok_or_else(|| FigureError::Key("milc".to_owned()))?;
    let program = |at: u32| {
        let pages = PagePlacement::Node(at % nodes);
        let mut program = if at.is_multiple_of(2) {
            micro(TEAM_THREADS, WALK_WORK, 32 << 20, 128 << 10, 0.03)
        } else {
            ProgramSpec { threads: TEAM_THREADS, wait: WaitMode::Spin, ..milc.program(SWEEP_WORK, pages) }
        };
        program.footprint.pages = pages;
        ProgramSpec { name: format!("{} {at}", program.name), ..program }
    };
    Ok((0..threads / TEAM_THREADS).map(program).collect())
}

/// Regular placements of each program's threads, relative to its memory's node.
const WAYS: [(&str, [u32; TEAM_THREADS as usize]); 4] =
    [("4", [0, 0, 0, 0]), ("3+1", [0, 0, 0, 1]), ("2+2", [0, 0, 1, 1]), ("spread", [0, 1, 2, 3])];

struct ScaleRuns {
    draft: Draft,
    model: Model,
    label: String,
}

impl ScaleRuns {
    fn scenario(&self, of: Contestant, programs: Vec<ProgramSpec>) -> Result<Scenario, FigureError> {
        let mut scenario = scenario(&self.model, of, programs)?;
        scenario.programs.extend(host(&self.model.machine.cpus(), HOST_SLEEP));
        scenario.observer_cost = observer_cost(of);
        published(&mut scenario);
        if let Some((Kind::BrmPaper, settings)) = &mut scenario.policy {
            settings.penalty.bounded = true;
        }
        Ok(scenario)
    }

    fn time(&mut self, of: Contestant, programs: &[ProgramSpec]) -> Result<Measure, FigureError> {
        let scenario = self.scenario(of, programs.to_vec())?;
        Ok(self.draft.cell(&format!("{} {}", self.label, of.name), scenario, Metric::Mean, RUNS_PER_CELL))
    }

    /// Adds the time of the best of the regular placements.
    fn best(&mut self, programs: &[ProgramSpec], nodes: u32) -> Result<Measure, FigureError> {
        let mut times = Vec::new();
        for (way, places) in WAYS {
            let mut bound = programs.to_vec();
            for (at, program) in (0_u32..).zip(&mut bound) {
                let cpus = |place: &u32| -> CpuSet {
                    let node = (at + place) % nodes;
                    (node * CORES_PER_NODE..(node + 1) * CORES_PER_NODE).map(OsCpu).collect()
                };
                program.bind = Bind::List(places.iter().map(cpus).collect());
            }
            let scenario = self.scenario(XEN, bound)?;
            times.push(self.draft.cell(&format!("{} bound {way}", self.label), scenario, Metric::Mean, 1));
        }
        Ok(Measure::Lowest(times))
    }
}

pub(super) fn scale() -> Result<Figure, FigureError> {
    let draft = Draft::new(
        "migration-scale",
        "4 to 32 threads in programs of four on 2 to 8 nodes like those of the Xeon E5620: time over the credit scheduler's",
        "seed 002, overhead: 16 threads are problematic; scalability is future work",
        ["threads / nodes", "time over credit's; overhead in per cent"],
    );
    let mut bench = ScaleRuns { draft, model: westmere(2)?, label: String::new() };
    let policies = [("brm-paper, bounded", Kind::BrmPaper), ("brm", Kind::Brm), ("serial", Kind::Serial)];
    let mut overheads = Vec::new();
    for (threads, nodes) in SIZES {
        bench.model = westmere(nodes)?;
        let x = format!("{threads}/{nodes}");
        bench.label.clone_from(&x);
        let programs = programs(threads, nodes)?;
        let credit = bench.time(XEN, &programs)?;
        let point = |bench: &mut ScaleRuns, name: &str, time: &Measure| {
            bench.draft.point(name, &x, &time.over(&credit));
        };
        let eevdf = bench.time(LINUX, &programs)?;
        point(&mut bench, LINUX.name, &eevdf);
        for (name, kind) in policies {
            let time = bench.time(under(XEN, name, kind), &programs)?;
            point(&mut bench, name, &time);
        }
        let name = "brm on eevdf";
        let time = bench.time(under(LINUX, name, Kind::Brm), &programs)?;
        point(&mut bench, name, &time);
        let best = bench.best(&programs, nodes)?;
        point(&mut bench, "best regular placement", &best);
        for (name, kind) in policies {
            let scenario = bench.scenario(under(XEN, name, kind), programs.clone())?;
            let part = bench.draft.cell(&format!("{x} {name} looks"), scenario.clone(), Metric::Overhead, 1);
            let daemon = bench.draft.cell(&format!("{x} {name} daemon"), scenario, Metric::Daemon, 1);
            overheads.push((format!("{name}, looks of the threads' time"), x.clone(), part));
            if kind != Kind::BrmPaper {
                overheads.push((format!("{name}, looks of one CPU"), x.clone(), daemon));
            }
        }
    }
    for (series, x, measure) in overheads {
        bench.draft.point(series, x, &measure);
    }
    Ok(bench.draft.done(&[
        "Nothing of this was published: the study stopped at eight threads.",
        "Each program's memory lies on one node, program after program; the kernels know nothing of it.",
        "The best regular placement is the best of four: all threads of each program at its memory, three and one, two and two, one a node.",
    ]))
}
