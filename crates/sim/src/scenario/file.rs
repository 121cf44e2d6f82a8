//! Scenario file in TOML, with its sweep.
//!
//! ```toml
//! name = "three on two"        # absent: the file's name
//! machine = "host-2"           # shipped name, path ending in .toml, or levels: "pack:2 core:4"
//! kernel = "linux-6.18"        # see Kernel::PRESETS; or [kernel] with preset and differing keys
//! policy = "speed"             # absent: none; or [policy] with kind and the differing keys
//! end = "60 s"                 # latest end of the run, and its end if nothing ends by itself
//! seed = 1                     # absent: 1
//! memory = true                # absent: true; false: footprints do not matter
//!
//! [[program]]                  # programs, in this order
//! name = "app"
//! threads = 3
//! work = "10 s"                # of each thread
//! interval = "10 ms"           # work between two barriers; absent: one barrier at the end
//! wait = "yield"
//!
//! [[arrivals]]                 # programs that arrive at random: a program without start, and
//! every = "20 ms"
//! most = 1000
//!
//! [[event]]                    # events
//! at = "1 s"
//! usable = "0-1"               # or stop = "app", or [event.start] with a program
//!
//! [faults]                     # faults between policy and machine
//! lost = 0.01
//!
//! [sweep]                      # keys with lists of values: all combinations are run
//! program.app.threads = [2, 3, 4]
//! policy = ["none", "speed", "exchange"]
//! ```
//!
//! docs/scenario-files.md has all keys. Properties: every key may be swept or set from outside, and
//! a set value is checked as if it stood in the file; all combinations are checked before the first
//! is run; the text of [`write()`] is read again as an equal scenario.

mod happenings;
mod machines;
mod names;
mod overlap;
mod programs;
mod series;
mod sweep;
mod tree;
mod write;

#[cfg(test)]
mod key_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod written_tests;

use super::Scenario;
use crate::model::Model;
use crate::reader::{CountLimits, FileError, Section, Text, TimeLimits, dotted, shown};
use std::collections::BTreeMap;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use trimtab_core::set::CpuSet;
use trimtab_core::time::{Moment, Span};

use overlap::Given;
use sweep::Swept;

pub use series::{Series, series};
pub use sweep::{Axis, MOST_VALUES};
pub use write::{Unwritable, write};

/// Highest number of runs of a file's sweep.
pub const MOST_RUNS: usize = 10_000;
/// Highest number of settings from outside.
pub const MOST_SETTINGS: usize = 1_000;
/// Limits of a scenario's end: a day is 86,400 times the usual length.
pub const END: TimeLimits = TimeLimits::new(Span::from_us(1), Span::from_ms(86_400_000));
/// Limits of a seed: any number.
const SEED: CountLimits = CountLimits::new(0, u64::MAX, "whole numbers");

/// Scenario file with its settings and sweep.
#[derive(Clone, Debug)]
pub struct File {
    name: String,
    /// Text of the file, followed by the settings from outside, a line each.
    text: String,
    own: usize,
    settings: Vec<Range<usize>>,
    axes: Vec<Axis>,
    machines: BTreeMap<String, Result<String, String>>,
}

/// Scenario file as a tree.
struct Tree<'t> {
    table: Spanned<DeTable<'t>>,
    /// Keys of the sweep, with their values.
    swept: Vec<Swept<'t>>,
    /// Keys set from outside.
    given: Vec<Given>,
}

/// Context of reading a scenario.
struct ReadContext<'r> {
    file: &'r str,
    /// Rewrites the place of an error for the people who read it.
    said: &'r dyn Fn(FileError) -> FileError,
    machines: &'r mut dyn FnMut(&str) -> Result<String, String>,
}

/// Model, and its CPUs.
struct ScenarioMachine {
    model: Model,
    cpus: CpuSet,
}

