//! Programs outside of all holds to which a hold that has grown gives cores back.
//!
//! Runs that wait always get cores back. A program that was not started by trimtab asks for
//! nothing: it only shares the CPUs of the hold. A user, or a site for all runs, names those to
//! which a hold yields all the same.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Word for no such programs.
const RUNS: &str = "runs";
/// Word for the programs of all users.
const ALL: &str = "all";

/// Programs to which a hold yields, by their users.
///
/// # Examples
/// ```
/// use trimtab_core::resize::yields::YieldTo;
///
/// let users: YieldTo = "ann,1000".parse()?;
/// let (users, unknown) = users.numbered(|name| (name == "ann").then_some(7));
/// assert!(users.includes(7) && users.includes(1000) && !users.includes(0));
/// assert!(unknown.is_empty());
/// assert_eq!(users.union(YieldTo::All), YieldTo::All);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum YieldTo {
    /// No programs outside of holds.
    #[default]
    Runs,
    /// Those of these users, each a name or a number.
    Users(BTreeSet<String>),
    /// Those of all users.
    All,
}

impl YieldTo {
    /// Returns those of one user.
    pub fn user(uid: u32) -> Self {
        Self::Users(BTreeSet::from([uid.to_string()]))
    }

    /// Returns those to which one of the two yields.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, _) | (_, Self::All) => Self::All,
            (Self::Users(users), Self::Users(others)) => {
                Self::Users(users.into_iter().chain(others).collect())
            }
            (Self::Runs, other) | (other, Self::Runs) => other,
        }
    }

    /// Replaces names of users by numbers. `number_of` returns the number of a name. Names that it
    /// does not know are left out, and returned beside.
    #[must_use]
    pub fn numbered(self, number_of: impl Fn(&str) -> Option<u32>) -> (Self, Vec<String>) {
        let Self::Users(users) = self else { return (self, Vec::new()) };
        let mut unknown = Vec::new();
        let number = |user: String| match user.parse().ok().or_else(|| number_of(&user)) {
            Some(uid) => Some(u32::to_string(&uid)),
            None => {
                unknown.push(user);
                None
            }
        };
        let users: BTreeSet<String> = users.into_iter().filter_map(number).collect();
        (if users.is_empty() { Self::Runs } else { Self::Users(users) }, unknown)
    }

    /// Returns whether the programs of a user are among them. Users are known by their numbers
    /// only: see [`numbered`](Self::numbered).
    pub fn includes(&self, uid: u32) -> bool {
        match self {
            Self::Runs => false,
            Self::Users(users) => users.contains(&uid.to_string()),
            Self::All => true,
        }
    }

    /// Returns the phrase for people; `None` if no programs outside of holds are meant.
    pub fn phrase(&self) -> Option<String> {
        match self {
            Self::Runs => None,
            Self::Users(users) => Some(format!(
                "programs of {}",
                users.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
            )),
            Self::All => Some("programs of all users".to_owned()),
        }
    }
}

impl FromStr for YieldTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            RUNS => return Ok(Self::Runs),
            ALL => return Ok(Self::All),
            _ => {}
        }
        let is_name = |name: &str| {
            let inner = |letter: char| letter.is_alphanumeric() || "._-$".contains(letter);
            !name.is_empty() && !name.starts_with('-') && name.chars().all(inner)
        };
        let users: BTreeSet<String> = text.split(',').map(str::to_owned).collect();
        match users.iter().find(|name| !is_name(name) || [RUNS, ALL].contains(&name.as_str())) {
            None => Ok(Self::Users(users)),
            Some(_) => {
                Err(format!("\"{text}\" is neither runs, nor all, nor a list of users (ann,www-data,1000)"))
            }
        }
    }
}

impl TryFrom<String> for YieldTo {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<YieldTo> for String {
    fn from(to: YieldTo) -> Self {
        to.to_string()
    }
}

impl fmt::Display for YieldTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs => f.write_str(RUNS),
            Self::All => f.write_str(ALL),
            Self::Users(users) => {
                for (at, user) in users.iter().enumerate() {
                    write!(f, "{}{user}", if at > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(text: &str) -> YieldTo {
        text.parse().unwrap()
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        for text in ["runs", "all", "1000", "ann,bob", "0,www-data"] {
            assert_eq!(to(text).to_string(), text);
        }
        assert_eq!(to("bob,ann,bob").to_string(), "ann,bob");
        for bad in ["", ",", "ann,", "ann bob", "ann,all", "runs,ann", "-1", "a/b"] {
            assert!(bad.parse::<YieldTo>().unwrap_err().contains("neither runs, nor all"), "{bad}");
        }
    }

    #[test]
    fn users_are_known_by_numbers_and_unknown_names_are_returned() {
        let number_of = |name: &str| match name {
            "root" => Some(0),
            "ann" => Some(1),
            _ => None,
        };
        let (users, unknown) = to("ann,carl,77").numbered(number_of);
        assert_eq!((users.to_string().as_str(), unknown.join(" ").as_str()), ("1,77", "carl"));
        assert_eq!([0, 1, 77, 7].map(|uid| users.includes(uid)), [false, true, true, false]);
        let (nobody, unknown) = to("carl").numbered(number_of);
        assert_eq!((nobody, unknown.len()), (YieldTo::Runs, 1), "an unknown user is not everybody");
        assert!(!to("ann").includes(1), "a name alone");
    }

    #[test]
    fn a_union_has_those_of_both() {
        for (one, other, both) in [
            ("runs", "runs", "runs"),
            ("runs", "ann", "ann"),
            ("ann", "bob,ann", "ann,bob"),
            ("ann", "all", "all"),
            ("all", "runs", "all"),
        ] {
            assert_eq!(to(one).union(to(other)), to(both));
            assert_eq!(to(other).union(to(one)), to(both));
        }
    }
}
