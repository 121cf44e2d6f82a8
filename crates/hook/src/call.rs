//! One call of a hook by libvirt or Proxmox VE.
//!
//! An engine waits for its hook without a limit, so a call ends by itself after a time. Every
//! failure leaves the guest without cores of its own, but lets it start; only a guest whose cores
//! are required is refused, at the one step where the engine can still leave it unstarted.

use crate::config::HookConfig;
use crate::domain::{self, DOMAIN_MAX};
use crate::engine::{HookEngine, HookStep};
use crate::host::{HookOutcome, ThisHost, configuration};
use crate::note;
use crate::proxmox;
use crate::shape::GuestShape;
use anyhow::{Context, Result, anyhow, bail};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use trimtab_agent::narrator::Narrator;
use trimtab_front::process_env::World;
use trimtab_hold::container::Pid;
use trimtab_linux::text::printable;

/// Time that a refused reservation may take beyond the limit of the call.
const MARGIN: Duration = Duration::from_millis(500);

/// A call.
#[derive(Clone, Debug)]
pub struct HookCall {
    /// The engine.
    pub engine: HookEngine,
    /// The words of the call.
    pub words: Vec<String>,
    /// The engine's process: the hold lasts until it ends, or the guest runs.
    pub engine_pid: Pid,
    /// File of the site's rules for guests; `None`: the usual one.
    pub config: Option<PathBuf>,
    /// The program that keeps holds.
    pub keeper: PathBuf,
    /// Longest time that the call may take.
    pub limit: Duration,
}

/// How a call ends for the guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The engine goes on.
    GoOn,
    /// The guest must not start.
    Refuse,
}

impl HookCall {
    /// Carries the call out, in its time.
    pub fn run(self, world: &(dyn Fn() -> World + Sync), narrator: &dyn Narrator) -> Verdict {
        let (name, step) = match self.engine.step(&self.words) {
            Ok((name, step)) => (name.to_owned(), step),
            Err(cause) => {
                narrator.warning(&cause);
                return Verdict::GoOn;
            }
        };
        if step == HookStep::Nothing {
            return Verdict::GoOn;
        }
        // Read before the other work, since a required guest is refused whatever happens in that.
        let config = configuration(&world(), self.config.as_deref());
        let required =
            step == HookStep::Reserve && config.as_ref().is_ok_and(|config| config.rule(&name).required);
        let shown = printable(name.as_bytes());
        let (limit, engine, root) = (self.limit, self.engine, world().root);
        let done = within(limit + MARGIN, {
            let world = world();
            let name = name.clone();
            move || self.step(&world, &name, step, config?)
        });
        let (lines, verdict) = match done {
            Some(Ok(HookOutcome::Done(lines))) => (lines, Verdict::GoOn),
            Some(Ok(HookOutcome::Without(reason))) => {
                (vec![format!("no cores of its own: {reason}")], Verdict::GoOn)
            }
            Some(Err(cause)) => refused(format!("{cause:#}"), required, &shown, narrator),
            None => {
                let cause = format!("trimtab was not ready after {} s", limit.as_secs_f32());
                refused(cause, required, &shown, narrator)
            }
        };
        lines.iter().for_each(|line| narrator.detail(&format!("{shown}: {line}")));
        let kept = match step {
            HookStep::Place => note::add(&root, engine, &name, &lines),
            _ => note::keep(&root, engine, &name, &lines),
        };
        if let Err(error) = kept {
            narrator.detail(&format!("the explanation of {shown} cannot be kept: {error}"));
        }
        verdict
    }

