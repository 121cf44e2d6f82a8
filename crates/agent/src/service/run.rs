//! Run of the service: claims the socket, starts both threads, and ends both when one ends.

use super::SharedState;
use super::channel::Channel;
use super::enforcer::{self, EnforceOptions, Enforcer};
use super::host::ServiceHost;
use super::requests::{RequestServer, RequestSetup, SOCKET_LIMITS};
use super::resolve::{Resolver, reach};
use super::steps::ServiceSteps;
use crate::metrics::{Address, Metrics, Offer};
use crate::narrator::Narrator;
use crate::paths::Paths;
use crate::recorder::Recorder;
use crate::restoration;
use crate::spawn::spawn;
use crate::step_sinks::StepSinks;
use crate::unix_seconds;
use anyhow::{Context, Result, anyhow};
use rustix::process::geteuid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use trimtab_core::balance::{Kind, Settings, policy};
use trimtab_core::drive::Go;
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{Reach, Registry};
use trimtab_core::topology::Machine;
use trimtab_core::trace::{Header, VERSION};
use trimtab_linux::host::{HostOptions, Live, Stopper};
use trimtab_linux::perf::Choice;
use trimtab_linux::socket::{Claim, Place, Server, SocketError, notify};
use trimtab_linux::sys::signals::is_ignored;

/// Settings of the service.
#[derive(Clone, Debug)]
pub struct ServiceOptions {
    /// The policy.
    pub policy: Kind,
    /// Settings of the policy; the budget is the share of a core that the whole service may take.
    pub settings: Settings,
    /// Hardware counters to read.
    pub counting: Choice,
    /// Path of its socket, instead of [`Paths::socket`] and the usual places.
    pub socket: Option<PathBuf>,
    /// CPUs to which threads may be moved, instead of all of the machine.
    pub cpus: Option<CpuSet>,
    /// Whether threads that were bound to some CPUs are taken as tagged.
    pub pinned: bool,
    /// Guests that are listened to.
    pub guests: Vec<Channel>,
    /// Folder with the files of declared tags; `None` for no such tags.
    pub declared: Option<PathBuf>,
    /// Whether no thread is moved, and each move is reported that would have been made.
    pub observe: bool,
    /// Settings of the enforcement of holds; `None` if they stay an agreement.
    pub enforce: Option<EnforceOptions>,
    /// Address at which metrics are offered; `None` for none.
    pub metrics: Option<Address>,
}

/// Cause of the service's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceEnd {
    /// It got the request to stop.
    Stopped,
    /// Its terminal was closed.
    HungUp,
}

/// Service that is ready: both threads can start.
struct Ready {
    host: ServiceHost,
    requests: RequestServer,
    shared: SharedState,
    stopper: Stopper,
    /// Whether the cause of the end was that its terminal was closed.
    hung_up: Arc<AtomicBool>,
    machine: Machine,
    usable: CpuSet,
    headline: String,
    enforcer: Option<Enforcer>,
}

/// Serves until a signal arrives. `machine` is called after the socket is claimed.
///
/// # Errors
/// It cannot serve: another service runs, a place is not suitable, or the machine can no longer be
/// sampled.
pub fn serve(
    paths: &Paths,
    options: ServiceOptions,
    recorder: Option<Recorder>,
    machine: impl FnOnce() -> Result<Machine>,
    narrator: &Arc<dyn Narrator>,
) -> Result<ServiceEnd> {
    let Ready { mut host, requests, shared, stopper, hung_up, machine, usable, headline, enforcer } =
        prepare(paths, &options, machine, narrator)?;
    let ends = stopper.clone();
    let requests = answer(requests, stopper)?;
    let enforcing = enforcer.map(Enforcer::begin).transpose()?;
    narrator.headline(&headline);
    tell_manager(paths, "READY=1");

    let mut policy = policy(options.policy, &machine, &options.settings);
    let header = Header {
        version: VERSION,
        policy: options.policy,
        settings: options.settings,
        command: "trimtab serve".to_owned(),
        began: unix_seconds(),
        usable: usable.clone(),
        machine,
    };
    let steps = ServiceSteps::new(shared.clone(), Arc::clone(narrator));
    let mut sinks =
        StepSinks::begin(header, recorder, None, Arc::clone(narrator)).explaining(Box::new(steps));
    let work = || {
        sinks.watch(&mut host, &mut *policy, &usable, &mut |tally, _| {
            shared.count(tally);
            Go::On
        })
    };
    let ended = last(&ends, work);
    tell_manager(paths, "STOPPING=1");
    if let Some(enforcing) = enforcing {
        enforcing.end(&**narrator);
    }
    let (restored, fault) = host.restore();
    sinks.record(|recorder| recorder.end("stopped", None));
    restoration::tell(restored, fault, &**narrator);
    drop(host);
    // The socket goes last: another service may start when it finds no socket.
    let answered = requests.join().map_err(|_| anyhow!("the thread that answers requests has failed"))?;
    narrator.headline(&format!("stopped: {}", sinks.summary()));
    ended?;
    answered?;
    Ok(if hung_up.load(Ordering::Relaxed) { ServiceEnd::HungUp } else { ServiceEnd::Stopped })
}

