//! Correlation: three measures of how far two quantities change together.
//!
//! Unit: none. Problem: an index is to replace a run time that cannot be measured while a program
//! runs. There are three questions, from the strongest to the weakest: is the index proportional to
//! the time (Pearson), does it give the same order (Spearman), and does it change in the same
//! direction when the time changes? A policy that only compares needs the last. A few large changes
//! can make the first succeed without the last.
//!
//! Properties: the measures are symmetric in the two quantities. Pearson does not change when
//! either quantity is shifted or scaled, Spearman does not change under any growing function; both
//! lie in -1..=1. A correlation that cannot be computed is `None`: fewer than three pairs, a
//! quantity that does not vary, or a value that is not finite.

use serde::Serialize;

/// Pairs needed for a correlation: two pairs always lie on a line.
const PAIRS_MIN: usize = 3;

/// Agreement in direction of the changes of two quantities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Agreement {
    /// Changes in the same direction.
    pub agree: usize,
    /// Changes that were large enough to be considered.
    pub of: usize,
}

/// Returns Pearson's product-moment correlation, -1 to 1; `None` if it cannot be computed.
pub fn pearson(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < PAIRS_MIN || pairs.iter().any(|(x, y)| !(x.is_finite() && y.is_finite())) {
        return None;
    }
    let count = pairs.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut xx, mut yy, mut xy) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        let (x, y) = (x - mean_x, y - mean_y);
        xx += x * x;
        yy += y * y;
        xy += x * y;
    }
    // The roots come first: the product of the squares can leave the range of numbers.
    let scale = xx.sqrt() * yy.sqrt();
    (scale > 0.0 && scale.is_finite()).then(|| (xy / scale).clamp(-1.0, 1.0))
}

/// Returns Spearman's rank correlation, -1 to 1: Pearson's correlation of the ranks, in which equal
/// values share a rank.
pub fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.iter().any(|(x, y)| !(x.is_finite() && y.is_finite())) {
        return None;
    }
    let ranks = |of: fn(&(f64, f64)) -> f64| ranks(&pairs.iter().map(of).collect::<Vec<f64>>());
    let both: Vec<(f64, f64)> = ranks(|pair| pair.0).into_iter().zip(ranks(|pair| pair.1)).collect();
    pearson(&both)
}

/// Returns the rank of each number, from 1; equal numbers get the mean of their ranks.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
    let mut ranks = vec![0.0; numbers.len()];
    let mut from = 0;
    for equal in order.chunk_by(|&a, &b| numbers[a] == numbers[b]) {
        let place = from as f64 + (equal.len() as f64 + 1.0) / 2.0;
        for &at in equal {
            ranks[at] = place;
        }
        from += equal.len();
    }
    ranks
}

/// Counts the pairs of which the second value has the sign of the first, among pairs whose first
/// value is more than `least` away from zero.
pub fn agreement(changes: &[(f64, f64)], least: f64) -> Agreement {
    let asked = || changes.iter().filter(|(change, _)| change.abs() > least);
    Agreement { agree: asked().filter(|(change, other)| change * other > 0.0).count(), of: asked().count() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs() -> impl Strategy<Value = Vec<(f64, f64)>> {
        proptest::collection::vec((-100.0..100.0_f64, -100.0..100.0_f64), 3..20)
    }

    fn near(a: Option<f64>, b: Option<f64>) -> bool {
        match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-6,
            (a, b) => a == b,
        }
    }

    #[test]
    fn it_is_that_of_the_textbook() {
        // Anscombe's first set.
        let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let pairs: Vec<(f64, f64)> = x.into_iter().zip(y).collect();
        assert!((pearson(&pairs).unwrap() - 0.816_420_5).abs() < 1e-6);
        // Without ties: 1 - 6 sum d^2 / n (n^2 - 1), with sum d^2 = 40.
        assert!((spearman(&pairs).unwrap() - (1.0 - 240.0 / 1320.0)).abs() < 1e-12);
    }

    #[test]
    fn ties_share_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0, 3.0]), [4.0, 1.0, 4.0, 2.0, 4.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn an_undefined_correlation_is_missing() {
        assert_eq!(pearson(&[(1.0, 1.0), (2.0, 2.0)]), None);
        assert_eq!(pearson(&[(1.0, 1.0), (2.0, 1.0), (3.0, 1.0)]), None, "one does not vary");
        assert_eq!(pearson(&[(1.0, 1.0), (2.0, 2.0), (3.0, f64::NAN)]), None);
        assert_eq!(spearman(&[(1.0, 1.0), (2.0, 2.0), (f64::INFINITY, 3.0)]), None);
        assert_eq!(spearman(&[]), None);
    }

    #[test]
    fn only_large_changes_are_asked_for() {
        let changes = [(0.5, 0.1), (-0.2, 0.3), (0.04, -1.0), (-0.06, -0.01), (0.3, 0.0)];
        assert_eq!(agreement(&changes, 0.05), Agreement { agree: 2, of: 4 });
        assert_eq!(agreement(&[], 0.05), Agreement::default());
    }

    proptest! {
        #[test]
        fn it_is_bounded_symmetric_and_blind_to_scale(pairs in pairs(), factor in 0.1..10.0_f64, shift in -50.0..50.0_f64) {
            let turned: Vec<(f64, f64)> = pairs.iter().map(|&(x, y)| (y, x)).collect();
            let stretched: Vec<(f64, f64)> = pairs.iter().map(|&(x, y)| (factor * x + shift, y)).collect();
            let mirrored: Vec<(f64, f64)> = pairs.iter().map(|&(x, y)| (-x, y)).collect();
            for correlation in [pearson, spearman] {
                let found = correlation(&pairs);
                prop_assert!(found.is_none_or(|r| (-1.0..=1.0).contains(&r)));
                prop_assert!(near(found, correlation(&turned)));
                prop_assert!(near(found, correlation(&stretched)));
                prop_assert!(near(found.map(|r| -r), correlation(&mirrored)));
            }
        }

        #[test]
        fn ranks_do_not_care_how_a_quantity_grows(pairs in pairs()) {
            let grown: Vec<(f64, f64)> = pairs.iter().map(|&(x, y)| (x.powi(3), y)).collect();
            prop_assert!(near(spearman(&pairs), spearman(&grown)));
        }

        #[test]
        fn a_line_is_perfect(xs in proptest::collection::btree_set(-1000..1000_i32, 3..20), slope in 0.1..10.0_f64) {
            let line: Vec<(f64, f64)> = xs.iter().map(|&x| (f64::from(x), slope * f64::from(x) + 1.0)).collect();
            prop_assert!(near(pearson(&line), Some(1.0)) && near(spearman(&line), Some(1.0)));
            let changes: Vec<(f64, f64)> = line.iter().map(|&(x, _)| (x, slope * x)).collect();
            let Agreement { agree, of } = agreement(&changes, 5.0);
            prop_assert_eq!(agree, of);
        }
    }
}
