//! Synthetic description of a machine in one line: `pack:2 numa:2 l3:2 core:4 pu:2`.
//!
//! The format is the common subset of hwloc's synthetic descriptions: levels from the outside in,
//! each with the count of children per parent. `[numa]` in brackets attaches one more memory node
//! (without its own CPUs) to each object of the preceding level. `numa:N(memory=64GB)` and
//! `[numa(memory=16GB tier=hbm)]` give the size and type of memory. CPU numbers are logical
//! (`0..`). With SMT, `pu:2(far)` numbers all first threads before all second ones, as most x86
//! firmware does.

use super::{Domain, Level, MAX_NODES, MAX_PUS, Machine, NodePart, Parts, Tier};
use crate::ids::{OsCpu, OsNode};
use thiserror::Error;

/// Reason why a description does not parse, with the byte position of the error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem} at position {} of \"{text}\" (a description is levels from the outside in, such as \"pack:2 numa:2 l3:2 core:4 pu:2\")", at + 1)]
pub struct SyntheticError {
    /// Whole text of the description.
    pub text: String,
    /// Byte offset of the error, from 0.
    pub at: usize,
    /// Description of the error.
    pub problem: String,
}

/// Level of a description.
struct LevelSpec<'a> {
    level: Option<Level>, // None for PUs
    count: u64,
    memory: NodeMemory,
    far: bool,
    extra: Vec<NodeMemory>, // memory-only nodes attached to each object of this level
    word: &'a str,
    at: usize,
}

#[derive(Clone, Copy)]
struct NodeMemory {
    bytes: Option<u64>,
    tier: Tier,
}

const NO_MEMORY: NodeMemory = NodeMemory { bytes: None, tier: Tier::Dram };

/// Builds a machine from a synthetic description.
///
/// # Errors
/// [`SyntheticError`] names the position and the expected text.
pub fn parse_synthetic(text: &str) -> Result<Machine, SyntheticError> {
    let steps = steps(text)?;
    let parts = expand(text, &steps);
    Machine::build(parts).map_err(|error| SyntheticError {
        text: text.to_owned(),
        at: 0,
        problem: error.to_string(),
    })
}

fn steps(text: &str) -> Result<Vec<LevelSpec<'_>>, SyntheticError> {
    let fault = |at: usize, problem: String| SyntheticError { text: text.to_owned(), at, problem };
    let mut steps: Vec<LevelSpec<'_>> = Vec::new();
    let mut total: u64 = 1;
    let mut nodes: u64 = 0;
    for (at, item) in items(text).map_err(|at| fault(at, "a bracket is not closed".to_owned()))? {
        if let Some(inner) = item.strip_prefix('[') {
            let memory = attached(inner.strip_suffix(']').unwrap_or(inner))
                .map_err(|(by, problem)| fault(at + by, problem))?;
            match steps.last_mut() {
                Some(step) => step.extra.push(memory),
                None => return Err(fault(at, "[numa] needs a level before it".to_owned())),
            }
            nodes += total; // one for each object of the level before
            if nodes > MAX_NODES as u64 {
                return Err(fault(at, format!("more than {MAX_NODES} NUMA nodes")));
            }
            continue;
        }
        let (body, attributes) =
            item.split_once('(').map_or((item, ""), |(body, rest)| (body, rest.trim_end_matches(')')));
        let (word, count) = match body.split_once(':') {
            Some((word, count)) => (word, count),
            None => return Err(fault(at, format!("\"{body}\" lacks its count, as in \"{body}:2\""))),
        };
        let level = level(word).map_err(|problem| fault(at, problem))?;
        let count_at = at + word.len() + 1;
        let count: u64 = count
            .parse()
            .ok()
            .filter(|&count| count > 0)
            .ok_or_else(|| fault(count_at, format!("\"{count}\" is not a count of at least 1")))?;
        total = total.saturating_mul(count);
        if total > MAX_PUS as u64 {
            return Err(fault(count_at, format!("more than {MAX_PUS} hardware threads")));
        }
        if level == Some(Level::Node) {
            nodes += total;
            if nodes > MAX_NODES as u64 {
                return Err(fault(count_at, format!("more than {MAX_NODES} NUMA nodes")));
            }
        }
        order(&steps, level, word).map_err(|problem| fault(at, problem))?;
        let mut step = LevelSpec { level, count, memory: NO_MEMORY, far: false, extra: Vec::new(), word, at };
        match (level, attributes) {
            (_, "") => {}
            (None, "far") => step.far = true,
            (Some(Level::Node), attributes) => {
                step.memory = memory(attributes).map_err(|problem| fault(at, problem))?
            }
            _ => return Err(fault(at + body.len(), format!("{word} takes no attribute ({attributes})"))),
        }
        steps.push(step);
    }
    if steps.is_empty() {
        return Err(fault(0, "the description is empty".to_owned()));
    }
    Ok(steps)
}

