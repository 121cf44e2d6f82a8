//! Tree of a scenario file, with keys set from outside: by a sweep, or by the user who runs the
//! file.
//!
//! Unit: a key path, such as `program.app.threads`. Idea: a value is put into the tree of the file
//! before the file is read, so every key may be set or swept, and every set value is checked as if
//! it stood there. Values keep their position in the text, to which errors point.
//!
//! A table is merged into the existing table; any other value replaces the existing one. A word in
//! place of a table (`kernel = "linux-6.12"`) sets one key of the table, and leaves the others
//! unchanged. In a list of tables, the next part of the path is the `name` of one, or its place
//! from 1.

use crate::reader::{called, dotted};
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Value and its position.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// Words that replace tables, and the key of the word in the table.
const SHORT: [(&str, &str); 3] = [("machine", "base"), ("kernel", "preset"), ("policy", "kind")];

/// Highest depth of a key; a quoted key may have any number of dots.
pub(super) const MOST_PARTS: usize = 16;

/// Returns the message about keys that are deeper.
pub(super) fn too_deep() -> String {
    format!("keys of up to {MOST_PARTS} parts are allowed")
}

/// Puts a value at a path; an error if it cannot be there.
pub(super) fn put<'a>(table: &mut DeTable<'a>, path: &[String], value: &Node<'a>) -> Result<(), String> {
    if path.len() > MOST_PARTS {
        return Err(too_deep());
    }
    let Some((key, rest)) = path.split_first() else {
        let DeValue::Table(values) = value.get_ref() else { return Err("a table is allowed".to_owned()) };
        for (key, value) in values.iter() {
            put(table, &[key.get_ref().to_string()], value)?;
        }
        return Ok(());
    };
    match table.get_mut(key.as_str()) {
        Some(node) => into(node, key, rest, value),
        None => {
            let mut node = if rest.is_empty() {
                value.clone()
            } else {
                Spanned::new(value.span(), DeValue::Table(DeTable::new()))
            };
            if !rest.is_empty() {
                into(&mut node, key, rest, value)?;
            }
            table.insert(Spanned::new(value.span(), Cow::Owned(key.clone())), node);
            Ok(())
        }
    }
}

/// Puts a value into a node with this key.
fn into<'a>(node: &mut Node<'a>, name: &str, path: &[String], value: &Node<'a>) -> Result<(), String> {
    let short = SHORT.iter().find(|(short, _)| *short == name).map(|(_, key)| *key);
    if path.is_empty() && !value.get_ref().is_table() {
        return match (node.get_mut(), short) {
            // The word sets one key of the table; the others stay.
            (DeValue::Table(table), Some(key)) if value.get_ref().is_str() => {
                put(table, &[key.to_owned()], value)
            }
            _ => {
                *node = value.clone();
                Ok(())
            }
        };
    }
    if let Some(key) = short.filter(|_| node.get_ref().is_str()) {
        let key = Spanned::new(node.span(), Cow::Borrowed(key));
        let word = std::mem::replace(node.get_mut(), DeValue::Table(DeTable::new()));
        if let DeValue::Table(table) = node.get_mut() {
            table.insert(key, Spanned::new(value.span(), word));
        }
    }
    let listed =
        node.get_ref().as_array().is_some_and(|items| items.iter().all(|item| item.get_ref().is_table()));
    match node.get_mut() {
        DeValue::Table(table) => put(table, path, value),
        DeValue::Array(items) if listed && !path.is_empty() => item(items, name, path, value),
        DeValue::Array(items) if listed => {
            let DeValue::Table(values) = value.get_ref() else { return Err("a table is allowed".to_owned()) };
            for (key, value) in values.iter() {
                item(items, name, &[key.get_ref().to_string()], value)?;
            }
            Ok(())
        }
        _ if path.is_empty() => {
            *node = value.clone();
            Ok(())
        }
        _ => Err(format!("{name} has a value, and no keys below it")),
    }
}

