//! Jobserver of a launch: whether the build tools of the run share tokens, in which form they are
//! told so, and by which variable.
//!
//! On request only (`--jobserver`), since each way to tell a tool changes what some tool does:
//! `make` without `-j` becomes parallel by a jobserver in `MAKEFLAGS`; ninja prints a line about
//! it; GNU make up to 4.3 stops with an error if the jobserver is a path. The user's own numbers of
//! jobs come first: make and cargo print a warning if they get both.
//!
//! A make that the launch itself starts with a `-j` without number is started without that word:
//! with it make would start any number of jobs, and leave the jobserver.

use crate::facts::{BuildFacts, LaunchFacts};
use crate::options::{EnvMode, JobserverForm};
use crate::reason::{LaunchReason, Level, Topic};
use crate::refusal::Refusal;
use crate::request::LaunchRequest;
use crate::variables::Changes;
use serde::Serialize;
use std::ffi::OsString;
use trimtab_core::jobserver::flags::{
    Jobs, WordChange, cargo_makeflags, jobs_of_make, makeflags, names_jobserver, stated_in_makeflags,
    stated_jobs,
};
use trimtab_core::jobserver::{Form, tokens};
use trimtab_core::words::plural;

/// Variable that make and ninja read.
pub const MAKEFLAGS: &str = "MAKEFLAGS";
/// Variable that cargo reads before the other, and make does not.
pub const CARGO_MAKEFLAGS: &str = "CARGO_MAKEFLAGS";

/// Build tool that a launch starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tool {
    Make,
    Ninja,
    Cargo,
    /// A script, or a tool that starts others.
    Other,
}

impl Tool {
    fn of(facts: &LaunchFacts) -> Self {
        let path = facts.program.as_ref().map(|program| &program.path);
        match path.and_then(|path| path.file_name()).and_then(|name| name.to_str()) {
            Some("make" | "gmake" | "gnumake") => Self::Make,
            Some("ninja" | "ninja-build") => Self::Ninja,
            Some("cargo") => Self::Cargo,
            _ => Self::Other,
        }
    }
}

/// Jobserver of a run. [`set_up`] has an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JobserverPlan {
    /// Tokens: jobs beyond the one that each tool has without a token.
    pub tokens: u32,
    /// Form in which the tools are told about them.
    pub form: Form,
    /// Variable that tells them.
    pub variable: &'static str,
    /// Words of the command that the program does not get.
    pub left_out: Vec<String>,
    /// Changes of the command.
    #[serde(skip)]
    changes: Vec<WordChange>,
    /// The user's flags in the variable.
    #[serde(skip)]
    users: String,
}

impl JobserverPlan {
    /// Returns the change of the environment, once the pipe has descriptors: `auth` names them.
    /// [`set_up`] has an example.
    pub fn environment(&self, auth: &str) -> Changes {
        let value = match self.variable {
            CARGO_MAKEFLAGS => cargo_makeflags(auth),
            _ => makeflags(&self.users, self.tokens, auth),
        };
        [(self.variable.to_owned(), Some(OsString::from(value)))].into()
    }

    /// Returns the command with which the program is started. [`set_up`] has an example.
    pub fn command(&self, words: &[OsString]) -> Vec<OsString> {
        let change = |at: usize| self.changes.iter().find(|change| change.at == at);
        let word = |(at, word): (usize, &OsString)| match change(at) {
            Some(change) => change.instead.as_ref().map(OsString::from),
            None => Some(word.clone()),
        };
        words.iter().enumerate().filter_map(word).collect()
    }
}

/// Returns the jobserver of a run on `cores` cores, or the message why it has none; `None` if none
/// was asked for.
///
/// # Examples
/// ```
/// use trimtab_core::jobserver::Form;
/// use trimtab_core::topology::parse_synthetic;
/// use trimtab_launch::facts::BuildFacts;
/// use trimtab_launch::jobserver::set_up;
/// use trimtab_launch::options::JobserverForm;
/// use trimtab_launch::{LaunchFacts, LaunchRequest, Options, Sources};
///
/// // A script, on a machine with GNU make 4.4.
/// let options = Options { jobserver: Some(JobserverForm::Auto), ..Options::default() };
/// let sources = Sources { options, command: vec!["./build".to_owned()], ..Sources::default() };
/// let request = LaunchRequest::merge(sources)?;
/// let mut facts = LaunchFacts::idle(parse_synthetic("core:4")?);
/// facts.build = BuildFacts { make: Some(Form::Fifo), ninja: None };
///
/// let asked = set_up(&request, &facts, 4).expect("it was asked for");
/// let plan = asked.expect("nothing is against it");
/// assert_eq!((plan.tokens, plan.form, plan.variable), (3, Form::Fifo, "MAKEFLAGS"));
/// let changes = plan.environment("fifo:/proc/7/fd/600");
/// let value = changes["MAKEFLAGS"].as_ref().and_then(|value| value.to_str());
/// assert_eq!(value, Some(" -j4 --jobserver-auth=fifo:/proc/7/fd/600"));
/// assert_eq!(plan.command(&["./build".into()]), ["./build"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_up(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    cores: u32,
) -> Option<Result<JobserverPlan, LaunchReason>> {
    // Nothing is started with `--env print`.
    let asked = request.jobserver.filter(|_| request.env != EnvMode::Print)?;
    let tool = Tool::of(facts);
    let plan = |changes: Vec<WordChange>| {
        let form = form(tool, asked, facts.build)?;
        let variable = if tool == Tool::Cargo { CARGO_MAKEFLAGS } else { MAKEFLAGS };
        let left_out = changes.iter().filter_map(|change| left_out(&request.command, change));
        let users = request.environment.text(MAKEFLAGS).unwrap_or_default();
        Ok(JobserverPlan {
            tokens: tokens(cores),
            form,
            variable,
            left_out: left_out.collect(),
            changes,
            users,
        })
    };
    Some(changes(request, tool).and_then(plan))
}

