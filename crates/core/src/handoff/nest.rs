//! Hand-off of nested teams to the shim: the machine as a tree, and the requested teams.
//!
//! A second text beside the plan, for OpenMP programs only: `1 tree=[0,1],[2,3] roots=alone
//! report=no nest=2,scatter,2,subcompact`. Two fields are optional: `wide=` after the tree holds
//! the cores from which the plan was narrowed, and `missed=` after the report determines the
//! treatment of a program in which no thread was placed. The tree is there also without teams, so
//! that a program can name teams later by `omp_set_nesting_info`; the shim then gets the map from
//! [`nesting`](crate::place::nesting). The shim reads this text before threads exist, and may
//! allocate while it does.

use crate::place::nesting::{Nest, NestError, Teams, Tree, TreeError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use thiserror::Error;

/// Environment variable that carries the text.
pub const NEST_VARIABLE: &str = "TRIMTAB_NEST";

/// Version of the text.
const VERSION: &str = "1";

/// Nested teams for the shim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NestHandoff {
    /// Cores that may be used.
    pub tree: Tree,
    /// Cores on which the teams were placed before the plan was narrowed to those they use; see
    /// [`Teams`].
    pub wide: Option<Tree>,
    /// Treatment of further threads that open regions by themselves.
    pub roots: Roots,
    /// Report at exit, and its destination.
    pub report: Report,
    /// Treatment of a program that ends without a placed thread.
    pub missed: Missed,
    /// Requested teams, if any.
    pub nest: Option<Nest>,
}

impl NestHandoff {
    /// Places teams on the cores that may be used.
    pub fn teams(&self, nest: &Nest) -> Teams {
        Teams::new(self.tree.clone(), self.wide.as_ref(), nest)
    }
}

/// Treatment of a program that was given teams and ends by itself without a placed thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Missed {
    /// Nothing happens: no teams were requested, or the user wants no message.
    #[default]
    Ignored,
    /// One line is written on standard error.
    Told,
    /// The line is written, and a program that would have ended with status 0 fails.
    Fails,
}

/// Treatment of threads that open outermost regions after another thread did (`std::thread`,
/// Python's threads).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Roots {
    /// The first thread has the map; the teams of others stay where the system puts them.
    #[default]
    Alone,
    /// All use the same map.
    Share,
    /// This number of threads have a part of the machine each; further ones share the parts in
    /// turn.
    Part(u32),
}

/// Destination of the shim's report.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Report {
    /// Nowhere.
    #[default]
    No,
    /// On standard error.
    Stderr,
    /// Into a file, created or overwritten.
    File(PathBuf),
}

impl FromStr for Roots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let part =
            |count: &str| count.parse().ok().filter(|count| (1..=1024).contains(count)).map(Self::Part);
        match text {
            "alone" => Some(Self::Alone),
            "share" => Some(Self::Share),
            _ => text.strip_prefix("part:").and_then(part),
        }
        .ok_or_else(|| format!("unknown treatment of further roots \"{text}\" (known: alone, share, part:N)"))
    }
}

impl fmt::Display for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("alone"),
            Self::Share => f.write_str("share"),
            Self::Part(count) => write!(f, "part:{count}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::No => f.write_str("no"),
            Self::Stderr => f.write_str("stderr"),
            Self::File(path) => {
                // The path has a directory, so that no file is taken for a word above. Blanks would
                // end the field. Line ends are escaped because tools that read environments by
                // lines would take one for the end of the variable.
                let path = path.to_string_lossy();
                let directory = if path.contains('/') { "" } else { "./" };
                let path = path.replace('%', "%25").replace(' ', "%20").replace('\n', "%0A");
                write!(f, "{directory}{path}")
            }
        }
    }
}

/// Error of a text that is not a hand-off of nested teams.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NestHandoffError {
    /// The text has another version.
    #[error("this version of the text is not understood, only version {VERSION}")]
    Version,
    /// A field is missing, or not in its place.
    #[error("\"{0}\" is missing")]
    Missing(&'static str),
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The value of `roots` is unknown.
    #[error("{0}")]
    Roots(String),
    /// The teams cannot be read.
    #[error(transparent)]
    Nest(#[from] NestError),
}

impl fmt::Display for NestHandoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tree, wide, roots, report, missed, nest } = self;
        write!(f, "{VERSION} tree={tree}")?;
        wide.iter().try_for_each(|wide| write!(f, " wide={wide}"))?;
        write!(f, " roots={roots} report={report}")?;
        f.write_str(match missed {
            Missed::Ignored => "",
            Missed::Told => " missed=told",
            Missed::Fails => " missed=fails",
        })?;
        f.write_str(" nest=")?;
        nest.iter().try_for_each(|nest| nest.fmt(f))
    }
}

