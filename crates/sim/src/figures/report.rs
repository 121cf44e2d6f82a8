//! Report of a figure after its cells are run: points, published numbers next to modelled ones,
//! judged orders; and a summary of all figures.

use super::{Figure, Measure, Metric, ORDER_SLACK, Relation};
use crate::published::{Basis, PublishedValue, Used};
use serde::Serialize;

/// Point with its height.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Plotted {
    /// Curve or row of the point.
    pub series: String,
    /// Position on the curve.
    pub x: String,
    /// Height.
    pub y: f64,
    /// Published height, if there is one.
    pub published: Option<f64>,
    /// Whether the height is in per cent, where those of other points are ratios.
    #[serde(skip)]
    pub is_percent: bool,
}

/// Published number next to the model's.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Pair {
    /// Published number.
    #[serde(flatten)]
    pub published: PublishedValue,
    /// Model's number.
    pub simulated: f64,
    /// Model's number over the published one, less 1.
    pub error: f64,
}

/// Published order, judged.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Judged {
    /// Statement of the text.
    pub what: String,
    /// Place in the text.
    pub place: &'static str,
    /// Whether the model was made from it.
    pub used: Used,
    /// Number of the left contestant.
    pub left: f64,
    /// Number of the right contestant.
    pub right: f64,
    /// Whether the model agrees; false if either number is not finite.
    pub right_order: bool,
}

/// Figure after its runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// Name of the figure.
    pub name: &'static str,
    /// Points to draw.
    pub points: Vec<Plotted>,
    /// Published numbers next to modelled ones.
    pub values: Vec<Pair>,
    /// Orders.
    pub claims: Vec<Judged>,
    /// Numbers that are not finite but should be: runs that did not end in time, and all numbers
    /// made of them.
    pub faults: Vec<String>,
}

/// Quality of the model over several figures, or one.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// Published values that were held out.
    pub held_out: usize,
    /// Median of their absolute errors; `None` if there are none.
    pub median_error: Option<f64>,
    /// Those of them that a text states as a number.
    pub stated: usize,
    /// Median of their absolute errors.
    pub median_error_stated: Option<f64>,
    /// Values on which the model is calibrated.
    pub calibrated: usize,
    /// Median of their absolute errors.
    pub median_error_calibrated: Option<f64>,
    /// Published orders.
    pub orders: usize,
    /// Number of orders that the model has too.
    pub right: usize,
    /// Number of numbers that are not finite; if there are any, the medians and orders are not
    /// trustworthy.
    pub faults: usize,
}

impl Figure {
    /// Returns whether a measure is in per cent.
    fn is_percent(&self, measure: &Measure) -> bool {
        match measure {
            Measure::FigureCell(at) => self
                .cells
                .get(*at)
                .is_some_and(|cell| matches!(cell.metric, Metric::Overhead | Metric::Daemon)),
            Measure::Deviation(_) => true,
            Measure::Spread(_) | Measure::Given(_) | Measure::Ratio(..) => false,
            Measure::Highest(of)
            | Measure::Lowest(of)
            | Measure::Mean(of)
            | Measure::Average(of)
            | Measure::Farthest(of) => of.first().is_some_and(|one| self.is_percent(one)),
        }
    }

    /// Returns the report, from each cell's runs.
    ///
    /// # Panics
    /// If there are fewer cells than the figure has.
    pub fn report(&self, runs: &[Vec<f64>]) -> Report {
        let mut report = Report {
            name: self.name,
            points: self
                .points
                .iter()
                .map(|point| Plotted {
                    series: point.series.clone(),
                    x: point.x.clone(),
                    y: point.measure.of(runs),
                    published: self
                        .beside
                        .iter()
                        .find(|beside| beside.measure == point.measure)
                        .map(|beside| beside.published.value),
                    is_percent: self.is_percent(&point.measure),
                })
                .collect(),
            values: self
                .beside
                .iter()
                .map(|beside| {
                    let simulated = beside.measure.of(runs);
                    let error = simulated / beside.published.value - 1.0;
                    Pair { published: *beside.published, simulated, error }
                })
                .collect(),
            claims: self
                .claims
                .iter()
                .map(|claim| {
                    let (left, right) = (claim.left.of(runs), claim.right.of(runs));
                    Judged {
                        what: claim.what.clone(),
                        place: claim.place,
                        used: claim.used,
                        left,
                        right,
                        right_order: claim.relation.holds(left, right),
                    }
                })
                .collect(),
            faults: Vec::new(),
        };
        report.faults = self.faults(runs, &report);
        report
    }

