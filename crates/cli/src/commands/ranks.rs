//! `trimtab run --ranks N`: N processes of a program as the ranks of one team, without MPI.
//!
//! Each rank is a `trimtab run` process, whose environment contains its rank and N, as with an MPI
//! launcher. The ranks share one allotment; each takes its part and becomes the program. Only the
//! parent is new: it makes the team's segment, passes its descriptor on, and stays until all ranks
//! have ended.
//!
//! - The first rank that fails is named, and its status is the run's. The other ranks get an error
//!   from the team; those that have not ended after the grace period get SIGTERM, and SIGKILL after
//!   another one.
//! - SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to all ranks. The ranks get an
//!   interrupt of the terminal directly.
//! - Standard input belongs to rank 0. Output is inherited, unless each line is to begin with the
//!   rank.

use crate::args::RunArgs;
use crate::exit::{self, Exit};
use anyhow::{Context, Result, anyhow};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use trimtab_team::segment::meet::keep_over_exec;
use trimtab_team::{Options, Team};

/// Variables that the ranks of torchrun get, too.
const RANK_VARIABLES: [&str; 4] = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"];

/// Seconds that the other ranks have to end after a rank failed. Chosen: enough to write their
/// results.
const GRACE_DEFAULT_S: u32 = 5;

/// Starts the ranks and stays until all have ended.
///
/// # Errors
/// [`exit::RUN_FAILED`] when they cannot be started; the status of the first rank that failed.
pub(super) fn run(args: &RunArgs, ranks: u32) -> Result<u8, Exit> {
    let failed = |cause: anyhow::Error| Exit::new(exit::RUN_FAILED, cause);
    let mut post = Post::listen().map_err(failed)?;
    let mut all = start(args, ranks).map_err(failed)?;
    let ended =
        all.attend(&mut post, Duration::from_secs(u64::from(args.run.grace.unwrap_or(GRACE_DEFAULT_S))));
    let lines = std::mem::take(&mut all.lines);
    drop(all);
    for thread in lines {
        let _ = thread.join();
    }
    match ended.map_err(failed)? {
        None => Ok(exit::DONE),
        Some((rank, status)) => {
            let (how, status) = end_of(status);
            Err(Exit::new(status, anyhow!("rank {rank} {how}")))
        }
    }
}

/// Describes how a rank ended, with the status that a shell shows.
fn end_of(status: ExitStatus) -> (String, u8) {
    match (status.code(), status.signal()) {
        (Some(code), _) => {
            (format!("ended with status {code}"), u8::try_from(code).unwrap_or(exit::RUN_FAILED))
        }
        (None, Some(signal)) => (format!("was killed by signal {signal}"), exit::by_signal(signal)),
        (None, None) => (status.to_string(), exit::RUN_FAILED),
    }
}

/// The running ranks. Ranks that have not ended are killed on drop.
struct Ranks {
    running: Vec<(u32, Child)>,
    lines: Vec<JoinHandle<()>>,
}

