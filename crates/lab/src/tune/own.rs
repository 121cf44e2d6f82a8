//! Settings of variables that the search does not change, compared with the start before the
//! search: the user's own (`--try`), and other counts than that of the user's `OMP_NUM_THREADS`.
//!
//! The comparison is the race of `trimtab advise`: the program as it is, the start of the search,
//! and each of the user's settings in turn; a run is stopped as soon as it is hopeless.

use crate::advise::command_line::CommandLine;
use crate::advise::compare::{self, Tested};
use crate::advise::trial::Trials;
use anyhow::Result;
use std::fmt::Write as _;
use trimtab_cli::args::{OwnSetting, TuneArgs};
use trimtab_core::advise::choice::Choice;
use trimtab_core::advise::race::Rules;
use trimtab_core::advise::{StartChange, other_counts};
use trimtab_core::setting::Knob;
use trimtab_core::time::Span;
use trimtab_core::words::plural;
use trimtab_front::interrupt::Interrupt;
use trimtab_front::process_env::World;
use trimtab_front::sibling::{self, TRIMTAB};

/// Variable of OpenMP's number of threads.
const THREADS: &str = "OMP_NUM_THREADS";
/// Part of the budget that these settings may take.
const BUDGET_PART: f64 = 0.25;

/// Returns the settings to compare: those of `--try`, and other values of the user's
/// `OMP_NUM_THREADS`, which the search keeps.
pub(super) fn settings(world: &World, args: &TuneArgs, cores: u32) -> Vec<OwnSetting> {
    let wanted = args.knobs.is_empty() || args.knobs.contains(&Knob::Threads);
    let set = world.of_user(THREADS).filter(|_| wanted && args.metric.is_none());
    let counts = set.map(|set| other_counts(&set, cores)).unwrap_or_default();
    let others = counts.into_iter().map(|count| OwnSetting(vec![(THREADS.to_owned(), count)]));
    let others = others.filter(|other| !args.own.contains(other));
    args.own.iter().cloned().chain(others).collect()
}

/// Compares these settings with the start.
///
/// # Errors
/// `trimtab` is not found, or no process can be created.
pub(super) fn compare(
    world: &World,
    args: &TuneArgs,
    settings: &[OwnSetting],
    options: &[String],
    interrupt: &Interrupt,
) -> Result<Tested> {
    let start = StartChange { setting: args.from.clone(), ..StartChange::default() };
    // The cores of the start replace the others.
    let sets_cores = args.from.get(Knob::Cores).is_some();
    let options = options.iter().filter(|option| !(sets_cores && option.starts_with("--cores=")));
    let options: Vec<String> = options.cloned().collect();
    let line = |change: &StartChange| CommandLine::with(options.clone(), change);
    let own = settings.iter().map(|OwnSetting(variables)| {
        let variables = variables.iter().map(|(name, value)| (name.clone(), Some(value.clone())));
        line(&StartChange { variables: variables.collect(), ..start.clone() })
    });
    let lines: Vec<CommandLine> = [CommandLine::plain(), line(&start)].into_iter().chain(own).collect();
    let trials = Trials::begin(sibling::find(TRIMTAB)?, world.proc(), args.command.clone())?;
    let budget = args.budget.times(BUDGET_PART);
    let limit_first = args.timeout.unwrap_or(budget).min(budget);
    compare::compare(
        &trials,
        Rules { budget, more: Span::ZERO, limit_first, known: None, seed: args.seed },
        &lines,
        interrupt,
    )
}

/// Returns the comparison as text.
pub(super) fn words(tested: &Tested) -> String {
    let mut text = format!(
        "Variables that you set, compared with the program as you start it now, in {:.1} s:\n",
        tested.spent.seconds()
    );
    for variant in &tested.variants {
        let way = if variant.way.is_empty() { "now" } else { &variant.way };
        let time = match (variant.time, variant.entrant.stopped) {
            (Some(time), _) => {
                format!("{:.3} s ({})", time.median, plural(variant.entrant.seconds.len() as u64, "run"))
            }
            (None, Some(stopped)) => format!("more than {stopped:.3} s"),
            (None, None) => "not tried".to_owned(),
        };
        let _ = write!(text, "  {way}: {time}");
        if let Some(faster) = variant.faster {
            let _ = write!(text, ", {faster}");
        }
        if let Some(why) = &variant.entrant.rejected {
            let _ = write!(text, ": {why}");
        }
        text.push('\n');
    }
    text.push_str(
        "The search does not change variables that you set; to tune from one of these, set it first.",
    );
    text
}

/// A command with other variables that is faster for certain.
#[derive(Debug)]
pub(super) struct FasterOwn {
    pub command: String,
    /// The command with its gain, as text.
    pub words: String,
}

/// Returns the command that is faster for certain, if it is not the search's to find: one of these
/// settings.
pub(super) fn faster(tested: &Tested) -> Option<FasterOwn> {
    let Choice::Use { entrant } = tested.choice else { return None };
    let variant = tested.variants.get(entrant).filter(|_| entrant >= 2)?;
    let command = variant.command.clone();
    Some(FasterOwn {
        words: format!("Faster than your variables: {}\n  {command}", variant.faster?),
        command,
    })
}