    /// Describes the numbers that are not finite.
    fn faults(&self, runs: &[Vec<f64>], report: &Report) -> Vec<String> {
        let mut faults = Vec::new();
        for (cell, values) in self.cells.iter().zip(runs) {
            if values.is_empty() {
                faults.push(format!("the cell {} has no run", cell.name));
            }
            for (run, _) in (0..).zip(values).filter(|(_, value)| !value.is_finite()) {
                let seed = cell.scenario(run).seed;
                faults.push(format!("the cell {} did not end in time with seed {seed}", cell.name));
            }
        }
        let points = report.points.iter().filter(|point| !point.y.is_finite());
        faults
            .extend(points.map(|point| format!("the point {} of {} is {}", point.x, point.series, point.y)));
        let values = report.values.iter().filter(|pair| !pair.error.is_finite());
        faults.extend(values.map(|pair| format!("{} is {}", pair.published.what, pair.simulated)));
        let claims =
            report.claims.iter().filter(|claim| !(claim.left.is_finite() && claim.right.is_finite()));
        faults.extend(
            claims.map(|claim| {
                format!("the order \"{}\" is of {} and {}", claim.what, claim.left, claim.right)
            }),
        );
        faults
    }

    /// Returns every run of every cell, as pairs of their numbers.
    pub fn runs(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.cells.iter().enumerate().flat_map(|(at, cell)| (0..cell.runs).map(move |run| (at, run)))
    }
}

impl Relation {
    fn holds(self, left: f64, right: f64) -> bool {
        // Runs that did not end are neither equal nor fast.
        if !(left.is_finite() && right.is_finite()) {
            return false;
        }
        match self {
            Self::AtLeast => left >= right * (1.0 - ORDER_SLACK),
            Self::Above => left > right * (1.0 + ORDER_SLACK),
            Self::Alike => left <= right * (1.0 + ORDER_SLACK) && right <= left * (1.0 + ORDER_SLACK),
        }
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let high = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { high } else { (values[middle - 1] + high) / 2.0 })
}

/// Returns the highest value; NaN if one of them is NaN, or if there are none.
fn highest(values: &[f64]) -> f64 {
    values
        .iter()
        .copied()
        .reduce(|one, other| {
            if one.is_nan() {
                one
            } else if other > one || other.is_nan() {
                other
            } else {
                one
            }
        })
        .unwrap_or(f64::NAN)
}

/// Returns the lowest value, in the same way.
fn lowest(values: &[f64]) -> f64 {
    -highest(&values.iter().map(|value| -value).collect::<Vec<f64>>())
}

/// Returns the standard deviation of a sample over its mean, per cent.
fn deviation(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    100.0 * (squares / (count - 1.0).max(1.0)).sqrt() / mean
}

impl Measure {
    fn of(&self, runs: &[Vec<f64>]) -> f64 {
        let all = |list: &[Self]| list.iter().map(|measure| measure.of(runs)).collect::<Vec<f64>>();
        match self {
            Self::FigureCell(at) => median(runs[*at].clone()).unwrap_or(f64::NAN),
            Self::Spread(at) => highest(&runs[*at]) / lowest(&runs[*at]),
            Self::Deviation(at) => deviation(&runs[*at]),
            Self::Given(value) => *value,
            Self::Ratio(above, below) => above.of(runs) / below.of(runs),
            Self::Highest(list) => highest(&all(list)),
            Self::Lowest(list) => lowest(&all(list)),
            Self::Mean(list) => {
                let logs: f64 = all(list).into_iter().map(f64::ln).sum();
                (logs / list.len() as f64).exp()
            }
            Self::Average(list) => all(list).into_iter().sum::<f64>() / list.len() as f64,
            Self::Farthest(list) => {
                let far = |a: &f64, b: &f64| a.ln().abs().total_cmp(&b.ln().abs());
                all(list).into_iter().max_by(far).unwrap_or(f64::NAN)
            }
        }
    }
}

