//! Keys that are given twice: by a sweep, by variants, from outside.
//!
//! Problem: `program.app.threads` and `program.1.threads` may be one key, `policy` gives `policy.kind`, and of a key that is given twice
//! one value is run while the table names the other. Idea: each says which keys of the tree it gives, by place; who gives what
//! another gives too, or a part of it, is refused, with what to do. Nobody guesses which was meant.

use super::sweep::{Swept, shown};
use super::tree::{self, Key};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// What was set from outside, once.
#[derive(Debug)]
pub(super) struct Given {
    /// The key's path, by place.
    pub(super) path: Vec<String>,
    /// The keys that it gives.
    pub(super) keys: Vec<Key>,
    /// Where it stands.
    pub(super) at: usize,
}

/// A key that is given twice.
#[derive(Debug)]
pub(super) struct Twice {
    /// Where it is given the second time.
    pub(super) at: usize,
    /// The key, as it is written there.
    pub(super) key: String,
    /// Who else gives it, and what to do.
    pub(super) problem: String,
    /// Where it is given as well.
    pub(super) other: usize,
}

/// Who gives a key.
#[derive(Clone, Debug)]
struct Giver {
    /// The place of an axis, and of its value; `None` from outside.
    from: Option<(usize, usize)>,
    /// The key as it is written.
    key: String,
    at: usize,
}

/// By the places of keys.
type Givers = BTreeMap<Vec<String>, Giver>;

/// The first key that is given by two axes, twice by one variant, or by an axis and from outside.
pub(super) fn twice(table: &DeTable<'_>, swept: &[Swept<'_>], given: &[Given]) -> Option<Twice> {
    let mut known = Givers::new();
    for given in given {
        let giver = |key: &Key| Giver { from: None, key: key.written.clone(), at: given.at };
        known.extend(given.keys.iter().map(|key| (key.place.clone(), giver(key))));
    }
    for (axis, one) in swept.iter().enumerate() {
        // Other values of the axis may give the same.
        let mut own = Givers::new();
        for (value, choice) in one.values.iter().enumerate() {
            let mut of_choice = Givers::new();
            let keys = choice.puts.iter().flat_map(|(path, node)| tree::given(table, path, node.get_ref()));
            for key in keys {
                let giver = Giver { from: Some((axis, value)), key: key.written, at: one.at };
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

/// Who gives this key, one above it or one below it.
fn met<'g>(known: &'g Givers, key: &[String]) -> Option<&'g Giver> {
    let above = (1..=key.len()).find_map(|parts| known.get(&key[..parts]));
    let below = || known.range(key.to_vec()..).next().filter(|(other, _)| other.starts_with(key));
    above.or_else(|| below().map(|(_, giver)| giver))
}

/// What is said of `giver`, who comes after `other`.
fn told(swept: &[Swept<'_>], giver: &Giver, other: &Giver) -> Twice {
    let of = |giver: &Giver| giver.from.and_then(|(axis, value)| Some((swept.get(axis)?, value)));
    let name = |giver: &Giver| match of(giver) {
        Some((axis, value)) if axis.varies() => format!("the variant {}", shown(&axis.values[value].label)),
        Some((axis, _)) => format!("the sweep of {}", axis.key),
        None => "--set".to_owned(),
    };
    let varies = |giver: &Giver| of(giver).is_some_and(|(axis, _)| axis.varies());
    let (here, key) = (name(giver), giver.key.clone());
    match other.from {
        // What was set from outside is what is refused: the file is as it was.
        None => {
            let problem = if varies(giver) {
                format!(
                    "{here} sets {key} itself, and would not be what it is called: --set variant=NAME keeps variants that do not"
                )
            } else {
                let sweep = here.trim_start_matches("the sweep of ");
                format!("{here} gives {key} too: --set {sweep}=VALUE takes the place of that sweep")
            };
            Twice { at: other.at, key: other.key.clone(), problem, other: giver.at }
        }
        Some((axis, _)) if giver.from.is_some_and(|(own, _)| own == axis) => {
            let problem = format!("{here} gives {} and {key}, which are one key", other.key);
            Twice { at: giver.at, key: "sweep.variant".to_owned(), problem, other: other.at }
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
            Twice { at: giver.at, key, problem, other: other.at }
        }
    }
}
