//! The request of a launch: command line, rules, kept tuning and the user's environment, merged.
//!
//! Precedence, highest first: an option, a kept tuning, a rule of the user's or the site's, the
//! default. Variables of the user's stand apart: they are never replaced by a tuning or a rule, and
//! [`decide()`](crate::decide()) reads them where it decides about variables.
//!
//! A tuning was measured on a number of cores. What it says of places (cores, layout, memory, pins)
//! is part of the merge. What it says of threads and waiting is good on that number of cores only,
//! so both values are kept ([`OnCores`]), and the decision takes the one for the cores that the
//! launch gets.

use crate::nesting::{self, AskedTeams};
use crate::options::{EnvMode, Options, PinMode, Thp};
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::rules::{Rule, Site};
use crate::variables::Environment;
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::balance::Kind;
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{Amount, Fit, HugePages, KindChoice, Request, Smt, Strategy, local_rank};
use trimtab_core::setting::{Knob, Setting};

/// The variable by which an enclosing run tells the ones inside it where they stand.
pub const HOLD: &str = "TRIMTAB_HOLD";

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "from", content = "of", rename_all = "kebab-case")]
pub enum Origin {
    /// The default.
    Default,
    /// An option of the command line.
    Option,
    /// This variable of the user's.
    Variable(String),
    /// The kept tuning of this name.
    Tuning(String),
    /// The rule for this pattern.
    Rule(String),
    /// The MPI launcher that started this process.
    Launcher(String),
}

/// A value and its origin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub origin: Origin,
}

impl<T> Sourced<T> {
    /// The first layer that has a value, or the default.
    fn first(layers: impl IntoIterator<Item = (Option<T>, Origin)>, default: T) -> Self {
        let found = layers.into_iter().find_map(|(value, origin)| Some(Self { value: value?, origin }));
        found.unwrap_or(Self { value: default, origin: Origin::Default })
    }
}

/// A value that a tuning may replace, on the number of cores that it was measured on.
#[derive(Clone, PartialEq, Debug)]
pub struct OnCores<T> {
    plain: Sourced<T>,
    tuned: Option<Sourced<T>>,
}

impl<T: Clone> OnCores<T> {
    /// The value: the tuned one where the tuning holds.
    pub fn at(&self, holds: bool) -> &Sourced<T> {
        self.tuned.as_ref().filter(|_| holds).unwrap_or(&self.plain)
    }
}

/// A kept tuning that was found for the program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tuning {
    /// Its name.
    pub name: String,
    /// What it sets. After the merge: what of it is applied.
    pub setting: Setting,
    /// The cores it was measured on, unless the setting names them.
    pub cores: u32,
    /// The day on which it was found, in words.
    pub found_on: String,
    /// What it gained then, in words: `1.50 times as fast`.
    pub gained: String,
}

impl Tuning {
    /// The number of cores on which its threads and waits hold.
    pub fn wanted_cores(&self) -> usize {
        self.setting.number(Knob::Cores).map_or(self.cores as usize, |cores| cores as usize)
    }
}

/// Everything that is merged.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The command line.
    pub options: Options,
    /// The site's limits.
    pub site: Site,
    /// The rule for the program.
    pub rule: Option<Rule>,
    /// The tuning for the program, or why one that is kept does not count.
    pub tuning: Option<Result<Tuning, String>>,
    /// The environment.
    pub environment: Environment,
    /// The program and its arguments; empty where none is named.
    pub command: Vec<String>,
}

/// A request, merged.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchRequest {
    /// Cores, layout, memory and huge pages.
    pub place: Request,
    /// Where the values of `place` come from, and those of `pin`, `fit` and `balance`, by name.
    pub origins: BTreeMap<&'static str, Origin>,
    /// The nested teams that were asked for.
    pub nest: Option<AskedTeams>,
    /// Threads that open outermost regions after another one did.
    pub nest_roots: Roots,
    /// Where the preload library reports on nested teams.
    pub report: Report,
    /// Threads that runtimes are told to start.
    pub threads: OnCores<Option<u32>>,
    /// How threads wait.
    pub wait: OnCores<WaitPolicy>,
    /// The scheduler's slice in milliseconds.
    pub slice: OnCores<Option<f64>>,
    /// Whether the allocator is told to ask for huge pages.
    pub allocator: OnCores<bool>,
    /// What becomes of counts above the CPUs of the run.
    pub fit: Fit,
    /// Whether threads are pinned.
    pub pin: PinMode,
    /// The rule that leaves threads free inside the mask.
    pub mask_only: Option<String>,
    /// The rule that applies.
    pub rule: Option<String>,
    /// The tuning, with the part of it that is applied.
    pub tuning: Option<Tuning>,
    /// What becomes of the environment.
    pub env: EnvMode,
    /// The policy that balances.
    pub balance: Option<Kind>,
    /// The option for which a parent stays to observe, without a policy too.
    pub observed: Option<&'static str>,
    /// Ranks to start.
    pub ranks: Option<u32>,
    /// What cannot be had is an error.
    pub strict: bool,
    /// Nothing but errors is said.
    pub quiet: bool,
    /// The environment that the launch finds.
    pub environment: Environment,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What the merge says of itself.
    pub reasons: Vec<LaunchReason>,
}

