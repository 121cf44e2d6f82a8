//! CPUs by their names: numbers of the kernel, or positions in the machine.
//!
//! Terms are joined with `@`. A term is one of:
//!
//! - `0-7,16-23`: CPUs by the kernel's numbers.
//! - `S1:0-3`: the CPUs at these positions of package 1. `N` or `M` is a node, `C` a last-level
//!   cache, `D` a die; `N:0-3` without a number is the machine.
//! - `package:1.core:even`: all CPUs of these units. Each step counts the units of a level inside
//!   the units of the step before.
//!
//! Positions of the second form count the first hardware threads of all cores, then the second
//! ones, as `likwid-pin` does. A step is a level (`package`, `die`, `node`, `l3`, `l2`, `core`,
//! `pu`, with their other spellings) and `all`, `even`, `odd` or a list such as `0-3,6`. Units are
//! counted from 0 in the order of the machine, as hwloc counts them. Nodes in a first step or a
//! letter have the kernel's numbers instead.

use super::{Level, Machine};
use crate::ids::{Id, OsCpu, Pu};
use crate::set::{CpuSet, Set};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use thiserror::Error;

/// CPUs as a user names them. The text form is a command-line value.
///
/// # Examples
/// ```
/// use trimtab_core::topology::{CpuNames, parse_synthetic};
///
/// let machine = parse_synthetic("pack:2 core:4 pu:2")?;
/// let on = |text: &str| -> Result<String, Box<dyn std::error::Error>> {
///     Ok(text.parse::<CpuNames>()?.on(&machine)?.to_string())
/// };
/// assert_eq!(on("0-3,8")?, "0-3,8");
/// assert_eq!(on("S0:0-1@S1:0-1")?, "0,2,8,10");
/// assert_eq!(on("package:1.core:even")?, "8-9,12-13");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpuNames {
    terms: Vec<Term>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Term {
    /// Numbers of the kernel.
    Kernel(CpuSet),
    /// Positions among the CPUs of one unit.
    Positions { unit: Unit, positions: Set<Pu> },
    /// Units inside units.
    Path(Vec<Step>),
}

/// Unit of a letter and a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unit {
    letter: char,
    /// `None` for the machine.
    number: Option<u32>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Step {
    /// `None` for hardware threads.
    level: Option<Level>,
    which: Which,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Which {
    All,
    Even,
    Odd,
    Listed(Set<Pu>),
}

/// Reason why a text does not name CPUs, with the byte position of the error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem} at position {} of \"{text}\"; expected CPU numbers (0-7,16-23), positions in a unit (S0:0-3@S1:0-3) or a path (node:1.core:even)", at + 1)]
pub struct CpuNamesError {
    /// Whole text.
    pub text: String,
    /// Byte offset of the error, from 0.
    pub at: usize,
    /// Description of the error.
    pub problem: String,
}

/// Reason why a machine does not have the named CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoSuchPart {
    /// The machine has no unit of a level.
    #[error("{name}: this machine has no {level}")]
    Level {
        /// The term or step.
        name: String,
        /// Word of the level.
        level: &'static str,
    },
    /// Numbers beyond those that exist.
    #[error("{name}: {level} {missing} {} not exist there (there is {known})", if *several { "do" } else { "does" })]
    Number {
        /// The term or step.
        name: String,
        /// Word of the level.
        level: &'static str,
        /// Missing numbers.
        missing: String,
        /// Whether several numbers are missing.
        several: bool,
        /// Existing numbers.
        known: String,
    },
    /// Nothing is selected.
    #[error("{name}: selects no CPU here")]
    Nothing {
        /// The term or step.
        name: String,
    },
}

impl From<CpuSet> for CpuNames {
    fn from(cpus: CpuSet) -> Self {
        Self { terms: vec![Term::Kernel(cpus)] }
    }
}

impl FromStr for CpuNames {
    type Err = CpuNamesError;

