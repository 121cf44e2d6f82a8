//! Command line that applies a change: options of `trimtab run`, variables, and words of the
//! command.
//!
//! Problem: `trimtab run` does not change variables that the user set, and a program that chooses
//! its own thread count ignores options. A setting that the rules advise is therefore carried out
//! by the variable or option that reaches the program. `OMP_THREAD_LIMIT` does not bound the teams
//! of several threads together, so `--fit=limit` is used for programs that choose a count.

use std::collections::BTreeMap;
use std::ffi::OsString;
use trimtab_cli::args::AdviseArgs;
use trimtab_core::advise::{StartChange, fitting};
use trimtab_core::place::Fit;
use trimtab_core::profile::Profile;
use trimtab_core::setting::{Knob, Setting};
use trimtab_launch::TUNABLES;
use trimtab_launch::options::words;

/// Variables that set the wait policy. If one of them is set, `trimtab run` leaves the runtime to
/// the user.
const WAITING: [&str; 5] =
    ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY", "OMPI_MCA_mpi_yield_when_idle"];

/// A command line.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct CommandLine {
    /// Variables to set (`Some`) or to remove (`None`).
    variables: BTreeMap<String, Option<String>>,
    /// Options of `trimtab run`.
    options: Vec<String>,
    /// Words of the command that replace the user's.
    command: Option<Vec<String>>,
    bare: bool,
}

impl CommandLine {
    /// Returns the program as the user starts it now.
    pub(crate) fn plain() -> Self {
        Self { bare: true, ..Self::default() }
    }

    /// Builds the command that carries out a change, with the options of `trimtab advise`.
    pub(super) fn of(args: &AdviseArgs, change: &StartChange) -> Self {
        let mut setting = args.set.clone().unwrap_or_default();
        if change.variables.contains_key("OMP_NUM_THREADS") {
            setting = setting.without(Knob::Threads);
        }
        for (knob, value) in change.setting.iter() {
            setting = setting.clone().with(knob, value).unwrap_or(setting);
        }
        let mut options = Vec::new();
        // Advised cores replace the requested cores.
        if setting.get(Knob::Cores).is_none() {
            options.extend(args.cores.map(|cores| format!("--cores={cores}")));
            options.extend(args.cpus.as_ref().map(|cpus| format!("--cpus={cpus}")));
        }
        if args.share {
            options.push("--share".to_owned());
        }
        Self::with(options, &StartChange { setting, ..change.clone() })
    }

    /// Builds the command that carries out a change, with these options of `trimtab run`.
    pub(crate) fn with(mut options: Vec<String>, change: &StartChange) -> Self {
        options.extend(words(&change.setting));
        options.extend(change.fit.map(|fit| format!("--fit={fit}")));
        options.extend(change.nest.as_ref().map(|nest| format!("--nest={nest}")));
        Self {
            variables: change.variables.clone(),
            command: change.command.clone(),
            bare: change.bare,
            options: if change.bare { Vec::new() } else { options },
        }
    }

    /// Returns whether the program starts without `trimtab run`.
    pub(super) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Returns the options of `trimtab run`.
    pub(super) fn options(&self) -> &[String] {
        &self.options
    }

    /// Yields the variables to set, or to remove.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_deref()))
    }

    /// Returns the words of the command.
    pub(super) fn words(&self, command: &[OsString]) -> Vec<OsString> {
        match &self.command {
            Some(words) => words.iter().map(OsString::from).collect(),
            None => command.to_vec(),
        }
    }

    /// Formats the command line for a shell.
    pub(super) fn line(&self, command: &[String]) -> String {
        let mut words = self.start();
        if !self.bare {
            words.push("--".to_owned());
        }
        words.extend(self.command.as_deref().unwrap_or(command).iter().cloned());
        quoted(&words)
    }

    /// Formats the way to start the program, without the program; empty for the program alone.
    pub(super) fn way(&self) -> String {
        let mut words = self.start();
        if let Some(command) = &self.command {
            words.extend(command.iter().cloned());
        }
        quoted(&words)
    }

    /// Returns the words before the command.
    fn start(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (name, _) in self.variables.iter().filter(|(_, value)| value.is_none()) {
            if words.is_empty() {
                words.push("env".to_owned());
            }
            words.extend(["-u".to_owned(), name.clone()]);
        }
        for (name, value) in &self.variables {
            words.extend(value.as_ref().map(|value| format!("{name}={value}")));
        }
        if !self.bare {
            words.extend(["trimtab".to_owned(), "run".to_owned()]);
            words.extend(self.options.iter().cloned());
        }
        words
    }
}

