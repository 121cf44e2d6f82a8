//! The study as a picture: slow-downs over threads for each core.
//!
//! A group of panels for each runtime: as it waits by itself, spinning, yielding, sleeping with
//! floating threads, then pinned and balanced. A line a program. All panels have the same axis,
//! logarithmic around 1. A run that was stopped, whose slow-down is a lower bound, is an arrow.

use super::super::harness::Head;
use super::super::team::plot::{self, Panel, PanelGroup, PlotLine, PlotPoint};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::study::{About, Runtime, StudyCell, Summary, ThreadBinding};
use trimtab_front::chart::axis::{Axis, log2};
use trimtab_front::study::title;

/// Ways that have a panel, in order.
const WAYS: [(ThreadBinding, WaitPolicy); 7] = [
    (ThreadBinding::Floating, WaitPolicy::Keep),
    (ThreadBinding::Floating, WaitPolicy::Spin),
    (ThreadBinding::Floating, WaitPolicy::Yield),
    (ThreadBinding::Floating, WaitPolicy::Sleep),
    (ThreadBinding::Floating, WaitPolicy::Auto),
    (ThreadBinding::Pinned, WaitPolicy::Keep),
    (ThreadBinding::Balanced, WaitPolicy::Keep),
];

/// Ratios beyond this, and below its inverse, are at the ends of the axis.
const RATIO_MAX: f64 = 16.0;

/// The whole picture.
pub(super) fn picture(about: &About, summaries: &[Summary]) -> String {
    let alone: Vec<&Summary> = summaries.iter().filter(|one| one.cell.company.is_none()).collect();
    let mut names: Vec<String> = alone.iter().map(|one| one.cell.name()).collect();
    names.sort();
    names.dedup();
    let class = |at: usize| format!("{} c{}", if at < 10 { "team" } else { "peer" }, at % 10);
    let series: Vec<(String, String)> =
        names.iter().enumerate().map(|(at, name)| (class(at), name.clone())).collect();
    let drawn = alone.iter().filter_map(|one| one.slowdown).map(|slowdown| slowdown.median);
    let axis = Some(Axis::ratio(drawn, RATIO_MAX));
    let mut groups = Vec::new();
    for runtime in Runtime::ALL {
        let mut panels = Vec::new();
        for (grip, wait) in WAYS {
            let wanted = |cell: &StudyCell| {
                (cell.runtime, cell.grip, cell.wait) == (runtime, grip, wait) && cell.schedule.is_none()
            };
            let cells: Vec<&Summary> = alone.iter().copied().filter(|one| wanted(&one.cell)).collect();
            // A panel of the baseline alone would be a point at 1.
            if cells.iter().any(|one| one.cell.per_core > 1) {
                panels.push(panel(&cells, &series, format!("{grip}, wait {wait}")));
            }
        }
        if !panels.is_empty() {
            let (of, over) = ("times that of 1 a core", "threads a core");
            groups.push(PanelGroup { title: title(runtime).to_owned(), of, over, axis, panels });
        }
    }
    let head = Head {
        bench: about.bench.clone(),
        trimtab: about.trimtab.clone(),
        machine: about.machine.clone(),
        summary: about.summary.clone(),
        kernel: about.kernel.clone(),
    };
    plot::picture("More threads than cores: time over that of one thread a core", &head, &series, &groups)
}

fn panel(cells: &[&Summary], series: &[(String, String)], title: String) -> Panel {
    let mut below: Vec<u32> = cells.iter().map(|one| one.cell.per_core).collect();
    below.sort_unstable();
    below.dedup();
    let mut lines = Vec::new();
    for (class, name) in series {
        let mut of: Vec<&&Summary> = cells.iter().filter(|one| one.cell.name() == *name).collect();
        of.sort_by_key(|one| one.cell.per_core);
        let point = |one: &&&Summary| {
            let slowdown = one.slowdown?;
            let more = if one.at_least { "more than " } else { "" };
            Some(PlotPoint {
                at: log2(f64::from(one.cell.per_core)),
                value: slowdown.median,
                at_least: one.at_least,
                tip: format!("{name}, {} per core: {more}{:.2}", one.cell.per_core, slowdown.median),
            })
        };
        let line = PlotLine { class: class.clone(), points: of.iter().filter_map(point).collect() };
        lines.push(line);
    }
    let below = below.into_iter().map(|per_core| (log2(f64::from(per_core)), per_core.to_string())).collect();
    Panel { title, lines, below }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_pictures::{is_kept, kept};
    use trimtab_core::study;

    #[test]
    fn the_kept_picture_is_drawn_from_the_kept_record() {
        let text = crate::bench::read_text(&kept("oversub/results/quick-6.18.44-20261123.jsonl.gz")).unwrap();
        let study = study::read(&text).unwrap();
        let drawn = picture(&study.about, &study::cells(&study.samples, study.about.seed));
        is_kept("oversub/results/quick-6.18.44-20261123.svg", &drawn);
    }
}
