//! Request of a launch: command line, rules, saved tuning and the user's environment, merged.
//!
//! Precedence, highest first: an option, a saved tuning, a rule of the user or the site, the
//! default. The user's variables are separate: neither a tuning nor a rule replaces them, and
//! [`decide()`](crate::decide()) reads them when it decides about variables.
//!
//! A tuning was measured on a number of cores. Its settings of placement (cores, layout, memory,
//! pinning) are part of the merge. Its settings of threads and waiting are valid on that number of
//! cores only. Both values are therefore kept ([`OnCores`]), and the decision takes the one that
//! fits the cores of the launch.

use crate::asked_teams::{self, AskedTeams};
use crate::options::{EnvMode, GrowMost, JobserverForm, Options, PinMode, SpinMode, Thp};
use crate::origin::ValueOrigin;
use crate::preempt::PreemptPeriod;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::rules::{Rule, Site};
use crate::variables::Environment;
use serde::Serialize;
use std::collections::BTreeMap;
use trimtab_core::balance::Kind;
use trimtab_core::budget;
use trimtab_core::handoff::{Report, Roots};
use trimtab_core::place::waiting::WaitPolicy;
use trimtab_core::place::{
    Amount, Fit, Grant, HugePages, KindChoice, MemoryRequest, Request, Smt, Strategy, TASK_OF_HOLD, grant,
    local_rank, task,
};
use trimtab_core::resize::yields::YieldTo;
use trimtab_core::setting::{Knob, Setting};

pub use trimtab_core::hold_claim::HOLD;

/// Value and its origin. [`Tuning`] has an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Source of the value.
    pub origin: ValueOrigin,
}

impl<T> Sourced<T> {
    /// Returns the value of the first layer that has one, or the default.
    fn first(layers: impl IntoIterator<Item = (Option<T>, ValueOrigin)>, default: T) -> Self {
        let found = layers.into_iter().find_map(|(value, origin)| Some(Self { value: value?, origin }));
        found.unwrap_or(Self { value: default, origin: ValueOrigin::Default })
    }
}

/// Value that a tuning may replace on the number of cores on which it was measured. [`Tuning`] has
/// an example.
#[derive(Clone, PartialEq, Debug)]
pub struct OnCores<T> {
    plain: Sourced<T>,
    tuned: Option<Sourced<T>>,
}

impl<T: Clone> OnCores<T> {
    /// Returns the tuned value if the tuning holds, else the plain value. [`Tuning`] has an
    /// example.
    pub fn at(&self, holds: bool) -> &Sourced<T> {
        self.tuned.as_ref().filter(|_| holds).unwrap_or(&self.plain)
    }
}

/// Saved tuning that was found for the program.
///
/// # Examples
/// ```
/// use trimtab_launch::{LaunchRequest, Sources, Tuning, ValueOrigin};
///
/// // Two threads were the best on four cores.
/// let tuning = Tuning {
///     name: "app-1".to_owned(),
///     setting: "threads=2".parse()?,
///     cores: 4,
///     found_on: "2026-11-26".to_owned(),
///     gained: "1.50 times as fast".to_owned(),
/// };
/// assert_eq!(tuning.wanted_cores(), 4);
/// let sources = Sources { tuning: Some(Ok(tuning)), ..Sources::default() };
/// let request = LaunchRequest::merge(sources)?;
/// let holds = true; // The launch gets four cores.
/// let threads = request.threads.at(holds);
/// assert_eq!(threads.value, Some(2));
/// assert_eq!(threads.origin, ValueOrigin::Tuning("app-1".to_owned()));
/// assert_eq!(request.threads.at(!holds).value, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Tuning {
    /// Name of the tuning.
    pub name: String,
    /// Its settings; after the merge, only those that are applied.
    pub setting: Setting,
    /// Number of cores on which it was measured, unless the setting names it.
    pub cores: u32,
    /// Day on which it was found, in words.
    pub found_on: String,
    /// Gain that was measured then, in words: `1.50 times as fast`.
    pub gained: String,
}

impl Tuning {
    /// Returns the number of cores for which its settings of threads and waiting are valid.
    /// [`Tuning`] has an example.
    pub fn wanted_cores(&self) -> usize {
        self.setting.number(Knob::Cores).map_or(self.cores as usize, |cores| cores as usize)
    }
}

