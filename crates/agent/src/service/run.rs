//! `trimtab serve`: the service that balances all tagged threads of the machine.

use crate::args::ServeArgs;
use crate::aside;
use crate::exit::{self, Exit};
use crate::leftovers;
use crate::recorder::Recorder;
use crate::say::{self, Volume};
use crate::serve::Shared;
use crate::serve::desk::{Desk, LIMITS, Setup};
use crate::serve::host::Served;
use crate::situation::{Situation, location};
use crate::watching::Watching;
use crate::world::{SOCKET, World};
use crate::wrapper::now;
use anyhow::{Context, anyhow};
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use trimtab_core::balance::{Kind, Settings, policy};
use trimtab_core::drive::Go;
use trimtab_core::tags::{Reach, Registry};
use trimtab_core::trace::{Header, VERSION};
use trimtab_linux::live::{Live, Options, Stopper};
use trimtab_linux::socket::{Place, Server, SocketError, notify};
use trimtab_linux::sys::signals::is_ignored;

/// The status of a service whose terminal was closed: as of a program that SIGHUP ended.
const HUNG_UP: u8 = 128 + 1;

/// Runs the command.
///
/// # Errors
/// [`exit::FAILED`]: it cannot serve.
pub fn run(world: &World, args: &ServeArgs) -> Result<u8, Exit> {
    serve(world, args).map_err(|cause| Exit::new(exit::FAILED, cause))
}

fn serve(world: &World, args: &ServeArgs) -> Result<u8, anyhow::Error> {
    let volume = Volume::of(args.quiet, args.verbose);
    let recorder = args.trace.as_ref().map(|path| Recorder::open("--trace", path)).transpose()?;
    // Before there is a socket that would be left behind: what comes until the rest is there ends it then.
    let signals = hear()?;
    // Before anything is given back: another daemon's masks are that one's.
    let claim = place(world, args.socket.as_deref())?.claim()?;
    leftovers::tidy(world, volume);
    let machine = Situation::live(world, false)?.machine;
    let usable = match &args.cpus {
        Some(cpus) => cpus.intersection(&machine.cpus()),
        None => machine.cpus(),
    };
    if usable.is_empty() {
        return Err(anyhow!("none of the CPUs of --cpus is on this machine"));
    }
    let keep = (args.policy != Kind::Float).then(|| leftovers::keeper(world, volume)).flatten();
    let socket = std::path::absolute(claim.path()).unwrap_or_else(|_| claim.path().to_owned());
    let keep = keep.map(|keep| keep.serving(&socket));
    let counting = args.counting.choice();
    let options = Options { keep, tags: true, counting, ..Options::default() };
    let live = Live::with(&world.proc(), &[], &usable, options)?;
    let stopper = live.stopper();
    let hung_up = end_at(signals, stopper.clone(), volume)?;

    let reach = crate::serve::reach(&world.proc());
    let shared = Shared::new(Registry::new(reach));
    let settings = args.settings.over(Settings::of(args.policy));
    let setup = Setup {
        policy: args.policy.word().to_owned(),
        usable: usable.clone(),
        online: machine.cpus(),
        budget: settings.penalty.budget,
        pinned: args.pinned,
        guests: args.guest.clone(),
        volume,
    };
    let server = Server::new(claim, LIMITS);
    let told = format!(
        "process {} serves {} at {} by {} on CPUs {usable}",
        std::process::id(),
        if reach == Reach::All { "everybody" } else { "you" },
        server.path().display(),
        args.policy
    );
    let cgroups = world.sys().join("fs/cgroup");
    let desk = Desk::new(server, shared.clone(), &world.proc(), &cgroups, reach, setup)?;
    let ends = stopper.clone();
    let desk = attend(desk, stopper)?;
    say::headline(volume, &told);
    tell_manager(world, "READY=1");

    let budget = settings.penalty.budget;
    let mut policy = policy(args.policy, &machine, &settings);
    let header = Header {
        version: VERSION,
        policy: args.policy,
        settings,
        command: "trimtab serve".to_owned(),
        began: now(),
        usable: usable.clone(),
        machine,
    };
    let mut host = Served::new(live, shared.clone(), world.proc(), budget, args.pinned, volume);
    let mut watching = Watching::begin(header, recorder, None, volume);
    let work = || {
        watching.watch(&mut host, &mut *policy, &usable, &mut |tally, _| {
            shared.count(tally);
            Go::On
        })
    };
    let ended = last(&ends, work);
    tell_manager(world, "STOPPING=1");
    let (restored, fault) = host.restore();
    watching.record(|recorder| recorder.end("stopped", None));
    leftovers::tell(restored, fault, volume);
    drop(host);
    // The socket goes last: who finds none may start another.
    let served = desk.join().map_err(|_| anyhow!("the desk has failed"))?;
    say::headline(volume, &format!("stopped: {}", watching.summary()));
    ended?;
    served?;
    Ok(if hung_up.load(Ordering::Relaxed) { HUNG_UP } else { exit::DONE })
}

