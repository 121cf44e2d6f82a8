//! Keys set from outside: by a sweep, or by whoever runs the file.
//!
//! Unit: a key path, such as `program.app.threads`. Idea: a value is put into the tree of the file before it is read, so that every key
//! may be set or swept, and every value set is checked as if it stood there. Values keep the place in the text where they were
//! written, which is what errors then point at.
//!
//! A table is merged into what is there; anything else takes its place. A word that stands for a table (`kernel = "linux-6.12"`) is
//! one key of it, and leaves the others as they are. In a list of tables, the next part of the path is the `name` of one, or its place from 1.

use crate::reader::called;
use std::borrow::Cow;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
pub(super) type Node<'a> = Spanned<DeValue<'a>>;

/// Words that stand for tables, and the key that the word has in the table.
const SHORT: [(&str, &str); 3] = [("machine", "base"), ("kernel", "preset"), ("policy", "kind")];

/// No key lies deeper; a quoted key may have any number of dots.
pub(super) const MOST_PARTS: usize = 16;

/// Puts a value at a path; what is wrong, if it cannot be there.
pub(super) fn put<'a>(table: &mut DeTable<'a>, path: &[String], value: &Node<'a>) -> Result<(), String> {
    if path.len() > MOST_PARTS {
        return Err(format!("keys of up to {MOST_PARTS} parts are allowed"));
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

/// Puts a value into a node, whose key this is.
fn into<'a>(node: &mut Node<'a>, name: &str, path: &[String], value: &Node<'a>) -> Result<(), String> {
    let short = SHORT.iter().find(|(short, _)| *short == name).map(|(_, key)| *key);
    if path.is_empty() && !value.get_ref().is_table() {
        return match (node.get_mut(), short) {
            // The word stands for one key of the table; the others stay.
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
    let names: Vec<String> = (1..)
        .zip(items.iter())
        .filter_map(|(place, item)| Some(called(item.get_ref().as_table()?, place)))
        .collect();
    let found = names.iter().position(|name| name == key);
    let place = key.parse::<usize>().ok().and_then(|place| place.checked_sub(1));
    let found = found.or(place).filter(|&at| at < items.len());
    let at = found.ok_or_else(|| format!("no {name} is called {key}; there are {}", names.join(", ")))?;
    match rest {
        [] if !value.get_ref().is_table() => Err(format!("{name}.{key} is a section: a table is allowed")),
        _ => into(&mut items[at], key, rest, value),
    }
}

/// The same value, this much further on in the text.
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
