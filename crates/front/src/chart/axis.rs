//! Axes of charts: from zero, around 1 for ratios, or by powers of two.
//!
//! Unit: a share of the axis, from 0 at its low end to 1 at its high end. Properties: a linear axis
//! begins at zero and ends on a round number. A ratio's axis is logarithmic and as long below 1 as
//! above it: twice and half are at the same distance. A value beyond an axis is at its end, and the
//! chart marks it.

/// Parts into which lines across a plot divide a linear axis.
const LINEAR_PARTS: u8 = 4;
/// Most ticks of a logarithmic axis.
const TICKS_MAX: f64 = 7.0;
/// Ends of a ratio's axis, above 1; longer ones are powers of two.
const RATIO_ENDS: [f64; 3] = [1.25, 1.5, 2.0];

/// An axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Axis {
    /// From zero to a number.
    Linear { top: f64 },
    /// From 1 / `end` to `end`; logarithmic.
    Ratio { end: f64 },
    /// From 2^`low` to 2^`high`; logarithmic.
    Powers { low: f64, high: f64 },
}

impl Axis {
    /// Makes an axis from zero with room for values up to `reach`.
    pub fn linear(reach: f64) -> Self {
        Self::Linear { top: nice(reach) }
    }

    /// Makes an axis around 1 with room for these ratios, up to `most` and down to 1 / `most`.
    pub fn ratio(values: impl IntoIterator<Item = f64>, most: f64) -> Self {
        let far = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let far = far.map(|value| value.max(1.0 / value)).fold(1.0, f64::max).min(most);
        let short = RATIO_ENDS.into_iter().find(|end| *end >= far);
        Self::Ratio { end: short.unwrap_or_else(|| power_of_two(log2(far).ceil())) }
    }

    /// Makes a logarithmic axis with room for these values; `None` without a positive one.
    pub fn powers(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let logs = values.into_iter().filter(|value| value.is_finite() && *value > 0.0).map(log2);
        let (low, high) =
            logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| (low.min(log), high.max(log)));
        let low = low.floor();
        low.is_finite().then(|| Self::Powers { low, high: high.ceil().max(low + 1.0) })
    }

    /// Returns whether the axis is one of ratios.
    pub fn is_ratio(&self) -> bool {
        matches!(self, Self::Ratio { .. })
    }

    /// Returns the lowest and the highest value on the axis.
    pub fn ends(&self) -> (f64, f64) {
        match *self {
            Self::Linear { top } => (0.0, top),
            Self::Ratio { end } => (1.0 / end, end),
            Self::Powers { low, high } => (power_of_two(low), power_of_two(high)),
        }
    }

    /// Returns whether a value lies above the axis.
    pub fn is_above(&self, value: f64) -> bool {
        value > self.ends().1
    }

    /// Returns whether a value lies above or below the axis.
    pub fn is_beyond(&self, value: f64) -> bool {
        self.is_above(value) || value < self.ends().0
    }

    /// Returns the place of a value; of a value beyond the axis its end.
    pub fn share(&self, value: f64) -> f64 {
        let log = |value: f64| if value > 0.0 { log2(value) } else { f64::NEG_INFINITY };
        let share = match *self {
            Self::Linear { top } => value / top,
            Self::Ratio { end } => 0.5 + 0.5 * log(value) / log2(end),
            Self::Powers { low, high } => (log(value) - low) / (high - low),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the values at which lines cross the plot, each with its label.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        match *self {
            Self::Linear { top } => (0..=LINEAR_PARTS)
                .map(|part| top * f64::from(part) / f64::from(LINEAR_PARTS))
                .map(|value| (value, short(value)))
                .collect(),
            Self::Ratio { end } if RATIO_ENDS.contains(&end) => {
                [1.0 / end, 1.0, end].map(|value| (value, figure(value))).to_vec()
            }
            Self::Ratio { end } => {
                let far = log2(end).round();
                // Steps from 1 to both sides, so that 1 always has a tick.
                let step = (2.0 * far / TICKS_MAX).ceil().max(1.0);
                let steps = (far / step).floor();
                let ticks = powers(-steps * step, steps * step, step);
                let part =
                    |value: f64| if value < 1.0 { format!("1/{:.0}", 1.0 / value) } else { figure(value) };
                ticks.into_iter().map(|(value, _)| (value, part(value))).collect()
            }
            Self::Powers { low, high } => powers(low, high, ((high - low) / (TICKS_MAX - 1.0)).ceil()),
        }
    }
}

/// Returns powers of two with their labels.
fn powers(low: f64, high: f64, step: f64) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    let mut log = low;
    while log <= high {
        let value = power_of_two(log);
        ticks.push((value, figure(value)));
        log += step;
    }
    ticks
}

/// Returns 2 to a whole power.
fn power_of_two(log: f64) -> f64 {
    let power = (0..log.abs() as u32).fold(1.0, |power, _| power * 2.0);
    if log < 0.0 { 1.0 / power } else { power }
}