impl File {
    /// Reads a file with settings from outside (`KEY=VALUE`; a list is swept over), and checks
    /// every scenario of the file. `machines` returns the text of the machine file at a path that
    /// the scenario names.
    ///
    /// # Errors
    /// [`FileError`] names the file, line, key, value and the allowed values.
    pub fn open(
        name: &str,
        text: &str,
        set: &[String],
        machines: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Self, FileError> {
        let alone = Text { file: name, text };
        if set.len() > MOST_SETTINGS {
            let problem = format!("{} settings: up to {MOST_SETTINGS} are allowed", set.len());
            return Err(FileError {
                file: "--set".to_owned(),
                line: 0,
                key: String::new(),
                value: None,
                problem,
            });
        }
        // Before anything is appended to it, the text must be sound alone.
        alone.table()?;
        let mut all = text.to_owned();
        let mut settings = Vec::new();
        for setting in set {
            all.push('\n');
            let start = all.len();
            // One line for each, so that an error's line identifies the setting.
            all.extend(setting.chars().map(|c| if c.is_control() { ' ' } else { c }));
            settings.push(start..all.len());
        }
        let mut file = Self {
            name: name.to_owned(),
            text: all,
            own: text.len(),
            settings,
            axes: Vec::new(),
            machines: BTreeMap::new(),
        };
        file.axes = file.swept().map_err(|error| file.said(error))?;
        let mut known = BTreeMap::new();
        for run in 0..file.len() {
            file.read(run, &mut |path| {
                known.entry(path.to_owned()).or_insert_with(|| machines(path)).clone()
            })?;
        }
        file.machines = known;
        Ok(file)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of scenarios of the file.
    pub fn len(&self) -> usize {
        self.axes.iter().map(|axis| axis.values.len()).product()
    }

    /// Returns false: a file has at least one scenario.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the axes of the sweep, in the order in which they are written; the last changes
    /// first.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the place of a run on each axis.
    pub fn places(&self, run: usize) -> Vec<usize> {
        let mut rest = run;
        let mut places: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let place = rest % axis.values.len();
                rest /= axis.values.len();
                place
            })
            .collect();
        places.reverse();
        places
    }

    /// Returns the scenario of a run, from 0.
    ///
    /// # Errors
    /// None for a run below [`File::len`], because all were read before.
    pub fn scenario(&self, run: usize) -> Result<Scenario, FileError> {
        self.read(run, &mut |path| {
            self.machines.get(path).cloned().unwrap_or_else(|| Err("cannot be read".to_owned()))
        })
    }

