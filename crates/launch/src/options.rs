//! Options of a launch, from a command line, `--set` or a saved tuning, before the merge.

use crate::preempt::PreemptPeriod;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;
use trimtab_core::balance::Kind;
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{Amount, Fit, HugePages, MemoryRequest, MemorySize, NearDevice, Smt, Strategy};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::set::CpuSet;
use trimtab_core::setting::{Knob, Setting};

/// Defines an enum of words on a command line.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal, $( $(#[$of:meta])* $value:ident = $word:literal),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $( $(#[$of])* $value ),+ }

        impl $name {
            /// All values, as listed in help.
            pub const ALL: &[Self] = &[$(Self::$value),+];

            /// Returns the word on the command line. [`Options`] has an example.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$value => $word),+ }
            }

            /// Returns the words of all values. [`Options`] has an example.
            pub fn words() -> impl Iterator<Item = &'static str> {
                Self::ALL.iter().map(|value| value.word())
            }
        }

        /// The default is the first value.
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
                    format!("\"{text}\" is not a {} (known: {})", $what, words.join(", "))
                })
            }
        }
    };
}

words! {
    /// How threads are pinned. [`Options`] has an example.
    PinMode, "way to pin",
    /// Depends on the kind of the program.
    Auto = "auto",
    /// Not pinned: threads stay free inside the cores.
    Mask = "mask",
}

words! {
    /// Treatment of environment variables. [`Options`] has an example.
    EnvMode, "way to treat the environment",
    /// The launch sets variables.
    Set = "set",
    /// The launch prints variables and starts nothing.
    Print = "print",
    /// The launch leaves the environment unchanged.
    Keep = "keep",
}

words! {
    /// Mode of transparent huge pages. [`Options`] has an example.
    Thp, "mode of huge pages",
    /// System setting.
    Inherit = "inherit",
    /// No huge pages.
    Off = "off",
    /// Only memory for which the program requests them.
    Advised = "advised",
    /// The allocator requests them.
    On = "on",
}

words! {
    /// Form of a jobserver. [`set_up`](crate::jobserver::set_up) has an example.
    JobserverForm, "form of a jobserver",
    /// The one that the tools of the launch read.
    Auto = "auto",
    /// A path.
    Fifo = "fifo",
    /// Two inherited descriptors.
    Pipe = "pipe",
}

words! {
    /// Treatment of loops in the program's own code that only wait. [`Options`] has an example.
    SpinMode, "treatment of spinning threads",
    /// They spin.
    Keep = "keep",
    /// They yield while the program has more threads than CPUs.
    Yield = "yield",
}

impl From<Thp> for HugePages {
    fn from(thp: Thp) -> Self {
        match thp {
            // The allocator requests huge pages because of its environment variable.
            Thp::Inherit | Thp::On => Self::Inherit,
            Thp::Off => Self::Off,
            Thp::Advised => Self::Advised,
        }
    }
}

/// How far a run may grow. [`Options`] has an example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrowMost {
    /// As far as cores are free.
    Free,
    /// To this number of cores.
    Cores(u32),
}

impl FromStr for GrowMost {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = || text.parse().ok().filter(|&cores| cores > 0).map(Self::Cores);
        let bad = || format!("\"{text}\" is neither a number of cores nor \"free\"");
        if text == "free" { Ok(Self::Free) } else { number().ok_or_else(bad) }
    }
}