/// Claims the socket, and makes both halves of the service.
fn prepare(
    paths: &Paths,
    options: &ServiceOptions,
    machine: impl FnOnce() -> Result<Machine>,
    narrator: &Arc<dyn Narrator>,
) -> Result<Ready> {
    // Before there is a socket that could be left behind: a signal that comes until the rest is
    // ready ends the service then.
    let signals = listen()?;
    if options.enforce.is_some() {
        enforcer::check_right()?;
    }
    // Before the socket is claimed too: an address in use is an error that changes nothing.
    let offer = options.metrics.as_ref().map(Offer::bind).transpose()?;
    // Before any mask is given back: masks of another running service belong to that service.
    let claim = place(paths, options.socket.as_deref())?.claim()?;
    restoration::tidy(paths, &**narrator);
    let machine = machine()?;
    let usable = match &options.cpus {
        Some(cpus) => cpus.intersection(&machine.cpus()),
        None => machine.cpus(),
    };
    if usable.is_empty() {
        return Err(anyhow!("none of the CPUs of --cpus is on this machine"));
    }
    let live = live(paths, options, &claim, &usable, narrator)?;
    let stopper = live.stopper();
    let (reload, forget) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let hung_up = end_at(signals, stopper.clone(), Arc::clone(&reload), Arc::clone(&forget))?;

    let proc = paths.proc();
    let reach = reach(&proc);
    let shared = SharedState::new(Registry::new(reach)).explaining(&machine);
    let enforcer = match &options.enforce {
        Some(enforce) => Some(Enforcer::new(paths, enforce, options.observe, &machine, &shared, narrator)?),
        None => {
            enforcer::tidy(paths, &**narrator);
            None
        }
    };
    let budget = options.settings.penalty.budget;
    let server = Server::new(claim, SOCKET_LIMITS);
    let headline = format!(
        "process {} {} {} at {} by {} on CPUs {usable}",
        std::process::id(),
        if options.observe { "observes for" } else { "serves" },
        if reach == Reach::All { "all users" } else { "you" },
        server.path().display(),
        options.policy
    );
    let setup = RequestSetup {
        policy: options.policy.word().to_owned(),
        usable: usable.clone(),
        online: machine.cpus(),
        budget,
        pinned: options.pinned,
        guests: options.guests.clone(),
        declared: options.declared.clone(),
        reload,
        forget,
        observe: options.observe,
        metrics: metrics(offer, &**narrator)?,
        narrator: Arc::clone(narrator),
    };
    let resolver = Resolver { proc: proc.clone(), sys: paths.sys(), cgroups: paths.cgroups() };
    let requests = RequestServer::new(server, shared.clone(), resolver, reach, setup)?;
    let host = ServiceHost::new(live, shared.clone(), proc, budget, options.pinned, Arc::clone(narrator))
        .observing(options.observe);
    Ok(Ready { host, requests, shared, stopper, hung_up, machine, usable, headline, enforcer })
}

/// Begins to serve metrics at an address that was taken before.
fn metrics(offer: Option<Offer>, narrator: &dyn Narrator) -> Result<Option<Metrics>> {
    let metrics = offer.map(Metrics::begin).transpose()?;
    if let Some(metrics) = &metrics {
        narrator.headline(&format!("metrics: {}", metrics.address()));
    }
    Ok(metrics)
}

