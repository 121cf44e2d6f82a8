//! Machine and kernel of a scenario file.

use super::ReadContext;
use crate::kernel::{Kernel, QueueOrder, SchedulerKind, Yielding};
use crate::model::{Model, file, shipped};
use crate::reader::{CountLimits, FileError, Section, TimeLimits};
use trimtab_core::time::Span;
use trimtab_core::topology::parse_synthetic;

/// Limits of the constants of a kernel.
const TICK: TimeLimits = TimeLimits::new(Span::from_us(10), Span::from_ms(1_000));
const SLICE: TimeLimits = TimeLimits::new(Span::from_us(10), Span::from_ms(100_000));
const WAIT: TimeLimits = TimeLimits::new(Span::ZERO, Span::from_ms(100_000));
const FACTOR: CountLimits = CountLimits::new(1, 1_000, "factors");
const ODDS: CountLimits = CountLimits::new(0, 1_024, "times of 1,024");

pub(super) const KINDS: [(&str, SchedulerKind); 5] = [
    ("load", SchedulerKind::Load),
    ("eevdf", SchedulerKind::Eevdf),
    ("dwrr", SchedulerKind::Dwrr),
    ("pinned", SchedulerKind::Pinned),
    ("credit", SchedulerKind::Credit),
];
pub(super) const ORDERS: [(&str, QueueOrder); 2] =
    [("least", QueueOrder::Least), ("deadline", QueueOrder::Deadline)];
pub(super) const YIELDINGS: [(&str, Yielding); 2] = [("posix", Yielding::Posix), ("hint", Yielding::Hint)];

impl ReadContext<'_> {
    /// Reads `machine`: a word, or a table with `base` and the keys that differ from it, or a whole
    /// machine.
    pub(super) fn machine(&mut self, top: &Section<'_>) -> Result<Model, FileError> {
        if top.is_section("machine") {
            let section = top.needed_section("machine")?;
            if !section.has("base") {
                return file::model(section);
            }
            let base = self.based(&section, "base")?;
            return file::change(section, base);
        }
        self.based(top, "machine")
    }

    fn based(&mut self, section: &Section<'_>, key: &'static str) -> Result<Model, FileError> {
        let allowed = || {
            let known: Vec<&str> = shipped::SHIPPED.iter().map(|shipped| shipped.name).collect();
            format!(
                "allowed are a machine that comes with trimtab ({}), a path ending in .toml, and levels such as \"pack:2 core:4\"",
                known.join(", ")
            )
        };
        let word = section.words(key)?;
        let word = word.ok_or_else(|| section.error(key, format!("is missing: {}", allowed())))?;
        if let Some(found) = shipped::find(word) {
            return found;
        }
        if word.ends_with(".toml") {
            let text = (self.machines)(word).map_err(|problem| section.error(key, problem))?;
            return file::read(word, &text).map_err(|error| self.named(error, section.error(key, "")));
        }
        if word.contains(':') {
            let machine = parse_synthetic(word).map_err(|error| section.error(key, error.to_string()))?;
            return Ok(Model::plain(machine));
        }
        Err(section.error(key, allowed()))
    }

    /// Adds to an error in another file the setting that names that file, if it is not a line of
    /// the scenario.
    fn named(&self, mut error: FileError, by: FileError) -> FileError {
        let by = (self.said)(by);
        if by.line == 0 {
            error.problem.push_str(&format!(" ({} names this file)", by.file));
        }
        error
    }
}

/// Reads `kernel`: a preset, or a table with a preset and the keys that differ from it.
pub(super) fn kernel(top: &Section<'_>, cpus: usize) -> Result<Kernel, FileError> {
    if !top.is_section("kernel") {
        return preset(top, "kernel", cpus);
    }
    let section = top.needed_section("kernel")?;
    let preset = preset(&section, "preset", cpus)?;
    let kernel = Kernel {
        kind: section.one_of("kind", &KINDS)?.unwrap_or(preset.kind),
        order: section.one_of("order", &ORDERS)?.unwrap_or(preset.order),
        tick: section.time("tick", TICK)?.unwrap_or(preset.tick),
        slice: section.time("slice", SLICE)?.unwrap_or(preset.slice),
        latency: section.time("latency", SLICE)?.unwrap_or(preset.latency),
        wakeup: section.time("wakeup", WAIT)?.unwrap_or(preset.wakeup),
        yielding: section.one_of("yielding", &YIELDINGS)?.unwrap_or(preset.yielding),
        balance: section.time("balance", SLICE)?.unwrap_or(preset.balance),
        busy_factor: section.count("busy_factor", FACTOR)?.map_or(preset.busy_factor, |factor| factor as u32),
        groups: section.flag("groups")?.unwrap_or(preset.groups),
        idle_pull: section.flag("idle_pull")?.unwrap_or(preset.idle_pull),
        idle_least: section.time("idle_least", WAIT)?.unwrap_or(preset.idle_least),
        idle_odds: section.count("idle_odds", ODDS)?.map_or(preset.idle_odds, |odds| odds as u32),
        spread: section.flag("spread")?.unwrap_or(preset.spread),
    };
    section.finish()?;
    Ok(kernel)
}

fn preset(section: &Section<'_>, key: &'static str, cpus: usize) -> Result<Kernel, FileError> {
    let allowed = || format!("allowed are {}", Kernel::PRESETS.join(", "));
    let name = section.words(key)?;
    let name = name.ok_or_else(|| section.error(key, format!("is missing: {}", allowed())))?;
    Kernel::preset(name, cpus).map_err(|_| section.error(key, allowed()))
}
