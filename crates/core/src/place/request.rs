//! Requests of a user: the number of cores, their shape and their distribution.

use super::deal::DealtDevice;
use super::grant::GrantedCores;
use super::memory::{HugePages, MemoryRequest};
use super::strategy::Strategy;
use crate::set::CpuSet;
use crate::topology::Level;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Requested amount of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// Every core that is free or less than half busy, up to the site's default.
    #[default]
    Auto,
    /// This many cores.
    Cores(u32),
    /// This share of the allowed cores, 1 to 100 percent, rounded down, at least one core.
    Percent(u32),
    /// Whole units, or a number of cores in each of some units.
    Shape(Shape),
    /// Exactly the CPUs named in [`Request::cpus`].
    Exact,
}

/// Cores by topology: `2xl3`, `node`, `8/node`, `2x8/node`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Shape {
    /// Number of units; `None` for one whole unit, or, with `per`, for every unit with allowed
    /// cores.
    pub units: Option<u32>,
    /// Number of cores in each unit; `None` for all of them.
    pub per: Option<u32>,
    /// Level of the units.
    pub level: Level,
}

/// Reason why a core expression does not parse, with the byte position of the error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{problem} at position {} of \"{text}\"; expected auto, a count (64), a share (50%), units (node, 2xl3) or cores per unit (8/node, 2x8/node)", at + 1)]
pub struct AmountError {
    /// Whole text of the expression.
    pub text: String,
    /// Byte offset of the error, from 0.
    pub at: usize,
    /// Description of the error.
    pub problem: String,
}

/// Tells whether the text names CPUs, as `taskset` and `likwid-pin` take them: `0-7`, `0,2`,
/// `S0:0-3`.
fn is_cpu_list(text: &str) -> bool {
    let list = text.rsplit(':').next().unwrap_or(text);
    let begins = list.starts_with(|first: char| first.is_ascii_digit());
    begins
        && list.contains(['-', ','])
        && list.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b','))
}

impl FromStr for Amount {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let fault = |at: usize, problem: String| AmountError { text: text.to_owned(), at, problem };
        if text.eq_ignore_ascii_case("auto") {
            return Ok(Self::Auto);
        }
        if is_cpu_list(text) {
            return Err(fault(0, "CPU numbers (for --cpus LIST) instead of a count".to_owned()));
        }
        let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
        let number = |from: usize, len: usize| match text[from..from + len].parse::<u32>() {
            Ok(0) => Err(fault(from, "0 cores is not a request".to_owned())),
            Ok(number) => Ok(number),
            Err(_) => Err(fault(from, format!("{} is too large", &text[from..from + len]))),
        };
        let first = digits(0);
        let (mut units, mut per, mut at) = (None, None, 0);
        if first > 0 {
            let count = number(0, first)?;
            at = first;
            match text[at..].chars().next() {
                None => return Ok(Self::Cores(count)),
                Some('%') if at + 1 < text.len() => {
                    return Err(fault(at + 1, "nothing can follow the %".to_owned()));
                }
                Some('%') if count > 100 => {
                    return Err(fault(0, format!("{count}% is more than the whole machine")));
                }
                Some('%') => return Ok(Self::Percent(count)),
                Some('x' | 'X' | '*') => {
                    units = Some(count);
                    at += 1;
                    let second = digits(at);
                    if second > 0 {
                        per = Some(number(at, second)?);
                        at += second;
                        if !text[at..].starts_with('/') {
                            return Err(fault(at, "a / and a unit are missing".to_owned()));
                        }
                        at += 1;
                    }
                }
                Some('/') => {
                    per = Some(count);
                    at += 1;
                }
                Some(other) => return Err(fault(at, format!("unexpected \"{other}\""))),
            }
        }
        let word = &text[at..];
        if word.is_empty() {
            let what = if text.is_empty() { "an expression" } else { "a unit" };
            return Err(fault(at, format!("{what} is missing")));
        }
        let singular = word.strip_suffix('s').filter(|word| Level::from_word(word).is_some()).unwrap_or(word);
        let level = Level::from_word(singular).ok_or_else(|| {
            fault(
                at,
                format!("\"{word}\" is not a unit (known: core, l2, l3, die, node, package, group, machine)"),
            )
        })?;
        if level == Level::Core && per.is_none() {
            return Ok(Self::Cores(units.unwrap_or(1)));
        }
        Ok(Self::Shape(Shape { units, per, level }))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cores(count) => write!(f, "{count}"),
            Self::Percent(share) => write!(f, "{share}%"),
            Self::Exact => f.write_str("exactly the CPUs named"),
            Self::Shape(Shape { units, per, level }) => {
                if let Some(units) = units {
                    write!(f, "{units}x")?;
                }
                if let Some(per) = per {
                    write!(f, "{per}/")?;
                }
                write!(f, "{level}")
            }
        }
    }
}

/// Number of hardware threads per core that get a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smt {
    /// At most this number; the other threads are held but idle.
    Threads(u32),
    /// All threads of the core.
    All,
}

impl Default for Smt {
    fn default() -> Self {
        Self::Threads(1)
    }
}

impl FromStr for Smt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            _ => match text.parse::<u32>() {
                Ok(threads) if threads > 0 => Ok(Self::Threads(threads)),
                _ => Err(format!(
                    "\"{text}\" is not a number of hardware threads per core (known: 1, 2, …, all)"
                )),
            },
        }
    }
}

/// Core kinds of a hybrid machine that may be used.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindChoice {
    /// One kind: the fastest one with enough cores.
    #[default]
    One,
    /// Any mixture.
    Any,
    /// The kind with this name (`P`, `E`, …).
    Named(String),
    /// Cores with the largest last-level cache, of any kind: the cores below the stacked cache of a
    /// processor of which only some dies have one.
    LargestCache,
}

impl KindChoice {
    /// Word for the cores with the largest last-level cache.
    pub const LARGEST_CACHE: &str = "largest-l3";
}

/// Device near which cores are wanted, as found on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NearDevice {
    /// The device, as asked for.
    pub name: String,
    /// Nearest CPUs.
    pub cpus: CpuSet,
    /// Devices that are dealt to the ranks of a job; empty for one device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<DealtDevice>,
}

/// Whole request for placement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Request {
    /// Requested amount.
    pub amount: Amount,
    /// CPUs that may be used; `None` for all allowed ones.
    pub cpus: Option<CpuSet>,
    /// Layout of the threads.
    pub strategy: Strategy,
    /// Hardware threads per core.
    pub smt: Smt,
    /// Core kinds.
    pub kind: KindChoice,
    /// Memory policy, and room.
    pub memory: MemoryRequest,
    /// Device near which the cores are chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<NearDevice>,
    /// Huge pages.
    pub huge_pages: HugePages,
    /// Whether cores held by others may be used too.
    pub share: bool,
    /// Whether fewer cores than requested are accepted.
    pub or_fewer: bool,
    /// Most cores that one run may have here by the site's rules. It limits `auto` with only a
    /// note, and refuses larger requests.
    pub cores_max: Option<u32>,
    /// Most cores that `auto` takes by the site's rules.
    pub cores_auto: Option<u32>,
    /// Most cores that `auto` takes by the grant of a workload manager.
    #[serde(default)]
    pub granted: Option<GrantedCores>,
}