/// Returns the word that a change concerns, and what stays of it.
fn left_out(command: &[String], change: &WordChange) -> Option<String> {
    let word = command.get(change.at)?;
    Some(change.instead.as_ref().map_or_else(|| word.clone(), |instead| format!("{word} ({instead} stays)")))
}

/// Returns the changes of the command that let the tool use the jobserver, or why it must not.
fn changes(request: &LaunchRequest, tool: Tool) -> Result<Vec<WordChange>, LaunchReason> {
    if request.env == EnvMode::Keep {
        return Err(without("--env keep leaves variables alone, and build tools find it by one"));
    }
    let text = |name: &str| request.environment.text(name);
    let variables = if tool == Tool::Cargo { &[CARGO_MAKEFLAGS, MAKEFLAGS][..] } else { &[MAKEFLAGS] };
    let named = |name: &&&str| text(name).is_some_and(|value| names_jobserver(&value));
    if let Some(name) = variables.iter().find(named) {
        let text = format!("the jobserver that {name} names stays, and the build takes its tokens");
        return Err(LaunchReason::note(Topic::Environment, text));
    }
    let words: Vec<&str> = request.command.iter().map(String::as_str).collect();
    let own = |words: String| without(&format!("{words} is the number of jobs that you give"));
    if tool != Tool::Cargo
        && let Some(stated) = text(MAKEFLAGS).and_then(|value| stated_in_makeflags(&value))
    {
        return Err(own(format!("{stated} in {MAKEFLAGS}")));
    }
    match tool {
        Tool::Other => Ok(Vec::new()),
        Tool::Ninja | Tool::Cargo => stated_jobs(&words).map_or(Ok(Vec::new()), |stated| Err(own(stated))),
        Tool::Make => match jobs_of_make(&words) {
            Jobs::Open(changes) => Ok(changes),
            Jobs::Own(stated) => Err(own(stated)),
            Jobs::Unsaid => {
                let text =
                    "no jobserver: make runs one job at a time without -j, and shares its tokens with -j";
                Err(LaunchReason::new(Topic::Environment, Level::Notice, text.to_owned()))
            }
        },
    }
}

/// Returns the form that the tools of the launch read, or why there is none.
fn form(tool: Tool, asked: JobserverForm, build: BuildFacts) -> Result<Form, LaunchReason> {
    let asked = match asked {
        JobserverForm::Auto => None,
        JobserverForm::Fifo => Some(Form::Fifo),
        JobserverForm::Pipe => Some(Form::Pipe),
    };
    if tool != Tool::Ninja {
        // Without make all tools that can be found read a path.
        return Ok(asked.or(build.make).unwrap_or(Form::Fifo));
    }
    if build.ninja != Some(true) {
        return Err(without("this ninja knows none (ninja 1.13 does)"));
    }
    match (asked, build.make) {
        (Some(Form::Pipe), _) => Err(without("ninja knows only the form fifo")),
        (None, Some(Form::Pipe)) => Err(without(
            "the make of this machine is older than 4.4 and stops at the form that ninja reads; --jobserver=fifo is right for a build that starts no make",
        )),
        _ => Ok(Form::Fifo),
    }
}

fn without(why: &str) -> LaunchReason {
    LaunchReason::warning(Topic::Environment, format!("no jobserver: {why}"))
}

