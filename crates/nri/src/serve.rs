//! The plug-in's life: connect to the runtime, serve until the connection ends, and again.

use crate::config::Config;
use crate::figures::Figures;
use crate::link::Link;
use crate::message::{Empty, RegisterPlugin};
use crate::node::ThisNode;
use crate::session::Session;
use crate::upkeep;
use anyhow::{Context, Result, bail};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use trimtab_agent::metrics::{Address, Metrics};
use trimtab_agent::narrator::Narrator;
use trimtab_front::process_env::World;
use trimtab_hold::container::Pid;
use trimtab_hold::site_facts::HOLD;
use trimtab_linux::sys::peer;

/// The runtime's socket, unless it is configured otherwise.
pub const SOCKET: &str = "/var/run/nri/nri.sock";
/// Name of the configuration beside the site's rules.
pub const CONFIG: &str = "nri.toml";
/// Name of the plug-in.
const NAME: &str = "trimtab";
/// Longest wait for the runtime's answer to the registration.
const REGISTRATION_MAX: Duration = Duration::from_secs(5);
/// Time between two attempts to connect.
const RECONNECT: Duration = Duration::from_secs(1);
/// Time after which the reason of failed attempts is repeated.
const REPEAT: Duration = Duration::from_secs(60);

/// What the plug-in is started with.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The runtime's socket.
    pub socket: PathBuf,
    /// Position among the plug-ins, two digits.
    pub index: String,
    /// File of the configuration; `None`: [`CONFIG`] beside the site's rules, if it exists.
    pub config: Option<PathBuf>,
    /// Address at which figures are offered.
    pub metrics: Option<Address>,
    /// The program that keeps holds.
    pub keeper: PathBuf,
    /// Whether to end with the first connection.
    pub once: bool,
}

/// Reads the configuration.
///
/// # Errors
/// The file cannot be read or used.
pub fn configuration(world: &World, file: Option<&Path>) -> Result<Config> {
    let beside = || world.config().into_iter().map(|folder| folder.join(CONFIG)).find(|path| path.exists());
    let Some(path) = file.map(Path::to_owned).or_else(beside) else { return Ok(Config::default()) };
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    text.parse().map_err(|cause| anyhow::anyhow!("{}: {cause}", path.display()))
}

/// Serves the runtime until this process is ended.
///
/// # Errors
/// The configuration cannot be used, or, if it serves once, the connection fails.
pub fn serve(world: &dyn Fn() -> World, options: &ServeOptions, narrator: &Arc<dyn Narrator>) -> Result<()> {
    if options.index.len() != 2 || !options.index.bytes().all(|digit| digit.is_ascii_digit()) {
        bail!("the index \"{}\" is not two digits", options.index);
    }
    // A fault is told at once, not when a runtime connects.
    configuration(&world(), options.config.as_deref())?;
    let page = options.metrics.as_ref().map(Metrics::serve).transpose()?.map(Arc::new);
    let figures = Arc::new(Figures::default());
    figures.show(page.as_deref());
    let mut told: Option<(String, Instant)> = None;
    loop {
        let done = connection(world(), options, &figures, page.clone(), narrator);
        if options.once {
            return done;
        }
        let line = match done {
            Ok(()) => "the runtime closed the connection; trying to connect again".to_owned(),
            Err(error) => format!("{error:#}; trying again"),
        };
        if told.as_ref().is_none_or(|(last, at)| *last != line || at.elapsed() >= REPEAT) {
            narrator.notice(&line);
            told = Some((line, Instant::now()));
        }
        thread::sleep(RECONNECT);
    }
}

/// Serves one connection.
fn connection(
    world: World,
    options: &ServeOptions,
    figures: &Arc<Figures>,
    page: Option<Arc<Metrics>>,
    narrator: &Arc<dyn Narrator>,
) -> Result<()> {
    let config = configuration(&world, options.config.as_deref())?;
    let socket = UnixStream::connect(&options.socket).with_context(|| {
        format!("cannot connect to {}: is NRI enabled in the runtime?", options.socket.display())
    })?;
    let credentials = peer::credentials(&socket).context("the runtime's process is unknown")?;
    let engine = credentials.pid.context(
        "the runtime is in a process namespace that is not visible here: run the plug-in with hostPID",
    )?;
    let link = Link::new(socket).context("the connection cannot be used")?;
    // The plug-in is in no hold, although a process for which it holds cores may have started it.
    let world = world.with_variable(HOLD, "");
    let node = ThisNode { world, keeper: options.keeper.clone(), engine: Pid(engine) };
    let (figures, narrator) = (Arc::clone(figures), Arc::clone(narrator));
    let session = Arc::new(Session::new(node, Arc::clone(&link), config, figures, page, narrator));
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let served = link.run(&|call| session.take(call));
            session.end();
            served
        });
        let plugin = RegisterPlugin { plugin_name: NAME.to_owned(), plugin_idx: options.index.clone() };
        let registered = link.call::<Empty>("RegisterPlugin", &plugin, REGISTRATION_MAX);
        if let Err(error) = registered {
            link.close();
            session.end();
            return Err(anyhow::Error::new(error).context("the runtime does not register the plug-in"));
        }
        Figures::count(&session.figures.connections);
        session.narrator.notice(&format!("registered with the runtime (PID {engine})"));
        upkeep::run(&session);
        match reader.join() {
            Ok(served) => Ok(served?),
            Err(_) => bail!("the reader of the connection failed"),
        }
    })
}
