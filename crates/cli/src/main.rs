//! `trimtab`: parse, run the command, exit with its status.

use clap::Parser;
use std::process::ExitCode;
use trimtab_agent::restoration;
use trimtab_cli::args::{Cli, Command};
use trimtab_cli::commands::{
    advise, attach, check, counters, detach, doctor, guest, lab, plan, profile, profiles, ps,
};
use trimtab_cli::commands::{replay, report, run, serve, status, tag, top, topo, tune, tune_team};
use trimtab_cli::exit::{self, Exit};
use trimtab_cli::say;
use trimtab_cli::world::World;
use trimtab_linux::host::Guard;

fn main() -> ExitCode {
    let world = World::current();
    if let Some(balancer) = Guard::balancer(std::env::args_os().next().as_ref()) {
        restoration::guard(&world.paths(), balancer);
        return ExitCode::from(exit::DONE);
    }
    // The parser here knows no more of the laboratory's commands than their names and one line each.
    if lab::help_is_asked(std::env::args_os()) {
        return ended(Err(lab::start()));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    ended(match cli.command {
        Command::Run(args) => run::run(&world, &args),
        Command::Attach(args) => attach::run(&world, &args),
        Command::Detach(args) => detach::run(&world, &args),
        Command::Serve(args) => serve::run(&world, &args),
        Command::Tag(args) => tag::tag(&world, &args),
        Command::Clear(args) => tag::clear(&world, &args),
        Command::Status(args) => status::run(&world, &args),
        Command::Guest(args) => guest::run(&world, &args),
        Command::Replay(args) => replay::run(&args),
        Command::Plan(args) => plan::run(&world, &args),
        Command::Topo(args) => topo::run(&world, &args),
        Command::Ps(args) => ps::run(&world, &args),
        Command::Top(args) => top::run(&world, &args),
        Command::Report(args) => report::run(&world, &args),
        Command::Profile(args) => profile::run(world, args),
        Command::Advise(args) => advise::run(&world, &args),
        Command::Counters(args) => counters::run(&world, &args),
        Command::Doctor(args) => doctor::run(&world, &args),
        Command::Check(args) => check::run(&world, &args),
        Command::TuneTeam(args) => tune_team::run(&world, &args),
        Command::Tune(args) => tune::run(&world, &args),
        Command::Profiles(args) => profiles::run(&world, &args),
        Command::Bench(_) | Command::Sim(_) | Command::Generate(_) => Err(lab::start()),
    })
}

/// The exit status of a command that has ended; its error is reported.
fn ended(done: Result<u8, Exit>) -> ExitCode {
    match done {
        Ok(status) => ExitCode::from(status),
        Err(error) if say::is_broken_pipe(&error) => ExitCode::from(exit::DONE),
        Err(error) => {
            say::error(&error);
            ExitCode::from(error.status)
        }
    }
}

/// A command line that does not parse. `run`'s own failures have a status that programs do not use.
fn refused(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let running = std::env::args_os().nth(1).is_some_and(|word| word == "run" || word == "profile");
    ExitCode::from(match (error.use_stderr(), running) {
        (false, _) => exit::DONE,
        (true, true) => exit::RUN_FAILED,
        (true, false) => exit::FAILED,
    })
}