/// Parses a memory that is attached to the level before it, without its brackets. An error has an
/// offset from the bracket.
fn attached(inner: &str) -> Result<NodeMemory, (usize, String)> {
    let (word, attributes) =
        inner.split_once('(').map_or((inner, ""), |(word, rest)| (word, rest.trim_end_matches(')')));
    if Level::from_word(word) != Some(Level::Node) {
        return Err((1, format!("only [numa] can be attached, not \"{word}\"")));
    }
    memory(attributes).map_err(|problem| (0, problem))
}

/// Returns the level that a word names; `None` for hardware threads.
fn level(word: &str) -> Result<Option<Level>, String> {
    match word.to_ascii_lowercase().as_str() {
        "pu" | "thread" => Ok(None),
        other => match Level::from_word(other) {
            Some(level) if level != Level::Machine => Ok(Some(level)),
            _ => Err(format!("\"{word}\" is not a level (known: group, pack, die, numa, l3, l2, core, pu)")),
        },
    }
}

/// Checks that a level may follow the steps before it.
fn order(steps: &[LevelSpec<'_>], level: Option<Level>, word: &str) -> Result<(), String> {
    let Some(last) = steps.last() else { return Ok(()) };
    if last.level.is_none() {
        return Err(format!("nothing can follow {}", last.word));
    }
    if level != Some(Level::Group) && steps.iter().any(|step| step.level == level) {
        return Err(format!("level {word} is given twice"));
    }
    if level.is_some() && last.level == Some(Level::Core) {
        return Err(format!("{word} cannot be inside a core"));
    }
    Ok(())
}

/// Splits at blanks outside brackets; `Err` is the position of an unclosed bracket.
fn items(text: &str) -> Result<Vec<(usize, &str)>, usize> {
    let mut items = Vec::new();
    let mut start = None;
    let mut open: Vec<usize> = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'(' | b'[' => open.push(at),
            b')' | b']' => {
                open.pop();
            }
            _ => {}
        }
        if byte.is_ascii_whitespace() && open.is_empty() {
            if let Some(start) = start.take() {
                items.push((start, &text[start..at]));
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    if let Some(&at) = open.first() {
        return Err(at);
    }
    if let Some(start) = start {
        items.push((start, &text[start..]));
    }
    Ok(items)
}

fn memory(attributes: &str) -> Result<NodeMemory, String> {
    let mut memory = NO_MEMORY;
    for attribute in attributes.split_whitespace() {
        match attribute.split_once('=') {
            Some(("memory", size)) => {
                memory.bytes =
                    Some(bytes(size).ok_or_else(|| format!("\"{size}\" is not a size such as 64GB"))?)
            }
            Some(("tier", tier)) => {
                memory.tier = match tier.to_ascii_lowercase().as_str() {
                    "dram" => Tier::Dram,
                    "hbm" => Tier::Hbm,
                    "cxl" => Tier::Cxl,
                    "nvm" => Tier::Nvm,
                    "gpu" => Tier::Gpu,
                    _ => {
                        return Err(format!(
                            "\"{tier}\" is not a memory tier (known: dram, hbm, cxl, nvm, gpu)"
                        ));
                    }
                }
            }
            _ => {
                return Err(format!(
                    "\"{attribute}\" is not an attribute of numa (known: memory=SIZE, tier=NAME)"
                ));
            }
        }
    }
    Ok(memory)
}

/// Parses a size, such as `64GB`, `512MiB` or `4096`. Units are powers of 1024, as in hwloc.
fn bytes(size: &str) -> Option<u64> {
    let digits = size.bytes().take_while(u8::is_ascii_digit).count();
    let number: u64 = size[..digits].parse().ok()?;
    let shift = match size[digits..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "kb" | "kib" => 10,
        "mb" | "mib" => 20,
        "gb" | "gib" => 30,
        "tb" | "tib" => 40,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn expand(text: &str, steps: &[LevelSpec<'_>]) -> Parts {
    let fit = |number: u64| u32::try_from(number).unwrap_or(u32::MAX); // bounded by MAX_PUS
    let total = fit(steps.iter().map(|step| step.count).product());
    let mut parts = Parts { name: text.to_owned(), ..Parts::default() };
    let (threads, far) = match steps.last() {
        Some(step) if step.level.is_none() => (fit(step.count), step.far),
        _ => (1, false),
    };
    let cores = total / threads;
    parts.pus =
        (0..total).map(|at| OsCpu(if far { at % threads * cores + at / threads } else { at })).collect();
    let mut of_level = 1;
    for step in steps {
        of_level *= fit(step.count);
        let size = total / of_level;
        for os in 0..of_level {
            let first = os * size;
            if let Some(level) = step.level {
                if level == Level::Node {
                    let NodeMemory { bytes, tier } = step.memory;
                    parts.nodes.push(NodePart {
                        os: OsNode(os),
                        first,
                        count: size,
                        bytes,
                        tier,
                        has_cpus: true,
                    });
                } else {
                    parts.domains.push(Domain { level, os: Some(os), first, count: size });
                }
            }
        }
    }
    if parts.nodes.is_empty() {
        // Every machine has memory: hwloc adds one node to descriptions without any, and so does
        // this parser.
        parts.nodes.push(NodePart {
            os: OsNode(0),
            first: 0,
            count: total,
            bytes: None,
            tier: Tier::Dram,
            has_cpus: true,
        });
    }
    let mut next = fit(parts.nodes.len() as u64);
    let mut of_level = 1;
    for step in steps {
        debug_assert!(step.at <= text.len());
        of_level *= fit(step.count);
        let size = total / of_level;
        for &NodeMemory { bytes, tier } in &step.extra {
            for at in 0..of_level {
                parts.nodes.push(NodePart {
                    os: OsNode(next),
                    first: at * size,
                    count: size,
                    bytes,
                    tier,
                    has_cpus: false,
                });
                next += 1;
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_beyond_reason_are_refused_where_they_go_too_far() {
        for (text, at, words) in [
            ("core:65537", 5, "more than 65536 hardware threads"),
            ("numa:256 core:256 pu:2", 21, "more than 65536 hardware threads"),
            ("numa:4097 core:1", 5, "more than 4096 NUMA nodes"),
            ("pack:3000 [numa] [numa] core:1", 17, "more than 4096 NUMA nodes"),
        ] {
            let error = parse_synthetic(text).unwrap_err();
            assert_eq!(error.at, at, "{error}");
            assert!(error.problem.contains(words), "{error}");
        }
        let largest = parse_synthetic("pack:64 numa:64 core:8 pu:2").unwrap();
        assert_eq!((largest.nodes().len(), largest.pu_count()), (MAX_NODES, MAX_PUS));
    }
}