/// Whether a kept tuning may apply: not to ranks, nested teams and runs inside runs, whose
/// surroundings are their own, and not where the environment or tunings are to be left alone.
pub fn takes_tuning(options: &Options, environment: &Environment) -> bool {
    let nests = || !matches!(nesting::asked(options, environment), Ok((None, _)));
    !(options.no_tuning
        || options.ranks.is_some()
        || options.env == EnvMode::Keep
        || environment.raw(HOLD).is_some()
        || local_rank(&|name| environment.text(name)).is_some()
        || nests())
}

impl LaunchRequest {
    /// Merges.
    ///
    /// # Errors
    /// [`Refusal::Request`] for what contradicts itself or is not understood.
    pub fn merge(sources: Sources) -> Result<Self, Refusal> {
        let Sources { options, site, rule, tuning, environment, command } = sources;
        let (nest, told) = nesting::asked(&options, &environment)?;
        let mut reasons: Vec<LaunchReason> = told.into_iter().collect();
        let tuning = tuning.filter(|_| takes_tuning(&options, &environment));
        let tuning = tuning.and_then(|found| {
            found.inspect_err(|why| reasons.push(LaunchReason::warning(Topic::Tuning, why.clone()))).ok()
        });
        let (tuned, tuning) = overlay(&options, tuning);
        let layers =
            Layers { options: &options, tuned: &tuned, rule: rule.as_ref(), tuning: tuning.as_ref() };
        let (place, mut origins) = layers.place(&site)?;
        let pin = layers.value(options.pin, tuned.pin, None, PinMode::Auto);
        let balance = layers.value(options.balance.map(Some), tuned.balance.map(Some), None, None);
        origins.insert("pin", pin.origin);
        origins.insert("balance", balance.origin);
        let fit = layers.value(options.fit, None, None, Fit::default());
        origins.insert("fit", fit.origin);
        let request = Self {
            threads: layers.on_cores(options.threads.map(Some), tuned.threads.map(Some), None),
            wait: layers.on_cores(options.wait_policy, tuned.wait_policy, WaitPolicy::default()),
            slice: layers.on_cores(options.slice.map(Some), tuned.slice.map(Some), None),
            allocator: layers.on_cores(
                options.thp.map(|thp| thp == Thp::On),
                tuned.thp.map(|thp| thp == Thp::On),
                false,
            ),
            place,
            origins,
            nest,
            nest_roots: options.nest_roots,
            report: options.report.clone(),
            fit: fit.value,
            pin: pin.value,
            mask_only: rule.as_ref().filter(|rule| rule.mask_only).map(|rule| rule.program.clone()),
            rule: rule.map(|rule| rule.program),
            tuning,
            env: options.env,
            balance: balance.value,
            observed: options.observed,
            ranks: options.ranks.filter(|_| !options.as_rank),
            strict: options.strict,
            quiet: options.quiet,
            environment,
            command,
            reasons,
        };
        request.check(&options)?;
        Ok(request)
    }

    /// A variable that the user set.
    pub fn user(&self, name: &str) -> Option<String> {
        self.environment.of_user(name)
    }

    /// Refuses what cannot be had together.
    fn check(&self, options: &Options) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::Request(text));
        if self.nest.is_some() {
            if options.pin == Some(PinMode::Mask) {
                return refuse(
                    "--pin mask leaves threads free, and nested teams place them: drop one of the two"
                        .to_owned(),
                );
            }
            if let Some(kind) = self.balance.filter(|kind| *kind != Kind::Float) {
                return refuse(format!(
                    "--balance={kind} moves the threads that --nest places: drop one of the two, or only watch with --balance=float"
                ));
            }
            if let Some(name) = &self.mask_only {
                return refuse(format!(
                    "the rule for \"{name}\" leaves threads free (pin = \"mask\"), and nested teams place them: --no-rules ignores it"
                ));
            }
        }
        if self.ranks.is_none() {
            return Ok(());
        }
        let alone = [
            self.balance.map(|_| "--balance"),
            self.observed,
            (self.env == EnvMode::Print).then_some("--env=print"),
        ];
        if let Some(option) = alone.into_iter().flatten().next() {
            return refuse(format!(
                "{option} is about one process, and --ranks starts several: drop one of the two"
            ));
        }
        if let Some(rank) = local_rank(&|name| self.environment.text(name)) {
            return refuse(format!(
                "{} has started this as one of its ranks: have it start as many as are wanted, without --ranks",
                rank.launcher
            ));
        }
        Ok(())
    }
}

