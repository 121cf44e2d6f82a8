//! Further kinds of values: counts, times, words of a list, sets of CPUs, lists of sections.

use super::{FileError, Section, integer, times};
use std::cell::RefCell;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trimtab_core::set::CpuSet;
use trimtab_core::time::Span;

/// Limits and unit of a count.
#[derive(Clone, Copy, Debug)]
pub struct CountLimits {
    /// Lowest allowed value.
    pub low: u64,
    /// Highest allowed value.
    pub high: u64,
    /// Counted things, such as "threads".
    pub unit: &'static str,
}

impl CountLimits {
    /// Returns limits from `low` to `high`, of `unit`.
    pub const fn new(low: u64, high: u64, unit: &'static str) -> Self {
        Self { low, high, unit }
    }

    fn words(&self) -> String {
        format!("{} from {} to {} are allowed", self.unit, self.low, self.high)
    }
}

/// Limits of a time.
#[derive(Clone, Copy, Debug)]
pub struct TimeLimits {
    /// Lowest allowed value.
    pub low: Span,
    /// Highest allowed value.
    pub high: Span,
}

impl TimeLimits {
    /// Returns limits from `low` to `high`.
    pub const fn new(low: Span, high: Span) -> Self {
        Self { low, high }
    }

    fn words(&self) -> String {
        let (low, high) = (times::write(self.low), times::write(self.high));
        format!("times from \"{low}\" to \"{high}\" are allowed (units: ns, us, ms, s, m, h)")
    }
}

impl<'a> Section<'a> {
    /// Returns whether the key is present. This alone does not make the key known.
    pub fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Returns whether the key is present with a table.
    pub fn is_section(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_table())
    }

    /// Returns whether the key is present with a list.
    pub fn is_list(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_array())
    }

    /// Returns whether the key is present with a whole number.
    pub fn is_number(&self, key: &str) -> bool {
        self.table.get(key).is_some_and(|value| value.get_ref().is_integer())
    }

    /// Reads true or false.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let flag = value.get_ref().as_bool();
        flag.map(Some).ok_or_else(|| self.error(key, "true and false are allowed"))
    }

    /// Reads a count, exact up to the largest.
    ///
    /// # Errors
    /// If the value is not a whole number, or is outside its limits.
    pub fn count(&self, key: &'static str, limits: CountLimits) -> Result<Option<u64>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let count = match value.get_ref() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix())
                .ok()
                .or_else(|| integer(number).and_then(|number| u64::try_from(number).ok())),
            _ => None,
        };
        let fits = count.filter(|count| (limits.low..=limits.high).contains(count));
        fits.map(Some).ok_or_else(|| self.error(key, limits.words()))
    }

    /// Reads a required count.
    ///
    /// # Errors
    /// As [`Section::count`], and if the value is missing.
    pub fn needed_count(&self, key: &'static str, limits: CountLimits) -> Result<u64, FileError> {
        self.count(key, limits)?.ok_or_else(|| self.error(key, format!("is missing: {}", limits.words())))
    }

    /// Reads a time, such as `"10 ms"`.
    ///
    /// # Errors
    /// If the value is not a time, or is outside its limits.
    pub fn time(&self, key: &'static str, limits: TimeLimits) -> Result<Option<Span>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let time = value.get_ref().as_str().and_then(times::parse);
        let fits = time.filter(|time| (limits.low..=limits.high).contains(time));
        fits.map(Some).ok_or_else(|| self.error(key, limits.words()))
    }

    /// Reads a required time.
    ///
    /// # Errors
    /// As [`Section::time`], and if the value is missing.
    pub fn needed_time(&self, key: &'static str, limits: TimeLimits) -> Result<Span, FileError> {
        self.time(key, limits)?.ok_or_else(|| self.error(key, format!("is missing: {}", limits.words())))
    }

    /// Reads one of these words.
    ///
    /// # Errors
    /// If the value is anything else.
    pub fn one_of<T: Copy>(&self, key: &'static str, words: &[(&str, T)]) -> Result<Option<T>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let word = value.get_ref().as_str();
        let found = words.iter().find(|(known, _)| Some(*known) == word);
        found.map(|(_, value)| Some(*value)).ok_or_else(|| {
            let known: Vec<String> = words.iter().map(|(word, _)| format!("\"{word}\"")).collect();
            self.error(key, format!("{} are allowed", known.join(", ")))
        })
    }

    /// Reads CPUs of a machine, such as `"0-3,8"`.
    ///
    /// # Errors
    /// If the value is not a set of CPUs, or the machine lacks some of them.
    pub fn cpus(&self, key: &'static str, machine: &CpuSet) -> Result<Option<CpuSet>, FileError> {
        let Some(value) = self.get(key) else { return Ok(None) };
        self.set(key, value, machine).map(Some)
    }

    /// Reads a list of sets of CPUs.
    ///
    /// # Errors
    /// As [`Section::cpus`], and if it is not a list, is empty, or is longer than `most`.
    pub fn cpu_sets(
        &self,
        key: &'static str,
        machine: &CpuSet,
        most: usize,
    ) -> Result<Vec<CpuSet>, FileError> {
        let list = self.get(key).and_then(|value| value.get_ref().as_array());
        let list = list.filter(|list| (1..=most).contains(&list.len()));
        let list = list.ok_or_else(|| {
            self.error(key, format!("a list of up to {most} sets of CPUs is allowed, such as [\"0\", \"1\"]"))
        })?;
        list.iter().map(|item| self.set(key, item, machine)).collect()
    }

    fn set(&self, key: &str, value: &Spanned<DeValue<'a>>, machine: &CpuSet) -> Result<CpuSet, FileError> {
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            // One CPU, which --set cannot distinguish from a number.
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            _ => "",
        };
        let set: Option<CpuSet> = text.parse().ok();
        let set = set.filter(|set| !set.is_empty() && set.is_subset(machine));
        set.ok_or_else(|| {
            self.error(key, format!("CPUs of the machine are allowed: \"{machine}\" or some of them"))
        })
    }

    /// Reads a list of tables. Each is named by its own `name`, or else by its place, from 1.
    ///
    /// # Errors
    /// If the value is anything else, or has more than `most` items.
    pub fn sections(&self, key: &'static str, most: usize) -> Result<Vec<Section<'a>>, FileError> {
        let Some(value) = self.get(key) else { return Ok(Vec::new()) };
        let wrong = || self.error(key, format!("up to {most} sections are allowed: [[{}]]", self.name(key)));
        let list = value.get_ref().as_array().filter(|list| list.len() <= most).ok_or_else(wrong)?;
        let section = |(place, item): (usize, &'a Spanned<DeValue<'a>>)| {
            let table = item.get_ref().as_table().ok_or_else(wrong)?;
            Ok(Section {
                text: self.text,
                path: format!("{}.{}", self.name(key), super::quoted(&super::shown(&called(table, place)))),
                at: item.span().start,
                table,
                asked: RefCell::default(),
            })
        };
        (1..).zip(list.iter()).map(section).collect()
    }
}

/// Returns the name of the table at this place of a list: its own name, or its place.
pub(crate) fn called(table: &DeTable<'_>, place: usize) -> String {
    let name = table.get("name").and_then(|name| name.get_ref().as_str());
    name.map_or_else(|| place.to_string(), str::to_owned)
}
