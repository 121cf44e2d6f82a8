//! Panels of lines: a number over size, ranks or threads, as a self-contained SVG.
//!
//! Unit: pixels at scale 1. Panels are drawn in two columns, in groups under a heading; all panels
//! of a group have the same vertical axis, so that they can be compared. The horizontal scale is
//! logarithmic, and so is the vertical one: a line twice as steep grows twice as fast. One colour
//! and one shape of points for each contestant, both in the legend. In a panel without a horizontal
//! scale, the contestants stand beside each other. A value beyond the axis, and one that is only a
//! lower bound, is an arrow.

use super::super::harness::Head;
use trimtab_front::chart::axis::Axis;
use trimtab_front::chart::text::{cut, width};
use trimtab_front::chart::{Canvas, LINE, MARGIN, Plot, SAMPLE, WIDTH, through};

const COLUMNS: usize = 2;
const GAP: f64 = 16.0;
/// For the numbers at the left of a panel.
const LEFT: f64 = 50.0;
const HEIGHT: f64 = 170.0;
/// Ticks and label below a panel, and the distance to the next.
const BELOW: f64 = 2.0 * LINE + 18.0;
/// Distance of the outermost points from the ends of a panel.
const INSET: f64 = 16.0;
/// Half the size of a cross, in pixels.
const CROSS_HALF: f64 = 3.5;

/// Shape of the points of a contestant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Mark {
    Round,
    Square,
    Cross,
}

impl Mark {
    const ALL: [Self; 3] = [Self::Round, Self::Square, Self::Cross];

    /// Returns the CSS class of the contestant at this place of the legend: colour and shape.
    pub(in super::super) fn class(at: usize) -> String {
        format!("c{} m{}", at % COLOURS, at % Self::ALL.len())
    }

    /// Returns the shape of a class.
    fn of(class: &str) -> Self {
        let has = |at: &usize| class.split(' ').any(|word| word.strip_prefix('m') == Some(&at.to_string()));
        (0..Self::ALL.len()).find(has).map_or(Self::Round, |at| Self::ALL[at])
    }

    /// Returns the path of a point.
    fn path(self, x: f64, y: f64) -> String {
        match self {
            Self::Round | Self::Square => format!("M{x:.1} {y:.1}h0.1"),
            Self::Cross => {
                let (left, upper, size) = (x - CROSS_HALF, y - CROSS_HALF, 2.0 * CROSS_HALF);
                format!("M{left:.1} {upper:.1}l{size} {size}m-{size} 0l{size} -{size}")
            }
        }
    }
}

/// A line of a panel.
#[derive(Debug)]
pub(in super::super) struct PlotLine {
    pub(in super::super) class: String,
    pub(in super::super) points: Vec<PlotPoint>,
}

/// A point of a line.
#[derive(Debug)]
pub(in super::super) struct PlotPoint {
    /// Position on the lower scale, which is logarithmic.
    pub(in super::super) at: f64,
    pub(in super::super) value: f64,
    /// Whether the value is a lower bound.
    pub(in super::super) at_least: bool,
    pub(in super::super) tip: String,
}

/// Lines over one scale.
#[derive(Debug)]
pub(in super::super) struct Panel {
    pub(in super::super) title: String,
    pub(in super::super) lines: Vec<PlotLine>,
    /// Positions and labels of the ticks on the lower scale.
    pub(in super::super) below: Vec<(f64, String)>,
}

/// Panels with the same axes.
#[derive(Debug)]
pub(in super::super) struct PanelGroup {
    pub(in super::super) title: String,
    /// Name of the values, and of the quantity over which they are drawn.
    pub(in super::super) of: &'static str,
    pub(in super::super) over: &'static str,
    pub(in super::super) axis: Option<Axis>,
    pub(in super::super) panels: Vec<Panel>,
}

impl PanelGroup {
    /// Returns all values of panels.
    pub(in super::super) fn values(panels: &[Panel]) -> impl Iterator<Item = f64> {
        panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points).map(|point| point.value)
    }
}

