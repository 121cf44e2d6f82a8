//! Specification of nested teams by the user: sizes and strategies, outermost level first.

use super::tree::Tree;
use crate::words::did_you_mean;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Maximum number of listed levels. Chosen as twice the largest number that any known program
/// opens.
pub const LEVELS_MAX: usize = 8;

/// Maximum size of a team: above the largest number of CPUs that Linux supports.
pub const SIZE_MAX: u32 = 1 << 14;

/// Nested teams, outermost first: `4,scatter,2,subcompact`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Nest {
    levels: Vec<TeamLevel>,
}

/// Level of nested teams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TeamLevel {
    /// Number of threads of each team.
    pub size: TeamSize,
    /// Layout of the threads.
    pub strategy: TeamStrategy,
}

/// Number of threads of a team.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TeamSize {
    /// This number.
    Threads(u32),
    /// The number that fits, written `*`.
    Fit,
}

/// Layout of a team's threads; see the [table](super).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TeamStrategy {
    /// Close together.
    Compact,
    /// Far apart over the whole mask.
    Scatter,
    /// Close together next to their master. The meaning of a size without a strategy.
    #[default]
    SubCompact,
    /// Far apart inside their master's memory domain.
    SubScatter,
}

impl TeamStrategy {
    /// All values, with their words.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Compact, "compact"),
        (Self::Scatter, "scatter"),
        (Self::SubCompact, "subcompact"),
        (Self::SubScatter, "subscatter"),
    ];

    /// Returns whether a team stays in the master's part of the machine.
    pub fn is_sub(self) -> bool {
        matches!(self, Self::SubCompact | Self::SubScatter)
    }

    /// Returns whether the threads are far apart.
    pub fn is_scatter(self) -> bool {
        matches!(self, Self::Scatter | Self::SubScatter)
    }
}

impl fmt::Display for TeamStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.into_iter().find(|(strategy, _)| strategy == self).map_or("", |(_, word)| word))
    }
}

impl fmt::Display for TeamSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Threads(threads) => threads.fmt(f),
            Self::Fit => f.write_str("*"),
        }
    }
}

/// Reason why a text does not describe nested teams.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{problem} at position {} of \"{text}\"; expected {expected}", at + 1)]
pub struct NestError {
    /// Whole text.
    pub text: String,
    /// Byte offset of the error, from 0.
    pub at: usize,
    /// Description of the error.
    pub problem: String,
    /// Expected text at this position.
    pub expected: &'static str,
}

const A_SIZE: &str = "a team size (a count such as 4, or *), as in 4,scatter,2,subcompact";
const A_WORD: &str = "compact, scatter, subcompact or subscatter, or the next team size";

impl Nest {
    /// Creates teams from levels; `None` if `levels` is empty or a level is out of range.
    pub fn new(levels: Vec<TeamLevel>) -> Option<Self> {
        let sized = |level: &TeamLevel| !matches!(level.size, TeamSize::Threads(threads) if !(1..=SIZE_MAX).contains(&threads));
        ((1..=LEVELS_MAX).contains(&levels.len()) && levels.iter().all(sized)).then_some(Self { levels })
    }

    /// Creates the teams for a list of counts such as `OMP_NUM_THREADS=4,2`: the outermost team far
    /// apart, each inner team close to its master. Returns `None` if no inner team has two threads.
    pub fn of_counts(counts: &[u32]) -> Option<Self> {
        let deepest = counts.iter().rposition(|&count| count > 1).filter(|&deepest| deepest > 0)?;
        let level = |(at, &count): (usize, &u32)| TeamLevel {
            size: TeamSize::Threads(count),
            strategy: if at == 0 { TeamStrategy::Scatter } else { TeamStrategy::SubCompact },
        };
        Self::new(counts[..=deepest].iter().enumerate().map(level).collect())
    }

    /// Returns the levels, outermost first.
    pub fn levels(&self) -> &[TeamLevel] {
        &self.levels
    }

