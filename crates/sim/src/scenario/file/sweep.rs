//! Sweep of a scenario file, and settings from outside.

use super::tree::{self, Node};
use crate::reader::{FileError, Section, Text, dotted};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Key that is given one value after the other.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    /// Key with its sections; `variant` for several keys at once.
    pub key: String,
    /// Values as written, one for each run. They may be long, and need not differ.
    pub values: Vec<String>,
}

impl Axis {
    /// Returns the values as they are shown, short and on one line each. Different values with the
    /// same short form get their places, from 1.
    pub fn shown(&self) -> Vec<String> {
        let short: Vec<String> = self.values.iter().map(|value| shown(value)).collect();
        let mut first = BTreeMap::new();
        let mut alike = BTreeSet::new();
        for (short, value) in short.iter().zip(&self.values) {
            if *first.entry(short.as_str()).or_insert(value) != value {
                alike.insert(short.as_str());
            }
        }
        let told = |(place, short): (usize, &String)| match alike.contains(short.as_str()) {
            true => format!("{short} ({place})"),
            false => short.clone(),
        };
        (1..).zip(&short).map(told).collect()
    }
}

/// Returns a value on one line, and short.
pub(super) fn shown(value: &str) -> String {
    let mut plain: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if let Some((end, _)) = plain.char_indices().nth(LABEL_CHARS_SHOWN) {
        plain.truncate(end);
        plain.push_str("...");
    }
    plain
}

/// Axis with its values in the tree.
#[derive(Debug)]
pub(super) struct Swept<'a> {
    pub(super) key: String,
    /// Parts of the key; none for variants.
    pub(super) path: Vec<String>,
    pub(super) values: Vec<AxisValue<'a>>,
    pub(super) at: usize,
}

/// Value of an axis.
#[derive(Clone, Debug)]
pub(super) struct AxisValue<'a> {
    /// Label.
    pub(super) label: String,
    /// Paths and the values that are put there.
    pub(super) puts: Vec<(Vec<String>, Node<'a>)>,
}

/// Highest number of values of a swept key.
pub const MOST_VALUES: usize = 1_000;
/// Axis that sets several keys at once.
pub(super) const VARIANT: &str = "variant";
/// Number of characters of a value that are shown.
const LABEL_CHARS_SHOWN: usize = 40;

impl Swept<'_> {
    /// Returns the axis with labels only.
    pub(super) fn axis(&self) -> Axis {
        Axis { key: self.key.clone(), values: self.values.iter().map(|value| value.label.clone()).collect() }
    }

    /// Returns whether the values are variants.
    pub(super) fn varies(&self) -> bool {
        self.path.is_empty()
    }
}

/// Returns the label of a value: words as they are, tables by their name if they have one, all else
/// as written.
fn label(text: Text<'_>, value: &Node<'_>) -> String {
    let named = |table: &DeTable<'_>| table.get("name")?.get_ref().as_str().map(str::to_owned);
    match value.get_ref() {
        DeValue::String(word) => word.to_string(),
        DeValue::Table(table) if named(table).is_some() => named(table).unwrap_or_default(),
        _ => text.text.get(value.span()).unwrap_or_default().to_owned(),
    }
}

/// Returns the message about allowed lists of values.
pub(super) fn listed() -> String {
    format!("a list of 1 to {MOST_VALUES} values is allowed: each is run")
}

