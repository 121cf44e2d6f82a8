//! Layout of a team's ranks: threads, processes, or threads of several processes.

use super::numbers::product;
use std::str::FromStr;

/// Layout of the ranks of a team over processes and threads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum RankLayout {
    /// Threads of one process.
    Threads,
    /// A process each.
    Processes,
    /// A number of processes, each with a number of threads.
    Mixed(u32, u32),
    /// A number of processes that share the ranks evenly, each with more than one thread.
    Spread(u32),
}

impl RankLayout {
    /// Returns the number of processes, and of threads of each, for this number of ranks; `None` if
    /// the layout has another number of ranks.
    pub fn split(self, ranks: u32) -> Option<(u32, u32)> {
        match self {
            Self::Threads => Some((1, ranks)),
            Self::Processes => Some((ranks, 1)),
            Self::Mixed(processes, threads) => {
                (processes.checked_mul(threads) == Some(ranks)).then_some((processes, threads))
            }
            Self::Spread(processes) => {
                let whole = ranks.checked_rem(processes) == Some(0) && ranks / processes > 1;
                whole.then(|| (processes, ranks / processes))
            }
        }
    }
}

impl std::fmt::Display for RankLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Threads => f.write_str("thread"),
            Self::Processes => f.write_str("process"),
            Self::Mixed(processes, threads) => write!(f, "{processes}x{threads}"),
            Self::Spread(processes) => write!(f, "{processes}xN"),
        }
    }
}

impl FromStr for RankLayout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let spread = || {
            let processes: u32 = text.strip_suffix("xN")?.parse().ok()?;
            (processes > 1).then_some(Self::Spread(processes))
        };
        let mixed = || product(text).map(|(processes, threads)| Self::Mixed(processes, threads));
        match text {
            "thread" => Ok(Self::Threads),
            "process" => Ok(Self::Processes),
            _ => spread().or_else(mixed).ok_or_else(|| {
                format!(
                    "\"{text}\" is neither thread nor process nor a shape such as 2x2 (2 processes of 2 threads) or 2xN"
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_splits_its_own_number_of_ranks_only() {
        let layout = |text: &str| text.parse::<RankLayout>().unwrap();
        assert_eq!(layout("thread").split(4), Some((1, 4)));
        assert_eq!(layout("process").split(4), Some((4, 1)));
        assert_eq!(layout("2x3").split(6), Some((2, 3)));
        assert_eq!(layout("2x3").split(4), None);
        assert_eq!(RankLayout::Mixed(65536, 65536).split(0), None, "the product wraps");
        assert_eq!(["2xN", "4xN"].map(|text| layout(text).split(4)), [Some((2, 2)), None]);
        let spread = [1, 2, 3, 8].map(|ranks| RankLayout::Spread(2).split(ranks));
        assert_eq!(spread, [None, None, None, Some((2, 4))]);
        assert_eq!(RankLayout::Spread(2).to_string().parse(), Ok(RankLayout::Spread(2)));
        assert_eq!(RankLayout::Mixed(2, 3).to_string().parse(), Ok(RankLayout::Mixed(2, 3)));
        for bad in ["", "threads", "2", "0x2", "x", "xN", "1xN", "2xn"] {
            assert!(bad.parse::<RankLayout>().is_err(), "{bad}");
        }
    }
}