/// Returns the change that carries out a setting which the rules advise, and cautions for the user.
pub(super) fn change_of(
    setting: &Setting,
    profile: &Profile,
    teams: &[u32],
    user: &dyn Fn(&str) -> Option<String>,
) -> (StartChange, Vec<String>) {
    let mut change = StartChange { setting: setting.clone(), ..StartChange::default() };
    let mut cautions = Vec::new();
    if let Some(threads) = setting.number(Knob::Threads) {
        threads_of(&mut change, &mut cautions, threads as u32, profile, teams, user);
    }
    if setting.get(Knob::Wait).is_some() {
        let set = WAITING.iter().filter(|name| user(name).is_some());
        change.variables.extend(set.map(|name| ((*name).to_owned(), None)));
    }
    if setting.get(Knob::Thp).is_some() && user(TUNABLES).is_some() {
        cautions
            .push(format!("your {TUNABLES} is not changed, so --thp on has no effect until you unset it"));
    }
    (change, cautions)
}

/// Puts a thread count into a change in the form that reaches the program.
fn threads_of(
    change: &mut StartChange,
    cautions: &mut Vec<String>,
    threads: u32,
    profile: &Profile,
    teams: &[u32],
    user: &dyn Fn(&str) -> Option<String>,
) {
    let by_variable = |change: &mut StartChange, value: String| {
        change.variables.insert("OMP_NUM_THREADS".to_owned(), Some(value));
        change.setting = change.setting.clone().without(Knob::Threads);
    };
    let told = profile.setting.number(Knob::Threads).map_or(profile.cpus, |told| told as u32);
    let openmp = profile.runtimes.iter().any(|runtime| runtime.is_openmp());
    if teams.len() > 1 {
        let sizes: Vec<String> = fitting(teams, threads).iter().map(ToString::to_string).collect();
        by_variable(change, sizes.join(","));
    } else if user("OMP_NUM_THREADS").is_some() {
        by_variable(change, threads.to_string());
    } else if profile.workers > told && openmp {
        change.fit = Some(Fit::Limit);
        cautions.push(format!(
            "the program ran {} threads although {told} were set: it chooses its own count, so --fit=limit makes its teams smaller",
            profile.workers
        ));
    } else if profile.workers > told {
        change.setting = change.setting.clone().without(Knob::Threads);
        let option = match profile.runtimes.as_slice() {
            [runtime] if runtime.is_mpi() => "its launcher's -n",
            _ => "one of its own options, if it has one",
        };
        cautions.push(format!(
            "the program chooses its own number of threads or ranks: set {threads} with {option}"
        ));
    }
}

