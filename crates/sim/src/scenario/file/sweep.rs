//! What a file is run with: its `[sweep]`, and what whoever runs it set.

use super::tree::{self, Node};
use crate::reader::{FileError, Section, Text};
use std::borrow::Cow;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A key that is given one value after the other.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// The key with its sections; `variant` for several keys at once.
    pub key: String,
    /// What it is given, as written, one for each run.
    pub values: Vec<String>,
}

/// An axis with its values in the tree.
#[derive(Debug)]
pub(super) struct Swept<'a> {
    pub(super) key: String,
    pub(super) path: Vec<String>,
    /// What each is called, and what it is.
    pub(super) values: Vec<(String, Node<'a>)>,
    pub(super) at: usize,
}

/// How many values a key may be swept over.
pub const MOST_VALUES: usize = 1_000;
/// The axis that sets several keys at once.
const VARIANT: &str = "variant";
/// How much of a value is shown.
const SHOWN: usize = 40;

impl<'a> Swept<'a> {
    /// A key with its values.
    pub(super) fn new(
        text: Text<'_>,
        key: String,
        path: Vec<String>,
        values: Vec<Node<'a>>,
        at: usize,
    ) -> Self {
        let values = values.into_iter().map(|value| (label(text, &value), value)).collect();
        Self { key, path, values, at }
    }

    /// As it is told.
    pub(super) fn axis(&self) -> Axis {
        Axis { key: self.key.clone(), values: self.values.iter().map(|(label, _)| label.clone()).collect() }
    }
}

/// A value as it is told: words as they are, tables by their name if they have one, all else as written.
fn label(text: Text<'_>, value: &Node<'_>) -> String {
    let named = |table: &DeTable<'_>| table.get("name")?.get_ref().as_str().map(str::to_owned);
    let written = match value.get_ref() {
        DeValue::String(word) => word.to_string(),
        DeValue::Table(table) if named(table).is_some() => named(table).unwrap_or_default(),
        _ => text.text.get(value.span()).unwrap_or_default().to_owned(),
    };
    let mut plain: String = written.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = plain.char_indices().nth(SHOWN) {
        plain.truncate(end);
        plain.push_str("...");
    }
    plain
}

/// The sweep of a file, in the order in which it is written. It is taken out of the tree.
pub(super) fn take<'a>(text: Text<'a>, table: &mut DeTable<'a>) -> Result<Vec<Swept<'a>>, FileError> {
    let Some((_, sweep)) = table.remove_entry("sweep") else { return Ok(Vec::new()) };
    let top = DeTable::from_iter([(Spanned::new(0..0, Cow::Borrowed("sweep")), sweep.clone())]);
    Section::top(text, &top).section("sweep")?;
    let mut found = Vec::new();
    let mut open = vec![(String::new(), Vec::new(), sweep)];
    while let Some((name, path, node)) = open.pop() {
        let span = node.span();
        let full = format!("sweep.{name}");
        let wrong = |problem: String| text.error(span.start, full, text.value(span.clone()), problem);
        match node.into_inner() {
            DeValue::Table(table) => {
                for (key, value) in table {
                    let (at, key) = (key.span(), key.into_inner().into_owned());
                    if path.len() + key.split('.').count() > tree::MOST_PARTS {
                        let problem = format!("keys of up to {} parts are allowed", tree::MOST_PARTS);
                        return Err(text.error(at.start, "sweep".to_owned(), None, problem));
                    }
                    let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                    let parts = key.split('.').map(str::to_owned);
                    open.push((name, path.iter().cloned().chain(parts).collect(), value));
                }
            }
            DeValue::Array(list) if (1..=MOST_VALUES).contains(&list.len()) => {
                let values: Vec<Node<'a>> = list.into_iter().collect();
                found.push(swept(text, name, path, values, span.start).map_err(wrong)?);
            }
            _ => {
                return Err(wrong(format!("a list of up to {MOST_VALUES} values is allowed: each is run")));
            }
        }
    }
    found.sort_by_key(|swept| swept.at);
    Ok(found)
}