    /// Replaces every `*` by the number that fits the machine.
    ///
    /// The last `*` takes the cores that the other sizes leave. The first of several opens a team
    /// for each memory domain, the next one for each part of a domain.
    pub fn resolve(&self, tree: &Tree) -> Resolved {
        let fixed = |level: &TeamLevel| match level.size {
            TeamSize::Threads(threads) => threads,
            TeamSize::Fit => 1,
        };
        let mut rest = tree.cores() as u64;
        for level in &self.levels {
            rest = (rest / u64::from(fixed(level))).max(1);
        }
        let last = self.levels.iter().rposition(|level| level.size == TeamSize::Fit);
        let mut fanouts = tree.fanouts().into_iter();
        let levels = self.levels.iter().enumerate().map(|(at, level)| {
            let threads = match level.size {
                TeamSize::Threads(threads) => threads,
                TeamSize::Fit => {
                    let wanted =
                        if Some(at) == last { rest } else { fanouts.next().unwrap_or(1).clamp(1, rest) };
                    rest = (rest / wanted).max(1);
                    u32::try_from(wanted).unwrap_or(SIZE_MAX).min(SIZE_MAX)
                }
            };
            (threads, level.strategy)
        });
        Resolved { levels: levels.collect() }
    }
}

/// Teams with every size resolved to a number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    levels: Vec<(u32, TeamStrategy)>,
}

impl Resolved {
    /// Returns the number of threads and the strategy of each team, outermost first.
    pub fn levels(&self) -> &[(u32, TeamStrategy)] {
        &self.levels
    }

    /// Returns the sizes alone.
    pub fn sizes(&self) -> Vec<u32> {
        self.levels.iter().map(|(threads, _)| *threads).collect()
    }

    /// Returns the number of threads of all innermost teams together.
    pub fn threads(&self) -> u64 {
        self.levels.iter().fold(1, |all: u64, (threads, _)| all.saturating_mul(u64::from(*threads)))
    }

    /// Returns the number of threads that one thread of the level `at` needs for the teams it will
    /// open, including itself.
    pub(super) fn below(&self, at: usize) -> u64 {
        self.levels
            .iter()
            .skip(at + 1)
            .fold(1, |all: u64, (threads, _)| all.saturating_mul(u64::from(*threads)))
    }
}

