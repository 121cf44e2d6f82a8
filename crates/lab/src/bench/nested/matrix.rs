//! Matrix of `bench nested`: programs, shapes, variants, arguments, and the figures of each
//! program.

use super::published::{CONSTRUCTS, STREAM_SHAPES, SYNC_SHAPES};
use crate::args::NestedArgs;
use crate::args::bench::{Init, NestedProgram, Shape};
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use trimtab_core::stats::Better;

/// Variant of a run: plain, or placed by trimtab.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Variant {
    Unbound,
    Bound,
}

impl Variant {
    pub(super) const ALL: [Self; 2] = [Self::Unbound, Self::Bound];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Unbound => "unbound",
            Self::Bound => "bound",
        }
    }
}

impl NestedProgram {
    pub(super) const ALL: [Self; 6] =
        [Self::Stream, Self::Syncbench, Self::Solver, Self::BtMz, Self::LuMz, Self::SpMz];
    /// Programs that run by default. The others take long if threads outnumber CPUs, and are not
    /// installed.
    const USUAL: [Self; 3] = [Self::Stream, Self::Syncbench, Self::Solver];

    /// Returns whether the program is a NAS multi-zone benchmark, whose teams are set by
    /// `OMP_NUM_THREADS`.
    pub(super) fn is_multi_zone(self) -> bool {
        matches!(self, Self::BtMz | Self::LuMz | Self::SpMz)
    }

    /// Returns the file name of the program.
    pub(super) fn file(self) -> &'static str {
        match self {
            Self::Stream => "nested_stream",
            Self::Syncbench => "nested_syncbench",
            Self::Solver => "nested_solver",
            Self::BtMz => "bt-mz",
            Self::LuMz => "lu-mz",
            Self::SpMz => "sp-mz",
        }
    }

    /// Returns the figures of the program's samples.
    pub(super) fn figures(self) -> Vec<NestedFigure> {
        let figure = |name: &str, unit, better| NestedFigure { name: name.to_owned(), unit, better };
        match self {
            Self::Stream => ["sum", "wall"].map(|name| figure(name, "GB/s", Better::More)).into(),
            Self::Syncbench => CONSTRUCTS.map(|name| figure(name, "us", Better::Less)).into(),
            Self::Solver | Self::BtMz | Self::LuMz | Self::SpMz => {
                vec![figure("seconds", "s", Better::Less)]
            }
        }
    }

    /// Returns the placement of the program's teams in the bound variant.
    pub(super) fn nest(self, Shape { outer, inner }: Shape) -> String {
        let within = if self == Self::Syncbench { "subcompact" } else { "subscatter" };
        format!("{outer},scatter,{inner},{within}")
    }

    /// Returns the arguments of the program.
    pub(super) fn arguments(self, args: &NestedArgs, shape: Shape) -> Vec<String> {
        let init = match args.init {
            Init::Team => "team",
            Init::Master => "master",
        };
        let quick: &[&str] = match self {
            Self::Stream => &["--elements", "1048576", "--repetitions", "5"],
            Self::Syncbench => &["--repetitions", "5", "--target-us", "200"],
            Self::Solver => &["--cells", "32", "--repetitions", "3"],
            Self::BtMz | Self::LuMz | Self::SpMz => &[],
        };
        let mut words = vec!["--json".to_owned()];
        if self.is_multi_zone() {
            words.push(if args.quick { "S" } else { "W" }.to_owned());
            return words;
        }
        if self != Self::Syncbench {
            words.extend(["--init".to_owned(), init.to_owned()]);
        }
        if args.quick {
            words.extend(quick.iter().map(|&word| word.to_owned()));
        }
        words.push(shape.to_string());
        words
    }
}

/// A value that every run of a program gives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NestedFigure {
    pub(super) name: String,
    pub(super) unit: &'static str,
    pub(super) better: Better,
}

impl NestedFigure {
    /// Returns the value of the figure in a report: the median over the run's repetitions.
    pub(super) fn value(&self, program: NestedProgram, report: &serde_json::Value) -> Option<f64> {
        let series = match program {
            NestedProgram::Stream => report.get(format!("{}_gbs", self.name))?,
            NestedProgram::Solver => report.get("seconds")?,
            // A run of these programs is one repetition.
            NestedProgram::BtMz | NestedProgram::LuMz | NestedProgram::SpMz => {
                return report.get("seconds")?.as_f64();
            }
            NestedProgram::Syncbench => {
                let constructs = report.get("constructs")?.as_array()?;
                let named = |construct: &&serde_json::Value| construct["construct"] == self.name.as_str();
                constructs.iter().find(named)?.get("average_us")?
            }
        };
        series.get("median")?.as_f64()
    }
}

/// One program in one shape.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NestedCase {
    pub(super) program: NestedProgram,
    pub(super) shape: Shape,
}