    fn from_str(text: &str) -> Result<Self, CpuNamesError> {
        let fault = |(at, problem): (usize, String)| CpuNamesError { text: text.to_owned(), at, problem };
        let mut terms = Vec::new();
        let mut start = 0;
        for part in text.split('@') {
            let inside = |(at, problem)| fault((start + at, problem));
            let term = term(part).map_err(inside)?;
            // A list of spaces is an empty list.
            if text.contains('@') && matches!(&term, Term::Kernel(cpus) if cpus.is_empty()) {
                return Err(inside((0, "a term is missing".to_owned())));
            }
            terms.push(term);
            start += part.len() + 1;
        }
        Ok(Self { terms })
    }
}

/// Parses a term. An error has an offset from the beginning of the term.
fn term(text: &str) -> Result<Term, (usize, String)> {
    let Some((name, positions)) = text.split_once(':').filter(|_| begins_with_letter(text)) else {
        return Ok(Term::Kernel(list(text, 0)?));
    };
    let mut letters = name.chars();
    if let Some(letter) = letters.next().map(|letter| letter.to_ascii_uppercase())
        && matches!(letter, 'N' | 'M' | 'S' | 'C' | 'D')
        && letters.as_str().bytes().all(|byte| byte.is_ascii_digit())
    {
        let number = letters.as_str();
        let number = match number.parse::<u32>() {
            Ok(number) => Some(number),
            Err(_) if number.is_empty() && letter == 'N' => None,
            Err(_) if number.is_empty() => return Err((1, format!("a number is missing after {letter}"))),
            Err(_) => return Err((1, format!("{number} is too large"))),
        };
        let unit = Unit { letter, number };
        return Ok(Term::Positions { unit, positions: listed(positions, name.len() + 1)? });
    }
    let (mut steps, mut at): (Vec<Step>, usize) = (Vec::new(), 0);
    for part in text.split('.') {
        let step = step(part, at)?;
        // Hardware threads are inside everything.
        let depth = |level: Option<Level>| level.map_or((1, None), |level| (0, Some(level)));
        if let Some(last) = steps.last().filter(|last| depth(last.level) >= depth(step.level)) {
            return Err((at, format!("{} is not inside {}", word(step.level), word(last.level))));
        }
        steps.push(step);
        at += part.len() + 1;
    }
    Ok(Term::Path(steps))
}

fn begins_with_letter(text: &str) -> bool {
    text.starts_with(|first: char| first.is_alphabetic())
}

fn step(text: &str, at: usize) -> Result<Step, (usize, String)> {
    let Some((name, which)) = text.split_once(':') else {
        return Err((at, format!("\"{text}\" lacks its numbers, as in \"{text}:0\"")));
    };
    let level = match name.to_ascii_lowercase().as_str() {
        "pu" | "thread" => None,
        name => match Level::from_word(name) {
            Some(level) if level != Level::Machine => Some(level),
            _ => {
                return Err((
                    at,
                    format!(
                        "\"{name}\" is no part of a machine (known: package, die, node, l3, l2, core, pu; S0, N0, C0, D0)"
                    ),
                ));
            }
        },
    };
    let which = match which.to_ascii_lowercase().as_str() {
        "all" => Which::All,
        "even" => Which::Even,
        "odd" => Which::Odd,
        _ => Which::Listed(listed(which, at + name.len() + 1)?),
    };
    Ok(Step { level, which })
}

/// Parses a list that must not be empty.
fn listed(text: &str, at: usize) -> Result<Set<Pu>, (usize, String)> {
    let set: Set<Pu> = list(text, at)?;
    if set.is_empty() { Err((at, "a number is missing".to_owned())) } else { Ok(set) }
}

fn list<T: Id>(text: &str, at: usize) -> Result<Set<T>, (usize, String)> {
    text.parse().map_err(|error: crate::set::ListError| (at + error.at, error.problem.to_string()))
}

/// Returns the word of a level; `None` is a hardware thread.
fn word(level: Option<Level>) -> &'static str {
    level.map_or("pu", Level::word)
}