/// Draws the whole chart: groups of panels, and a legend of classes and names.
pub(in super::super) fn picture(
    title: &str,
    head: &Head,
    contestants: &[(String, String)],
    groups: &[PanelGroup],
) -> String {
    let mut out = Canvas::new(STYLE);
    let below = out.title(title, &format!("{}, Linux {}", head.summary, head.kernel));
    let names: Vec<&str> = contestants.iter().map(|(_, name)| name.as_str()).collect();
    let mut top = out.legend(below + 8.0, &names, |out, at, x, y| {
        let class = &contestants[at].0;
        out.path(class, &format!("M{x:.1} {y:.1}h{SAMPLE}"));
        out.path(&format!("{class} dot"), &Mark::of(class).path(x + SAMPLE / 2.0, y));
    });
    for group in groups {
        out.text("title", MARGIN, top + 22.0, &cut("title", &group.title, WIDTH - 2.0 * MARGIN));
        top += 44.0;
        let wide = (WIDTH - 2.0 * MARGIN - GAP) / COLUMNS as f64;
        for row in group.panels.chunks(COLUMNS) {
            for (column, one) in row.iter().enumerate() {
                panel(&mut out, group, one, MARGIN + column as f64 * (wide + GAP), wide, top);
            }
            top += 2.0 * LINE + HEIGHT + BELOW;
        }
    }
    out.finish(top)
}

fn panel(out: &mut Canvas, group: &PanelGroup, panel: &Panel, left: f64, wide: f64, top: f64) {
    out.text("panel", left, top, &cut("panel", &panel.title, wide));
    out.text("note", left, top + LINE, &cut("note", group.of, wide));
    let all = || panel.lines.iter().flat_map(|line| &line.points);
    let upper = top + 2.0 * LINE - 4.0;
    let Some(axis) = group.axis.filter(|_| all().next().is_some()) else {
        out.text("below", left + wide / 2.0, upper + HEIGHT / 2.0, "not measured");
        return;
    };
    let plot = Plot { left: left + LEFT, right: left + wide, upper, floor: upper + HEIGHT, axis };
    out.scale(&plot);
    let first = all().map(|point| point.at).fold(f64::INFINITY, f64::min);
    let last = all().map(|point| point.at).fold(f64::NEG_INFINITY, f64::max);
    let x = |at: f64| {
        let share = if last > first { (at - first) / (last - first) } else { 0.5 };
        plot.left + INSET + (plot.right - plot.left - 2.0 * INSET) * share
    };
    // The last label has a place, then those that leave it room.
    let mut free_until = f64::INFINITY;
    for (at, words) in panel.below.iter().rev() {
        let half = width("below", words) / 2.0;
        let middle = x(*at).min(WIDTH - MARGIN - half);
        if middle + half < free_until {
            out.text("below", middle, plot.floor + LINE, words);
            free_until = middle - half - 4.0;
        }
    }
    // A barrier has no bytes.
    let has_scale = !panel.below.is_empty();
    if has_scale {
        out.text("below", (plot.left + plot.right) / 2.0, plot.floor + 2.0 * LINE, group.over);
    }
    for (place, PlotLine { class, points }) in panel.lines.iter().enumerate() {
        let beside = (place as f64 + 0.5) / panel.lines.len() as f64;
        let x = |at| if has_scale { x(at) } else { plot.left + (plot.right - plot.left) * beside };
        if points.len() > 1 {
            out.path(class, &through(points.iter().map(|point| (x(point.at), plot.y(point.value)))));
        }
        for PlotPoint { at, value, at_least, tip } in points {
            let (x, y) = (x(*at), plot.y(*value));
            if *at_least || plot.axis.is_beyond(*value) {
                let size = if *at_least || plot.axis.is_above(*value) { -9.0 } else { 9.0 };
                out.path_with_tip(
                    &format!("{class} clipped"),
                    &format!("M{:.1} {y:.1}h12l-6 {size}z", x - 6.0),
                    tip,
                );
            } else {
                out.path_with_tip(&format!("{class} dot"), &Mark::of(class).path(x, y), tip);
            }
        }
    }
}

/// Number of colours in the style.
const COLOURS: usize = 12;

