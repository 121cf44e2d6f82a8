//! Strategy: the rule by which cores are picked among the free ones.

use crate::topology::{Level, Machine};
use crate::words::did_you_mean;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Layout of threads on the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strategy {
    /// Close together: fewest nodes and caches. For threads that share data.
    #[default]
    Compact,
    /// Far apart, even for neighbouring thread numbers: most nodes and caches. For bandwidth.
    Scatter,
    /// Spread like scatter, but threads with neighbouring numbers stay close to each other.
    Balanced,
    /// One core of each unit with a shared resource, otherwise close together.
    Stride(Stride),
}

/// Step of a stride.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stride {
    /// Every n-th core; the cores between stay free for others.
    Every(u32),
    /// One core per unit; the unit's other cores are held but idle, so that no other program shares
    /// the unit.
    OnePer(Level),
    /// One core per floating-point unit: per second-level cache on AMD's module processors, per
    /// core on others.
    OnePerFpu,
}

impl Strategy {
    /// Returns the level of the units from which the strategy takes one core each; `None` for other
    /// strategies.
    pub(super) fn unit(self, machine: &Machine) -> Option<Level> {
        match self {
            Self::Stride(Stride::OnePer(level)) => Some(level),
            Self::Stride(Stride::OnePerFpu) if machine.cpu().shares_fpu_by_l2() => Some(Level::L2),
            Self::Stride(Stride::OnePerFpu) => Some(Level::Core),
            _ => None,
        }
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        match lower.as_str() {
            "compact" => return Ok(Self::Compact),
            "scatter" | "spread" => return Ok(Self::Scatter),
            "balanced" => return Ok(Self::Balanced),
            _ => {}
        }
        let Some(step) = lower.strip_prefix("stride:") else {
            let words = ["compact", "scatter", "spread", "balanced", "stride:fpu", "stride:core"];
            let meant = did_you_mean(text, words);
            return Err(format!(
                "\"{text}\" is not a strategy{meant} (known: compact, scatter, balanced, stride:N, stride:l2, stride:fpu, stride:core)"
            ));
        };
        if step == "fpu" {
            return Ok(Self::Stride(Stride::OnePerFpu));
        }
        if let Ok(every) = step.parse::<u32>() {
            return match every {
                0 => {
                    Err("a stride of 0 never ends; stride:1 is every core, stride:2 every second".to_owned())
                }
                every => Ok(Self::Stride(Stride::Every(every))),
            };
        }
        match Level::from_word(step) {
            Some(level) => Ok(Self::Stride(Stride::OnePer(level))),
            None => {
                Err(format!("\"{step}\" is not a stride (known: a number, l2, l3, fpu, core, node, package)"))
            }
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compact => f.write_str("compact"),
            Self::Scatter => f.write_str("scatter"),
            Self::Balanced => f.write_str("balanced"),
            Self::Stride(Stride::Every(every)) => write!(f, "stride:{every}"),
            Self::Stride(Stride::OnePer(level)) => write!(f, "stride:{level}"),
            Self::Stride(Stride::OnePerFpu) => f.write_str("stride:fpu"),
        }
    }
}
