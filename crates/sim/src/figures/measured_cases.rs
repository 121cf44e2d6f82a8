//! Measured cells beside the model's: a figure for each set of [`crate::measured_cases`].
//!
//! They are no published values and have no part in what is said of those; nothing of them was used to make a machine file or a kernel
//! model, but for what the sources say (foreign load, what a switch costs).

use super::draft::Draft;
use super::{Beside, Figure, FigureError, Measure, Metric, Relation};
use crate::measured_cases::{Cell, SETS, Set};
use crate::published::{Basis, Used, Value};
use std::sync::LazyLock;

/// Runs of each cell.
const RUNS: u32 = 9;

/// By set, what was measured, in the order of its cells.
static MEASURED: LazyLock<Vec<Vec<Value>>> = LazyLock::new(|| SETS.iter().map(values).collect());

fn values(set: &Set) -> Vec<Value> {
    let value = |cell: Cell| Value {
        key: cell.name,
        what: cell.name,
        value: cell.measured,
        unit: "ideal",
        place: set.title,
        basis: Basis::Stated,
        used: Used::HeldOut,
    };
    set.cells().unwrap_or_default().into_iter().map(value).collect()
}

/// The figure of a set.
pub(super) fn figure(name: &'static str, set: &'static Set) -> Result<Figure, FigureError> {
    let mut draft =
        Draft::new(name, set.title, "experiments/simulator/live", ["way", "time over the ideal's"]);
    let cells = set.cells()?;
    let mut measures: Vec<(&Cell, Measure)> = Vec::new();
    let at = SETS.iter().position(|other| other.name == set.name);
    let measured = at.and_then(|at| MEASURED.get(at)).ok_or_else(|| FigureError::Key(set.name.to_owned()))?;
    for (cell, published) in cells.iter().zip(measured) {
        let scenario = set.scenario(cell, 1)?;
        let makespan = draft.cell(cell.name, scenario, Metric::Makespan(cell.place()), RUNS);
        let ratio = makespan.over(&Measure::Given(cell.ideal()));
        let way = cell.name.rsplit('/').next().unwrap_or_default();
        draft.point(cell.subject(), way, &ratio);
        draft.measured(Beside { published, measure: ratio.clone() });
        measures.push((cell, ratio));
    }
    for (slow, of_slow) in &measures {
        for (fast, of_fast) in measures.iter().filter(|(fast, _)| fast.subject() == slow.subject()) {
            if slow.low > fast.high {
                let what = format!("{} takes longer than {}", slow.name, fast.name);
                draft.claim(what, set.title, of_slow, Relation::AtLeast, of_fast);
            }
        }
    }
    Ok(draft.done(&[
        "Orders are judged where the measured runs of two ways of one cell do not overlap.",
        "Cells of OpenMP runtimes are left out: their ways to wait are their own.",
        "Not modelled: steal by the hypervisor other than as foreign load, what the machine did before (the die of CPUs that fall idle starts at one in two), threads that bind themselves only after they were found.",
    ]))
}