/// Puts a value into one of a list of tables.
fn item<'a>(items: &mut [Node<'a>], name: &str, path: &[String], value: &Node<'a>) -> Result<(), String> {
    let Some((key, rest)) = path.split_first() else { return Ok(()) };
    let at = place(items, name, key)?;
    match rest {
        [] if !value.get_ref().is_table() => Err(format!("{name}.{key} is a section: a table is allowed")),
        _ => into(&mut items[at], key, rest, value),
    }
}

/// Returns the place, from 0, of the item that a key means.
fn place(items: &[Node<'_>], name: &str, key: &str) -> Result<usize, String> {
    let own = |item: &Node<'_>| Some(item.get_ref().as_table()?.get("name")?.get_ref().as_str()? == key);
    let mut named = (0..items.len()).filter(|&at| own(&items[at]) == Some(true));
    let place = key.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
    let place = place.filter(|&at| at < items.len());
    match (named.next(), named.next(), place) {
        (Some(at), None, None) | (None, None, Some(at)) => Ok(at),
        (Some(at), None, Some(place)) if at == place => Ok(at),
        (Some(at), None, Some(_)) => {
            Err(format!("{name} {} is called {key}, and {key} is the place of another: rename it", at + 1))
        }
        (Some(at), Some(other), _) => {
            Err(format!("{name} {} and {} are both called {key}: their names must differ", at + 1, other + 1))
        }
        (None, _, _) => {
            let called = |(place, item): (usize, &Node<'_>)| Some(called(item.get_ref().as_table()?, place));
            let names: Vec<String> = (1..).zip(items).filter_map(called).collect();
            Err(format!("no {name} is called {key}; there are {}", names.join(", ")))
        }
    }
}

/// Key that a value gives.
#[derive(Clone, Debug)]
pub(super) struct Key {
    /// Key as it is written.
    pub(super) written: String,
    /// Path of its place: lists by places from 1, words of tables by their key.
    pub(super) place: Vec<String>,
}

/// Returns the keys that a value gives at a path.
pub(super) fn given(table: &DeTable<'_>, path: &[String], value: &DeValue<'_>) -> Vec<Key> {
    match value {
        DeValue::Table(inner) if inner.iter().next().is_some() => inner
            .iter()
            .flat_map(|(key, value)| {
                let path: Vec<String> = path.iter().cloned().chain([key.get_ref().to_string()]).collect();
                given(table, &path, value.get_ref())
            })
            .collect(),
        _ => {
            let mut place = resolved(table, path);
            let short = SHORT.iter().find(|(short, _)| place.len() == 1 && place[0] == *short);
            place.extend(short.filter(|_| value.is_str()).map(|(_, key)| (*key).to_owned()));
            vec![Key { written: dotted(path), place }]
        }
    }
}

/// Returns a path with items of lists by their places from 1, whatever their names.
pub(super) fn resolved(table: &DeTable<'_>, path: &[String]) -> Vec<String> {
    let mut at = path.first().and_then(|key| Some(table.get(key.as_str())?.get_ref()));
    let mut parts: Vec<String> = path.iter().take(1).cloned().collect();
    for pair in path.windows(2) {
        let (name, key) = (&pair[0], &pair[1]);
        let (part, next) = match at {
            Some(DeValue::Array(items)) => match place(items, name, key) {
                Ok(at) => ((at + 1).to_string(), Some(items[at].get_ref())),
                Err(_) => (key.clone(), None),
            },
            Some(DeValue::Table(table)) => (key.clone(), table.get(key.as_str()).map(Spanned::get_ref)),
            _ => (key.clone(), None),
        };
        parts.push(part);
        at = next;
    }
    parts
}

/// Shifts the positions of a value by this distance in the text.
pub(super) fn shift(node: &mut Node<'_>, by: usize) {
    let span = node.span();
    let mut value = std::mem::replace(node.get_mut(), DeValue::Boolean(false));
    match &mut value {
        DeValue::Array(items) => items.iter_mut().for_each(|item| shift(item, by)),
        DeValue::Table(table) => {
            let shifted = std::mem::take(table).into_iter().map(|(key, mut value)| {
                shift(&mut value, by);
                let span = key.span();
                (Spanned::new(span.start + by..span.end + by, key.into_inner()), value)
            });
            *table = shifted.collect();
        }
        _ => {}
    }
    *node = Spanned::new(span.start + by..span.end + by, value);
}