/// Returns the logarithm to base 2. Computed by hand, bit by bit, since a program would load the
/// mathematical library only for a logarithm, at every start.
pub fn log2(number: f64) -> f64 {
    const BITS: u32 = 40;
    let (mut number, mut log) = (number.clamp(1e-300, 1e300), 0.0);
    while number >= 2.0 {
        (number, log) = (number / 2.0, log + 1.0);
    }
    while number < 1.0 {
        (number, log) = (number * 2.0, log - 1.0);
    }
    let mut bit = 0.5;
    for _ in 0..BITS {
        number *= number;
        if number >= 2.0 {
            (number, log) = (number / 2.0, log + bit);
        }
        bit /= 2.0;
    }
    log
}

/// Returns the largest power of ten up to a number; 1 for a number without one.
fn power_of_ten(number: f64) -> f64 {
    if !(number.is_finite() && number > 0.0) {
        return 1.0;
    }
    let mut power = 1.0;
    while power * 10.0 <= number {
        power *= 10.0;
    }
    while power > number {
        power /= 10.0;
    }
    power
}

/// Rounds up to 1, 2, 4, 5 or 10 times a power of ten, so that quarters of it read well.
pub fn nice(reach: f64) -> f64 {
    if reach <= 0.0 || !reach.is_finite() {
        return 1.0;
    }
    let power = power_of_ten(reach);
    let steps = [1.0, 2.0, 4.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= reach).unwrap_or(10.0);
    step * power
}

/// Formats a number of a linear axis, without trailing zeros.
pub fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats a number of a logarithmic axis with at most three significant digits.
fn figure(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{:.0}M", value / 1e6),
        _ if value >= 1e4 => format!("{:.0}k", value / 1e3),
        _ if value >= 100.0 || value == value.trunc() => format!("{value:.0}"),
        _ if value >= 1.0 || value * 4.0 == (value * 4.0).trunc() => short(value),
        _ if value >= 0.1 => format!("{value:.2}"),
        _ if value >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_axes_end_on_round_numbers() {
        for (reach, scale) in
            [(0.0, 1.0), (0.9, 1.0), (1.1, 2.0), (4.3, 5.0), (7.0, 10.0), (43.0, 50.0), (2655.0, 4000.0)]
        {
            assert!((nice(reach) - scale).abs() < 1e-9, "{reach}: {}", nice(reach));
        }
        assert_eq!([0.25, 10.0, 0.0].map(short), ["0.25", "10", "0"]);
    }

    #[test]
    fn logarithms_are_those_of_the_library() {
        for number in [1e-9, 0.2, 0.7, 1.0, 1.5, 2.0, 3.3, 1e12] {
            assert!((log2(number) - number.log2()).abs() < 1e-9, "{number}");
        }
        assert!(log2(0.0).is_finite());
    }

    #[test]
    fn a_ratio_and_its_inverse_are_as_far_from_one() {
        for values in [vec![], vec![1.02], vec![0.6, 1.3], vec![9.13], vec![0.001, 3.0], vec![f64::NAN, 0.0]]
        {
            let axis = Axis::ratio(values.clone(), 1e4);
            let ticks = axis.ticks();
            assert!((axis.share(1.0) - 0.5).abs() < 1e-9, "{values:?}");
            for (value, label) in &ticks {
                assert!(
                    (axis.share(*value) + axis.share(1.0 / value) - 1.0).abs() < 1e-9,
                    "{values:?}: {label}"
                );
            }
            assert!(ticks.iter().any(|(value, label)| *value == 1.0 && label == "1"), "{ticks:?}");
            let mut labels: Vec<&str> = ticks.iter().map(|(_, label)| label.as_str()).collect();
            labels.dedup();
            assert_eq!(labels.len(), ticks.len(), "{labels:?}");
            let seen = values.into_iter().filter(|value| *value > 0.0);
            assert!(seen.into_iter().all(|value| !axis.is_beyond(value)), "{axis:?}");
        }
    }

    #[test]
    fn a_bound_makes_far_ratios_lie_beyond() {
        let axis = Axis::ratio([1.5, 300.0], 16.0);
        assert_eq!(axis.ends(), (1.0 / 16.0, 16.0));
        assert!(axis.is_above(300.0) && axis.is_beyond(0.01) && !axis.is_above(0.01));
        assert_eq!((axis.share(300.0), axis.share(-1.0)), (1.0, 0.0));
    }

    #[test]
    fn powers_reach_from_the_lowest_to_the_highest() {
        let axis = Axis::powers([0.3, 5.0, f64::NAN]).unwrap();
        assert_eq!(axis.ends(), (0.25, 8.0));
        assert_eq!(
            axis.ticks().iter().map(|(_, label)| label.as_str()).collect::<Vec<_>>(),
            ["0.25", "0.5", "1", "2", "4", "8"]
        );
        assert!(Axis::powers([0.0, f64::NAN]).is_none());
        assert!(Axis::powers([1.0, 1e9]).unwrap().ticks().len() <= 7);
    }
}
