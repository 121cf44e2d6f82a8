//! Series of a sweep's runs, as lines over its first key.

use super::File;
use trimtab_core::stats::median;

/// Line: its name, and its points by the place of the first key.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Values of the other keys; empty if there are none.
    pub name: String,
    /// Place on the first axis, and value.
    pub points: Vec<(usize, f64)>,
}

/// Returns whether runs that differ only in this key are repetitions of each other.
fn repeats(key: &str) -> bool {
    key == "seed" || key.ends_with(".seed")
}

/// By the places on the axes after the first: the values at each place of the first.
type Lines = Vec<(Vec<usize>, Vec<Vec<f64>>)>;

/// Returns the runs with these values: a line for each combination of the keys after the first.
/// Runs that differ only in a seed give one point, the median.
pub fn series(file: &File, values: &[Option<f64>]) -> Vec<Series> {
    let mut lines: Lines = Vec::new();
    let Some(first) = file.axes().first() else { return Vec::new() };
    let others: Vec<usize> = (1..file.axes().len()).filter(|&at| !repeats(&file.axes()[at].key)).collect();
    for (run, value) in (0..file.len()).zip(values) {
        let places = file.places(run);
        // By place: the labels of values need not differ.
        let line: Vec<usize> = others.iter().map(|&at| places[at]).collect();
        let at = lines.iter().position(|(known, _)| *known == line).unwrap_or_else(|| {
            lines.push((line, vec![Vec::new(); first.values.len()]));
            lines.len() - 1
        });
        lines[at].1[places[0]].extend(value);
    }
    let shown: Vec<Vec<String>> = others.iter().map(|&at| file.axes()[at].shown()).collect();
    let name = |line: &[usize]| {
        let values: Vec<&str> = shown.iter().zip(line).map(|(axis, &place)| axis[place].as_str()).collect();
        values.join(", ")
    };
    let points = |places: Vec<Vec<f64>>| -> Vec<(usize, f64)> {
        (0..).zip(places).filter_map(|(place, values)| Some((place, median(&values)?))).collect()
    };
    lines.into_iter().map(|(line, places)| Series { name: name(&line), points: points(places) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_with_a_common_beginning_are_separate_lines() {
        let long = |interval: &str| {
            format!("{{ kind = 'speed', metric = 'run-wait', threshold = 0.9, interval = '{interval}' }}")
        };
        let text = format!(
            "machine = 'core:2'\nkernel = 'linux-6.12'\nend = '1 s'\n[[program]]\nthreads = 1\nwork = '1 ms'\n\
            [sweep]\nprogram.1.threads = [1, 2]\npolicy = [{}, {}]\n",
            long("10 ms"),
            long("20 ms")
        );
        let file = File::open("x.toml", &text, &[], &mut |_| Err(String::new())).unwrap();
        assert_eq!(file.axes()[1].values, [long("10 ms"), long("20 ms")], "whole");
        let values: Vec<Option<f64>> = (0..4).map(|run| Some(f64::from(run))).collect();
        let name = |place: u32| format!("{}... ({place})", &long("10 ms")[..40]);
        let line = |place, points: &[(usize, f64)]| Series { name: name(place), points: points.to_vec() };
        assert_eq!(series(&file, &values), [line(1, &[(0, 0.0), (1, 2.0)]), line(2, &[(0, 1.0), (1, 3.0)])]);
    }

    #[test]
    fn seeds_are_repetitions_and_other_keys_lines() {
        let text = "machine = 'core:2'\nkernel = 'linux-6.12'\nend = '1 s'\n[[program]]\nthreads = 1\nwork = '1 ms'\n\
            [sweep]\nprogram.1.threads = [1, 2]\npolicy = ['none', 'speed']\nseed = [1, 2, 3]\n";
        let file = File::open("x.toml", text, &[], &mut |_| Err(String::new())).unwrap();
        let values: Vec<Option<f64>> = (0..12).map(|run| (run != 11).then_some(f64::from(run))).collect();
        let line =
            |name: &str, points: &[(usize, f64)]| Series { name: name.to_owned(), points: points.to_vec() };
        assert_eq!(
            series(&file, &values),
            [line("none", &[(0, 1.0), (1, 7.0)]), line("speed", &[(0, 4.0), (1, 9.5)])]
        );
    }
}