/// Where it listens.
///
/// # Errors
/// There is no such place.
fn place(world: &World, named: Option<&Path>) -> Result<Place, SocketError> {
    match named.map(PathBuf::from).or_else(|| world.raw(SOCKET).filter(|s| !s.is_empty()).map(PathBuf::from))
    {
        Some(path) => Place::named(&path),
        None if geteuid().is_root() => Ok(Place::of_root(&world.root)),
        None => {
            let runtime = world.raw("XDG_RUNTIME_DIR").map(Path::new);
            Place::of_user(geteuid().as_raw(), runtime, &location(world)?)
        }
    }
}

/// Answers in a thread of its own; what ends that ends all.
fn attend(
    desk: Desk,
    stopper: Stopper,
) -> Result<std::thread::JoinHandle<Result<(), anyhow::Error>>, anyhow::Error> {
    let work = move || last(&stopper, || desk.serve(&stopper));
    std::thread::Builder::new().name("desk".to_owned()).spawn(work).context("cannot start a thread (desk)")
}

/// Does one part of the work, with which all of it ends: however it ends, by an error and by a panic too. A service of which only one half
/// goes on would answer and move nothing, or never end.
fn last<T>(stopper: &Stopper, work: impl FnOnce() -> T) -> T {
    struct Ends<'a>(&'a Stopper);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let _ends = Ends(stopper);
    work()
}

/// From now on signals are heard and kill nobody.
fn hear() -> Result<Signals, anyhow::Error> {
    let heard = [SIGINT, SIGTERM, SIGQUIT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    // A file that may not grow is an error and no end.
    Signals::new(heard.chain([SIGXFSZ])).context("cannot listen for signals")
}

/// Ends it at a signal, also one that came before; whether that was the end of its terminal. A service without a terminal is told to read its
/// settings again by SIGHUP, as services are, and goes on: all its settings are options, read once.
fn end_at(mut signals: Signals, stopper: Stopper, volume: Volume) -> Result<Arc<AtomicBool>, anyhow::Error> {
    let hung_up = Arc::new(AtomicBool::new(false));
    let has_terminal = File::open("/dev/tty").is_ok();
    let told = Arc::clone(&hung_up);
    aside::begin("signals", move || {
        for signal in signals.forever() {
            match signal {
                SIGXFSZ => {}
                SIGHUP if !has_terminal => {
                    say::notice(volume, "SIGHUP: there are no settings to be read again; it goes on");
                }
                _ => {
                    told.fetch_or(signal == SIGHUP, Ordering::Relaxed);
                    stopper.stop();
                }
            }
        }
    })?;
    Ok(hung_up)
}

/// Tells the service manager, if there is one.
fn tell_manager(world: &World, state: &str) {
    if let Some(socket) = world.raw("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) {
        // Who started us without listening does not want to know.
        let _ = notify(socket, state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trimtab_core::drive::{Awake, Host};
    use trimtab_core::set::CpuSet;
    use trimtab_core::time::{Moment, Span};

    #[test]
    fn however_one_half_ends_the_other_ends_too() {
        let works: [fn(); 2] = [|| (), || std::panic::resume_unwind(Box::new("it failed"))];
        for work in works {
            let options = Options { tags: true, ..Options::default() };
            let mut live = Live::with(Path::new("/proc"), &[], &CpuSet::new(), options).unwrap();
            let now = live.observe(&trimtab_core::balance::Wanted::all()).unwrap().at;
            assert_eq!(live.wait(now).unwrap(), Awake::Due);
            let stopper = live.stopper();
            // As the desk is, in a thread of its own.
            let half = std::thread::spawn(move || last(&stopper, work));
            assert_eq!(live.wait(Moment(now.0 + Span::from_ms(60_000).0)).unwrap(), Awake::Over);
            let _ = half.join();
        }
    }
}