/// Options of a command line. `None` means not given: rules, a tuning or a default decide.
///
/// # Examples
/// ```
/// use trimtab_launch::{EnvMode, Options, PinMode, Thp};
///
/// // trimtab run -c 8/node --mem bind --thp on --pin mask
/// let options = Options {
///     cores: Some("8/node".parse()?),
///     mem: Some("bind".parse()?),
///     thp: Some("on".parse()?),
///     pin: Some(PinMode::Mask),
///     ..Options::default()
/// };
/// assert_eq!((options.thp, options.env), (Some(Thp::On), EnvMode::Set));
/// assert_eq!(PinMode::Mask.word(), "mask");
/// assert_eq!(EnvMode::words().collect::<Vec<_>>(), ["set", "print", "keep"]);
/// assert!("of".parse::<Thp>().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Options {
    /// Number of cores.
    pub cores: Option<Amount>,
    /// CPUs that may be used.
    pub cpus: Option<CpuSet>,
    /// Layout of the threads.
    pub strategy: Option<Strategy>,
    /// Hardware threads for each core.
    pub smt: Option<Smt>,
    /// Core kinds: `one`, `any` or a name.
    pub kind: Option<String>,
    /// Memory policy.
    pub mem: Option<MemoryRequest>,
    /// Memory that must be available on the nodes of the run.
    pub mem_size: Option<MemorySize>,
    /// Device near which the cores are chosen, as found on the machine.
    pub near: Option<NearDevice>,
    /// Whether each rank sees only its own of the devices that are dealt to ranks.
    pub visible_devices: bool,
    /// Huge pages.
    pub thp: Option<Thp>,
    /// Nested teams, as the text of the option.
    pub nest: Option<String>,
    /// Treatment of threads that open outermost regions after another thread did.
    pub nest_roots: Roots,
    /// Whether cores held by others may be used too.
    pub share: bool,
    /// Whether fewer cores than requested are accepted.
    pub or_fewer: bool,
    /// Whether a request that cannot be met is an error.
    pub strict: bool,
    /// Thread count that is announced to the runtimes.
    pub threads: Option<u32>,
    /// Treatment of thread counts above the number of CPUs of the run.
    pub fit: Option<Fit>,
    /// Form of the jobserver that the build tools of the run share; `None`: no jobserver.
    pub jobserver: Option<JobserverForm>,
    /// The scheduler's slice in milliseconds, 0.1 to 100.
    pub slice: Option<f64>,
    /// Period of preemption between the kernel's ticks; `None`: no preemption.
    pub preempt: Option<PreemptPeriod>,
    /// Treatment of loops in the program's own code that only wait.
    pub spin: Option<SpinMode>,
    /// How far the run may grow; `None`: it keeps its cores.
    pub grow: Option<GrowMost>,
    /// Programs outside of holds to which a run that grows gives cores back; `None`: those that the
    /// site names.
    pub yield_to: Option<YieldTo>,
    /// How threads wait.
    pub wait_policy: Option<WaitPolicy>,
    /// How threads are pinned.
    pub pin: Option<PinMode>,
    /// Treatment of environment variables.
    pub env: EnvMode,
    /// Policy that balances while the program runs.
    pub balance: Option<Kind>,
    /// Option that requests a trace, metrics, a report or a profile, so that a parent process
    /// stays.
    pub observed: Option<&'static str>,
    /// Destination of the preload library's reports on nested teams.
    pub report: Report,
    /// Number of ranks to start.
    pub ranks: Option<u32>,
    /// Whether this is one of the ranks that `--ranks` starts.
    pub as_rank: bool,
    /// Whether saved tunings are ignored.
    pub no_tuning: bool,
    /// Whether all messages except errors are suppressed.
    pub quiet: bool,
}

impl Options {
    /// Sets an option that is not set yet. Returns whether it was unset and the text is a valid
    /// value of the knob. Cores count as set if CPUs are named; "no policy" is not an option.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::setting::Knob;
    /// use trimtab_launch::Options;
    ///
    /// let mut options = Options { threads: Some(4), ..Options::default() };
    /// assert!(!options.fill(Knob::Threads, "8")); // It is set.
    /// assert!(options.fill(Knob::Strategy, "scatter"));
    /// ```
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

    /// Returns these options with every knob of a setting filled in.
    ///
    /// # Examples
    /// ```
    /// use trimtab_launch::Options;
    ///
    /// let options = Options::default().filled(&"threads=4 wait=sleep".parse()?)?;
    /// assert_eq!(options.threads, Some(4));
    /// assert!(options.filled(&"threads=8".parse()?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The knob that is already determined by another option.
    pub fn filled(mut self, setting: &Setting) -> Result<Self, String> {
        for (knob, value) in setting.iter().filter(|set| *set != (Knob::Balance, "none")) {
            if !self.fill(knob, value) {
                return Err(format!(
                    "{knob}={value} sets a value that another option sets already: give one of them"
                ));
            }
        }
        Ok(self)
    }
}

/// Returns the arguments with which `trimtab run` starts a program in a setting.
///
/// # Examples
/// ```
/// use trimtab_launch::options::words;
///
/// assert_eq!(words(&"threads=4 wait=sleep".parse()?), ["--threads=4", "--wait-policy=sleep"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    fn stated_options_stay() {
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
        for &value in SpinMode::ALL {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        for &value in JobserverForm::ALL {
            assert_eq!(value.to_string().parse(), Ok(value));
        }
        assert!("ON".parse::<Thp>().unwrap_err().contains("inherit, off, advised, on"));
    }
}
