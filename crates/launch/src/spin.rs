//! Threads of a program that spin on flags in its own code: whether the preload library lets them
//! yield while the program has more threads than CPUs.

use crate::budget::missing;
use crate::facts::LaunchFacts;
use crate::options::SpinMode;
use crate::preload::{Preload, variable};
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::LaunchRequest;
use trimtab_core::handoff::Report;
use trimtab_core::place::{Action, Variable};
use trimtab_core::spin::{VARIABLE, handoff};

/// Decides on the variable for the preload library. The second value is the message about it.
pub(crate) fn decide(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    preload: &Preload,
) -> Result<(Option<Variable>, Option<LaunchReason>), Refusal> {
    let unset = |why: &str| {
        let inherited = request.environment.text(VARIABLE).is_some();
        inherited.then(|| variable(VARIABLE, Action::Unset { why: why.to_owned() }))
    };
    if request.spin == SpinMode::Keep {
        return Ok((unset("--spin yield was not asked for"), None));
    }
    let other = (!cfg!(target_arch = "x86_64")).then_some("it is offered on x86-64 only");
    if let Some(why) = other.or_else(|| missing(request, facts, preload)) {
        let text = format!("--spin yield has no effect: {why}");
        if request.strict {
            return Err(Refusal::Strict(text));
        }
        return Ok((unset(why), Some(LaunchReason::warning(Topic::Threads, text))));
    }
    let value = handoff(request.report != Report::No).to_owned();
    let text = "loops that only wait yield while the program has more threads than CPUs (--spin yield)";
    let told = LaunchReason::note(Topic::Threads, text.to_owned());
    Ok((Some(variable(VARIABLE, Action::Set { value })), Some(told)))
}
