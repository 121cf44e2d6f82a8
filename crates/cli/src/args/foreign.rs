//! Options of other launchers, each with a tip.
//!
//! Users of `mpirun`, `srun`, `numactl`, `taskset` and `likwid-pin` may type their options out of
//! habit. The parser refuses them, since some have no exact equivalent here, and the error names
//! the option that serves the same purpose.

use super::GROUPS;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use trimtab_core::words::meant;

/// Foreign spellings, and the tip for them.
const TIPS: [(&[&str], &str); 14] = [
    (
        &[
            "-n",
            "-np",
            "--np",
            "--ntasks",
            "--n",
            "--nproc",
            "--nprocs",
            "--ntasks-per-node",
            "--nproc-per-node",
        ],
        "to start N processes, use --ranks N; for N cores, use -c N; under MPI: mpirun -n N trimtab run -c CORES ./app",
    ),
    (
        &["--bind-to", "--cpu-bind", "--cpu_bind", "--bind", "--cpubind"],
        "threads are bound by default; to leave them free inside the cores, use --pin mask",
    ),
    (
        &["--map-by", "--rank-by", "--distribution"],
        "for the layout of threads, use -s compact, -s scatter or -c 8/node; for ranks, --ranks N",
    ),
    (
        &["--physcpubind", "--cpu-list", "--cpuset-cpus", "--cpu-set", "--taskset"],
        "for exact CPUs, use --cpus LIST, as in --cpus 0-7,16-23",
    ),
    (&["--cpunodebind", "-N"], "for whole nodes, use -c node or -c 2xnode; for exact CPUs, use --cpus LIST"),
    (&["--membind", "--mem-bind", "-m"], "to bind memory to nodes, use --mem bind:NODES"),
    (&["--interleave", "-i"], "to interleave memory, use --mem interleave or --mem interleave:NODES"),
    (&["--preferred", "-p"], "to prefer a node for memory, use --mem preferred:NODE"),
    (&["--localalloc", "-l"], "for local memory, use --mem local"),
    (
        &["--cpus-per-task", "--cpus-per-proc", "-d"],
        "for cores of each rank, use --ranks N -c CORES: they are shared equally",
    ),
    (&["--exclusive"], "holds exclude other trimtab runs by default; to overlap them, use --share"),
    (
        &["--hint", "--threads-per-core"],
        "siblings of a core stay idle by default (--smt 1); for all threads of each core, use --smt all",
    ),
    (&["--report-bindings", "--display-map"], "to see the chosen cores and the reasons, use -v"),
    (&["--oversubscribe", "--overcommit"], "to overlap other runs, use --share"),
];

/// Options by which other tools take process ids.
const PIDS: [&str; 3] = ["-p", "--pid", "-t"];

/// Replaces the parser's guess by the tip for a foreign option, if the error is about one; adds the
/// command that is probably meant by a mistyped one, if the parser found none. `program` is the
/// definition that parsed the command line.
pub fn explain(error: &mut Error, program: &Command) {
    match error.kind() {
        ErrorKind::UnknownArgument => {
            explain_option(error, program, typed_command().as_deref().unwrap_or_default());
        }
        ErrorKind::InvalidSubcommand => explain_command(error),
        _ => {}
    }
}

/// Returns the command on this process's command line.
fn typed_command() -> Option<String> {
    std::env::args_os().nth(1).and_then(|word| word.into_string().ok())
}

/// As [`explain`], for an option of `command`.
fn explain_option(error: &mut Error, program: &Command, command: &str) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    let Some(tip) = tip(given, program, command) else { return };
    // The parser's guess compares letters only: --kind for --bind-to. Its usage line repeats it.
    let _ = error.remove(ContextKind::SuggestedArg);
    let _ = error.remove(ContextKind::Usage);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
}

/// As [`explain`], for a command that does not exist.
fn explain_command(error: &mut Error) {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else { return };
    if error.get(ContextKind::SuggestedSubcommand).is_some() {
        return;
    }
    let names = GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
    if let Some(meant) = meant(given, names) {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
}

/// Returns the tip for an option as it was typed; `None` if no other tool has the option, or if
/// `command` has no option for the same purpose.
fn tip(given: &str, program: &Command, command: &str) -> Option<String> {
    let name = given.split('=').next().unwrap_or(given);
    let arguments = || program.find_subcommand(command).into_iter().flat_map(Command::get_arguments);
    let takes_pids = arguments().any(|arg| {
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| name.starts_with("PID")))
    });
    if takes_pids && PIDS.contains(&name) {
        return Some(format!("a process id needs no option: trimtab {command} PID"));
    }
    let launches = arguments().any(|arg| arg.get_long() == Some("strategy"));
    let tip = TIPS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tip)| *tip);
    tip.filter(|_| launches).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::{CommandFactory, Parser};

    #[test]
    fn options_of_other_launchers_are_answered_with_ours() {
        for (typed, wanted) in [
            ("-n", "--ranks"),
            ("-np", "--ranks"),
            ("--bind-to", "--pin mask"),
            ("--cpu-bind=cores", "--pin mask"),
            ("--membind=0", "--mem bind"),
            ("--physcpubind", "--cpus"),
            ("--hint=nomultithread", "--smt"),
            ("--report-bindings", "use -v"),
        ] {
            let mut error = Cli::try_parse_from(["trimtab", "run", typed, "2", "./app"]).unwrap_err();
            explain_option(&mut error, &Cli::command(), "run");
            let text = error.to_string();
            assert!(text.contains(wanted), "{typed}: {text}");
            assert!(!text.contains("to pass"), "{typed}: {text}");
            assert!(!text.contains("similar argument") && !text.contains("--kind"), "{typed}: {text}");
        }
    }

    #[test]
    fn a_command_without_placement_gives_no_tips_about_it() {
        let mut error = Cli::try_parse_from(["trimtab", "attach", "-p", "1"]).unwrap_err();
        explain_option(&mut error, &Cli::command(), "attach");
        let text = error.to_string();
        assert!(text.contains("trimtab attach PID") && !text.contains("--mem"), "{text}");
        assert_eq!(tip("-n", &Cli::command(), "ps"), None);
    }

    #[test]
    fn swapped_letters_of_a_command_are_recognised() {
        let mut error = Cli::try_parse_from(["trimtab", "rnu"]).unwrap_err();
        explain(&mut error, &Cli::command());
        let text = error.to_string();
        assert!(text.contains("a similar subcommand exists: 'run'"), "{text}");
    }

    #[test]
    fn no_tip_hides_an_option_of_our_own() {
        let cli = Cli::command();
        let run = cli.find_subcommand("run").unwrap();
        let own = |name: &str| {
            run.get_arguments().any(|arg| {
                arg.get_long().is_some_and(|long| name == format!("--{long}"))
                    || arg.get_short().is_some_and(|short| name == format!("-{short}"))
            })
        };
        for (names, tip) in TIPS {
            assert!(names.iter().all(|name| !own(name)), "{names:?}");
            let advised =
                tip.split([' ', ',', ';', ':']).filter(|word| word.starts_with('-') && *word != "-n");
            assert!(advised.clone().all(own), "{tip}: {:?}", advised.collect::<Vec<_>>());
        }
    }
}
