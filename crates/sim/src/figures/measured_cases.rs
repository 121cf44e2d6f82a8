//! Figures of measured cells next to the model's: one for each set of [`crate::measured_cases`].
//!
//! They are not published values and are not counted with those. None of them was used to make a
//! machine file or a kernel model, except where the sources state it (foreign load, cost of a
//! context switch).

use super::draft::Draft;
use super::{Beside, Figure, FigureError, Measure, Metric, Relation};
use crate::measured_cases::{CaseSet, MeasuredCell, SETS};
use crate::published::{Basis, PublishedValue, Used};
use std::sync::LazyLock;

/// Runs of each cell.
const RUNS_PER_CELL: u32 = 9;

/// By set, the measured values, in the order of its cells.
static MEASURED: LazyLock<Vec<Vec<PublishedValue>>> = LazyLock::new(|| SETS.iter().map(values).collect());

fn values(set: &CaseSet) -> Vec<PublishedValue> {
    let value = |cell: MeasuredCell| PublishedValue {
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

/// Returns the figure of a set.
pub(super) fn figure(name: &'static str, set: &'static CaseSet) -> Result<Figure, FigureError> {
    let mut draft =
        Draft::new(name, set.title, "experiments/simulator/live", ["way", "time over the ideal's"]);
    let cells = set.cells()?;
    let mut measures: Vec<(&MeasuredCell, Measure)> = Vec::new();
    let at = SETS.iter().position(|other| other.name == set.name);
    let measured = at.and_then(|at| MEASURED.get(at)).ok_or_else(|| FigureError::Key(set.name.to_owned()))?;
    for (cell, published) in cells.iter().zip(measured) {
        let scenario = set.scenario(cell, 1)?;
        let makespan = draft.cell(cell.name, scenario, Metric::Makespan(cell.place()), RUNS_PER_CELL);
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