impl Summary {
    /// Returns the summary of these reports.
    pub fn of<'a>(reports: impl IntoIterator<Item = &'a Report>) -> Self {
        let (mut held, mut stated, mut calibrated) = (Vec::new(), Vec::new(), Vec::new());
        let (mut orders, mut right, mut faults) = (0, 0, 0);
        // An error that is NaN is the greatest.
        let size = |pair: &Pair| if pair.error.is_nan() { f64::INFINITY } else { pair.error.abs() };
        for report in reports {
            for pair in &report.values {
                match pair.published.used {
                    Used::HeldOut => {
                        held.push(size(pair));
                        stated.extend((pair.published.basis == Basis::Stated).then_some(size(pair)));
                    }
                    Used::Calibrated => calibrated.push(size(pair)),
                }
            }
            let claims = || report.claims.iter().filter(|claim| claim.used == Used::HeldOut);
            orders += claims().count();
            right += claims().filter(|claim| claim.right_order).count();
            faults += report.faults.len();
        }
        Self {
            held_out: held.len(),
            stated: stated.len(),
            calibrated: calibrated.len(),
            median_error_stated: median(stated),
            median_error: median(held),
            median_error_calibrated: median(calibrated),
            orders,
            right,
            faults,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_match_their_names() {
        let runs = [vec![3.0, 1.0, 2.0], vec![4.0]];
        let (a, b) = (Measure::FigureCell(0), Measure::FigureCell(1));
        let of = |measure: &Measure| measure.of(&runs);
        assert_eq!((of(&a), of(&Measure::Spread(0)), of(&b.over(&a))), (2.0, 3.0, 2.0));
        assert_eq!((of(&Measure::Deviation(0)), of(&Measure::Deviation(1))), (50.0, 0.0));
        let both = || vec![a.clone(), b.clone()];
        assert_eq!(of(&Measure::Average(both())), 3.0);
        assert_eq!((of(&Measure::Highest(both())), of(&Measure::Lowest(both()))), (4.0, 2.0));
        assert!((of(&Measure::Mean(both())) - 8.0_f64.sqrt()).abs() < 1e-12);
        let far = Measure::Farthest(vec![Measure::Given(1.5), Measure::Given(0.5), Measure::Given(1.0)]);
        assert_eq!(of(&far), 0.5);
    }

    #[test]
    fn orders_leave_a_slack() {
        assert!(Relation::AtLeast.holds(0.98, 1.0) && !Relation::AtLeast.holds(0.96, 1.0));
        assert!(Relation::Above.holds(1.04, 1.0) && !Relation::Above.holds(1.02, 1.0));
        assert!(Relation::Alike.holds(1.02, 1.0) && !Relation::Alike.holds(0.9, 1.0));
        assert!(!Relation::AtLeast.holds(f64::NAN, 1.0) && !Relation::Alike.holds(f64::INFINITY, 1.0));
        for relation in [Relation::AtLeast, Relation::Above, Relation::Alike] {
            assert!(!relation.holds(f64::INFINITY, f64::INFINITY), "{relation:?}");
            assert!(!relation.holds(f64::INFINITY, 1.0), "{relation:?}");
        }
    }

    #[test]
    fn missing_values_give_missing_results() {
        let (one, none) = (Measure::Given(1.0), Measure::Given(f64::NAN));
        for list in [vec![one.clone(), none.clone()], vec![none, one], Vec::new()] {
            for measure in [Measure::Highest(list.clone()), Measure::Lowest(list)] {
                assert!(measure.of(&[]).is_nan(), "{measure:?}");
            }
        }
        assert!(Measure::Spread(0).of(&[vec![1.0, f64::NAN, 2.0]]).is_nan());
    }

    #[test]
    fn a_run_that_did_not_end_in_time_is_a_fault_and_never_right() {
        let figure = crate::figures::find("hog").unwrap();
        let endless: Vec<Vec<f64>> =
            figure.cells.iter().map(|cell| vec![f64::INFINITY; cell.runs as usize]).collect();
        let report = figure.report(&endless);
        let summary = Summary::of([&report]);
        assert_eq!((summary.right, summary.orders > 0), (0, true), "{report:?}");
        assert_eq!(summary.faults, report.faults.len());
        let said = format!("the cell {} did not end in time with seed 1", figure.cells[0].name);
        assert!(report.faults.contains(&said), "{:?}", report.faults);
        let ended: Vec<Vec<f64>> = figure.cells.iter().map(|cell| vec![1.0; cell.runs as usize]).collect();
        assert_eq!(figure.report(&ended).faults, Vec::<String>::new());
    }
}
