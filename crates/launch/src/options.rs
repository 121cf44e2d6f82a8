//! The options of a launch: what a command line, `--set` or a kept tuning can say, before anything
//! is merged.

use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use trimtab_core::balance::Kind;
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{Amount, Fit, HugePages, MemoryRequest, Smt, Strategy};
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};

/// Defines an enum whose values are words of a command line.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal, $( $(#[$of:meta])* $value:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $( $(#[$of])* $value ),+ }

        impl $name {
            /// All values, as listed in help.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// The word on the command line.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }

            /// The words of all values.
            pub fn words() -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().map(|value| value.word())
            }
        }

        /// The first value.
        impl Default for $name {
            fn default() -> Self {
                Self::ALL[0]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.word())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let known = Self::ALL.iter().copied().find(|value| value.word() == text);
                known.ok_or_else(|| {
                    let words: Vec<&str> = Self::words().collect();
                    format!("\"{text}\" is no {} (known: {})", $what, words.join(", "))
                })
            }
        }
    };
}

words! {
    /// Whether threads are pinned.
    PinMode, "way to pin",
    /// As the kind of the program suggests.
    Auto = "auto",
    /// Not: they stay free inside the cores.
    Mask = "mask",
}

words! {
    /// What becomes of the environment.
    EnvMode, "way to treat the environment",
    /// Variables are set.
    Set = "set",
    /// They are printed, and nothing is started.
    Print = "print",
    /// It is kept as it is.
    Keep = "keep",
}

words! {
    /// Transparent huge pages, as they are asked for.
    Thp, "mode of huge pages",
    /// As the system is set.
    Inherit = "inherit",
    /// None.
    Off = "off",
    /// Only where the program asks.
    Advised = "advised",
    /// The allocator asks for them.
    On = "on",
}

impl From<Thp> for HugePages {
    fn from(thp: Thp) -> Self {
        match thp {
            // A request of the allocator's is made by its environment.
            Thp::Inherit | Thp::On => Self::Inherit,
            Thp::Off => Self::Off,
            Thp::Advised => Self::Advised,
        }
    }
}

/// What was said on a command line. `None` is "not said": rules, a tuning or a default decide then.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// How many cores.
    pub cores: Option<Amount>,
    /// Which CPUs come into question.
    pub cpus: Option<CpuSet>,
    /// Layout of the threads.
    pub strategy: Option<Strategy>,
    /// Hardware threads for each core.
    pub smt: Option<Smt>,
    /// Core kinds: `one`, `any` or a name.
    pub kind: Option<String>,
    /// Memory policy.
    pub mem: Option<MemoryRequest>,
    /// Huge pages.
    pub thp: Option<Thp>,
    /// Nested teams, as typed.
    pub nest: Option<String>,
    /// Threads that open outermost regions after another one did.
    pub nest_roots: Roots,
    /// Held cores may be used too.
    pub share: bool,
    /// Fewer cores are accepted.
    pub or_fewer: bool,
    /// What cannot be had is an error.
    pub strict: bool,
    /// Threads that runtimes are told to start.
    pub threads: Option<u32>,
    /// What becomes of counts above the CPUs of the run.
    pub fit: Option<Fit>,
    /// The scheduler's slice in milliseconds, 0.1 to 100.
    pub slice: Option<f64>,
    /// How threads wait.
    pub wait_policy: Option<WaitPolicy>,
    /// Whether threads are pinned.
    pub pin: Option<PinMode>,
    /// What becomes of the environment.
    pub env: EnvMode,
    /// The policy that balances while the program runs.
    pub balance: Option<Kind>,
    /// The option that asks for a trace, metrics, a report or a profile, so that a parent stays.
    pub observed: Option<&'static str>,
    /// Where the preload library reports on nested teams.
    pub report: Report,
    /// Ranks to start.
    pub ranks: Option<u32>,
    /// Whether this is one of the ranks that `--ranks` starts.
    pub as_rank: bool,
    /// Kept tunings are left alone.
    pub no_tuning: bool,
    /// Nothing but errors is said.
    pub quiet: bool,
}

impl Options {
    /// Sets an option that is open; whether it was, and the text is a value of the knob. Cores are
    /// not open where CPUs are named, and "no policy" is no option.
    pub fn fill(&mut self, knob: Knob, value: &str) -> bool {
        fn fill<T>(option: &mut Option<T>, value: Option<T>) -> bool {
            let open = option.is_none() && value.is_some();
            if open {
                *option = value;
            }
            open
        }
        match knob {
            Knob::Threads => fill(&mut self.threads, value.parse().ok()),
            Knob::Cores if self.cpus.is_some() => false,
            Knob::Cores => fill(&mut self.cores, value.parse().ok().map(Amount::Cores)),
            Knob::Smt => fill(&mut self.smt, value.parse().ok()),
            Knob::Strategy => fill(&mut self.strategy, value.parse().ok()),
            Knob::Memory => fill(&mut self.mem, value.parse().ok()),
            Knob::Thp => fill(&mut self.thp, value.parse().ok()),
            Knob::Wait => fill(&mut self.wait_policy, value.parse().ok()),
            Knob::Pin => fill(&mut self.pin, value.parse().ok()),
            Knob::Balance if value == "none" => false,
            Knob::Balance => fill(&mut self.balance, value.parse().ok()),
            Knob::Slice => fill(&mut self.slice, value.parse().ok()),
        }
    }

    /// These options with each knob of a setting in the option that is open for it.
    ///
    /// # Errors
    /// The knob for which another option says something already.
    pub fn filled(mut self, setting: &Setting) -> Result<Self, String> {
        for (knob, value) in setting.iter().filter(|set| *set != (Knob::Balance, "none")) {
            if !self.fill(knob, value) {
                return Err(format!(
                    "{knob}={value} is for what another option says already: give one of them"
                ));
            }
        }
        Ok(self)
    }
}

/// The words by which `trimtab run` starts a program in a setting.
pub fn words(setting: &Setting) -> Vec<String> {
    let mut words = Vec::new();
    for (knob, value) in setting.iter() {
        let option = match knob {
            Knob::Threads => "--threads",
            Knob::Cores => "--cores",
            Knob::Smt => "--smt",
            Knob::Strategy => "--strategy",
            Knob::Memory => "--mem",
            Knob::Thp => "--thp",
            Knob::Wait => "--wait-policy",
            Knob::Pin => "--pin",
            Knob::Balance if value == "none" => continue,
            Knob::Balance => "--balance",
            Knob::Slice => "--slice",
        };
        words.push(format!("{option}={value}"));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_stays() {
        let mut mine = Options {
            wait_policy: Some(WaitPolicy::Spin),
            cpus: Some("0".parse().unwrap()),
            ..Options::default()
        };
        assert!(!mine.fill(Knob::Wait, "sleep"));
        assert!(!mine.fill(Knob::Cores, "2"));
        assert!(mine.fill(Knob::Thp, "off"));
        assert!(!mine.fill(Knob::Balance, "none"));
        assert_eq!((mine.wait_policy, mine.thp), (Some(WaitPolicy::Spin), Some(Thp::Off)));
    }

    #[test]
    fn every_word_is_read_as_its_value() {
        for &value in PinMode::ALL {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for &value in EnvMode::ALL {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for &value in Thp::ALL {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        assert!("ON".parse::<Thp>().unwrap_err().contains("inherit, off, advised, on"));
    }
}
