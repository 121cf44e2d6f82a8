//! The kernels as a picture: seconds over ranks, and each kind of team beside threads.
//!
//! Two groups of panels for each kernel, each with a panel by stream and one by resident exchange:
//! the times, and the times of processes and mixed teams beside those of threads, below 1 where
//! they are quicker.

use super::super::chart::class;
use super::super::contest::Contestant;
use super::super::plot::{self, Panel, PanelGroup, PlotLine, PlotPoint};
use super::KernelsFindings;
use super::matrix::KernelsCell;
use super::records::KernelsStart;
use crate::args::{Mode, NasKernel};
use trimtab_front::chart::axis::{Axis, log2};

/// Ratios beyond this, and below its inverse, are at the ends of the axis.
const RATIO_MAX: f64 = 16.0;

/// The whole picture.
pub(super) fn picture(start: &KernelsStart, found: KernelsFindings<'_>) -> String {
    let mut kernels: Vec<NasKernel> = found.cells.iter().map(|cell| cell.kernel).collect();
    kernels.dedup();
    let mut modes: Vec<Mode> = found.cells.iter().map(|cell| cell.mode).collect();
    modes.sort();
    modes.dedup();
    let contestants: Vec<(String, String)> = found
        .contestants
        .iter()
        .enumerate()
        .map(|(at, contestant)| (class(at, contestant), contestant.to_string()))
        .collect();
    let times = |&kernel: &NasKernel| {
        let panel = |mode: &Mode| {
            panel(found, kernel, *mode, |cell, contestant| found.of(cell, contestant)?.median())
        };
        let panels: Vec<Panel> = modes.iter().map(panel).collect();
        let axis = Axis::powers(PanelGroup::values(&panels));
        PanelGroup { title: kernel.word().to_owned(), of: "seconds", over: "ranks", axis, panels }
    };
    let beside = |&kernel: &NasKernel| {
        let panel = |mode: &Mode| {
            panel(found, kernel, *mode, |cell, contestant| {
                Some(found.beside_threads(cell, contestant)?.median)
            })
        };
        let panels: Vec<Panel> = modes.iter().map(panel).collect();
        PanelGroup {
            title: format!("{}: beside teams of threads", kernel.word()),
            of: "times the time of threads",
            over: "ranks",
            axis: Some(Axis::ratio(PanelGroup::values(&panels), RATIO_MAX)),
            panels,
        }
    };
    let groups: Vec<PanelGroup> = kernels.iter().flat_map(|kernel| [times(kernel), beside(kernel)]).collect();
    plot::picture("NAS kernels by ranks: teams beside MPI and OpenMP", &start.head, &contestants, &groups)
}

fn panel(
    found: KernelsFindings<'_>,
    kernel: NasKernel,
    mode: Mode,
    value: impl Fn(KernelsCell, &Contestant) -> Option<f64>,
) -> Panel {
    let wanted = |cell: &&KernelsCell| cell.kernel == kernel && cell.mode == mode;
    let cells: Vec<KernelsCell> = found.cells.iter().filter(wanted).copied().collect();
    let at = |cell: &KernelsCell| log2(f64::from(cell.ranks));
    let mut lines = Vec::new();
    for (place, contestant) in found.contestants.iter().enumerate() {
        let point = |cell: &KernelsCell| {
            let value = value(*cell, contestant)?;
            Some(PlotPoint { at: at(cell), value, at_least: false, tip: format!("{contestant}: {value:.4}") })
        };
        lines.push(PlotLine {
            class: class(place, contestant),
            points: cells.iter().filter_map(point).collect(),
        });
    }
    let measured =
        |cell: &&KernelsCell| found.contestants.iter().any(|contestant| value(**cell, contestant).is_some());
    let below = cells.iter().filter(measured).map(|cell| (at(cell), cell.ranks.to_string())).collect();
    Panel { title: mode.word().to_owned(), lines, below }
}