/// The options with those of a tuning that are open for it, and the tuning with what of it is
/// applied; no tuning where nothing is.
fn overlay(options: &Options, tuning: Option<Tuning>) -> (Options, Option<Tuning>) {
    let mut filled = options.clone();
    let Some(tuning) = tuning else { return (filled, None) };
    let mut applied = Setting::new();
    for (knob, value) in tuning.setting.iter() {
        if filled.fill(knob, value)
            && let Ok(more) = applied.clone().with(knob, value)
        {
            applied = more;
        }
    }
    let tuning = (!applied.is_empty()).then_some(Tuning { setting: applied, ..tuning });
    (filled, tuning)
}

/// The layers of the merge: `tuned` are the options with the tuning's in those that are open.
struct Layers<'a> {
    options: &'a Options,
    tuned: &'a Options,
    rule: Option<&'a Rule>,
    tuning: Option<&'a Tuning>,
}

impl Layers<'_> {
    fn of_tuning(&self) -> Origin {
        self.tuning.map_or(Origin::Default, |tuning| Origin::Tuning(tuning.name.clone()))
    }

    /// A value that holds on any cores.
    fn value<T>(&self, option: Option<T>, tuned: Option<T>, rule: Option<T>, default: T) -> Sourced<T> {
        let of_rule = Origin::Rule(self.rule.map_or_else(String::new, |rule| rule.program.clone()));
        let layers = [(option, Origin::Option), (tuned, self.of_tuning()), (rule, of_rule)];
        Sourced::first(layers, default)
    }

    /// A value that a tuning replaces on its own cores only.
    fn on_cores<T>(&self, option: Option<T>, tuned: Option<T>, default: T) -> OnCores<T> {
        let said = option.is_some();
        let plain = Sourced::first([(option, Origin::Option)], default);
        let tuned = tuned.filter(|_| !said).map(|value| Sourced { value, origin: self.of_tuning() });
        OnCores { plain, tuned }
    }

    /// Cores, layout, memory and huge pages, with the origin of each.
    fn place(&self, site: &Site) -> Result<(Request, BTreeMap<&'static str, Origin>), Refusal> {
        let Self { options, tuned, .. } = *self;
        let rule = self.rule.cloned().unwrap_or_default();
        let amount = |options: &Options| match (options.cores, &options.cpus) {
            (Some(amount), _) => Some(amount),
            (None, Some(_)) => Some(Amount::Exact),
            (None, None) => None,
        };
        let amount = self.value(amount(options), amount(tuned), None, Amount::Auto);
        if amount.value == Amount::Exact && (tuned.smt.is_some() || options.or_fewer) {
            return Err(Refusal::Request(
                "--cpus without --cores names the CPUs exactly; --smt and --or-fewer have no meaning then"
                    .to_owned(),
            ));
        }
        let strategy = self.value(options.strategy, tuned.strategy, rule.strategy, Strategy::Compact);
        let smt = self.value(options.smt, tuned.smt, rule.smt, Smt::Threads(1));
        let memory = self.value(options.mem.clone(), tuned.mem.clone(), rule.mem, Default::default());
        let pages = |thp: Option<Thp>| thp.map(HugePages::from);
        let pages = self.value(pages(options.thp), pages(tuned.thp), rule.thp, HugePages::Inherit);
        let kind = match options.kind.as_deref() {
            None | Some("one") => KindChoice::One,
            Some("any") => KindChoice::Any,
            Some(name) => KindChoice::Named(name.to_owned()),
        };
        let request = Request {
            amount: amount.value,
            cpus: options.cpus.clone(),
            strategy: strategy.value,
            smt: smt.value,
            kind,
            memory: memory.value,
            huge_pages: pages.value,
            share: options.share,
            or_fewer: options.or_fewer,
            cores_max: site.max_cores,
            cores_auto: site.auto_cores,
        };
        let origins = BTreeMap::from([
            ("amount", amount.origin),
            ("strategy", strategy.origin),
            ("smt", smt.origin),
            ("memory", memory.origin),
            ("huge_pages", pages.origin),
        ]);
        Ok((request, origins))
    }
}