/// Quotes words so that a shell reads the same words. Of an assignment only the value is quoted: a
/// shell takes a quoted name for a command.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./=,:+@%^".contains(letter);
    let one = |word: &str| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let is_name = |name: &str| {
        name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
    };
    let each = |word: &String| match word.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => format!("{name}={}", one(value)),
        _ => one(word),
    };
    words.iter().map(each).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;
    use trimtab_core::place::runtimes::Runtime;

    fn args(words: &[&str]) -> AdviseArgs {
        match Cli::parse_from([&["trimtab", "advise"], words, &["./app"]].concat()).command {
            Command::Advise(args) => args,
            _ => unreachable!(),
        }
    }

    fn line(words: &[&str], profile: &Profile, change: &str, teams: &[u32], set: &[(&str, &str)]) -> String {
        let user =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let (change, _) = change_of(&change.parse().unwrap(), profile, teams, &user);
        CommandLine::of(&args(words), &change).line(&["./app".to_owned()])
    }

    #[test]
    fn advice_is_an_option_if_that_reaches_the_program_and_otherwise_a_variable() {
        let profile = Profile { cpus: 2, workers: 4, runtimes: vec![Runtime::Libgomp], ..Profile::default() };
        let nested = line(&[], &profile, "threads=2", &[2, 2], &[("OMP_NUM_THREADS", "2,2")]);
        assert_eq!(nested, "OMP_NUM_THREADS=2,1 trimtab run -- ./app");
        let set = line(&[], &profile, "threads=2", &[], &[("OMP_NUM_THREADS", "4")]);
        assert_eq!(set, "OMP_NUM_THREADS=2 trimtab run -- ./app");
        let by_itself = line(&[], &profile, "threads=2", &[], &[]);
        assert_eq!(by_itself, "trimtab run --threads=2 --fit=limit -- ./app");
        let few = Profile { workers: 2, ..profile.clone() };
        assert_eq!(
            line(&["-c", "2", "--set", "threads=4 wait=spin"], &few, "threads=2", &[], &[]),
            "trimtab run --cores=2 --threads=2 --wait-policy=spin -- ./app"
        );
        assert_eq!(
            line(&["-c", "2", "--set", "wait=spin"], &few, "cores=1 threads=1", &[], &[]),
            "trimtab run --threads=1 --cores=1 --wait-policy=spin -- ./app"
        );
        let waits =
            line(&["--share"], &Profile::default(), "wait=sleep", &[], &[("OMP_WAIT_POLICY", "active")]);
        assert_eq!(waits, "env -u OMP_WAIT_POLICY trimtab run --share --wait-policy=sleep -- ./app");
    }

    #[test]
    fn ranks_are_the_launchers() {
        let profile = Profile { cpus: 2, workers: 4, runtimes: vec![Runtime::Mpich], ..Profile::default() };
        let (change, cautions) = change_of(&"threads=2".parse().unwrap(), &profile, &[], &|_| None);
        assert!(cautions[0].contains("set 2 with its launcher's -n"), "{cautions:?}");
        let line = CommandLine::of(&args(&[]), &change).line(&["mpirun".to_owned()]);
        assert_eq!(line, "trimtab run -- mpirun");
    }

    #[test]
    fn a_change_of_the_command_replaces_its_words_and_a_bare_one_has_no_trimtab() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let change = StartChange { command: Some(words("mpirun -n 2 ./app")), ..StartChange::default() };
        let how = CommandLine::of(&args(&[]), &change);
        assert_eq!(how.line(&words("mpirun -n 4 ./app")), "trimtab run -- mpirun -n 2 ./app");
        assert_eq!(how.words(&["mpirun".into()]).len(), 4);
        let variables = BTreeMap::from([("OMP_NUM_THREADS".to_owned(), Some("1".to_owned()))]);
        let bare = StartChange { variables, bare: true, ..StartChange::default() };
        let how = CommandLine::of(&args(&["-c", "1"]), &bare);
        assert_eq!(how.line(&words("./app")), "OMP_NUM_THREADS=1 ./app");
        assert!(how.options().is_empty());
        assert_eq!(CommandLine::plain().way(), "");
        let nest = StartChange { nest: Some("2,scatter,1,subcompact".to_owned()), ..StartChange::default() };
        assert_eq!(CommandLine::of(&args(&[]), &nest).way(), "trimtab run --nest=2,scatter,1,subcompact");
    }

    #[test]
    fn a_shell_reads_the_words_that_were_meant() {
        let words =
            ["a b", "", "it's", "$HOME", "--x=1,2", "é", "A_1=b c", "=x y", "a-b=c d"].map(str::to_owned);
        let script = format!("printf '%s\\n' {}", quoted(&words));
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().lines().collect::<Vec<_>>(), words);
        // An assignment stays one.
        let script = quoted(&["WORDS=a 'b".to_owned(), "printenv".to_owned(), "WORDS".to_owned()]);
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap(), "a 'b\n");
    }
}
