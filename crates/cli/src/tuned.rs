//! Settings as options of `trimtab run`: to try one, and to apply the one that was found before.
//!
//! Properties: what a user gives as an option stays, and so do variables that the user set; what `run` would not take is no setting. A profile is for
//! programs started by hand: ranks, nested teams and runs inside runs have surroundings of their own.

use crate::args::{EnvMode, PinMode, RunArgs, Thp};
use crate::commands::tune_team::page::date;
use crate::kept::{Conditions, Kept, Store};
use crate::say::{self, Volume};
use crate::situation::HOLD;
use crate::world::World;
use trimtab_core::place::{Action, Amount, Plan, Variable, local_rank};
use trimtab_core::setting::{Knob, Setting};
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_linux::program::Program;
use trimtab_linux::sys::{slice, version};

/// What the C library's allocator is told so that it asks for huge pages.
pub const TUNABLES: &str = "GLIBC_TUNABLES";
const ASKS: &str = "glibc.malloc.hugetlb=1";
/// Its first version that understands that.
pub const ASKING: (u32, u32) = (2, 35);

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

/// A profile that a run goes by.
#[derive(Debug)]
pub struct Tuned {
    kept: Kept,
    /// What of it is applied.
    setting: Setting,
}

/// The options of a run, with what was tuned for its program where the user said nothing.
pub fn over(
    world: &World,
    args: &RunArgs,
    program: &Program,
    nests: bool,
    volume: Volume,
) -> (RunArgs, Option<Tuned>) {
    let mut args = args.clone();
    let apart = args.run.no_profile
        || args.run.ranks.is_some()
        || args.run.env == EnvMode::Keep
        || nests
        || world.raw(HOLD).is_some()
        || local_rank(&|name| world.text(name)).is_some();
    if apart {
        return (args, None);
    }
    let Some(kept) = find(world, &args, program, volume) else { return (args, None) };
    let mut setting = Setting::new();
    for (knob, value) in kept.setting.iter() {
        if put(&mut args, knob, value)
            && let Ok(more) = setting.clone().with(knob, value)
        {
            setting = more;
        }
    }
    let tuned = (!setting.is_empty()).then_some(Tuned { kept, setting });
    (args, tuned)
}

/// The profile for a program, if there is one that holds. What is there and does not count is said in a line.
fn find(world: &World, args: &RunArgs, program: &Program, volume: Volume) -> Option<Kept> {
    let store = Store::of(world)?;
    if !store.any() {
        return None;
    }
    let met = Conditions::of(&program.path, &args.command, &args.place, 0).ok()?;
    let name = met.name();
    let why = match store.read(&name) {
        Ok(None) => return None,
        Ok(Some(kept)) => match kept.conditions.differs(&met) {
            None => return Some(kept),
            Some(why) => why.to_owned(),
        },
        Err(error) => format!("{error:#}"),
    };
    say::warning(
        volume,
        &format!(
            "the profile {name} is not applied: {why} (trimtab tune finds another, trimtab profiles remove {name} removes it)"
        ),
    );
    None
}

/// Sets an option that the user left open; whether that was so.
pub(crate) fn put(args: &mut RunArgs, knob: Knob, value: &str) -> bool {
    /// Fills what is empty, if the text is a value.
    fn fill<T>(option: &mut Option<T>, value: Option<T>) -> bool {
        let open = option.is_none() && value.is_some();
        if open {
            *option = value;
        }
        open
    }
    match knob {
        Knob::Threads => fill(&mut args.run.threads, value.parse().ok()),
        Knob::Cores if args.place.cpus.is_some() => false,
        Knob::Cores => fill(&mut args.place.cores, value.parse().ok().map(Amount::Cores)),
        Knob::Smt => fill(&mut args.place.smt, value.parse().ok()),
        Knob::Strategy => fill(&mut args.place.strategy, value.parse().ok()),
        Knob::Memory => fill(&mut args.place.mem, value.parse().ok()),
        Knob::Thp => fill(&mut args.place.thp, <Thp as clap::ValueEnum>::from_str(value, false).ok()),
        Knob::Wait => fill(&mut args.run.wait_policy, value.parse().ok()),
        Knob::Pin => fill(&mut args.run.pin, <PinMode as clap::ValueEnum>::from_str(value, false).ok()),
        Knob::Balance if value == "none" => false,
        Knob::Balance => fill(&mut args.run.watch.balance, value.parse().ok()),
        Knob::Slice => fill(&mut args.run.slice, value.parse().ok()),
    }
}

