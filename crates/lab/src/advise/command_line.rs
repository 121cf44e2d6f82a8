//! Command line that applies advice: options of `trimtab run`, and variables where an option has no
//! effect.
//!
//! Problem: `trimtab run` does not change variables that the user set, and a program that chooses
//! its own thread count ignores options. The command therefore replaces or removes such variables,
//! and `OMP_THREAD_LIMIT` bounds teams that the program opens by itself.

use trimtab_cli::args::AdviseArgs;
use trimtab_core::advise::fitting;
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
pub(super) struct CommandLine {
    /// Variables to set (`Some`) or to remove (`None`).
    variables: Vec<(String, Option<String>)>,
    options: Vec<String>,
    /// Cautions for the user about this command.
    pub(super) cautions: Vec<String>,
}

impl CommandLine {
    /// Builds the command that applies `change` to a program with this profile.
    pub(super) fn of(
        args: &AdviseArgs,
        profile: &Profile,
        change: &Setting,
        teams: &[u32],
        user: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut how = Self::default();
        let mut setting = profile.setting.clone();
        for (knob, value) in change.iter() {
            setting = setting.clone().with(knob, value).unwrap_or(setting);
        }
        if let Some(threads) = change.number(Knob::Threads) {
            how.threads(threads as u32, profile, teams, user);
            if !how.options.is_empty() {
                setting = setting.without(Knob::Threads);
            }
            if how.options.first().is_some_and(String::is_empty) {
                how.options.clear();
            }
        }
        if change.get(Knob::Wait).is_some() {
            let set = WAITING.iter().filter(|name| user(name).is_some());
            how.variables.extend(set.map(|name| ((*name).to_owned(), None)));
        }
        if change.get(Knob::Thp).is_some() && user(TUNABLES).is_some() {
            how.cautions.push(format!(
                "your {TUNABLES} is not changed, so --thp on has no effect until you unset it"
            ));
        }
        let mut options = Vec::new();
        // Advised cores replace the requested cores.
        if change.get(Knob::Cores).is_none() && setting.get(Knob::Cores).is_none() {
            if let Some(cores) = args.cores {
                options.push(format!("--cores={cores}"));
            }
            if let Some(cpus) = &args.cpus {
                options.push(format!("--cpus={cpus}"));
            }
        }
        if args.share {
            options.push("--share".to_owned());
        }
        options.extend(words(&setting));
        options.append(&mut how.options);
        how.options = options;
        how
    }

    /// Adds a thread count in the form that reaches the program. An empty option means that no
    /// option has an effect.
    fn threads(
        &mut self,
        threads: u32,
        profile: &Profile,
        teams: &[u32],
        user: &dyn Fn(&str) -> Option<String>,
    ) {
        let mut set = |name: &str, value: String| self.variables.push((name.to_owned(), Some(value)));
        if teams.len() > 1 {
            let sizes: Vec<String> = fitting(teams, threads).iter().map(ToString::to_string).collect();
            set("OMP_NUM_THREADS", sizes.join(","));
            self.options.push(String::new());
            return;
        }
        let told = profile.setting.number(Knob::Threads).map_or(profile.cpus, |told| told as u32);
        let openmp = profile.runtimes.iter().any(|runtime| runtime.is_openmp());
        if user("OMP_NUM_THREADS").is_some() {
            set("OMP_NUM_THREADS", threads.to_string());
            self.options.push(String::new());
        } else if profile.workers > told && openmp {
            set("OMP_THREAD_LIMIT", threads.to_string());
            self.options.push(format!("--threads={threads}"));
            self.cautions.push(format!(
                "the program ran {} threads although {told} were set: it chooses its own count, so OMP_THREAD_LIMIT bounds all of its teams together",
                profile.workers
            ));
        } else if profile.workers > told {
            self.options.push(String::new());
            let what = match profile.runtimes.as_slice() {
                [runtime] if runtime.is_mpi() => "its launcher's -n",
                _ => "one of its own options, if it has one",
            };
            self.cautions.push(format!(
                "the program chooses its own number of threads or ranks: set {threads} with {what}"
            ));
        } else {
            self.options.push(format!("--threads={threads}"));
        }
    }

    /// Formats the command line for a shell.
    pub(super) fn line(&self, command: &[String]) -> String {
        let mut words = Vec::new();
        let taken = self.variables.iter().filter(|(_, value)| value.is_none());
        for (name, _) in taken {
            if words.is_empty() {
                words.push("env".to_owned());
            }
            words.extend(["-u".to_owned(), name.clone()]);
        }
        for (name, value) in &self.variables {
            words.extend(value.as_ref().map(|value| format!("{name}={value}")));
        }
        words.extend(["trimtab".to_owned(), "run".to_owned()]);
        words.extend(self.options.iter().cloned());
        words.push("--".to_owned());
        words.extend(command.iter().cloned());
        quoted(&words)
    }
}

/// Quotes words so that a shell reads the same words.
pub(super) fn quoted(words: &[String]) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./=,:+@%^".contains(letter);
    let one = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    words.iter().map(one).collect::<Vec<_>>().join(" ")
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
        CommandLine::of(&args(words), profile, &change.parse().unwrap(), teams, &user)
            .line(&["./app".to_owned()])
    }

    #[test]
    fn advice_is_an_option_if_that_reaches_the_program_and_otherwise_a_variable() {
        let mut profile =
            Profile { cpus: 2, workers: 4, runtimes: vec![Runtime::Libgomp], ..Profile::default() };
        let nested = line(&[], &profile, "threads=2", &[2, 2], &[("OMP_NUM_THREADS", "2,2")]);
        assert_eq!(nested, "OMP_NUM_THREADS=2,1 trimtab run -- ./app");
        let set = line(&[], &profile, "threads=2", &[], &[("OMP_NUM_THREADS", "4")]);
        assert_eq!(set, "OMP_NUM_THREADS=2 trimtab run -- ./app");
        let by_itself = line(&[], &profile, "threads=2", &[], &[]);
        assert_eq!(by_itself, "OMP_THREAD_LIMIT=2 trimtab run --threads=2 -- ./app");
        profile.setting = "threads=4 wait=spin".parse().unwrap();
        assert_eq!(
            line(&["-c", "2"], &profile, "threads=2", &[], &[]),
            "trimtab run --cores=2 --wait-policy=spin --threads=2 -- ./app"
        );
        assert_eq!(
            line(&["-c", "2"], &profile, "cores=1 threads=1", &[], &[]),
            "trimtab run --cores=1 --wait-policy=spin --threads=1 -- ./app"
        );
        let waits =
            line(&["--share"], &Profile::default(), "wait=sleep", &[], &[("OMP_WAIT_POLICY", "active")]);
        assert_eq!(waits, "env -u OMP_WAIT_POLICY trimtab run --share --wait-policy=sleep -- ./app");
    }

    #[test]
    fn ranks_are_the_launchers() {
        let profile = Profile { cpus: 2, workers: 4, runtimes: vec![Runtime::Mpich], ..Profile::default() };
        let how = CommandLine::of(&args(&[]), &profile, &"threads=2".parse().unwrap(), &[], &|_| None);
        assert!(how.cautions[0].contains("set 2 with its launcher's -n"), "{how:?}");
        assert_eq!(how.line(&["mpirun".to_owned()]), "trimtab run -- mpirun");
    }

    #[test]
    fn a_shell_reads_the_words_that_were_meant() {
        let words = ["a b", "", "it's", "$HOME", "--x=1,2", "é"].map(str::to_owned);
        let script = format!("printf '%s\\n' {}", quoted(&words));
        let said = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().lines().collect::<Vec<_>>(), words);
    }
}