impl fmt::Display for CpuNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            f.write_str(if at > 0 { "@" } else { "" })?;
            term.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(cpus) => cpus.fmt(f),
            Self::Positions { unit: Unit { letter, number: Some(number) }, positions } => {
                write!(f, "{letter}{number}:{positions}")
            }
            Self::Positions { unit, positions } => write!(f, "{}:{positions}", unit.letter),
            Self::Path(steps) => {
                for (at, step) in steps.iter().enumerate() {
                    write!(f, "{}{step}", if at > 0 { "." } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", word(self.level))?;
        match &self.which {
            Which::All => f.write_str("all"),
            Which::Even => f.write_str("even"),
            Which::Odd => f.write_str("odd"),
            Which::Listed(list) => list.fmt(f),
        }
    }
}

impl CpuNames {
    /// Returns the CPUs of a machine that have these names. Kernel numbers are not checked: a
    /// caller knows better why one is missing. [`CpuNames`] has an example.
    ///
    /// # Errors
    /// The machine lacks a part.
    pub fn on(&self, machine: &Machine) -> Result<CpuSet, NoSuchPart> {
        let mut all = CpuSet::new();
        for term in &self.terms {
            let cpus = match term {
                Term::Kernel(cpus) => cpus.clone(),
                Term::Positions { unit, positions } => by_position(machine, term, *unit, positions)?,
                Term::Path(steps) => by_path(machine, steps)?,
            };
            all = all.union(&cpus);
        }
        Ok(all)
    }
}

fn by_position(
    machine: &Machine,
    term: &Term,
    unit: Unit,
    positions: &Set<Pu>,
) -> Result<CpuSet, NoSuchPart> {
    let whole = 0..u32::try_from(machine.pu_count()).unwrap_or(u32::MAX);
    let level = match unit.letter {
        'S' => Level::Package,
        'C' => Level::L3,
        'D' => Level::Die,
        _ => Level::Node,
    };
    let name = || term.to_string();
    let pus = match unit.number {
        None => whole,
        Some(number) => {
            let units = units(machine, Some(level), &whole, true);
            let which = Which::Listed(Set::from_iter([Pu(number)]));
            pick(&name, Some(level), &units, &which)?.into_iter().next().unwrap_or(0..0)
        }
    };
    // First the first hardware threads of the cores, then the second ones.
    let cores: Vec<Vec<u32>> = machine
        .cores_in(&pus)
        .map(|core| machine.cores()[core as usize].pus.clone().filter(|pu| pus.contains(pu)).collect())
        .collect();
    let depth = cores.iter().map(Vec::len).max().unwrap_or(0);
    let order: Vec<u32> =
        (0..depth).flat_map(|round| cores.iter().filter_map(move |core| core.get(round).copied())).collect();
    let units: Vec<(u32, Range<u32>)> = (0..).zip(order.into_iter().map(|pu| pu..pu + 1)).collect();
    Ok(cpus(machine, &pick(&name, None, &units, &Which::Listed(positions.clone()))?))
}

fn by_path(machine: &Machine, steps: &[Step]) -> Result<CpuSet, NoSuchPart> {
    let whole = 0..u32::try_from(machine.pu_count()).unwrap_or(u32::MAX);
    let mut inside = vec![whole];
    for (at, step) in steps.iter().enumerate() {
        let mut next = Vec::new();
        for outer in &inside {
            let units = units(machine, step.level, outer, at == 0);
            next.extend(pick(&|| step.to_string(), step.level, &units, &step.which)?);
        }
        if next.is_empty() {
            return Err(NoSuchPart::Nothing { name: step.to_string() });
        }
        inside = next;
    }
    Ok(cpus(machine, &inside))
}

fn cpus(machine: &Machine, runs: &[Range<u32>]) -> CpuSet {
    let all: BTreeSet<OsCpu> = runs.iter().cloned().flatten().map(|pu| machine.os(Pu(pu))).collect();
    all.into_iter().collect()
}

/// Returns the units of a level inside a run of PUs, each with its number. Of nested units only the
/// outermost count. `first` is whether nodes have the kernel's numbers.
fn units(machine: &Machine, level: Option<Level>, outer: &Range<u32>, first: bool) -> Vec<(u32, Range<u32>)> {
    let Some(level) = level else {
        return (0..).zip(outer.clone().map(|pu| pu..pu + 1)).collect();
    };
    let mut units: Vec<(u32, Range<u32>)> = Vec::new();
    for object in machine.at(level) {
        let pus = object.pus.start.max(outer.start)..object.pus.end.min(outer.end);
        if pus.is_empty() || units.last().is_some_and(|(_, last)| pus.start < last.end) {
            continue;
        }
        let number = match object.os {
            Some(os) if first && level == Level::Node => os,
            _ => u32::try_from(units.len()).unwrap_or(u32::MAX),
        };
        units.push((number, pus));
    }
    units
}

fn pick(
    name: &dyn Fn() -> String,
    level: Option<Level>,
    units: &[(u32, Range<u32>)],
    which: &Which,
) -> Result<Vec<Range<u32>>, NoSuchPart> {
    if units.is_empty() {
        return Err(NoSuchPart::Level { name: name(), level: word(level) });
    }
    if let Which::Listed(numbers) = which {
        let known: Set<Pu> = units.iter().map(|(number, _)| Pu(*number)).collect();
        let missing = numbers.difference(&known);
        if !missing.is_empty() {
            let (several, missing) = (missing.len() > 1, missing.to_string());
            let known = known.to_string();
            return Err(NoSuchPart::Number { name: name(), level: word(level), missing, several, known });
        }
    }
    let wanted = |number: u32| match which {
        Which::All => true,
        Which::Even => number.is_multiple_of(2),
        Which::Odd => !number.is_multiple_of(2),
        Which::Listed(numbers) => numbers.contains(Pu(number)),
    };
    Ok(units.iter().filter(|(number, _)| wanted(*number)).map(|(_, pus)| pus.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::parse_synthetic;
    use proptest::prelude::*;

    /// Two packages of two nodes with two caches of two cores each; the second hardware threads are
    /// CPUs 16 to 31.
    const MACHINE: &str = "pack:2 numa:2 l3:2 core:2 pu:2(far)";

    fn on(text: &str) -> Result<String, String> {
        let machine = parse_synthetic(MACHINE).unwrap();
        let names = text.parse::<CpuNames>().map_err(|error| error.to_string())?;
        names.on(&machine).map(|cpus| cpus.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn names_mean_the_cpus_of_units() {
        for (text, cpus) in [
            ("0-3,8", "0-3,8"),
            ("", ""),
            ("S0:0-3", "0-3"),
            ("s1:0-3", "8-11"),
            ("S0:0-3@S1:0-3", "0-3,8-11"),
            ("S0:0@5@N3:1", "0,5,13"),
            ("N1:0-3", "4-7"),
            ("M1:3-4", "7,20"), // the fifth position is the second thread of the first core
            ("N:0-1,16", "0-1,16"),
            ("C7:0-1", "14-15"),
            ("node:1.core:even", "4,6,20,22"),
            ("numa:1.core:0,3", "4,7,20,23"),
            ("pack:1.numa:0.l3:odd.core:1.pu:0", "11"),
            ("pack:all.core:0", "0,8,16,24"),
            ("core:14-15.pu:1", "30-31"),
            ("pu:2-3", "1,17"), // in the order of the machine, not of the kernel's numbers
            ("core:0-14:7", "0,7,14,16,23,30"),
        ] {
            assert_eq!(on(text), Ok(cpus.to_owned()), "{text}");
        }
    }

    #[test]
    fn faults_name_their_position_and_missing_parts_those_that_exist() {
        for (text, words) in [
            ("N0:", "a number is missing at position 4"),
            ("N0:x", "at position 4"),
            ("S:0-3", "a number is missing after S at position 2"),
            ("S0:0-3@", "a term is missing at position 8"),
            ("0-3@@4", "a term is missing at position 5"),
            ("S0:0-3@foo:1", "\"foo\" is no part of a machine (known: package, die"),
            ("S99999999999:0", "too large at position 2"),
            ("node:1.core", "\"core\" lacks its numbers, as in \"core:0\" at position 8"),
            ("core:0.node:1", "node is not inside core at position 8"),
            ("core:0.core:1", "core is not inside core"),
            ("pu:0.core:1", "core is not inside pu"),
            ("node:1.", "\"\" lacks its numbers"),
            ("node:4", "node:4: node 4 does not exist there (there is 0-3)"),
            ("S2:0", "S2:0: package 2 does not exist there (there is 0-1)"),
            ("N0:0-8", "N0:0-8: pu 8 does not exist there (there is 0-7)"),
            ("node:1.core:3-5", "core:3-5: core 4-5 do not exist there (there is 0-3)"),
            ("D0:0", "D0:0: this machine has no die"),
            ("die:all", "die:all: this machine has no die"),
            ("node:1.l3:0.core:0.pu:2", "pu:2: pu 2 does not exist there (there is 0-1)"),
        ] {
            let error = on(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert_eq!(on("l2:all"), Err("l2:all: this machine has no l2".to_owned()));
        let one = parse_synthetic("core:1").unwrap();
        let none: CpuNames = "core:odd".parse().unwrap();
        assert_eq!(none.on(&one).unwrap_err().to_string(), "core:odd: selects no CPU here");
    }

    #[test]
    fn nodes_have_the_kernels_numbers_at_the_beginning_only() {
        let mut parts = parse_synthetic("pack:2 numa:2 core:1").unwrap().parts().clone();
        for node in &mut parts.nodes {
            node.os = crate::ids::OsNode(10 + node.os.0);
        }
        let machine = Machine::build(parts).unwrap();
        let on = |text: &str| text.parse::<CpuNames>().unwrap().on(&machine).map(|cpus| cpus.to_string());
        assert_eq!(on("node:12"), Ok("2".to_owned()));
        assert_eq!(on("N13:0"), Ok("3".to_owned()));
        assert_eq!(on("pack:1.node:0"), Ok("2".to_owned()));
        assert!(on("node:0").unwrap_err().to_string().contains("there is 10-13"));
    }

    proptest! {
        #[test]
        fn accepted_names_are_read_back_from_their_text(
            text in "([NSMCD][0-9]?:[0-3,-]{1,4}|(pack|node|l3|core|pu):(all|even|odd|[0-3])(\\.(core|pu):(odd|[0-2]))?|[0-9,-]{1,4}|.{0,6})(@[NS][0-9]:[0-3])?"
        ) {
            if let Ok(names) = text.parse::<CpuNames>() {
                let again: CpuNames = names.to_string().parse().unwrap();
                prop_assert_eq!(&again, &names);
                let machine = parse_synthetic(MACHINE).unwrap();
                // Logical names never leave the machine.
                if let (Ok(cpus), false) = (names.on(&machine), text.contains(|c: char| c.is_ascii_digit()) && !text.contains(':')) {
                    let kernel = names.terms.iter().any(|term| matches!(term, Term::Kernel(_)));
                    prop_assert!(kernel || (cpus.is_subset(&machine.cpus()) && !cpus.is_empty()));
                }
            }
        }

        /// Steps select what a naive count of each level selects.
        #[test]
        fn a_path_is_the_intersection_of_naive_counts(pack in 0u32..2, node in 0u32..2, core in 0u32..4, pu in 0u32..2) {
            let cpu = pack * 8 + node * 4 + core + 16 * pu;
            prop_assert_eq!(on(&format!("pack:{pack}.node:{node}.core:{core}.pu:{pu}")), Ok(cpu.to_string()));
            prop_assert_eq!(on(&format!("N{}:{}", pack * 2 + node, core + 4 * pu)), Ok(cpu.to_string()));
        }
    }
}
