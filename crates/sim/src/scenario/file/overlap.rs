//! Keys that are given twice: by a sweep, by variants, from outside.
//!
//! Problem: `program.app.threads` and `program.1.threads` may be one key, and `policy` gives
//! `policy.kind`. If a key is given twice, one value is run while the table names the other. Idea:
//! each giver lists the keys of the tree that it gives, by place. A giver of a key that another
//! gives too, or of a part of it, is refused, with a remedy. The intended value is never guessed.

use super::sweep::{Swept, shown};
use super::tree::{self, Key};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// Setting from outside.
#[derive(Debug)]
pub(super) struct Given {
    /// Path of the key, by place.
    pub(super) path: Vec<String>,
    /// Keys that it gives.
    pub(super) keys: Vec<Key>,
    /// Position in the text.
    pub(super) at: usize,
}

/// Key that is given twice.
#[derive(Debug)]
pub(super) struct DuplicateKey {
    /// Position of the second time.
    pub(super) at: usize,
    /// Key, as it is written there.
    pub(super) key: String,
    /// The other giver, and the remedy.
    pub(super) problem: String,
    /// Position of the other time.
    pub(super) other: usize,
}

/// Giver of a key.
#[derive(Clone, Debug)]
struct KeySource {
    /// Place of an axis, and of its value; `None` from outside.
    from: Option<(usize, usize)>,
    /// Key as it is written.
    key: String,
    at: usize,
}

/// Givers by the places of keys.
type Givers = BTreeMap<Vec<String>, KeySource>;

/// Returns the first key that is given by two axes, twice by one variant, or by an axis and from
/// outside.
pub(super) fn twice(table: &DeTable<'_>, swept: &[Swept<'_>], given: &[Given]) -> Option<DuplicateKey> {
    let mut known = Givers::new();
    for given in given {
        let giver = |key: &Key| KeySource { from: None, key: key.written.clone(), at: given.at };
        known.extend(given.keys.iter().map(|key| (key.place.clone(), giver(key))));
    }
    for (axis, one) in swept.iter().enumerate() {
        // Other values of the axis may give the same key.
        let mut own = Givers::new();
        for (value, choice) in one.values.iter().enumerate() {
            let mut of_choice = Givers::new();
            let keys = choice.puts.iter().flat_map(|(path, node)| tree::given(table, path, node.get_ref()));
            for key in keys {
                let giver = KeySource { from: Some((axis, value)), key: key.written, at: one.at };
                if let Some(other) = met(&known, &key.place).or_else(|| met(&of_choice, &key.place)) {
                    return Some(told(swept, &giver, other));
                }
                of_choice.insert(key.place, giver);
            }
            own.extend(of_choice);
        }
        known.extend(own);
    }
    None
}

/// Returns the giver of this key, or of one above or below it.
fn met<'g>(known: &'g Givers, key: &[String]) -> Option<&'g KeySource> {
    let above = (1..=key.len()).find_map(|parts| known.get(&key[..parts]));
    let below = || known.range(key.to_vec()..).next().filter(|(other, _)| other.starts_with(key));
    above.or_else(|| below().map(|(_, giver)| giver))
}

/// Returns the error for `giver`, which comes after `other`.
fn told(swept: &[Swept<'_>], giver: &KeySource, other: &KeySource) -> DuplicateKey {
    let of = |giver: &KeySource| giver.from.and_then(|(axis, value)| Some((swept.get(axis)?, value)));
    let name = |giver: &KeySource| match of(giver) {
        Some((axis, value)) if axis.varies() => format!("the variant {}", shown(&axis.values[value].label)),
        Some((axis, _)) => format!("the sweep of {}", axis.key),
        None => "--set".to_owned(),
    };
    let varies = |giver: &KeySource| of(giver).is_some_and(|(axis, _)| axis.varies());
    let (here, key) = (name(giver), giver.key.clone());
    match other.from {
        // The setting from outside is refused: the file was sound without it.
        None => {
            let problem = if varies(giver) {
                format!(
                    "{here} sets {key} itself, and would no longer fit its name: --set variant=NAME keeps variants that do not set it"
                )
            } else {
                let sweep = here.trim_start_matches("the sweep of ");
                format!("{here} gives {key} too: --set {sweep}=VALUE replaces that sweep")
            };
            DuplicateKey { at: other.at, key: other.key.clone(), problem, other: giver.at }
        }
        Some((axis, _)) if giver.from.is_some_and(|(own, _)| own == axis) => {
            let problem = format!("{here} gives {} and {key}, which are one key", other.key);
            DuplicateKey { at: giver.at, key: "sweep.variant".to_owned(), problem, other: other.at }
        }
        Some(_) => {
            let mut problem = format!("{} gives it too", name(other));
            if other.key != key {
                problem.push_str(&format!(", as {}", other.key));
            }
            if varies(giver) {
                problem = format!("{here} sets it, and {problem}");
            }
            problem.push_str(": one of them is allowed");
            DuplicateKey { at: giver.at, key, problem, other: other.at }
        }
    }
}
