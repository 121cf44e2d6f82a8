//! Request for nested teams: the option or the variable that states it.
//!
//! The first one that is present counts: `--nest`, `TRIMTAB_NESTING`, and `OMP_NESTING_TEAM_SIZE`,
//! the name in the publication. An invalid text in one of the first two is an error, as with any
//! option, because it was meant for trimtab. The third may be set for another tool: an invalid text
//! gives a warning and the program runs without nested placement; with `--strict` it is an error.

use crate::options::Options;
use crate::origin::ValueOrigin;
use crate::reason::{LaunchReason, Topic};
use crate::refusal::Refusal;
use crate::variables::Environment;
use trimtab_core::handoff::Missed;
use trimtab_core::place::nesting::{Nest, NestError};

/// Option that requests nested teams.
const OPTION: &str = "--nest";
/// Variable of trimtab that requests nested teams.
const OURS: &str = "TRIMTAB_NESTING";
/// Published variable, which other tools may read too.
const PUBLISHED: &str = "OMP_NESTING_TEAM_SIZE";
/// Variables that request nested teams, in order of precedence.
pub const NEST_VARIABLES: [&str; 2] = [OURS, PUBLISHED];

/// Requested teams. [`Nesting::new`](crate::Nesting::new) has an example.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AskedTeams {
    /// The teams.
    pub nest: Nest,
    /// Where they were requested.
    pub origin: ValueOrigin,
}

/// Returns the teams requested by the option or else by the environment, and a warning about a text
/// that is ignored.
///
/// # Errors
/// An invalid text; in the published variable only with `--strict`.
pub(crate) fn asked(
    options: &Options,
    environment: &Environment,
) -> Result<(Option<AskedTeams>, Option<LaunchReason>), Refusal> {
    let variable = || {
        let set =
            |name: &'static str| Some((name, environment.text(name).filter(|text| !text.trim().is_empty())?));
        NEST_VARIABLES.into_iter().find_map(set)
    };
    let option = options.nest.as_ref().map(|text| (OPTION, text.clone()));
    let Some((source, text)) = option.or_else(variable) else { return Ok((None, None)) };
    let error: NestError = match text.parse() {
        Ok(nest) => {
            let origin = match source {
                OPTION => ValueOrigin::Option,
                name => ValueOrigin::Variable(name.to_owned()),
            };
            return Ok((Some(AskedTeams { nest, origin }), None));
        }
        Err(error) => error,
    };
    match (source == PUBLISHED, options.strict) {
        (true, false) => {
            let text = format!("{source}: {error}; the program runs without nested placement");
            Ok((None, Some(LaunchReason::warning(Topic::Nesting, text))))
        }
        (true, true) => Err(Refusal::Strict(format!("{source}: {error}"))),
        (false, _) => Err(Refusal::Request(format!("{source}: {error}"))),
    }
}

impl AskedTeams {
    /// Returns the preload library's reaction if no thread of the program gets placed.
    pub(crate) fn missed(&self, strict: bool, quiet: bool) -> Missed {
        // The published variable may be meant for another tool.
        let of_trimtab = self.origin != ValueOrigin::Variable(PUBLISHED.to_owned());
        match (strict, of_trimtab && !quiet) {
            (true, _) => Missed::Fails,
            (false, true) => Missed::Told,
            (false, false) => Missed::Ignored,
        }
    }
}
