//! Options of other launchers, each with trimtab's answer to it.
//!
//! Users of `mpirun`, `srun`, `numactl`, `taskset` and `likwid-pin` type their options from habit.
//! The parser refuses them, since some have no exact equal here, and the error names the option
//! that serves the same purpose.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Foreign spellings, and the tip for them.
const TIPS: [(&[&str], &str); 12] = [
    (
        &["-n", "-np", "--np", "--ntasks", "--n"],
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
    (&["--membind", "-m"], "to bind memory to nodes, use --mem bind:NODES"),
    (&["--interleave", "-i"], "to interleave memory, use --mem interleave or --mem interleave:NODES"),
    (&["--preferred", "-p"], "to prefer a node for memory, use --mem preferred:NODE"),
    (&["--localalloc", "-l"], "for local memory, use --mem local"),
    (
        &["--cpus-per-task", "--cpus-per-proc", "-d"],
        "for cores of each rank, use --ranks N -c CORES: they are shared equally",
    ),
    (&["--exclusive"], "holds exclude other trimtab runs by default; to overlap them, use --share"),
    (&["--oversubscribe", "--overcommit"], "to overlap other runs, use --share"),
];

/// Adds the tip for a foreign option to an error of the parser, if the error is about one.
pub fn explain(error: &mut clap::Error) {
    if error.kind() != ErrorKind::UnknownArgument {
        return;
    }
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return };
    if let Some(tip) = tip(given) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
}

/// The tip for an option as it was typed; `None` if no other launcher has it.
fn tip(given: &str) -> Option<&'static str> {
    let name = given.split('=').next().unwrap_or(given);
    TIPS.iter().find(|(names, _)| names.contains(&name)).map(|(_, tip)| *tip)
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
        ] {
            let mut error = Cli::try_parse_from(["trimtab", "run", typed, "2", "./app"]).unwrap_err();
            explain(&mut error);
            let text = error.to_string();
            assert!(text.contains(wanted), "{typed}: {text}");
            assert!(!text.contains("to pass"), "{typed}: {text}");
        }
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
