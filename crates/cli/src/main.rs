//! `trimtab`: parses the command line, runs the command, exits with its status.

#![no_main]

use clap::CommandFactory;
use trimtab_agent::restoration;
use trimtab_cli::args::{Cli, Command, TuningsArgs, foreign};
use trimtab_cli::commands::{attach, counters, detach, doctor, guest, lab, nproc, plan, profile};
use trimtab_cli::commands::{ps, run, status, tag, topo, tunings};
use trimtab_cli::exit::{self, Exit};
use trimtab_cli::say;
use trimtab_cli::world::World;
use trimtab_linux::host::Guard;

trimtab_linux::entry!(trimtab);

/// The program. Returns the exit status.
fn trimtab() -> u8 {
    let world = World::current();
    if let Some(balancer) = Guard::balancer(std::env::args_os().next().as_ref()) {
        restoration::guard(&world.paths(), balancer);
        return exit::DONE;
    }
    // The parser here has only the names of the laboratory's commands and one line of help for
    // each.
    if lab::help_is_asked(std::env::args_os()) {
        return ended(Err(lab::start()));
    }
    let words: Vec<_> = std::env::args_os().collect();
    let cli = match Cli::read(&words) {
        Ok(cli) => cli,
        Err(error) => return refused(error),
    };
    ended(match cli.command {
        Command::Run(args) => run::run(&world, &args),
        Command::Attach(args) => attach::run(&world, &args),
        Command::Detach(args) => detach::run(&world, &args),
        Command::Tag(args) => tag::tag(&world, &args),
        Command::Untag(args) => tag::clear(&world, &args),
        Command::Reload(args) => tag::reload(&world, &args),
        Command::Status(args) => status::run(&world, &args),
        Command::GuestAgent(args) => guest::run(&world, &args),
        Command::Plan(args) => plan::run(&world, &args),
        Command::Topo(args) => topo::run(&world, &args),
        Command::Ps(args) => ps::run(&world, &args),
        Command::Profile(args) => profile::run(&world, args),
        Command::Counters(args) => counters::run(&world, &args),
        Command::Nproc(args) => nproc::run(&world, &args),
        Command::Doctor(args) => doctor::run(&world, &args),
        Command::Tune(args) => match args.kept {
            Some(command) => tunings::run(&world, &TuningsArgs { command: Some(command), json: false }),
            None => Err(lab::start()),
        },
        Command::Profiles(args) => tunings::run(&world, &args),
        Command::Hold(_)
        | Command::Resize(_)
        | Command::Release(_)
        | Command::Advise(_)
        | Command::Check(_)
        | Command::Each(_)
        | Command::Bench(_)
        | Command::Field(_)
        | Command::Sim(_)
        | Command::TuneTeam(_)
        | Command::Nri(_)
        | Command::Hook(_)
        | Command::Report(_)
        | Command::Serve(_)
        | Command::Top(_)
        | Command::Replay(_)
        | Command::Generate(_) => Err(lab::start()),
    })
}

/// Returns the exit status of a command that has ended; an error is reported.
fn ended(done: Result<u8, Exit>) -> u8 {
    match done {
        Ok(status) => status,
        Err(error) if say::is_broken_pipe(&error) => exit::DONE,
        Err(error) => {
            say::error(&error);
            error.status
        }
    }
}

/// Reports a command line that does not parse, or prints the requested help. `run` has a status for
/// failures of trimtab that programs do not use.
fn refused(mut error: clap::Error) -> u8 {
    foreign::explain(&mut error, &Cli::command());
    let _ = error.print();
    let running = std::env::args_os().nth(1).is_some_and(|word| word == "run" || word == "profile");
    match (error.use_stderr(), running) {
        (false, _) => exit::DONE,
        (true, true) => exit::RUN_FAILED,
        (true, false) => exit::FAILED,
    }
}
