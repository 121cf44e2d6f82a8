//! Parts of a field measurement: the benchmark of each, and its share of the time.

use crate::args::FieldPart;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Rounds of each part, at most: a machine that needs less than the time ends early.
const ROUNDS_MAX: u32 = 15;
/// Shortest time of a part with problems of full size; with less, the small ones are run.
const FULL_TIME_MIN: Duration = Duration::from_secs(120);

impl FieldPart {
    /// All parts, in the order in which they are measured.
    pub(crate) const ALL: [Self; 4] = [Self::Nodes, Self::Index, Self::Nested, Self::Balance];

    /// Returns the word for the part.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Index => "index",
            Self::Nested => "nested",
            Self::Balance => "balance",
        }
    }

    /// Returns a description for the user.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nodes => "far memory against near, and brm against Linux",
            Self::Index => "hardware indices against time",
            Self::Nested => "nested teams, placed and plain",
            Self::Balance => "balancing against Linux",
        }
    }

    /// Returns its share of the time, relative to the other parts.
    fn weight(self) -> u32 {
        match self {
            Self::Nodes => 6,
            Self::Index => 5,
            Self::Nested => 4,
            Self::Balance => 5,
        }
    }

    /// Returns the arguments of `trimtab-lab` for the part. Its record goes to standard output.
    pub(super) fn arguments(self, time: Duration, programs: Option<&Path>) -> Vec<OsString> {
        let rounds = ROUNDS_MAX.to_string();
        let small = time < FULL_TIME_MIN;
        let mut words: Vec<&str> = match self {
            Self::Nodes => vec!["bench", "nodes", "--repeats", &rounds],
            Self::Index => vec!["bench", "uncore", "--repeats", &rounds],
            Self::Nested => vec!["bench", "nested", "--rounds", &rounds],
            // A round of full size takes minutes even on two cores.
            Self::Balance => vec!["bench", "balance", "--quick", "--repeats", &rounds],
        };
        if small && self != Self::Balance {
            words.push("--quick");
        }
        words.extend(["--json", "-"]);
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        if let Some(folder) = programs {
            words.extend([OsString::from("--programs"), folder.into()]);
        }
        words
    }
}

/// Returns the time of the first of these parts, if this time is left for all of them.
pub(super) fn share(left: Duration, parts: &[FieldPart]) -> Duration {
    let all: u32 = parts.iter().map(|part| part.weight()).sum();
    parts.first().map_or(Duration::ZERO, |first| left * first.weight() / all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn the_time_is_divided_without_a_rest() {
        let minutes = Duration::from_secs(20 * 60);
        let (mut left, mut sum) = (minutes, Duration::ZERO);
        for at in 0..FieldPart::ALL.len() {
            let time = share(left, &FieldPart::ALL[at..]);
            assert!(time > Duration::from_secs(150), "{:?} has {time:?}", FieldPart::ALL[at]);
            (left, sum) = (left - time, sum + time);
        }
        assert!(left < Duration::from_secs(1) && sum <= minutes, "{left:?}");
        assert_eq!(share(minutes, &[]), Duration::ZERO);
    }

    #[test]
    fn every_part_is_a_command_of_the_laboratory() {
        for part in FieldPart::ALL {
            for seconds in [20, 600] {
                let words = part.arguments(Duration::from_secs(seconds), Some(Path::new("/p")));
                let line = ["trimtab-lab".into()].into_iter().chain(words);
                let parsed = Cli::try_parse_from(line).unwrap_or_else(|error| panic!("{part:?}: {error}"));
                assert!(matches!(parsed.command, Command::Bench(_)));
            }
        }
    }
}