/// Makes the live machine, with nothing watched yet.
fn live(
    paths: &Paths,
    options: &ServiceOptions,
    claim: &Claim,
    usable: &CpuSet,
    narrator: &Arc<dyn Narrator>,
) -> Result<Live> {
    let moves = options.policy != Kind::Float && !options.observe;
    let keep = moves.then(|| restoration::keeper(paths, &**narrator)).flatten();
    let socket = std::path::absolute(claim.path()).unwrap_or_else(|_| claim.path().to_owned());
    let keep = keep.map(|keep| keep.serving(&socket));
    let options =
        HostOptions { keep, tags: true, counting: options.counting.clone(), ..HostOptions::default() };
    Ok(Live::with(&paths.proc(), &[], usable, options)?)
}

/// Returns the place of the socket.
///
/// # Errors
/// No place fits.
fn place(paths: &Paths, named: Option<&Path>) -> Result<Place, SocketError> {
    match named.or(paths.socket.as_deref()) {
        Some(path) => Place::named(path),
        None if geteuid().is_root() => Ok(Place::of_root(&paths.root)),
        None => Place::of_user(geteuid().as_raw(), paths.runtime.as_deref(), &paths.location()?),
    }
}

/// Answers requests in its own thread; its end ends the whole service.
fn answer(requests: RequestServer, stopper: Stopper) -> Result<JoinHandle<Result<()>>> {
    let work = move || last(&stopper, || requests.serve(&stopper));
    std::thread::Builder::new()
        .name("requests".to_owned())
        .spawn(work)
        .context("cannot start a thread (requests)")
}

/// Runs one half of the service, and ends the other when it ends, also by an error or a panic. With
/// only one half, the service would answer and move nothing, or never end.
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

/// Handles signals from now on, so that they do not end the process.
fn listen() -> Result<Signals> {
    let heard = [SIGINT, SIGTERM, SIGQUIT, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
    // A file that may not grow is an error and does not end the process.
    Signals::new(heard.chain([SIGXFSZ])).context("cannot listen for signals")
}

/// Ends the service at a signal, also at one that came before. Returns whether its terminal was
/// closed. For a service without a terminal, SIGHUP means to read the files of declared tags again,
/// as other services read their settings.
/// SIGINT and SIGQUIT come from a terminal, and end the tags too.
fn end_at(
    mut signals: Signals,
    stopper: Stopper,
    reload: Arc<AtomicBool>,
    forget: Arc<AtomicBool>,
) -> Result<Arc<AtomicBool>> {
    let hung_up = Arc::new(AtomicBool::new(false));
    let has_terminal = File::open("/dev/tty").is_ok();
    let closed = Arc::clone(&hung_up);
    spawn("signals", move || {
        for signal in signals.forever() {
            match signal {
                SIGXFSZ => {}
                SIGHUP if !has_terminal => reload.store(true, Ordering::Relaxed),
                _ => {
                    closed.fetch_or(signal == SIGHUP, Ordering::Relaxed);
                    forget.fetch_or([SIGINT, SIGQUIT].contains(&signal), Ordering::Relaxed);
                    stopper.stop();
                }
            }
        }
    })?;
    Ok(hung_up)
}

/// Notifies the service manager, if there is one.
fn tell_manager(paths: &Paths, state: &str) {
    if let Some(socket) = &paths.manager {
        // A manager that does not listen needs no message.
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
    fn the_end_of_either_thread_ends_the_other() {
        let works: [fn(); 2] = [|| (), || std::panic::resume_unwind(Box::new("it failed"))];
        for work in works {
            let options = HostOptions { tags: true, ..HostOptions::default() };
            let mut live = Live::with(Path::new("/proc"), &[], &CpuSet::new(), options).unwrap();
            let now = live.observe(&trimtab_core::balance::Wanted::all()).unwrap().at;
            assert_eq!(live.wait(now).unwrap(), Awake::Due);
            let stopper = live.stopper();
            // In a thread of its own, as requests are.
            let half = std::thread::spawn(move || last(&stopper, work));
            assert_eq!(live.wait(Moment(now.0 + Span::from_ms(60_000).0)).unwrap(), Awake::Over);
            let _ = half.join();
        }
    }
}