/// Decides on the jobserver. The second value is the message about it.
pub(crate) fn decide(
    request: &LaunchRequest,
    facts: &LaunchFacts,
    cores: u32,
) -> Result<(Option<JobserverPlan>, Option<LaunchReason>), Refusal> {
    let plan = match set_up(request, facts, cores.max(1)) {
        None => return Ok((None, None)),
        Some(Err(why)) if request.strict && why.level == Level::Warning => {
            return Err(Refusal::Strict(why.text));
        }
        Some(Err(why)) => return Ok((None, Some(why))),
        Some(Ok(plan)) => plan,
    };
    let JobserverPlan { tokens, form, variable, left_out, .. } = &plan;
    let without = if left_out.is_empty() {
        String::new()
    } else {
        format!("; make is started without {}, with which it would take any number", left_out.join(" "))
    };
    let text = format!(
        "build tools share {} beside the job that each has ({form} in {variable}){without}",
        plural(*tokens, "token")
    );
    Ok((Some(plan), Some(LaunchReason::note(Topic::Environment, text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::ProgramFacts;
    use crate::options::Options;
    use crate::request::Sources;
    use trimtab_core::topology::parse_synthetic;

    const OLD_MAKE: BuildFacts = BuildFacts { make: Some(Form::Pipe), ninja: Some(true) };
    const NEW_MAKE: BuildFacts = BuildFacts { make: Some(Form::Fifo), ninja: Some(true) };
    const NO_MAKE: BuildFacts = BuildFacts { make: None, ninja: Some(false) };

    /// Returns the form and the variable, or the message.
    fn asked(
        command: &str,
        form: JobserverForm,
        build: BuildFacts,
        variables: &[(&str, &str)],
    ) -> Result<(Form, &'static str, Vec<String>), String> {
        let options = Options { jobserver: Some(form), ..Options::default() };
        let command: Vec<String> = command.split(' ').map(str::to_owned).collect();
        let path = format!("/usr/bin/{}", command[0]).into();
        let environment = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let sources = Sources { options, command, environment, ..Sources::default() };
        let request = LaunchRequest::merge(sources).unwrap();
        let mut facts = LaunchFacts::idle(parse_synthetic("core:4").unwrap());
        facts.build = build;
        facts.program = Some(ProgramFacts {
            path,
            family: None,
            script: false,
            go: false,
            openmp: None,
            preload: Ok(()),
            closed: None,
            starts_threads: false,
            sets_teams: false,
            launcher: None,
        });
        let plan = set_up(&request, &facts, 4).unwrap().map_err(|why| why.text)?;
        assert_eq!(plan.tokens, 3);
        Ok((plan.form, plan.variable, plan.left_out))
    }

    #[test]
    fn each_tool_gets_the_form_that_all_tools_of_the_launch_read() {
        for (command, build, form, variable) in [
            ("make -j", OLD_MAKE, Form::Pipe, MAKEFLAGS),
            ("make -j", NEW_MAKE, Form::Fifo, MAKEFLAGS),
            ("cargo build", OLD_MAKE, Form::Pipe, CARGO_MAKEFLAGS),
            ("cargo build", NO_MAKE, Form::Fifo, CARGO_MAKEFLAGS),
            ("sh build", OLD_MAKE, Form::Pipe, MAKEFLAGS),
            ("sh build", NO_MAKE, Form::Fifo, MAKEFLAGS),
            ("ninja", NEW_MAKE, Form::Fifo, MAKEFLAGS),
        ] {
            let (got, name, _) = asked(command, JobserverForm::Auto, build, &[]).unwrap();
            assert_eq!((got, name), (form, variable), "{command}");
        }
        assert_eq!(asked("make -j", JobserverForm::Fifo, OLD_MAKE, &[]).unwrap().0, Form::Fifo);
        assert_eq!(asked("ninja", JobserverForm::Fifo, OLD_MAKE, &[]).unwrap().0, Form::Fifo);
        let left_out = asked("make -kj -j all", JobserverForm::Auto, NEW_MAKE, &[]).unwrap().2;
        assert_eq!(left_out, ["-kj (-k stays)", "-j"]);
    }

    #[test]
    fn a_jobserver_that_a_tool_cannot_use_or_must_not_is_not_given() {
        let auto = JobserverForm::Auto;
        for (command, form, build, variables, why) in [
            ("make", auto, NEW_MAKE, &[][..], "without -j"),
            ("make -j8", auto, NEW_MAKE, &[], "-j8 is the number"),
            ("ninja -j 2", auto, NEW_MAKE, &[], "-j 2 is the number"),
            ("cargo test --jobs=2", auto, NEW_MAKE, &[], "--jobs=2 is the number"),
            ("ninja", auto, NO_MAKE, &[], "this ninja knows none"),
            ("ninja", auto, OLD_MAKE, &[], "--jobserver=fifo is right"),
            ("ninja", JobserverForm::Pipe, NEW_MAKE, &[], "only the form fifo"),
            ("sh build", auto, NEW_MAKE, &[(MAKEFLAGS, "-j3")], "-j3 in MAKEFLAGS"),
            ("sh build", auto, NEW_MAKE, &[(MAKEFLAGS, "-j3 --jobserver-auth=3,4")], "that MAKEFLAGS names"),
            (
                "cargo build",
                auto,
                NEW_MAKE,
                &[(CARGO_MAKEFLAGS, "--jobserver-fds=3,4")],
                "that CARGO_MAKEFLAGS",
            ),
        ] {
            let text = asked(command, form, build, variables).unwrap_err();
            assert!(text.contains(why), "{command}: {text}");
        }
        assert!(asked("cargo build", auto, NEW_MAKE, &[(MAKEFLAGS, "-j3")]).is_ok(), "cargo reads none");
    }
}