    /// Carries one step out.
    fn step(&self, world: &World, name: &str, step: HookStep, config: HookConfig) -> Result<HookOutcome> {
        let until = Instant::now() + self.limit;
        let host = ThisHost::new(world, self.keeper.clone(), self.engine, config)?;
        match step {
            HookStep::Reserve => {
                let guest = self.guest(world, name)?;
                Ok(host.reserve(name, &guest, self.engine_pid, until)?)
            }
            HookStep::Place => {
                if host.kept(name)?.is_empty() {
                    return Ok(HookOutcome::Done(Vec::new())); // told when it was not reserved
                }
                let process = self.process(world, name)?;
                host.place(name, &self.guest(world, name)?, process)
            }
            HookStep::Renew => {
                let (process, guest) = (self.process(world, name)?, self.guest(world, name)?);
                renew(&host, name, &guest, process, until)
            }
            HookStep::Release => {
                let had = host.release(name)?;
                let line = if had { "its cores are free again" } else { "it had no cores of its own" };
                Ok(HookOutcome::Done(vec![line.to_owned()]))
            }
            HookStep::Nothing => Ok(HookOutcome::Done(Vec::new())),
        }
    }

    /// Reads the shape of the guest from the engine.
    fn guest(&self, world: &World, name: &str) -> Result<GuestShape> {
        let shape = match self.engine {
            HookEngine::Libvirt => {
                let xml = bounded(std::io::stdin(), DOMAIN_MAX).context("the domain cannot be read")?;
                domain::shape(&xml)
            }
            HookEngine::Proxmox => {
                let path = proxmox::file(&world.root, name);
                let read =
                    File::open(&path).map_err(Into::into).and_then(|file| bounded(file, proxmox::CONFIG_MAX));
                proxmox::shape(&read.with_context(|| format!("cannot read {}", path.display()))?)
            }
            HookEngine::Incus => bail!("Incus calls no hook"),
        };
        shape.map_err(|cause| anyhow!(printable(cause.as_bytes())))
    }

    /// Returns the process of the guest, which the engine has noted.
    fn process(&self, world: &World, name: &str) -> Result<Pid> {
        let files = self.engine.pid_files(&world.root, name);
        let path = files.iter().find(|path| path.exists()).or(files.last());
        let path = path.context("the engine notes no process")?;
        let text = File::open(path).map_err(Into::into).and_then(|file| bounded(file, 64));
        let text =
            text.with_context(|| format!("cannot read {}", printable(path.as_os_str().as_encoded_bytes())))?;
        let number = text.trim().parse().ok().filter(|number| *number > 1);
        number.map(Pid).with_context(|| {
            format!("{} has no number of a process", printable(path.as_os_str().as_encoded_bytes()))
        })
    }
}

/// Gives a guest that runs already its cores, if it has none.
///
/// # Errors
/// There are not enough free cores, or its threads cannot be bound.
pub(crate) fn renew(
    host: &ThisHost,
    name: &str,
    guest: &GuestShape,
    process: Pid,
    until: Instant,
) -> Result<HookOutcome> {
    if host.kept(name)?.iter().any(|kept| kept.is_of(process)) {
        return Ok(HookOutcome::Done(vec!["it has its cores".to_owned()]));
    }
    // The hold is this process's for the moment until it is handed over.
    let mut lines = match host.reserve(name, guest, Pid::own(), until)? {
        HookOutcome::Done(lines) => lines,
        without => return Ok(without),
    };
    match host.place(name, guest, process)? {
        HookOutcome::Done(more) => lines.extend(more),
        without => return Ok(without),
    }
    Ok(HookOutcome::Done(lines))
}

/// Returns the explanation and the verdict after a failure.
fn refused(cause: String, required: bool, shown: &str, narrator: &dyn Narrator) -> (Vec<String>, Verdict) {
    if required {
        narrator.alert(&format!("{shown} needs cores of its own (required in hook.toml): {cause}"));
        return (vec![format!("refused: {cause}")], Verdict::Refuse);
    }
    narrator.warning(&format!("{shown} runs without cores of its own: {cause}"));
    (vec![format!("no cores of its own: {cause}")], Verdict::GoOn)
}

