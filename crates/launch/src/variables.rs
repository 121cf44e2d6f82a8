//! Environment in which a launch starts, and the changes that the launch makes to it.

use crate::own_values::{OwnValues, SET_BY_US};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use trimtab_core::place::{Action, Variable};

/// Variables that a process inherits.
///
/// # Examples
/// ```
/// use trimtab_launch::Environment;
///
/// let environment: Environment = [("OMP_NUM_THREADS".into(), "4".into())].into_iter().collect();
/// assert_eq!(environment.of_user("OMP_NUM_THREADS").as_deref(), Some("4"));
/// assert_eq!(environment.raw("OMP_NUM_THREADS"), Some("4".as_ref()));
/// assert_eq!(environment.text("OMP_PLACES"), None);
/// assert_eq!(environment.names().collect::<Vec<_>>(), ["OMP_NUM_THREADS"]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment(Vec<(OsString, OsString)>); // sorted by name, and each name once

/// Changes to an environment: a name and its new value, or `None` for a variable that is removed.
pub type Changes = BTreeMap<String, Option<OsString>>;

impl FromIterator<(OsString, OsString)> for Environment {
    fn from_iter<I: IntoIterator<Item = (OsString, OsString)>>(variables: I) -> Self {
        let mut entries: Vec<_> = variables.into_iter().collect();
        entries.sort_by(|(left, _), (right, _)| left.cmp(right));
        // Of entries with the same name, the last is kept.
        entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(later, earlier);
            }
            same
        });
        Self(entries)
    }
}

impl Environment {
    /// Returns the unchanged value of a variable. [`Environment`] has an example.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.position(name).ok().map(|at| self.0[at].1.as_os_str())
    }

    /// Returns the index of a variable, or the index at which it would be.
    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.as_os_str().cmp(OsStr::new(name)))
    }

    /// Returns the value of a variable that is valid text; other variables count as unset.
    /// [`Environment`] has an example.
    pub fn text(&self, name: &str) -> Option<String> {
        self.raw(name)?.to_str().map(str::to_owned)
    }

    /// Returns the names of all variables with a text name. [`Environment`] has an example.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|(name, _)| name.to_str())
    }

    /// Yields all variables, in the order of their names.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::Environment;
    ///
    /// let entries = [("B".into(), "2".into()), ("A".into(), "1".into())];
    /// let environment: Environment = entries.into_iter().collect();
    /// let names: Vec<_> = environment.entries().map(|(name, _)| name).collect();
    /// assert_eq!(names, ["A", "B"]);
    /// ```
    pub fn entries(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.0.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    /// Returns a variable that the *user* set. A value that an enclosing trimtab set, unchanged
    /// since, does not count. [`Self::own_values`] has an example.
    pub fn of_user(&self, name: &str) -> Option<String> {
        let value = self.raw(name)?.to_string_lossy().into_owned();
        (!self.own_values().contain(name, &value)).then_some(value)
    }

    /// Returns the record of values that an enclosing trimtab set.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::{Environment, OwnValues, SET_BY_US};
    ///
    /// let mut own = OwnValues::default();
    /// own.add("OMP_NUM_THREADS", "4");
    /// let record = (SET_BY_US.into(), own.to_string().into());
    /// let entries = [record, ("OMP_NUM_THREADS".into(), "4".into())];
    /// let environment: Environment = entries.into_iter().collect();
    /// assert_eq!(environment.own_values(), own);
    /// assert_eq!(environment.of_user("OMP_NUM_THREADS"), None); // An enclosing run set it.
    /// ```
    pub fn own_values(&self) -> OwnValues {
        self.text(SET_BY_US).map_or_else(OwnValues::default, |text| OwnValues::read(&text))
    }

    /// Returns these variables with another value of one.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::Environment;
    ///
    /// let environment = Environment::default().with("A", "1").with("A", "2");
    /// assert_eq!(environment.text("A").as_deref(), Some("2"));
    /// ```
    #[must_use]
    pub fn with(&self, name: &str, value: &str) -> Self {
        let mut variables = self.clone();
        match variables.position(name) {
            Ok(at) => variables.0[at].1 = value.into(),
            Err(at) => variables.0.insert(at, (name.into(), value.into())),
        }
        variables
    }

    /// Returns all entries as `NAME=VALUE`, with the changes applied.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::{Changes, Environment};
    ///
    /// let entries = [("A".into(), "1".into()), ("B".into(), "2".into())];
    /// let environment: Environment = entries.into_iter().collect();
    /// let changes: Changes = [("A".to_owned(), None), ("C".to_owned(), Some("3".into()))].into();
    /// assert_eq!(environment.changed(&changes), ["B=2", "C=3"]);
    /// ```
    pub fn changed(&self, changes: &Changes) -> Vec<OsString> {
        let mut all: BTreeMap<&OsStr, &OsStr> = self.entries().collect();
        for (name, value) in changes {
            match value {
                Some(value) => all.insert(OsStr::new(name), value),
                None => all.remove(OsStr::new(name)),
            };
        }
        let entry = |(name, value): (&OsStr, &OsStr)| {
            [name, OsStr::new("="), value].into_iter().collect::<OsString>()
        };
        all.into_iter().map(entry).collect()
    }

    /// Returns the changes that carry out the decided variables, including the record of them for
    /// inner runs. [`LaunchPlan`](crate::LaunchPlan) has an example.
    pub fn changes(&self, decided: &[Variable]) -> Changes {
        let mut changes = Changes::new();
        let mut ours = OwnValues::default();
        for Variable { name, action, .. } in decided {
            match action {
                Action::Set { value } | Action::Fitted { value, .. } => {
                    changes.insert(name.clone(), Some(OsString::from(value)));
                    ours.add(name, value);
                }
                Action::Removed { .. } => {
                    changes.insert(name.clone(), None);
                }
                // An enclosing run set this value for its own cores.
                Action::Unset { .. } if self.text(name).is_some() && self.of_user(name).is_none() => {
                    changes.insert(name.clone(), None);
                }
                Action::Unset { .. } | Action::Kept { .. } => {}
            }
        }
        // A value that an enclosing run set and that stays must remain known as not set by the
        // user.
        let before = self.own_values();
        for name in self.names().filter(|name| !changes.contains_key(*name)) {
            if let Some(value) = self.text(name).filter(|value| before.contain(name, value)) {
                ours.add(name, &value);
            }
        }
        let list = (!ours.is_empty()).then(|| OsString::from(ours.to_string()));
        changes.insert(SET_BY_US.to_owned(), list);
        changes
    }
}
