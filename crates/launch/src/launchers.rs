//! Settings for MPI launchers, which keep their ranks inside the hold.

use crate::facts::{LaunchFacts, LauncherFacts};
use crate::family::Family;
use crate::options::EnvMode;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::request::LaunchRequest;
use trimtab_core::place::launchers::{LauncherSettings, LauncherStart, PICTURE, picture, tell, unbound};
use trimtab_core::place::{Plan, Variable, local_rank};

/// Settings of a launch for MPI launchers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ForLaunchers {
    /// Variables that the launchers read.
    pub(crate) variables: Vec<Variable>,
    /// Whether a restricted topology (`picture`) of the plan's CPUs is needed.
    pub(crate) wants_picture: bool,
    /// Messages about the settings.
    pub(crate) reasons: Vec<LaunchReason>,
}

/// Decides the settings that keep the ranks of a launcher, or of launchers that a program may
/// start, inside the hold. `answer` is the file with the restricted topology of the CPUs, if an
/// earlier decision asked for it.
///
/// # Errors
/// With `--strict`, if ranks of a launcher may leave the hold.
pub(crate) fn decide(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    plan: &Plan,
    answer: Option<&Result<String, String>>,
) -> Result<ForLaunchers, Refusal> {
    let user = |name: &str| request.user(name);
    let rank = request.ranks.is_some() || local_rank(&|name| request.environment.text(name)).is_some();
    let none = || unbound(&plan.mask, &facts.machine, &user, rank);
    let Some(program) = &facts.program else { return Ok(ForLaunchers::default()) };
    let Some(LauncherFacts { launcher, name, at }) = &program.launcher else {
        let starts =
            program.script || matches!(program.family, Some(Family::Shell | Family::Make | Family::Python));
        let variables = if starts { none() } else { Vec::new() };
        return Ok(ForLaunchers { variables, ..ForLaunchers::default() });
    };
    let words: Vec<&str> = request.command.iter().skip(at + 1).map(String::as_str).collect();
    let start = LauncherStart {
        launcher: *launcher,
        words: &words,
        cpus: &plan.mask,
        machine: &facts.machine,
        user: &user,
        rank,
    };
    let LauncherSettings { mut variables, mut leaves, caution, picture: wants, .. } = tell(&start);
    let keeps = request.env == EnvMode::Keep;
    if wants && keeps {
        leaves = Some(format!("{launcher} gets their CPUs from variables, and --env keep sets none"));
    } else if let Some(answer) = answer.filter(|_| wants) {
        match answer {
            Ok(path) => variables.extend(picture(path)),
            Err(why) => {
                variables = none();
                leaves = Some(format!("no picture of these CPUs can be had for {launcher}: {why}"));
            }
        }
    }
    let mut reasons = Vec::new();
    if let Some(why) = leaves {
        let text = format!("ranks of {name} may leave CPUs {}: {why}", plan.mask);
        if request.strict {
            let remedy = format!("{text}; put trimtab behind it: {name} … trimtab run … ./app");
            return Err(Refusal::Strict(remedy));
        }
        reasons.push(LaunchReason::warning(Topic::Launcher, text));
    }
    reasons.extend(caution.map(|caution| LaunchReason::warning(Topic::Launcher, caution)));
    if variables.iter().any(|variable| variable.name == PICTURE) {
        let text = format!("{name} sees only CPUs {}, so that its ranks stay there", plan.mask);
        reasons.push(LaunchReason::note(Topic::Launcher, text));
    }
    Ok(ForLaunchers { variables, wants_picture: wants && !keeps && answer.is_none(), reasons })
}

/// Returns a warning for a launcher: its ranks would be placed better if each ran trimtab itself.
pub(crate) fn warn(facts: &LaunchFacts) -> Option<LaunchReason> {
    let program = facts.program.as_ref().filter(|program| program.family == Some(Family::Launcher))?;
    let name = program.path.file_name().unwrap_or_default().to_string_lossy();
    let text = format!(
        "trimtab does not place the threads of the ranks that {name} starts; better put trimtab behind it: {name} … trimtab run … ./app"
    );
    Some(LaunchReason::warning(Topic::Program, text))
}