/// Takes the sweep of a file out of the tree, in the order in which it is written.
pub(super) fn take<'a>(text: Text<'a>, table: &mut DeTable<'a>) -> Result<Vec<Swept<'a>>, FileError> {
    let Some((_, sweep)) = table.remove_entry("sweep") else { return Ok(Vec::new()) };
    let top = DeTable::from_iter([(Spanned::new(0..0, Cow::Borrowed("sweep")), sweep.clone())]);
    Section::top(text, &top).section("sweep")?;
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), sweep)];
    while let Some((path, node)) = open.pop() {
        let span = node.span();
        let full = format!("sweep.{}", dotted(&path));
        let wrong = |problem: String| text.error(span.start, full, text.value(span.clone()), problem);
        match node.into_inner() {
            DeValue::Table(table) => {
                for (key, value) in table {
                    let (at, key) = (key.span(), key.into_inner().into_owned());
                    let mut path: Vec<String> = path.clone();
                    let parts = if path.is_empty() { parts(&key) } else { Some(vec![key]) };
                    path.extend(parts.unwrap_or_default());
                    if !(1..=tree::MOST_PARTS).contains(&path.len()) {
                        return Err(text.error(at.start, "sweep".to_owned(), None, tree::too_deep()));
                    }
                    open.push((path, value));
                }
            }
            DeValue::Array(list) if (1..=MOST_VALUES).contains(&list.len()) => {
                let values: Vec<Node<'a>> = list.into_iter().collect();
                found.push(swept(text, path, values, span.start).map_err(wrong)?);
            }
            _ => return Err(wrong(listed())),
        }
    }
    found.sort_by_key(|swept| swept.at);
    Ok(found)
}

/// Returns a key with its values.
pub(super) fn swept<'a>(
    text: Text<'_>,
    path: Vec<String>,
    values: Vec<Node<'a>>,
    at: usize,
) -> Result<Swept<'a>, String> {
    let key = dotted(&path);
    if path != [VARIANT] {
        let choice =
            |value: Node<'a>| AxisValue { label: label(text, &value), puts: vec![(path.clone(), value)] };
        let values = values.into_iter().map(choice).collect();
        return Ok(Swept { key, path, values, at });
    }
    let mut known = BTreeSet::new();
    let values = values.into_iter().map(|value| {
        let variant = variant(value)?;
        match known.insert(variant.label.clone()) {
            true => Ok(variant),
            false => {
                Err(format!("two variants are called \"{}\": their names must differ", shown(&variant.label)))
            }
        }
    });
    Ok(Swept { key, path: Vec::new(), values: values.collect::<Result<_, String>>()?, at })
}