/// The colours are distinguishable with any of the common colour blindnesses; peers' lines also
/// have different dashes.
const STYLE: &str = r##"<style>
.team { fill: none; stroke-width: 3 }
.peer { fill: none; stroke-width: 1.4 }
.c0 { stroke: #1b62a5 }
.c1 { stroke: #c4511f }
.c2 { stroke: #3f8f5b }
.c3 { stroke: #8a6bbd; stroke-dasharray: 6 2 }
.c4 { stroke: #a0791a; stroke-dasharray: 2 2 }
.c5 { stroke: #1c1f24 }
.c6 { stroke: #b0306a; stroke-dasharray: 6 2 2 2 }
.c7 { stroke: #5aa9d6; stroke-dasharray: 4 4 }
.c8 { stroke: #7a7a7a }
.c9 { stroke: #55681a; stroke-dasharray: 6 2 }
.c10 { stroke: #d98a5f }
.c11 { stroke: #6d4a2f; stroke-dasharray: 2 2 }
.dot { stroke-width: 7; stroke-linecap: round; stroke-dasharray: none }
.m1.dot { stroke-width: 6; stroke-linecap: square }
.m2.dot { stroke-width: 2; stroke-linecap: butt }
.clipped { stroke-width: 1.6; stroke-dasharray: none; fill: #ffffff }
</style>
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_front::chart::text::faults;

    fn head() -> Head {
        let word = |word: &str| word.to_owned();
        Head {
            bench: word("team"),
            trimtab: word("0"),
            machine: word("m"),
            summary: word("2 packages, 4 nodes, 16 L3, 128 cores, 256 CPUs, 1007 GiB"),
            kernel: word("6.18"),
        }
    }

    #[test]
    fn contestants_of_one_picture_differ_in_colour_or_shape() {
        let classes: std::collections::BTreeSet<String> = (0..COLOURS).map(Mark::class).collect();
        assert_eq!(classes.len(), COLOURS);
        assert!((0..COLOURS).all(|at| STYLE.contains(&format!("\n.c{at} {{ stroke: #"))));
        let marks = [Mark::Round, Mark::Square, Mark::Cross, Mark::Round];
        assert_eq!([0, 1, 2, 3].map(|at| Mark::of(&Mark::class(at))), marks);
        assert_eq!(Mark::of("peer c4"), Mark::Round);
    }

    #[test]
    fn points_without_a_scale_stand_beside_each_other() {
        let contestants: Vec<(String, String)> =
            (0..4).map(|at| (Mark::class(at), format!("number {at}"))).collect();
        let point = || PlotPoint { at: 0.0, value: 1.0, at_least: false, tip: "tip".to_owned() };
        let lines = contestants
            .iter()
            .map(|(class, _)| PlotLine { class: class.clone(), points: vec![point()] })
            .collect();
        let panel = Panel { title: "barrier".to_owned(), lines, below: vec![] };
        let axis = Axis::powers([1.0, 2.0]);
        let group = PanelGroup { title: "g".to_owned(), of: "us", over: "bytes", axis, panels: vec![panel] };
        let picture = picture("t", &head(), &contestants, &[group]);
        let places: std::collections::BTreeSet<&str> = picture
            .split("<path ")
            .filter(|path| path.contains("<title>tip"))
            .filter_map(|path| path.split(" d=\"M").nth(1)?.split(' ').next())
            .collect();
        assert_eq!(places.len(), 4, "{picture}");
        assert!(!picture.contains(">bytes<"));
    }

    #[test]
    fn panels_leave_each_other_room_and_lower_bounds_are_arrows() {
        let names = ["team-thread", "a peer with a long name", "mpich-process", "libgomp", "openmpi-process"];
        let contestants: Vec<(String, String)> =
            names.iter().enumerate().map(|(at, name)| (format!("team c{at}"), (*name).to_owned())).collect();
        let line = |class: &str, high: f64| PlotLine {
            class: class.to_owned(),
            points: (0..18)
                .map(|at| PlotPoint {
                    at: f64::from(at),
                    value: high / f64::from(at + 1),
                    at_least: at == 0,
                    tip: format!("tip {at}"),
                })
                .collect(),
        };
        let panel = |number: u32| Panel {
            title: format!("panel {number}: with a title that is longer than the panel is wide"),
            lines: contestants.iter().map(|(class, _)| line(class, f64::from(number) + 0.4)).collect(),
            below: (0..18).map(|at| (f64::from(at), (1_u32 << at).to_string())).collect(),
        };
        let group = |axis| PanelGroup {
            title: "A group with as long a title as there may be, and somewhat longer than that".to_owned(),
            of: "times one thread a core",
            over: "threads a core",
            axis,
            panels: (0..7)
                .map(panel)
                .chain([Panel { title: "none".to_owned(), lines: vec![], below: vec![] }])
                .collect(),
        };
        let groups = [group(Some(Axis::ratio([0.2, 3.0], 2.0))), group(Axis::powers([1e-7, 4e6]))];
        let picture = picture(
            "More threads than cores: time over that of one thread a core",
            &head(),
            &contestants,
            &groups,
        );
        assert_eq!(faults(&picture), Vec::<String>::new());
        assert!(picture.contains(">not measured<") && picture.contains(">threads a core<"));
        // The first point of each line is a lower bound, and most lie below the ratios' axis.
        let arrows = picture.matches(" clipped\"").count();
        assert!(arrows > 2 * 7 * names.len(), "{arrows}");
        assert_eq!(picture.matches("<title>tip 0</title>").count(), 2 * 7 * names.len());
    }
}
