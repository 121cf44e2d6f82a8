//! `trimtab top`: shows how threads run now, or ran in a recorded run.
//!
//! All input is an `event::Event`; `State::update` processes it, `draw::draw` draws the state. Both
//! are pure, so that tests send events and compare the picture. Threads send events: keys, signals,
//! samples of programs and of the machine. Only this file and `terminal` use a terminal.

mod choose;
mod draw;
mod event;
mod json;
mod live;
mod map;
mod replay;
mod scene;
mod state;
mod terminal;
mod text;
mod threads;
mod width;

#[cfg(test)]
mod tests;

pub use json::SCHEMA;

use anyhow::{Context, Result, bail};
use event::{Action, Event};
use live::Source;
use replay::Player;
use scene::{Around, NO_LOOK, NOBODY, NOBODY_THEN};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use state::State;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use terminal::Terminal;
use trimtab_agent::spawn::spawn;
use trimtab_cli::args::{TopArgs, distinct};
use trimtab_cli::traces;
use trimtab_core::telemetry::account::Account;
use trimtab_core::time::Span;
use trimtab_core::topology::Machine;
use trimtab_front::exit::{self, Exit};
use trimtab_front::print;
use trimtab_front::process_env::World;

/// Most events in the queue; a source that is ahead waits.
const EVENTS_QUEUED_MAX: usize = 256;
/// Time between two ticks of a replay.
const REPLAY_TICK: Duration = Duration::from_millis(50);

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`] when there is nothing to show, or no terminal to show it on.
pub fn run(world: &World, args: &TopArgs) -> Result<u8, Exit> {
    show(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn show(world: &World, args: &TopArgs) -> Result<u8> {
    let still = args.once || args.json;
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !still && !terminal {
        bail!(
            "standard output is not a terminal: trimtab top --once prints one sample, --json the same as JSON"
        );
    }
    // See https://no-color.org: set and not empty.
    let colour = world.raw("NO_COLOR").is_none_or(|value| value.is_empty());
    match &args.replay {
        Some(file) => {
            let trace = traces::read(file)?;
            if trace.steps.is_empty() {
                bail!("{}: {NO_LOOK}", traces::name(file));
            }
            let mut player = Player::new(trace);
            if still {
                player.seek(usize::MAX);
                return once(args, player.machine(), player.account(), &Around::default());
            }
            screen(State::replay(player, colour), None)
        }
        None => {
            let source = Source::new(&distinct(&args.pids), &args.vm, args.interval)?;
            if still {
                let (account, around) = source.once()?;
                return once(args, &source.machine, &account, &around);
            }
            screen(State::live(source.machine.clone(), args.interval, colour), Some(source))
        }
    }
}

fn once(args: &TopArgs, machine: &Machine, account: &Account, around: &Around) -> Result<u8> {
    let text = if args.json {
        json::document(machine, account, around)?
    } else {
        let nobody = if args.replay.is_some() { NOBODY_THEN } else { NOBODY };
        text::frame(machine, account, around, trimtab_cli::commands::topo::width(), nobody)
    };
    print(&text)?;
    Ok(exit::DONE)
}

/// Draws until the user or a signal ends it.
fn screen(mut state: State, source: Option<Source>) -> Result<u8> {
    let (sender, events) = sync_channel(EVENTS_QUEUED_MAX);
    signals(sender.clone())?;
    let mut terminal = Terminal::take().context("cannot use this terminal")?;
    keys(sender.clone())?;
    if let Some(source) = source {
        source.send(&sender)?;
    }
    let mut drawn = Action::Draw;
    let mut before = Instant::now();
    loop {
        if drawn == Action::Draw {
            terminal.screen.draw(|frame| draw::draw(&state, frame)).context("cannot draw")?;
        }
        drawn = Action::None;
        let first = match events.recv_timeout(REPLAY_TICK) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Ok(exit::DONE),
        };
        let span = Span::from(before.elapsed());
        before = Instant::now();
        // All waiting events are processed before the next picture.
        let more = std::iter::from_fn(|| events.try_recv().ok()).take(EVENTS_QUEUED_MAX);
        for event in first.into_iter().chain(more).chain([Event::Tick(span)]) {
            if let Event::Failed(why) = event {
                drop(terminal);
                bail!("no program can be watched any more: {why}");
            }
            match state.update(event) {
                Action::None => {}
                Action::Draw => drawn = Action::Draw,
                Action::Quit(signal) => {
                    drop(terminal);
                    return Ok(signal.map_or(exit::DONE, exit::by_signal));
                }
            }
        }
    }
}

fn keys(events: SyncSender<Event>) -> Result<()> {
    use ratatui::crossterm::event::{self, Event as Input};
    spawn("keys", move || {
        loop {
            let event = match event::read() {
                Ok(Input::Key(key)) => Event::Key(key),
                Ok(Input::Resize(..)) => Event::Redraw,
                Ok(_) => continue,
                // The terminal has been closed.
                Err(_) => Event::Stop(SIGHUP),
            };
            let last = matches!(event, Event::Stop(_));
            if events.send(event).is_err() || last {
                return;
            }
        }
    })
}

fn signals(events: SyncSender<Event>) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot listen for signals")?;
    spawn("signals", move || {
        for signal in signals.forever() {
            if events.send(Event::Stop(signal)).is_err() {
                return;
            }
        }
    })
}
