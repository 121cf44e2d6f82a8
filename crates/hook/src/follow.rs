//! `trimtab hook incus`: follows the events of Incus, which calls no hook.
//!
//! A guest gets its cores when Incus announces that it runs, and loses them when its process ends.
//! The events are those of `incus monitor`; each time it is started, the guests that run already
//! are read. An Incus that ends, hangs or sends nonsense costs guests their placement only.

use crate::call::renew;
use crate::engine::HookEngine;
use crate::host::{HookOutcome, ThisHost, configuration};
use crate::incus::{ANSWER_MAX, IncusEvent, RunningGuest, event, process, running, shape};
use crate::note;
use anyhow::{Context, Result, anyhow, bail};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_agent::narrator::Narrator;
use trimtab_front::process_env::World;
use trimtab_hold::container::Pid;
use trimtab_linux::text::printable;

/// Longest event.
const LINE_MAX: u64 = 1 << 20;
/// Time between two attempts to follow the events.
const AGAIN: Duration = Duration::from_secs(1);
/// Time after which the same line is told again.
const REPEAT: Duration = Duration::from_secs(60);

/// What the follower is started with.
#[derive(Clone, Debug)]
pub struct FollowOptions {
    /// The client of Incus.
    pub client: OsString,
    /// File of the site's rules for guests; `None`: the usual one.
    pub config: Option<PathBuf>,
    /// The program that keeps holds.
    pub keeper: PathBuf,
    /// Longest time for one guest.
    pub limit: Duration,
    /// Whether to end when the events end.
    pub once: bool,
}

/// Follows the events until this process is ended.
///
/// # Errors
/// The configuration cannot be used, or, if it follows once, the events end by a fault.
pub fn follow(world: &dyn Fn() -> World, options: &FollowOptions, narrator: &dyn Narrator) -> Result<()> {
    // A fault is told at once, not when a guest starts.
    configuration(&world(), options.config.as_deref())?;
    let mut told: Option<(String, Instant)> = None;
    loop {
        let done = events(world, options, narrator);
        if options.once {
            return done;
        }
        let line = match done {
            Ok(()) => "Incus sends no more events; trying again".to_owned(),
            Err(error) => format!("{error:#}; trying again"),
        };
        if told.as_ref().is_none_or(|(last, at)| *last != line || at.elapsed() >= REPEAT) {
            narrator.notice(&line);
            told = Some((line, Instant::now()));
        }
        thread::sleep(AGAIN);
    }
}

/// Follows the events of one run of the client.
fn events(world: &dyn Fn() -> World, options: &FollowOptions, narrator: &dyn Narrator) -> Result<()> {
    let mut monitor = Monitor::start(options)?;
    // After the events are followed, so that no guest is missed.
    let all = Instances { world, options, narrator };
    all.place_running(None);
    while let Some(line) = monitor.line()? {
        match event(&line) {
            Ok(Some(IncusEvent::Started(guest))) => all.place_running(Some(&guest.full_name())),
            Ok(Some(IncusEvent::Ended(guest))) => all.ended(&guest.full_name()),
            Ok(None) => {}
            Err(cause) => narrator.warning(&printable(cause.as_bytes())),
        }
    }
    Ok(())
}

/// The client that prints events.
struct Monitor {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Monitor {
    fn start(options: &FollowOptions) -> Result<Self> {
        let mut command = Command::new(&options.client);
        command.args(["monitor", "--type=lifecycle", "--format=json", "--all-projects"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command
            .spawn()
            .with_context(|| format!("cannot start {}", printable(options.client.as_encoded_bytes())))?;
        let out = child.stdout.take().context("the client has no output")?;
        Ok(Self { child, lines: BufReader::new(out) })
    }

    /// Returns the next line; `None` at the end.
    fn line(&mut self) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        let read = self.lines.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes);
        if read.context("the events of Incus cannot be read")? == 0 {
            return Ok(None);
        }
        if bytes.last() != Some(&b'\n') && bytes.len() as u64 == LINE_MAX {
            bail!("Incus sent an event of more than {LINE_MAX} bytes");
        }
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The instances of Incus.
struct Instances<'a> {
    world: &'a dyn Fn() -> World,
    options: &'a FollowOptions,
    narrator: &'a dyn Narrator,
}

impl Instances<'_> {
    /// Gives the guests that run their cores: all, or the one of this name.
    fn place_running(&self, only: Option<&str>) {
        let listed = self.query("/1.0/instances?recursion=1&all-projects=true");
        let found =
            listed.and_then(|text| running(&text).map_err(|cause| anyhow!(printable(cause.as_bytes()))));
        match found {
            Err(cause) => self.narrator.warning(&format!("guests run without cores of their own: {cause:#}")),
            Ok(all) => {
                let wanted = |one: &&RunningGuest| only.is_none_or(|name| one.guest.full_name() == name);
                all.iter().filter(wanted).for_each(|one| self.place(one));
            }
        }
    }

    fn place(&self, running: &RunningGuest) {
        let name = running.guest.full_name();
        let shown = printable(name.as_bytes());
        let lines = match self.placed(running, &name) {
            Ok(HookOutcome::Done(lines)) => {
                self.narrator.notice(&format!("{shown}: {}", lines.first().map_or("", String::as_str)));
                lines
            }
            Ok(HookOutcome::Without(reason)) => vec![format!("no cores of its own: {reason}")],
            Err(cause) => {
                self.narrator.warning(&format!("{shown} runs without cores of its own: {cause:#}"));
                vec![format!("no cores of its own: {cause:#}")]
            }
        };
        self.explain(&name, &lines);
    }

    fn placed(&self, running: &RunningGuest, name: &str) -> Result<HookOutcome> {
        let text = self.query(&running.guest.state_path())?;
        let pid = process(&text).map_err(|cause| anyhow!(printable(cause.as_bytes())))?;
        let Some(pid) = pid.map(Pid) else { return Ok(HookOutcome::Without("it has ended".to_owned())) };
        let host = self.host()?;
        let vcpus = host.virtual_machine(pid)?.vcpus.len();
        let until = Instant::now() + self.options.limit;
        renew(&host, name, &shape(vcpus, running.own.clone()), pid, until)
    }

    /// The kernel has told the keeper of the end: the explanation remains to be changed.
    fn ended(&self, name: &str) {
        let released = self.host().and_then(|host| host.release(name));
        match released {
            Ok(_) => self.explain(name, &["its cores are free again".to_owned()]),
            Err(cause) => self.narrator.warning(&format!("{}: {cause:#}", printable(name.as_bytes()))),
        }
    }

    fn host(&self) -> Result<ThisHost> {
        let world = (self.world)();
        let config = configuration(&world, self.options.config.as_deref())?;
        ThisHost::new(&world, self.options.keeper.clone(), HookEngine::Incus, config)
    }

    fn query(&self, path: &str) -> Result<String> {
        crate::outside::output(&self.options.client, &["query", path], self.options.limit, ANSWER_MAX)
    }

    fn explain(&self, name: &str, lines: &[String]) {
        if let Err(error) = note::keep(&(self.world)().root, HookEngine::Incus, name, lines) {
            self.narrator.detail(&format!("an explanation cannot be kept: {error}"));
        }
    }
}