    fn all(&self) -> Text<'_> {
        Text { file: &self.name, text: &self.text }
    }

    /// Returns the file as a tree, with the settings applied.
    fn tree(&self) -> Result<Tree<'_>, FileError> {
        let own = Text { file: &self.name, text: self.text.get(..self.own).unwrap_or_default() };
        let mut table = own.table()?;
        let mut swept = sweep::take(own, table.get_mut())?;
        let mut given: Vec<Given> = Vec::new();
        for range in &self.settings {
            let setting = sweep::setting(self.all(), range.clone())?;
            let (at, value) = (setting.value.span().start, setting.value.get_ref());
            let wrong = |problem: String| self.wrong(&setting.path, &setting.value, problem);
            if sweep::keep(&mut swept, &setting).map_err(wrong)? {
                continue;
            }
            // An earlier value of the same key is dropped, under any name of the key.
            let path = tree::resolved(table.get_ref(), &setting.path);
            swept.retain(|swept| swept.varies() || tree::resolved(table.get_ref(), &swept.path) != path);
            given.retain(|given| given.path != path);
            match value {
                DeValue::Array(list) => {
                    if !(1..=MOST_VALUES).contains(&list.len()) {
                        return Err(wrong(sweep::listed()));
                    }
                    let values = list.iter().cloned().collect();
                    let axis = sweep::swept(self.all(), setting.path.clone(), values, at);
                    swept.push(axis.map_err(wrong)?);
                }
                _ => {
                    let keys = tree::given(table.get_ref(), &setting.path, value);
                    self.put(table.get_mut(), &setting.path, &setting.value)?;
                    given.push(Given { path, keys, at });
                }
            }
        }
        Ok(Tree { table, swept, given })
    }

    fn put<'a>(
        &self,
        table: &mut DeTable<'a>,
        path: &[String],
        value: &tree::Node<'a>,
    ) -> Result<(), FileError> {
        tree::put(table, path, value).map_err(|problem| self.wrong(path, value, problem))
    }

    /// Returns an error about a value that is set.
    fn wrong(&self, path: &[String], value: &tree::Node<'_>, problem: String) -> FileError {
        let span = value.span();
        self.all().error(span.start, dotted(path), self.all().value(span), problem)
    }

    /// Returns the axes of the sweep; an error if a key is given twice or there are too many runs.
    fn swept(&self) -> Result<Vec<Axis>, FileError> {
        let Tree { table, swept, given } = self.tree()?;
        if let Some(twice) = overlap::twice(table.get_ref(), &swept, &given) {
            let mut problem = twice.problem;
            if let Some(before) =
                self.text.get(..twice.other.min(self.own)).filter(|_| twice.other < self.own)
            {
                problem.push_str(&format!(" (line {})", before.matches('\n').count() + 1));
            }
            return Err(self.all().error(twice.at, twice.key, None, problem));
        }
        let mut runs = 1_usize;
        for axis in &swept {
            runs = runs.saturating_mul(axis.values.len());
            if runs > MOST_RUNS {
                let counts: Vec<String> = swept.iter().map(|axis| axis.values.len().to_string()).collect();
                let problem = format!("{} runs: up to {MOST_RUNS} are allowed", counts.join(" x "));
                return Err(self.all().error(axis.at, "sweep".to_owned(), None, problem));
            }
        }
        Ok(swept.iter().map(Swept::axis).collect())
    }

    fn read(
        &self,
        run: usize,
        machines: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Scenario, FileError> {
        let mut read = || {
            let Tree { mut table, swept, .. } = self.tree()?;
            for (swept, place) in swept.iter().zip(self.places(run)) {
                for (path, value) in &swept.values[place].puts {
                    self.put(table.get_mut(), path, value)?;
                }
            }
            let mut reading = ReadContext { file: &self.name, said: &|error| self.said(error), machines };
            reading.scenario(Section::top(self.all(), table.get_ref()))
        };
        read().map_err(|error| self.said(error))
    }

    /// Rewrites an error in a setting to name the setting, and not a line below the file. Errors of
    /// other files stay as they are.
    fn said(&self, mut error: FileError) -> FileError {
        let own = self.text.get(..self.own).unwrap_or_default().matches('\n').count() + 1;
        if error.file == self.name
            && let Some(which) = error.line.checked_sub(own + 1)
            && let Some(range) = self.settings.get(which)
        {
            let written = self.text.get(range.clone()).unwrap_or_default();
            error.file = format!("--set {}", shown(written));
            error.line = 0;
        }
        error
    }
}

impl ReadContext<'_> {
    fn scenario(&mut self, top: Section<'_>) -> Result<Scenario, FileError> {
        let stem = self.file.rsplit('/').next().unwrap_or_default();
        let name =
            top.words("name")?.unwrap_or_else(|| stem.strip_suffix(".toml").unwrap_or(stem)).to_owned();
        let model = self.machine(&top)?;
        let ground = ScenarioMachine { cpus: model.machine.cpus(), model };
        let kernel = machines::kernel(&top, ground.model.machine.pu_count())?;
        let memory = top.flag("memory")?.unwrap_or(true);
        let seed = top.count("seed", SEED)?.unwrap_or(1);
        let end = Moment(0) + top.needed_time("end", END)?;
        let (policy, observer_cost) = happenings::policy(&top, seed)?;
        let mut programs = programs::all(&top, &ground, end)?;
        names::differ(&top, "program", programs.iter_mut().collect())?;
        let mut arrivals = happenings::arrivals(&top, &ground, end)?;
        names::differ(&top, "arrivals", arrivals.iter_mut().map(|stream| &mut stream.program).collect())?;
        let events = happenings::events(&top, &ground, &programs, end)?;
        let faults = happenings::faults(&top)?;
        if programs.is_empty() && arrivals.is_empty() {
            return Err(top.error("program", "is missing: [[program]] or [[arrivals]] is needed"));
        }
        programs::bounded(&top, &programs, &events)?;
        top.finish()?;
        let model = ground.model;
        Ok(Scenario {
            name,
            model,
            memory,
            kernel,
            programs,
            arrivals,
            policy,
            events,
            faults,
            observer_cost,
            end,
            seed,
        })
    }
}
