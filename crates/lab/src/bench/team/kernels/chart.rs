//! The kernels as a picture: seconds over ranks, and each kind of team beside threads.
//!
//! A row of panels for each kernel: by stream, by resident exchange, and the times of processes and
//! mixed teams beside those of threads, below 1 where they are quicker.

use super::super::chart::class;
use super::super::matrix::Who;
use super::super::plot::{self, Panel, PlotLine, doublings};
use super::KernelsFindings;
use super::matrix::KernelsCell;
use super::records::KernelsStart;
use crate::args::{Mode, NasKernel};

/// The whole picture.
pub(super) fn picture(start: &KernelsStart, found: KernelsFindings<'_>) -> String {
    let mut kernels: Vec<NasKernel> = found.cells.iter().map(|cell| cell.kernel).collect();
    kernels.dedup();
    let mut modes: Vec<Mode> = found.cells.iter().map(|cell| cell.mode).collect();
    modes.sort();
    modes.dedup();
    let whos: Vec<(String, String)> =
        found.whos.iter().enumerate().map(|(at, who)| (class(at, who), who.to_string())).collect();
    let row = |&kernel: &NasKernel| {
        let word = kernel.word();
        let title = |mode: &Mode| format!("{word}, {}: seconds over ranks", mode.word());
        let times =
            |mode: &Mode| panel(found, title(mode), kernel, *mode, |cell, who| found.of(cell, who)?.median());
        let beside = |mode: &Mode| {
            let title = format!("{word}, {}: teams / threads", mode.word());
            panel(found, title, kernel, *mode, |cell, who| Some(found.beside_threads(cell, who)?.median))
        };
        modes.iter().map(times).chain(modes.iter().map(beside)).collect()
    };
    let rows = kernels.iter().map(row).collect();
    plot::picture("NAS kernels by ranks: teams beside MPI and OpenMP", &start.head, &whos, rows)
}

fn panel(
    found: KernelsFindings<'_>,
    title: String,
    kernel: NasKernel,
    mode: Mode,
    value: impl Fn(KernelsCell, &Who) -> Option<f64>,
) -> Panel {
    let wanted = |cell: &&KernelsCell| cell.kernel == kernel && cell.mode == mode;
    let cells: Vec<KernelsCell> = found.cells.iter().filter(wanted).copied().collect();
    let at = |cell: &KernelsCell| doublings(f64::from(cell.ranks));
    let mut lines = Vec::new();
    for (place, who) in found.whos.iter().enumerate() {
        let point = |cell: &KernelsCell| Some((at(cell), value(*cell, who)?));
        let points: Vec<(f64, f64)> = cells.iter().filter_map(point).collect();
        let tips = points.iter().map(|(_, value)| format!("{who}: {value:.4}")).collect();
        lines.push(PlotLine { class: class(place, who), points, tips });
    }
    let measured = |cell: &&KernelsCell| found.whos.iter().any(|who| value(**cell, who).is_some());
    let below = cells.iter().filter(measured).map(|cell| (at(cell), cell.ranks.to_string())).collect();
    Panel { title, lines, below }
}
