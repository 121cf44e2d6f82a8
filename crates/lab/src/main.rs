//! `trimtab-lab`, the laboratory program: benchmarks of the live machine, the field kit, the
//! simulator, the service, the live view, pages made of records, replays, advice, the checker of
//! plans, jobs for many values, the tuning of programs and teams, holds for other programs, the
//! plug-in for container runtimes, and the hooks of engines of virtual machines. `trimtab advise`,
//! `bench`, `check`, `each`, `field`, `hold`, `hook`, `nri`, `release`, `replay`, `report`,
//! `resize`, `serve`, `sim`, `top`, `tune` and `tune-team` start it. It is also the keeper and the
//! grower of a hold, and the guardian of a service.

use clap::{CommandFactory, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use trimtab_agent::restoration;
use trimtab_agent::service::enforcer;
use trimtab_cli::args::foreign;
use trimtab_front::diagnostics::{self, Volume};
use trimtab_front::exit;
use trimtab_front::process_env::World;
use trimtab_hold::grower;
use trimtab_lab::args::{Cli, Command};
use trimtab_lab::{advise, bench, check, each, field, generate, hold, hook, nri, replay, report};
use trimtab_lab::{serve, sim, top, tune, tune_team};
use trimtab_linux::host::Guard;
use trimtab_linux::keeper;

fn main() -> ExitCode {
    // Keeps the mark in the file, by which `trimtab doctor` recognises the program.
    std::hint::black_box(trimtab_core::part_mark!("trimtab-lab"));
    if std::env::args_os().nth(1).is_some_and(|word| word == keeper::ARGUMENT) {
        return match keeper::run() {
            Ok(()) => ExitCode::from(exit::DONE),
            // Its standard error is no terminal and no log.
            Err(_) => ExitCode::from(exit::FAILED),
        };
    }
    if let Some(groups) = guarded_groups() {
        enforcer::stand_guard(&groups);
        return ExitCode::from(exit::DONE);
    }
    let world = World::current();
    if let Some(status) = helper(&world) {
        return status;
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            foreign::explain(&mut error, &Cli::command());
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::FAILED } else { exit::DONE });
        }
    };
    let done = match cli.command {
        Command::Hold(args) => hold::hold(&world, &args),
        Command::Resize(args) => hold::resize(&world, &args),
        Command::Release(args) => hold::release(&world, &args),
        Command::Nri(args) => nri::run(&world, &args),
        Command::Hook(args) => hook::run(&world, &args),
        Command::Bench(args) => bench::run(&world, &args),
        Command::Sim(args) => sim::run(&args),
        Command::Advise(args) => advise::run(&world, &args),
        Command::Top(args) => top::run(&world, &args),
        Command::Check(args) => check::run(&world, &args),
        Command::Field(args) => field::run(&world, &args),
        Command::Each(args) => each::run(&world, &args),
        Command::Replay(args) => replay::run(&args),
        Command::Serve(args) => serve::run(&world, &args),
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

/// Returns the control groups that this process guards, if its arguments are those of a guardian of
/// enforcement.
fn guarded_groups() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    let guards = words.next().is_some_and(|word| word == enforcer::GUARDIAN);
    words.next().filter(|_| guards).map(PathBuf::from)
}

/// Runs as a helper process of this installation, if the arguments are those of one.
fn helper(world: &World) -> Option<ExitCode> {
    let words: Vec<_> = std::env::args_os().collect();
    if let Some(balancer) = Guard::balancer(words.first()) {
        restoration::guard(&world.paths(), balancer);
        return Some(ExitCode::from(exit::DONE));
    }
    let (_, rest) = words.get(1..)?.split_first().filter(|(word, _)| *word == grower::ARGUMENT)?;
    let tell = |line: &str| diagnostics::headline(Volume::Normal, line);
    let done = grower::run(world, rest, &tell);
    Some(ExitCode::from(if done.is_ok() { exit::DONE } else { exit::FAILED }))
}
