//! The study as a picture: slow-downs over threads for each core.
//!
//! A row of panels for each runtime: as it waits by itself, spinning, yielding, sleeping with
//! floating threads, then pinned and balanced. A line a program. A slow-down that is more than what
//! is said is marked so in its tip.

use super::super::harness::Head;
use super::super::team::plot::{self, Panel, PlotLine, doublings};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::study::{About, Grip, Runtime, StudyCell, Summary};

/// Ways that have a panel, in order.
const WAYS: [(Grip, WaitPolicy); 7] = [
    (Grip::Floating, WaitPolicy::Keep),
    (Grip::Floating, WaitPolicy::Spin),
    (Grip::Floating, WaitPolicy::Yield),
    (Grip::Floating, WaitPolicy::Sleep),
    (Grip::Floating, WaitPolicy::Auto),
    (Grip::Pinned, WaitPolicy::Keep),
    (Grip::Balanced, WaitPolicy::Keep),
];

/// The whole picture.
pub(super) fn picture(about: &About, summaries: &[Summary]) -> String {
    let alone: Vec<&Summary> = summaries.iter().filter(|one| one.cell.company.is_none()).collect();
    let mut names: Vec<String> = alone.iter().map(|one| one.cell.name()).collect();
    names.sort();
    names.dedup();
    let class = |at: usize| format!("{} c{}", if at < 10 { "team" } else { "peer" }, at % 10);
    let whos: Vec<(String, String)> =
        names.iter().enumerate().map(|(at, name)| (class(at), name.clone())).collect();
    let mut rows = Vec::new();
    for runtime in Runtime::ALL {
        let mut row = Vec::new();
        for (grip, wait) in WAYS {
            let wanted = |cell: &StudyCell| (cell.runtime, cell.grip, cell.wait) == (runtime, grip, wait);
            let cells: Vec<&Summary> = alone.iter().copied().filter(|one| wanted(&one.cell)).collect();
            if !cells.is_empty() {
                row.push(panel(&cells, &whos, format!("{runtime}, {grip}, {wait}: times 1 per core")));
            }
        }
        if !row.is_empty() {
            rows.push(row);
        }
    }
    let head = Head {
        bench: about.bench.clone(),
        trimtab: about.trimtab.clone(),
        machine: about.machine.clone(),
        summary: about.summary.clone(),
        kernel: about.kernel.clone(),
    };
    plot::picture("More threads than cores: time over that of one per core", &head, &whos, rows)
}

fn panel(cells: &[&Summary], whos: &[(String, String)], title: String) -> Panel {
    let mut below: Vec<u32> = cells.iter().map(|one| one.cell.per_core).collect();
    below.sort_unstable();
    below.dedup();
    let mut lines = Vec::new();
    for (class, name) in whos {
        let mut of: Vec<&&Summary> = cells.iter().filter(|one| one.cell.name() == *name).collect();
        of.sort_by_key(|one| one.cell.per_core);
        let mut line = PlotLine { class: class.clone(), points: Vec::new(), tips: Vec::new() };
        for one in of {
            let Some(slowdown) = one.slowdown else { continue };
            line.points.push((doublings(f64::from(one.cell.per_core)), slowdown.median));
            let more = if one.at_least { "more than " } else { "" };
            line.tips.push(format!("{name}, {} per core: {more}{:.2}", one.cell.per_core, slowdown.median));
        }
        lines.push(line);
    }
    let below =
        below.into_iter().map(|per_core| (doublings(f64::from(per_core)), per_core.to_string())).collect();
    Panel { title, lines, below }
}