impl Tuned {
    /// Says that it is applied; or, where the run got other cores than the profile is for, that it is not, and takes back what is told to
    /// the program.
    pub fn settle(&self, plan: &Plan, before: &RunArgs, args: &mut RunArgs, volume: Volume) {
        let cores: std::collections::BTreeSet<_> = plan.slots.iter().map(|slot| slot.core).collect();
        let wanted = self
            .setting
            .number(Knob::Cores)
            .map_or(self.kept.conditions.cores as usize, |cores| cores as usize);
        let Kept { gain, when, higher, .. } = &self.kept;
        let name = self.kept.conditions.name();
        if cores.len() != wanted {
            args.run.threads = before.run.threads;
            args.run.wait_policy = before.run.wait_policy;
            args.run.slice = before.run.slice;
            args.place.thp = before.place.thp;
            say::warning(
                volume,
                &format!(
                    "the profile {name} is for {}, and this run has {}: threads and waiting are left as they are",
                    plural(wanted, "core"),
                    cores.len()
                ),
            );
            return;
        }
        let what = if self.kept.metric == "time" {
            format!("{gain:.2} times as fast")
        } else if *higher {
            format!("{gain:.2} times as much")
        } else {
            format!("{gain:.2} times as good")
        };
        let day = date(*when);
        let day = day.split(' ').next().unwrap_or(&day);
        say::notice(
            volume,
            &format!("as tuned on {day}: {} ({what} then; --no-profile runs it without)", self.setting),
        );
    }
}

/// The variable by which the allocator is told to ask for huge pages.
pub fn asks_for_huge_pages(user: &dyn Fn(&str) -> Option<String>, volume: Volume) -> Variable {
    let action = match user(TUNABLES) {
        Some(value) => Action::Kept { value },
        None => Action::Set { value: ASKS.to_owned() },
    };
    if version::glibc().is_none_or(|version| version < ASKING) {
        say::warning(
            volume,
            "--thp on needs the allocator of glibc 2.35: this C library is not told to ask for huge pages by it",
        );
    }
    if matches!(action, Action::Kept { .. }) {
        say::warning(volume, &format!("--thp on has no effect: your {TUNABLES} stays as it is"));
    }
    Variable { name: TUNABLES.to_owned(), reader: "malloc of glibc", action }
}

/// Asks for the scheduler's slice for this process and what it becomes.
///
/// # Errors
/// It cannot be had, in words.
pub fn ask_for_slice(ms: f64) -> Result<(), String> {
    let wanted = Span((ms * 1e6).round() as u64);
    match slice::set(wanted) {
        Ok(Some(now)) if now == wanted => Ok(()),
        Ok(Some(now)) => Err(format!("a slice of {ms} ms was asked for, and the kernel gives {now}")),
        Ok(None) => Err("this kernel takes no slices: --slice needs Linux 6.12".to_owned()),
        Err(error) => Err(format!("the scheduler's slice cannot be set: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn args(words: &[String]) -> RunArgs {
        let words = ["trimtab", "run"]
            .map(str::to_owned)
            .into_iter()
            .chain(words.iter().cloned())
            .chain(["x".to_owned()]);
        match Cli::parse_from(words).command {
            Command::Run(args) => *args,
            _ => unreachable!(),
        }
    }

    #[test]
    fn a_setting_as_words_is_the_setting_as_options() {
        let every: Setting = "threads=4 cores=2 smt=all strategy=stride:l2 memory=bind:0 thp=on wait=sleep pin=mask balance=speed slice=0.5"
            .parse()
            .unwrap();
        assert_eq!(every.iter().count(), Knob::ALL.len());
        let by_words = args(&words(&every));
        let mut by_options = args(&[]);
        for (knob, value) in every.iter() {
            assert!(put(&mut by_options, knob, value), "{knob}");
        }
        assert_eq!(format!("{by_words:?}"), format!("{by_options:?}"));
    }

    #[test]
    fn what_the_user_said_stays() {
        let mut mine = args(&["--wait-policy=spin".to_owned(), "--cpus=0".to_owned()]);
        assert!(!put(&mut mine, Knob::Wait, "sleep"));
        assert!(!put(&mut mine, Knob::Cores, "2"));
        assert!(put(&mut mine, Knob::Thp, "off"));
        assert_eq!(mine.run.wait_policy.unwrap().word(), "spin");
    }
}