/// Runs work in a thread of its own, and returns its result; `None` if that takes longer. The
/// thread is left behind, and ends with the process.
fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = mpsc::channel();
    thread::Builder::new().spawn(move || drop(done.send(work()))).ok()?;
    result.recv_timeout(limit).ok()
}

/// Reads a text of bounded length.
fn bounded(from: impl Read, most: u64) -> Result<String> {
    let mut text = String::new();
    from.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        bail!("it has more than {most} bytes");
    }
    Ok(text)
}

/// Returns the process that called this one, or the nearest one before it that is the engine's: a
/// site may call the hook from a script of its own.
pub fn caller(proc: &Path, engine: HookEngine, first: Pid) -> Pid {
    let names: &[&str] = match engine {
        HookEngine::Libvirt => &["libvirtd", "virtqemud"],
        HookEngine::Proxmox | HookEngine::Incus => &[],
    };
    let mut at = first;
    for _ in 0..16 {
        let Ok(stat) = trimtab_linux::process::stat(proc, at) else { break };
        if names.contains(&stat.comm.as_str()) {
            return at;
        }
        if stat.parent.0 <= 1 {
            break;
        }
        at = stat.parent;
    }
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use trimtab_agent::narrator::Severity;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Narrator for Heard {
        fn say(&self, level: Severity, line: &str) {
            self.0.lock().unwrap().push(format!("{level:?} {line}"));
        }
    }

    fn call(folder: &Path, words: &str) -> HookCall {
        HookCall {
            engine: HookEngine::Proxmox,
            words: words.split(' ').map(str::to_owned).collect(),
            engine_pid: Pid::own(),
            config: Some(folder.join("hook.toml")),
            keeper: "/nowhere/trimtab-lab".into(),
            limit: Duration::from_secs(60),
        }
    }

    #[test]
    fn a_failure_refuses_required_guests_only_and_only_before_their_start() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().to_owned();
        std::fs::write(folder.join("hook.toml"), "[[guest]]\nname = \"7\"\nrequired = true\n").unwrap();
        let world = || {
            let mut world = World::current();
            world.root.clone_from(&folder);
            world
        };
        for (words, expected) in [
            ("7 pre-start", Verdict::Refuse),
            ("8 pre-start", Verdict::GoOn),
            ("7 post-start", Verdict::GoOn),
            ("7 post-stop", Verdict::GoOn),
            ("7 pre-stop", Verdict::GoOn),
            ("x pre-start", Verdict::GoOn),
        ] {
            let heard = Heard::default();
            assert_eq!(call(&folder, words).run(&world, &heard), expected, "{words}");
            let said = heard.0.into_inner().unwrap();
            assert_eq!(said.is_empty(), words == "7 pre-stop", "{words}: {said:?}");
        }
        // The rules cannot be used: which guests are required is unknown, and they start.
        std::fs::write(folder.join("hook.toml"), "nonsense").unwrap();
        let heard = Heard::default();
        assert_eq!(call(&folder, "7 pre-start").run(&world, &heard), Verdict::GoOn);
        assert!(heard.0.into_inner().unwrap()[0].contains("hook.toml"));
    }

    #[test]
    fn work_that_takes_too_long_is_left_behind() {
        let (hold, released) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(10), move || released.recv());
        assert_eq!(late, None);
        drop(hold);
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
    }

    #[test]
    fn a_text_is_bounded() {
        assert_eq!(bounded(&b"12345"[..], 5).unwrap(), "12345");
        assert!(bounded(&b"123456"[..], 5).is_err());
        assert!(bounded(&b"\xff"[..], 5).is_err());
        assert!(bounded(std::io::repeat(b'x'), 5).is_err());
    }

    #[test]
    fn the_caller_is_the_given_process_where_no_engine_is_found() {
        let own = Pid::own();
        assert_eq!(caller(Path::new("/proc"), HookEngine::Libvirt, own), own);
        assert_eq!(caller(Path::new("/nowhere"), HookEngine::Proxmox, own), own);
    }
}