impl FromStr for NestHandoff {
    type Err = NestHandoffError;

    fn from_str(text: &str) -> Result<Self, NestHandoffError> {
        let rest = text.strip_prefix(VERSION).and_then(|rest| rest.strip_prefix(' '));
        let mut rest = rest.ok_or(NestHandoffError::Version)?;
        let mut field = |key: &'static str| {
            let missing = NestHandoffError::Missing(key);
            let value = rest.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
            let value = value.ok_or(missing)?;
            let (value, after) = value.split_once(' ').unwrap_or((value, ""));
            rest = after;
            Ok::<&str, NestHandoffError>(value)
        };
        let tree = field("tree")?.parse()?;
        let wide = field("wide").ok().map(str::parse).transpose()?;
        let roots = field("roots")?.parse().map_err(NestHandoffError::Roots)?;
        let report = match field("report")? {
            "no" => Report::No,
            "stderr" => Report::Stderr,
            path => {
                Report::File(PathBuf::from(path.replace("%20", " ").replace("%0A", "\n").replace("%25", "%")))
            }
        };
        let missed = match field("missed") {
            Err(_) => Missed::Ignored,
            Ok("told") => Missed::Told,
            Ok("fails") => Missed::Fails,
            Ok(_) => return Err(NestHandoffError::Missing("missed")),
        };
        let nest = match field("nest")? {
            "" => None,
            nest => Some(nest.parse()?),
        };
        Ok(Self { tree, wide, roots, report, missed, nest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn written_data_is_read_back() {
        for text in [
            "1 tree=[1,0] roots=alone report=no nest=2,scatter,2,scatter",
            "1 tree=[0+2,1+3] roots=share report=stderr nest=",
            "1 tree=[0,2] wide=[0,1],[2,3] roots=alone report=no missed=told nest=2,scatter",
            "1 tree=[0] roots=alone report=stderr missed=fails nest=2,scatter",
            "1 tree=[0],[1] roots=part:3 report=/tmp/a%20b%25.txt nest=*,compact",
        ] {
            assert_eq!(text.parse::<NestHandoff>().unwrap().to_string(), text);
        }
        let file = Report::File(PathBuf::from("stderr"));
        assert_eq!(file.to_string(), "./stderr");
        let lines = "1 tree=[0] roots=alone report=/tmp/a%0Ab%250A nest=".parse::<NestHandoff>().unwrap();
        assert_eq!(lines.report, Report::File(PathBuf::from("/tmp/a\nb%0A")));
        assert!(lines.to_string().ends_with("report=/tmp/a%0Ab%250A nest="));
    }

    #[test]
    fn faults_are_named() {
        for (text, error) in [
            ("", "this version of the text is not understood, only version 1"),
            ("2 tree=[0]", "this version of the text is not understood, only version 1"),
            ("1 roots=alone", "\"tree\" is missing"),
            ("1 tree=[0 roots=alone report=no nest=", "a group is not closed at position 3 of the tree"),
            (
                "1 tree=[0] roots=x report=no nest=",
                "unknown treatment of further roots \"x\" (known: alone, share, part:N)",
            ),
            (
                "1 tree=[0] roots=part:0 report=no nest=",
                "unknown treatment of further roots \"part:0\" (known: alone, share, part:N)",
            ),
            ("1 tree=[0] roots=alone nest=", "\"report\" is missing"),
            ("1 tree=[0] wide=[0 roots=alone", "a group is not closed at position 3 of the tree"),
            ("1 tree=[0] roots=alone report=no missed=x nest=", "\"missed\" is missing"),
            ("1 tree=[0] roots=alone report=no", "\"nest\" is missing"),
        ] {
            assert_eq!(text.parse::<NestHandoff>().unwrap_err().to_string(), error, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_without_harm(text in "1 tree=[-0-9,(+)\\[\\]]{0,9}( wide=[-0-9,(+)\\[\\]]{0,9})? roots=(alone|part:[0-9]{1,4}|x) report=[a-z/%0-9]{0,9}( missed=(told|fails|x))? nest=[0-9*,a-z ]{0,9}|.{0,30}") {
            if let Ok(handoff) = text.parse::<NestHandoff>() {
                prop_assert!(handoff.to_string().parse::<NestHandoff>().is_ok());
            }
        }
    }
}