fn swept<'a>(
    text: Text<'_>,
    key: String,
    path: Vec<String>,
    values: Vec<Node<'a>>,
    at: usize,
) -> Result<Swept<'a>, String> {
    if key != VARIANT {
        return Ok(Swept::new(text, key, path, values, at));
    }
    let mut swept = Swept::new(text, key, Vec::new(), values, at);
    for (_, value) in &mut swept.values {
        // The name is the variant's, and not the scenario's.
        let name = match value.get_mut() {
            DeValue::Table(table) => {
                table.remove("name").filter(|name| name.get_ref().is_str()).map(|_| table)
            }
            _ => None,
        };
        let wrong = "tables with a name are allowed: { name = \"LOAD\", policy = \"none\" }";
        dotted(name.ok_or_else(|| wrong.to_owned())?)?;
    }
    Ok(swept)
}

/// Quoted keys with dots are paths.
fn dotted(table: &mut DeTable<'_>) -> Result<(), String> {
    let entries = std::mem::take(table);
    for (key, value) in entries {
        let path: Vec<String> = key.get_ref().split('.').map(str::to_owned).collect();
        // Two ways to one key are one after the other.
        tree::put(table, &path, &value)?;
    }
    Ok(())
}

/// Keeps the variants that a setting names, where there are any; whether that was what it was for.
pub(super) fn keep(swept: &mut [Swept<'_>], setting: &Setting<'_>) -> Result<bool, String> {
    let Some(axis) = swept.iter_mut().find(|axis| axis.key == VARIANT && setting.path == [VARIANT]) else {
        return Ok(false);
    };
    let one = std::slice::from_ref(&setting.value);
    let wanted = setting.value.get_ref().as_array().map_or(one, |list| &list[..]);
    let mut kept = Vec::new();
    for name in wanted.iter().map(|name| name.get_ref().as_str().unwrap_or_default()) {
        let found = axis.values.iter().find(|(known, _)| known == name);
        kept.push(found.cloned().ok_or_else(|| {
            let known: Vec<&str> = axis.values.iter().map(|(known, _)| known.as_str()).collect();
            format!("no variant is called so; there are {}", known.join(", "))
        })?);
    }
    if kept.is_empty() {
        return Err("at least one variant is needed".to_owned());
    }
    axis.values = kept;
    Ok(true)
}

/// Something that is set from outside the file.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub(super) path: Vec<String>,
    pub(super) value: Node<'a>,
}

/// Reads `KEY=VALUE`, which stands at `range` of the text. A value that is no TOML is a word.
pub(super) fn setting<'a>(text: Text<'a>, range: Range<usize>) -> Result<Setting<'a>, FileError> {
    let written = text.text.get(range.clone()).unwrap_or_default();
    let wrong = |problem: &str| text.error(range.start, String::new(), None, problem.to_owned());
    let (key, value) = written
        .split_once('=')
        .ok_or_else(|| wrong("KEY=VALUE is allowed, such as program.app.threads=5"))?;
    let at = range.start + key.len() + 1;
    let path = path(key.trim()).ok_or_else(|| wrong("no key stands before the equals sign"))?;
    let trimmed = value.trim();
    let at = at + (value.len() - value.trim_start().len());
    let mut node = match DeValue::parse(trimmed) {
        Ok(node) => node,
        Err(_) => Spanned::new(0..trimmed.len(), DeValue::String(Cow::Borrowed(trimmed))),
    };
    tree::shift(&mut node, at);
    Ok(Setting { path, value: node })
}

/// The parts of a dotted key.
fn path(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    let table = DeTable::parse(&text).ok()?;
    let mut path = Vec::new();
    let mut table = table.get_ref();
    loop {
        let (key, value) = table.iter().next()?;
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Some(path),
        }
    }
}