fn start(args: &RunArgs, ranks: u32) -> Result<Ranks> {
    let program = std::env::current_exe().context("cannot find trimtab itself")?;
    // The same command line; its first word is the name of the command.
    let words = std::env::args_os().skip(2);
    let words: Vec<OsString> = ["run", "--as-rank"].map(OsString::from).into_iter().chain(words).collect();
    let mut options = Options::new(ranks);
    if let Some(heap) = args.run.heap {
        options.heap = usize::try_from(heap.0).context("--heap")?;
    }
    let team = Team::new(options).context("cannot allocate the team's memory")?;
    keep_over_exec(team.fd())?;
    let mut all = Ranks { running: Vec::new(), lines: Vec::new() };
    for rank in 0..ranks {
        let (name, value) = team.invitation(rank);
        let mut command = Command::new(&program);
        // Another program's job name would be mistaken for the name of this job.
        command.args(&words).env(name, value).env_remove("TORCHELASTIC_RUN_ID");
        for (at, name) in RANK_VARIABLES.iter().enumerate() {
            command.env(name, if at < 2 { rank } else { ranks }.to_string());
        }
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        if args.run.prefix {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let mut child = command.spawn().with_context(|| format!("rank {rank} cannot be started"))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        all.running.push((rank, child));
        if let Some(out) = out {
            all.lines.push(begin_lines(rank, out, std::io::stdout)?);
        }
        if let Some(err) = err {
            all.lines.push(begin_lines(rank, err, std::io::stderr)?);
        }
    }
    Ok(all)
}

/// Copies lines of a rank, each with the rank's number in front. Lines of ranks do not mix.
fn begin_lines<W: Write>(
    rank: u32,
    from: impl Read + Send + 'static,
    to: impl Fn() -> W + Send + 'static,
) -> Result<JoinHandle<()>> {
    let work = move || {
        let (mut from, mut line) = (BufReader::new(from), Vec::new());
        let head = format!("[{rank}] ");
        loop {
            line.clear();
            line.extend_from_slice(head.as_bytes());
            match from.read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if line.last() != Some(&b'\n') {
                line.push(b'\n');
            }
            let mut to = to();
            // The reader may have gone. The rank must notice that, as without this copy.
            if to.write_all(&line).and_then(|()| to.flush()).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("lines".to_owned()).spawn(work).context("cannot start a thread")
}

impl Ranks {
    /// Waits for all ranks, and returns the rank that failed first.
    fn attend(&mut self, post: &mut Post, grace: Duration) -> Result<Option<(u32, ExitStatus)>> {
        let mut first: Option<(u32, ExitStatus)> = None;
        // When the remaining ranks are signalled, and with which signal.
        let mut next: Option<(Instant, Signal)> = None;
        loop {
            let mut failed = Vec::new();
            let mut trouble = None;
            self.running.retain_mut(|(rank, child)| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) => {
                    if !status.success() {
                        failed.push((*rank, status));
                    }
                    false
                }
                Err(error) => {
                    trouble = Some(error);
                    false
                }
            });
            if let Some(error) = trouble {
                return Err(error).context("cannot wait for the ranks");
            }
            if let Some(&one) = failed.first().filter(|_| first.is_none()) {
                first = Some(one);
                next = Some((Instant::now() + grace, Signal::TERM));
            }
            if self.running.is_empty() {
                return Ok(first);
            }
            if let Some((when, signal)) = next.filter(|(when, _)| Instant::now() >= *when) {
                self.signal(signal);
                next = Some((when + grace.max(Duration::from_millis(100)), Signal::KILL));
            }
            let left = next.map(|(when, _)| when.saturating_duration_since(Instant::now()));
            for signal in post.wait(left)? {
                self.signal(signal);
            }
        }
    }

    fn signal(&self, signal: Signal) {
        for (_, child) in &self.running {
            // The child was not waited for, so its number cannot belong to another process.
            let _ = kill_process(Pid::from_child(child), signal);
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        for (_, child) in &mut self.running {
            let _ = child.wait();
        }
    }
}

/// Signal receiver: one pipe per signal, so that waiting needs no polling.
struct Post {
    signals: Vec<(Option<Signal>, UnixStream)>,
}

impl Post {
    fn listen() -> Result<Self> {
        let heard = [
            (SIGCHLD, None),
            (SIGINT, Some(Signal::INT)),
            (SIGTERM, Some(Signal::TERM)),
            (SIGHUP, Some(Signal::HUP)),
            (SIGUSR1, Some(Signal::USR1)),
            (SIGUSR2, Some(Signal::USR2)),
        ];
        let mut signals = Vec::new();
        for (number, signal) in heard {
            let (read, write) = UnixStream::pair().context("cannot listen for signals")?;
            read.set_nonblocking(true).context("cannot listen for signals")?;
            signal_hook::low_level::pipe::register(number, write).context("cannot listen for signals")?;
            signals.push((signal, read));
        }
        Ok(Self { signals })
    }

    /// Waits until a signal arrives, at most `most`. Returns the signals to pass on.
    fn wait(&mut self, most: Option<Duration>) -> Result<Vec<Signal>> {
        let mut ready: Vec<PollFd<'_>> =
            self.signals.iter().map(|(_, read)| PollFd::new(read, PollFlags::IN)).collect();
        // A little longer, so that the deadline has passed when this returns.
        let most = most.map(|most| most + Duration::from_millis(1));
        let most = most.map(|most| Timespec {
            tv_sec: i64::try_from(most.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(most.subsec_nanos()),
        });
        match poll(&mut ready, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for the ranks"),
        }
        let mut came = Vec::new();
        for (signal, read) in &mut self.signals {
            let mut bytes = [0; 64];
            let heard = matches!(read.read(&mut bytes), Ok(count) if count > 0);
            came.extend(signal.filter(|signal| heard && !(*signal == Signal::INT && in_foreground())));
        }
        Ok(came)
    }
}

/// Returns whether the terminal sends its interrupts to both this process and its ranks.
fn in_foreground() -> bool {
    let foreground = || tcgetpgrp(File::open("/dev/tty").ok()?).ok();
    foreground() == Some(getpgrp())
}