/// Inputs of the merge. [`LaunchRequest::merge`] has an example.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The command line.
    pub options: Options,
    /// The site's limits.
    pub site: Site,
    /// The rule for the program.
    pub rule: Option<Rule>,
    /// Tuning for the program, or the reason why a saved one is not used.
    pub tuning: Option<Result<Tuning, String>>,
    /// The environment.
    pub environment: Environment,
    /// The program and its arguments; empty if no program is named.
    pub command: Vec<String>,
}

/// Merged request. [`LaunchRequest::merge`] has an example.
#[derive(Clone, PartialEq, Debug)]
pub struct LaunchRequest {
    /// Cores, layout, memory and huge pages.
    pub place: Request,
    /// Origins of the values of `place` and of `pin`, `fit` and `balance`, by name.
    pub origins: BTreeMap<&'static str, ValueOrigin>,
    /// Requested nested teams.
    pub nest: Option<AskedTeams>,
    /// Treatment of threads that open outermost regions after another thread did.
    pub nest_roots: Roots,
    /// Destination of the preload library's reports on nested teams.
    pub report: Report,
    /// Thread count that is announced to the runtimes.
    pub threads: OnCores<Option<u32>>,
    /// How threads wait.
    pub wait: OnCores<WaitPolicy>,
    /// Scheduler slice in milliseconds.
    pub slice: OnCores<Option<f64>>,
    /// Period of preemption between the kernel's ticks; `None`: no preemption.
    pub preempt: Option<PreemptPeriod>,
    /// Treatment of loops in the program's own code that only wait.
    pub spin: SpinMode,
    /// How far the run may grow; `None`: it keeps its cores.
    pub grow: Option<GrowMost>,
    /// Programs outside of holds to which it gives cores back.
    pub yield_to: YieldTo,
    /// Whether the allocator is set to request huge pages.
    pub allocator: OnCores<bool>,
    /// Treatment of thread counts above the number of CPUs of the run.
    pub fit: Fit,
    /// Form of the jobserver that the build tools of the run share; `None`: no jobserver.
    pub jobserver: Option<JobserverForm>,
    /// How threads are pinned.
    pub pin: PinMode,
    /// Pattern of the rule that leaves threads free inside the mask.
    pub mask_only: Option<String>,
    /// Pattern of the rule that applies.
    pub rule: Option<String>,
    /// The tuning, reduced to the settings that are applied.
    pub tuning: Option<Tuning>,
    /// Treatment of environment variables.
    pub env: EnvMode,
    /// Policy that balances.
    pub balance: Option<Kind>,
    /// Option that requires a parent process to observe, even without a policy.
    pub observed: Option<&'static str>,
    /// Number of CPUs that a workload manager granted the job on this machine. It bounds `auto`.
    pub grant: Option<Grant>,
    /// Whether each rank sees only its own of the devices that are dealt to ranks.
    pub visible_devices: bool,
    /// Number of ranks to start.
    pub ranks: Option<u32>,
    /// Whether this is one of the ranks that `--ranks` has started.
    pub as_rank: bool,
    /// Whether a request that cannot be met is an error.
    pub strict: bool,
    /// Whether all messages except errors are suppressed.
    pub quiet: bool,
    /// Environment in which the launch starts.
    pub environment: Environment,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Messages of the merge.
    pub reasons: Vec<LaunchReason>,
}

/// Returns whether a saved tuning may apply. It does not apply to ranks, nested teams and inner
/// runs, because their surroundings differ, nor if the environment or the tunings are to be left
/// unchanged.
///
/// # Examples
/// ```
/// use trimtab_launch::request::takes_tuning;
/// use trimtab_launch::{Environment, Options};
///
/// let plain = Options::default();
/// assert!(takes_tuning(&plain, &Environment::default()));
/// let without = Options { no_tuning: true, ..plain };
/// assert!(!takes_tuning(&without, &Environment::default()));
/// ```
pub fn takes_tuning(options: &Options, environment: &Environment) -> bool {
    let nests = || !matches!(asked_teams::asked(options, environment), Ok((None, _)));
    !(options.no_tuning
        || options.ranks.is_some()
        || options.env == EnvMode::Keep
        || environment.raw(HOLD).is_some()
        || local_rank(&|name| environment.text(name)).is_some()
        || nests())
}