impl NestedCase {
    /// Returns the fault of a report that should be of this case, or `None`.
    pub(super) fn fault(self, report: &serde_json::Value) -> Option<String> {
        let of_case = report["kernel"] == self.program.file()
            && report["outer"] == self.shape.outer
            && report["inner"] == self.shape.inner;
        if !of_case {
            return Some("its report is of another run".to_owned());
        }
        let missing =
            self.program.figures().into_iter().find(|figure| figure.value(self.program, report).is_none());
        // A report that is not verified gets that error instead of a missing value.
        missing
            .filter(|_| report["verified"] == true)
            .map(|figure| format!("its report lacks {}", figure.name))
    }
}

impl std::fmt::Display for NestedCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.program.file(), self.shape)
    }
}

/// Returns the cases for a machine with this number of usable cores and nodes.
pub(super) fn cases(args: &NestedArgs, cores: usize, nodes: usize) -> Vec<NestedCase> {
    let of = |program: NestedProgram| {
        let shapes = match (args.shapes.is_empty(), program) {
            (false, _) => args.shapes.iter().copied().collect(),
            (true, NestedProgram::Syncbench) => fitting(&SYNC_SHAPES, cores, nodes),
            (true, _) => fitting(&STREAM_SHAPES, cores, nodes),
        };
        shapes.into_iter().map(move |shape| NestedCase { program, shape })
    };
    let wanted = |program: &NestedProgram| {
        if args.only.is_empty() {
            NestedProgram::USUAL.contains(program)
        } else {
            args.only.contains(program)
        }
    };
    NestedProgram::ALL.into_iter().filter(wanted).flat_map(of).collect()
}

/// Returns the published shapes that fit, and one that fills the machine. Machines that are too
/// small for them get the shapes for two cores.
fn fitting(published: &[Shape], cores: usize, nodes: usize) -> BTreeSet<Shape> {
    if cores < 4 {
        return [(1, 1), (1, 2), (2, 1), (2, 2)].map(|(outer, inner)| Shape { outer, inner }).into();
    }
    let fits = |shape: &&Shape| shape.threads() <= cores as u64;
    let teams = if nodes > 1 { nodes.min(cores) } else { 2 };
    let size = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let filling = Shape { outer: size(teams), inner: size((cores / teams).max(1)) };
    published.iter().filter(fits).copied().chain([filling]).collect()
}

/// Returns the command line of one run.
pub(super) fn command(
    args: &NestedArgs,
    case: NestedCase,
    variant: Variant,
    trimtab: &Path,
    program: &Path,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if variant == Variant::Bound {
        let nest = case.program.nest(case.shape);
        words.extend([trimtab.into(), "run".into(), "--nest".into(), nest.into(), "--".into()]);
    }
    words.push(program.into());
    words.extend(case.program.arguments(args, case.shape).into_iter().map(OsString::from));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shapes(published: &[Shape], cores: usize, nodes: usize) -> Vec<String> {
        fitting(published, cores, nodes).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn shapes_fit_the_machine() {
        assert_eq!(shapes(&STREAM_SHAPES, 2, 1), ["1x1", "1x2", "2x1", "2x2"]);
        assert_eq!(shapes(&STREAM_SHAPES, 8, 1), ["1x1", "1x4", "2x4", "4x1", "6x1"]);
        assert_eq!(shapes(&SYNC_SHAPES, 16, 4), ["1x2", "2x8", "4x4"]);
        assert_eq!(
            shapes(&STREAM_SHAPES, 64, 8),
            ["1x1", "1x4", "4x1", "4x4", "6x1", "6x4", "8x8", "13x1", "13x4"]
        );
        for cores in 4..300 {
            for nodes in [0, 1, 2, 3, 8] {
                let all = fitting(&STREAM_SHAPES, cores, nodes);
                assert!(all.iter().all(|shape| shape.threads() <= cores as u64), "{cores} cores: {all:?}");
            }
        }
    }

    #[test]
    fn figures_are_found_in_reports() {
        let report = serde_json::json!({
            "sum_gbs": {"best": 3.0, "median": 2.0, "samples": [1.0, 2.0, 3.0]},
            "constructs": [{"construct": "barrier", "average_us": {"median": -0.5}}],
        });
        let figures = NestedProgram::Stream.figures();
        assert_eq!(figures[0].value(NestedProgram::Stream, &report), Some(2.0));
        assert_eq!(figures[1].value(NestedProgram::Stream, &report), None);
        let figures = NestedProgram::Syncbench.figures();
        assert_eq!(figures[1].value(NestedProgram::Syncbench, &report), Some(-0.5));
        assert_eq!(figures[0].value(NestedProgram::Syncbench, &report), None);
    }
}
