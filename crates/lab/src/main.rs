//! `trimtab-lab`, the laboratory program: benchmarks of the live machine, the simulator, the live
//! view, pages made of records, replays, advice, the checker of plans, jobs for many values, the
//! tuning of programs and teams. `trimtab advise`, `bench`, `check`, `each`, `replay`, `report`,
//! `sim`, `top`, `tune` and `tune-team` start it.

use clap::{CommandFactory, Parser};
use std::process::ExitCode;
use trimtab_cli::args::foreign;
use trimtab_front::process_env::World;
use trimtab_front::{diagnostics, exit};
use trimtab_lab::args::{Cli, Command};
use trimtab_lab::{advise, bench, check, each, generate, replay, report, sim, top, tune, tune_team};

fn main() -> ExitCode {
    // Keeps the mark in the file, by which `trimtab doctor` recognises the program.
    std::hint::black_box(trimtab_core::part_mark!("trimtab-lab"));
    let world = World::current();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            foreign::explain(&mut error, &Cli::command());
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::FAILED } else { exit::DONE });
        }
    };
    let done = match cli.command {
        Command::Bench(args) => bench::run(&world, &args),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&world, &args),
        Command::Top(args) => top::run(&world, &args),
        Command::Check(args) => check::run(&world, &args),
        Command::Each(args) => each::run(&world, &args),
        Command::Replay(args) => replay::run(&args),
        Command::Report(args) => report::run(&world, &args),
        Command::Tune(args) => tune::run(&world, &args),
        Command::TuneTeam(args) => tune_team::run(&world, &args),
        Command::Generate(args) => generate::run(&args),
    };
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) if diagnostics::is_broken_pipe(&error) => ExitCode::from(exit::DONE),
        Err(error) => {
            diagnostics::error(&error);
            ExitCode::from(error.status)
        }
    }
}