impl LaunchRequest {
    /// Merges the sources of a request.
    ///
    /// # Examples
    /// ```
    /// use trimtab_core::place::Strategy;
    /// use trimtab_launch::rules::Rule;
    /// use trimtab_launch::{LaunchRequest, Options, ValueOrigin, Sources};
    ///
    /// // A rule sets one layout and a memory policy, an option another layout.
    /// let options = Options { strategy: Some(Strategy::Scatter), ..Options::default() };
    /// let rule = Rule {
    ///     program: "solver".to_owned(),
    ///     strategy: Some(Strategy::Compact),
    ///     mem: Some("interleave".parse()?),
    ///     ..Rule::default()
    /// };
    /// let sources = Sources { options, rule: Some(rule), ..Sources::default() };
    /// let request = LaunchRequest::merge(sources)?;
    /// assert_eq!(request.place.strategy, Strategy::Scatter);
    /// assert_eq!(request.origins["strategy"], ValueOrigin::Option);
    /// assert_eq!(request.origins["memory"], ValueOrigin::Rule("solver".to_owned()));
    ///
    /// let pin = Some("mask".parse()?);
    /// let options = Options { nest: Some("2,4".to_owned()), pin, ..Options::default() };
    /// let refusal = LaunchRequest::merge(Sources { options, ..Sources::default() }).unwrap_err();
    /// assert!(refusal.to_string().contains("drop one of the two"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Refusal::Request`] for sources that contradict each other or are invalid.
    pub fn merge(sources: Sources) -> Result<Self, Refusal> {
        let Sources { mut options, site, rule, tuning, environment, command } = sources;
        if let Some(GrowMost::Cores(most)) = options.grow {
            // Runtimes fix their numbers of threads at the start; a budget bounds what runs of
            // them.
            options.threads = options.threads.or(Some(most));
            options.fit = options.fit.or(Some(Fit::Budget));
        }
        let (nest, told) = asked_teams::asked(&options, &environment)?;
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
            preempt: options.preempt,
            spin: options.spin.unwrap_or_default(),
            grow: options.grow,
            yield_to: options.yield_to.clone().or(site.yield_to).unwrap_or_default(),
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
            jobserver: options.jobserver,
            pin: pin.value,
            mask_only: rule.as_ref().filter(|rule| rule.mask_only).map(|rule| rule.program.clone()),
            rule: rule.map(|rule| rule.program),
            tuning,
            env: options.env,
            balance: balance.value,
            observed: options.observed,
            grant: granted(&environment),
            visible_devices: options.visible_devices,
            ranks: options.ranks.filter(|_| !options.as_rank),
            as_rank: options.as_rank,
            strict: options.strict,
            quiet: options.quiet,
            environment,
            command,
            reasons,
        };
        request.check(&options)?;
        Ok(request)
    }

    /// Returns the value of a variable that the user set.
    /// [`Environment::of_user`](crate::Environment::of_user), which it calls, has an example.
    pub fn user(&self, name: &str) -> Option<String> {
        self.environment.of_user(name)
    }

    /// Returns whether this launch starts the ranks of `--ranks`, or is one of them.
    pub(crate) fn is_of_own_ranks(&self) -> bool {
        self.ranks.is_some() || self.as_rank
    }

    /// Returns which teams a budget bounds; `None` without a budget.
    pub(crate) fn budget_rule(&self) -> Option<budget::Rule> {
        match self.fit {
            Fit::Keep | Fit::Auto => None,
            Fit::Budget => Some(budget::Rule::Unnumbered),
            Fit::Limit => Some(budget::Rule::All),
        }
    }

    /// Refuses what cannot be had with a number of cores that changes.
    fn check_growth(&self, options: &Options) -> Result<(), Refusal> {
        if self.grow.is_none() {
            let text = "--yield-to is for runs that take more cores while they run: add --grow";
            return if options.yield_to.is_some() { Err(Refusal::Request(text.to_owned())) } else { Ok(()) };
        }
        let fixed = [
            (self.nest.is_some(), "--nest gives threads fixed places"),
            (self.balance.is_some(), "--balance chooses the CPUs of threads"),
            (self.place.share, "--share reserves no cores"),
            (options.ranks.is_some(), "--ranks divides the cores at the start"),
        ];
        match fixed.iter().find(|(is_asked, _)| *is_asked) {
            Some((_, why)) => {
                Err(Refusal::Request(format!("{why}, and --grow changes them: drop one of the two")))
            }
            None => Ok(()),
        }
    }

    /// Refuses combinations that are not possible.
    fn check(&self, options: &Options) -> Result<(), Refusal> {
        let refuse = |text: String| Err(Refusal::Request(text));
        if self.visible_devices && self.place.near.as_ref().is_none_or(|near| near.each.is_empty()) {
            return refuse(
                "--visible-devices lets each rank see the devices that it is near to: add --near gpu:each"
                    .to_owned(),
            );
        }
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
        self.check_growth(options)?;
        if self.ranks.is_none() {
            return Ok(());
        }
        let alone = [
            self.balance.map(|_| "--balance"),
            self.observed,
            self.jobserver.map(|_| "--jobserver"),
            (self.env == EnvMode::Print).then_some("--env=print"),
        ];
        if let Some(option) = alone.into_iter().flatten().next() {
            return refuse(format!(
                "{option} applies to one process, and --ranks starts several: drop one of the two"
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

/// Returns the variables by which runs inside a hold of this launch know the hold, and the task in
/// which it was made, if it was made in one. Without a hold, an inherited one is removed.
///
/// # Example
/// ```
/// use trimtab_launch::{Environment, request::variables_of_hold};
///
/// let outside = Environment::default();
/// let removed = [("TRIMTAB_HOLD".to_owned(), None)];
/// assert_eq!(variables_of_hold(&outside, None), removed);
/// ```
pub fn variables_of_hold(environment: &Environment, hold: Option<String>) -> Vec<(String, Option<String>)> {
    let get = |name: &str| environment.text(name);
    let task = hold.as_ref().and_then(|_| task(&get)).map(|task| (TASK_OF_HOLD.to_owned(), Some(task)));
    std::iter::once((HOLD.to_owned(), hold)).chain(task).collect()
}

/// Reads the grant of a workload manager. Inside a run the hold is the user's own choice, perhaps
/// more than the grant; only a task manager may itself be inside of the run, with its workers.
fn granted(environment: &Environment) -> Option<Grant> {
    let get = |name: &str| environment.text(name);
    let counts = |grant: &Grant| environment.raw(HOLD).is_none() || grant.is_inside_hold(&get);
    grant(&get, local_rank(&get).as_ref()).filter(counts)
}

/// Fills the unset options from a tuning. Returns the filled options, and the tuning reduced to the
/// settings that were applied; `None` if no setting was applied.
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

/// Layers of the merge. `tuned` is a copy of the options in which the tuning filled the unset ones.
struct Layers<'a> {
    options: &'a Options,
    tuned: &'a Options,
    rule: Option<&'a Rule>,
    tuning: Option<&'a Tuning>,
}

impl Layers<'_> {
    fn of_tuning(&self) -> ValueOrigin {
        self.tuning.map_or(ValueOrigin::Default, |tuning| ValueOrigin::Tuning(tuning.name.clone()))
    }

    /// Returns a value that is valid on any number of cores.
    fn value<T>(&self, option: Option<T>, tuned: Option<T>, rule: Option<T>, default: T) -> Sourced<T> {
        let of_rule = ValueOrigin::Rule(self.rule.map_or_else(String::new, |rule| rule.program.clone()));
        let layers = [(option, ValueOrigin::Option), (tuned, self.of_tuning()), (rule, of_rule)];
        Sourced::first(layers, default)
    }

    /// Returns a value that a tuning replaces only on its own number of cores.
    fn on_cores<T>(&self, option: Option<T>, tuned: Option<T>, default: T) -> OnCores<T> {
        let said = option.is_some();
        let plain = Sourced::first([(option, ValueOrigin::Option)], default);
        let tuned = tuned.filter(|_| !said).map(|value| Sourced { value, origin: self.of_tuning() });
        OnCores { plain, tuned }
    }

    /// Returns cores, layout, memory and huge pages, with the origin of each.
    fn place(&self, site: &Site) -> Result<(Request, BTreeMap<&'static str, ValueOrigin>), Refusal> {
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
            Some(KindChoice::LARGEST_CACHE | "x3d") => KindChoice::LargestCache,
            Some(name) => KindChoice::Named(name.to_owned()),
        };
        let request = Request {
            amount: amount.value,
            cpus: options.cpus.clone(),
            strategy: strategy.value,
            smt: smt.value,
            kind,
            memory: MemoryRequest { size: options.mem_size, ..memory.value },
            near: options.near.clone(),
            huge_pages: pages.value,
            share: options.share,
            or_fewer: options.or_fewer,
            cores_max: site.max_cores,
            cores_auto: site.auto_cores,
            // Depends on the machine and the role: the placement fills it in.
            granted: None,
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