/// Reads a table with a name and keys that are set. The name is the variant's, and not the
/// scenario's.
fn variant(value: Node<'_>) -> Result<AxisValue<'_>, String> {
    let wrong = || "tables with a name are allowed: { name = \"LOAD\", policy = \"none\" }".to_owned();
    let DeValue::Table(mut table) = value.into_inner() else { return Err(wrong()) };
    let name = table.remove("name").and_then(|name| name.get_ref().as_str().map(str::to_owned));
    let label = name.filter(|name| !name.is_empty()).ok_or_else(wrong)?;
    let put = |(key, value): (Spanned<Cow<'_, str>>, _)| {
        Ok((parts(key.get_ref()).ok_or_else(tree::too_deep)?, value))
    };
    Ok(AxisValue { label, puts: table.into_iter().map(put).collect::<Result<_, String>>()? })
}

/// Keeps the variants that a setting names, if there are any. Returns whether the setting was meant
/// for variants.
pub(super) fn keep(swept: &mut [Swept<'_>], setting: &Setting<'_>) -> Result<bool, String> {
    if setting.path != [VARIANT] {
        return Ok(false);
    }
    let Some(axis) = swept.iter_mut().find(|axis| axis.varies()) else {
        let tables = setting
            .value
            .get_ref()
            .as_array()
            .is_some_and(|list| list.iter().all(|one| one.get_ref().is_table()));
        return if tables { Ok(false) } else { Err("the file has no variants to be kept".to_owned()) };
    };
    let one = std::slice::from_ref(&setting.value);
    let wanted = setting.value.get_ref().as_array().map_or(one, |list| &list[..]);
    let mut kept: Vec<AxisValue<'_>> = Vec::new();
    for name in wanted.iter().map(|name| name.get_ref().as_str().unwrap_or_default()) {
        if kept.iter().any(|known| known.label == name) {
            return Err(format!("\"{}\" is listed twice", shown(name)));
        }
        let found = axis.values.iter().find(|known| known.label == name);
        kept.push(found.cloned().ok_or_else(|| {
            let known: Vec<String> = axis.values.iter().map(|known| shown(&known.label)).collect();
            format!("no variant has this name; there are {}", known.join(", "))
        })?);
    }
    if kept.is_empty() {
        return Err("at least one variant is needed".to_owned());
    }
    axis.values = kept;
    Ok(true)
}

/// Setting from outside the file.
#[derive(Debug)]
pub(super) struct Setting<'a> {
    pub(super) path: Vec<String>,
    pub(super) value: Node<'a>,
}

/// Reads `KEY=VALUE` at `range` of the text. A value that is not TOML is a word.
pub(super) fn setting<'a>(text: Text<'a>, range: Range<usize>) -> Result<Setting<'a>, FileError> {
    let written = text.text.get(range.clone()).unwrap_or_default();
    let wrong = |problem: &str| text.error(range.start, String::new(), None, problem.to_owned());
    let equals =
        equals(written).ok_or_else(|| wrong("KEY=VALUE is allowed, such as program.app.threads=5"))?;
    let (key, value) = (&written[..equals], &written[equals + 1..]);
    if key.trim().is_empty() {
        return Err(wrong("there is no key before the equals sign"));
    }
    let no_key = "the text before the equals sign is not a key: parts with characters other than letters, digits, - and _ \
        must be in quotes, as in program.\"a.b\".threads=5";
    let path = path(key.trim()).map_err(|()| wrong(&tree::too_deep()))?.ok_or_else(|| wrong(no_key))?;
    if let [first, rest @ ..] = &path[..]
        && first == "sweep"
    {
        return Err(wrong(&format!("{} is swept if it is set to a list, without [sweep]", dotted(rest))));
    }
    let trimmed = value.trim();
    let at = range.start + equals + 1 + (value.len() - value.trim_start().len());
    let mut node = match DeValue::parse(trimmed) {
        Ok(node) => node,
        Err(_) if trimmed.starts_with(['[', '{', '"', '\'']) => {
            let problem =
                "is not TOML: words in lists and tables must be in quotes, as in policy=[\"none\", \"auto\"]";
            let value = text.value(at..at + trimmed.len());
            return Err(text.error(at, dotted(&path), value, problem.to_owned()));
        }
        Err(_) => Spanned::new(0..trimmed.len(), DeValue::String(Cow::Borrowed(trimmed))),
    };
    tree::shift(&mut node, at);
    Ok(Setting { path, value: node })
}

/// Returns the position of the equals sign behind the key. One in quotes is part of a name.
fn equals(written: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in written.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some('"') if c == '\\' => escaped = true,
            Some(end) if c == end => quote = None,
            Some(_) => {}
            None if c == '=' => return Some(at),
            None if c == '"' || c == '\'' => quote = Some(c),
            None => {}
        }
    }
    None
}

/// Returns the parts of a key at the head of a section. A key with dots is a path, because no key
/// has a dot in its name. `None` if there are too many.
fn parts(key: &str) -> Option<Vec<String>> {
    if !key.contains('.') {
        return Some(vec![key.to_owned()]);
    }
    path(key).ok().map(|path| path.unwrap_or_else(|| vec![key.to_owned()]))
}

/// Returns the parts of a dotted key; `None` if it is not one. An error if it has far too many
/// parts.
fn path(key: &str) -> Result<Option<Vec<String>>, ()> {
    // Dots in quotes are counted too, with room for some.
    if key.matches('.').count() > 4 * tree::MOST_PARTS {
        return Err(());
    }
    let text = format!("{key} = 0");
    let Ok(table) = DeTable::parse(&text) else { return Ok(None) };
    let mut path = Vec::new();
    let mut table = table.get_ref();
    loop {
        // The text must contain nothing else, such as another line.
        let [(key, value)] = table.iter().collect::<Vec<_>>()[..] else { return Ok(None) };
        path.push(key.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(inner) => table = inner,
            _ => return Ok(Some(path)),
        }
    }
}