impl fmt::Display for Resolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (threads, strategy)) in self.levels.iter().enumerate() {
            write!(f, "{}{threads},{strategy}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Nest {
    type Err = NestError;

    /// Parses sizes and strategies in turn, separated by commas. Spaces and case do not matter; a
    /// size alone means `subcompact`.
    fn from_str(text: &str) -> Result<Self, NestError> {
        let fault =
            |at: usize, problem: String, expected| NestError { text: text.to_owned(), at, problem, expected };
        let mut levels: Vec<TeamLevel> = Vec::new();
        let mut may_name = false;
        let mut at = 0;
        for item in text.split(',') {
            let start = at + (item.len() - item.trim_start().len());
            at += item.len() + 1;
            let word = item.trim();
            let expected = if may_name { A_WORD } else { A_SIZE };
            let named = TeamStrategy::ALL.into_iter().find(|(_, name)| word.eq_ignore_ascii_case(name));
            match named {
                Some((strategy, _)) if may_name => {
                    if let Some(level) = levels.last_mut() {
                        level.strategy = strategy;
                    }
                    may_name = false;
                    continue;
                }
                Some(_) => {
                    return Err(fault(start, format!("\"{word}\" has no team size before it"), expected));
                }
                None => {}
            }
            let size = match word {
                "" => return Err(fault(start.min(text.len()), "nothing".to_owned(), expected)),
                "*" => TeamSize::Fit,
                _ if !word.bytes().all(|byte| byte.is_ascii_digit()) => {
                    let kind = if may_name { "strategy" } else { "team size" };
                    let words = TeamStrategy::ALL.into_iter().filter(|_| may_name).map(|(_, word)| word);
                    let meant = did_you_mean(word, words);
                    return Err(fault(start, format!("\"{word}\" is not a {kind}{meant}"), expected));
                }
                _ => match word.parse::<u32>() {
                    Ok(0) => return Err(fault(start, "a team of 0 threads".to_owned(), A_SIZE)),
                    Ok(threads) if threads <= SIZE_MAX => TeamSize::Threads(threads),
                    _ => {
                        let problem = format!("a team of {word} threads (at most {SIZE_MAX})");
                        return Err(fault(start, problem, A_SIZE));
                    }
                },
            };
            if levels.len() == LEVELS_MAX {
                return Err(fault(start, format!("more than {LEVELS_MAX} levels"), "the end"));
            }
            levels.push(TeamLevel { size, strategy: TeamStrategy::default() });
            may_name = true;
        }
        Ok(Self { levels })
    }
}

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, TeamLevel { size, strategy }) in self.levels.iter().enumerate() {
            write!(f, "{}{size},{strategy}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for Nest {
    type Error = NestError;
    fn try_from(text: String) -> Result<Self, NestError> {
        text.parse()
    }
}

impl From<Nest> for String {
    fn from(nest: Nest) -> Self {
        nest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_strategies_take_turns() {
        for (text, same) in [
            ("4,scatter,2,subcompact", "4,scatter,2,subcompact"),
            (" 4 , Scatter, 2 ,SUBSCATTER ", "4,scatter,2,subscatter"),
            ("4", "4,subcompact"),
            ("4,2,compact,8", "4,subcompact,2,compact,8,subcompact"),
            ("*,scatter,*", "*,scatter,*,subcompact"),
        ] {
            assert_eq!(text.parse::<Nest>().unwrap().to_string(), same, "{text:?}");
        }
    }

    #[test]
    fn a_list_of_counts_is_a_shape_where_inner_teams_have_threads() {
        let shape = |counts: &[u32]| Nest::of_counts(counts).map(|nest| nest.to_string());
        assert_eq!(shape(&[4, 2]).as_deref(), Some("4,scatter,2,subcompact"));
        assert_eq!(shape(&[1, 4, 1]).as_deref(), Some("1,scatter,4,subcompact"));
        for flat in [&[4][..], &[4, 1], &[4, 1, 1], &[], &[0, 2]] {
            assert_eq!(shape(flat), None, "{flat:?}");
        }
    }

    #[test]
    fn faults_name_position_and_expected_word() {
        for (text, error) in [
            ("", "nothing at position 1 of \"\"; expected a team size"),
            ("4,scatter,", "nothing at position 11 of"),
            (
                "4,scater,2",
                "\"scater\" is not a strategy (did you mean scatter?) at position 3 of \"4,scater,2\"; expected compact, scatter, subcompact or subscatter, or the next team size",
            ),
            ("scatter,4", "\"scatter\" has no team size before it at position 1"),
            ("4,scatter,compact", "\"compact\" has no team size before it at position 11"),
            ("4,scatter, x", "\"x\" is not a team size at position 12"),
            ("0,scatter", "a team of 0 threads at position 1"),
            ("4,scatter,99999", "a team of 99999 threads (at most 16384) at position 11"),
            ("4,scatter,99999999999999999999", "a team of 99999999999999999999 threads"),
            ("-1", "\"-1\" is not a team size at position 1"),
            ("4x", "\"4x\" is not a team size at position 1"),
            ("1,1,1,1,1,1,1,1,1", "more than 8 levels at position 17"),
            ("4,,2", "nothing at position 3"),
        ] {
            let found = text.parse::<Nest>().unwrap_err().to_string();
            assert!(found.starts_with(error), "{text:?}: {found}");
        }
    }

    #[test]
    fn a_star_takes_the_remaining_cores() {
        let tree = "[0,1,2,3],[4,5,6,7],[8,9,10,11],[12,13,14,15]".parse::<Tree>().unwrap();
        for (text, sizes) in [
            ("*", &[16][..]),
            ("4,scatter,*", &[4, 4]),
            ("*,scatter,2", &[8, 2]),
            ("*,scatter,*", &[4, 4]),
            ("*,scatter,2,subcompact,*", &[4, 2, 2]),
            ("3,scatter,*", &[3, 5]),
            ("64,scatter,*", &[64, 1]),
            ("2,scatter,*,subscatter,*", &[2, 4, 2]),
        ] {
            assert_eq!(text.parse::<Nest>().unwrap().resolve(&tree).sizes(), sizes, "{text}");
        }
    }

    proptest! {
        #[test]
        fn written_data_is_read_back(levels in prop::collection::vec((0..=SIZE_MAX, 0..4usize), 1..=LEVELS_MAX)) {
            let levels = levels.into_iter().map(|(size, strategy)| TeamLevel {
                size: if size == 0 { TeamSize::Fit } else { TeamSize::Threads(size) },
                strategy: TeamStrategy::ALL[strategy].0,
            });
            let nest = Nest::new(levels.collect()).unwrap();
            prop_assert_eq!(nest.to_string().parse(), Ok(nest));
        }

        #[test]
        fn any_text_is_read_or_refused_without_harm(text in "[0-9*, a-z]{0,12}|.{0,20}|(4|\\*|scatter|,| |é){0,9}") {
            match text.parse::<Nest>() {
                Ok(nest) => prop_assert_eq!(nest.to_string().parse(), Ok(nest)),
                Err(error) => prop_assert!(text.is_char_boundary(error.at), "{} {:?}", error, text),
            }
        }
    }
}
