//! A program as our child that looks, to whoever started us, as if it were us.
//!
//! Problem: whoever watches a program while it runs must stay, and a parent in between is seen: it gets the signals, the
//! terminal stops it, its status is what the shell reports. Idea: stay in the program's process group, touch neither the
//! terminal nor the program's input, and hand on what happens to either of the two.
//!
//! - A signal that another process sends to us is handed on. One that the terminal sends reaches the whole group, so the
//!   program has it already; but the hang-up of a terminal goes to the leader of the session alone, and is handed on by one.
//! - What the kernel sends to us alone because of something that was set up for the program is handed on; its timers
//!   (`alarm`) become the program's.
//! - When the program is stopped, we stop by the same signal, so that the shell sees a stopped job; continued, it goes on.
//! - Its status is ours; killed by a signal, we die of the same, without a second core file.
//! - Killed ourselves, the program goes on: nothing ties its life to ours.
//!
//! Limit: a signal that another process sends to the whole group (`kill -TERM -GROUP`) reaches the program twice, from there
//! and from us: a signal does not say how it was addressed. Most runs end at the first one.
//!
//! Source: the rules are those of `sudo` and of `setpriv`-like wrappers, as seen from outside.

use crate::process::Pid;
use crate::sys::fork::{self, Side};
use crate::sys::signals::{self, Came, Inherited, Sender};
use crate::sys::timers::Timers;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, getpid, getsid, waitid};
use std::io::{self, PipeReader, PipeWriter, Write};

/// Which of the two this process has become.
#[derive(Debug)]
pub enum Two {
    /// The one that will be the program. What it says here its parent reads, until it execs.
    Program(Word),
    /// The one that stays.
    Parent(Child),
}

/// What the program-to-be says to its parent before it execs, which ends it.
#[derive(Debug)]
pub struct Word(PipeWriter);

impl Word {
    /// Says a line. A parent that is gone is no error: the program runs without.
    pub fn say(&mut self, line: &str) {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By itself, with this status.
    Exited(u8),
    /// By this signal.
    Killed(i32),
}

impl End {
    /// As shells show it.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// Ends this process the same way; returns the status to exit with where it was no signal (or one that does not end us,
    /// as the first process of a container).
    pub fn hand_on(self) -> u8 {
        if let Self::Killed(signal) = self {
            signals::die(signal);
        }
        self.status()
    }
}

/// A program that runs.
#[derive(Debug)]
pub struct Child {
    pid: rustix::process::Pid,
    word: Option<PipeReader>,
    stopped: bool,
    /// We stopped with it, and have not heard of a continuation since.
    asleep: bool,
}

/// Makes two processes of this one. From here on the parent gets signals only in [`Child::attend`].
///
/// # Errors
/// No pipe or no process can be had.
pub fn two() -> io::Result<Two> {
    let (reader, writer) = io::pipe()?;
    let inherited: Inherited = signals::block()?;
    // A deadline that was set for the program is the program's. One that passed just now is handed on as a signal.
    let timers = Timers::take();
    match fork::fork() {
        Ok(Side::Child) => {
            drop(reader);
            timers.set();
            inherited.restore();
            Ok(Two::Program(Word(writer)))
        }
        Ok(Side::Parent(child)) => {
            let raw = i32::try_from(child).ok().and_then(rustix::process::Pid::from_raw);
            let pid = raw.ok_or(Errno::SRCH)?;
            Ok(Two::Parent(Child { pid, word: Some(reader), stopped: false, asleep: false }))
        }
        Err(error) => {
            timers.set();
            inherited.restore();
            Err(error.into())
        }
    }
}

impl Child {
    /// Its process.
    pub fn pid(&self) -> Pid {
        Pid(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Where its [`Word`] is read: ends when the program has begun, or could not. Once.
    pub fn word(&mut self) -> Option<PipeReader> {
        self.word.take()
    }

    /// Stands in for the program until it has ended. It is not collected yet: what the kernel knows of it can be read still.
    /// `let_go` is called when [`let_go`] asks for it.
    ///
    /// # Errors
    /// The kernel does not let us wait.
    pub fn attend(&mut self, mut let_go: impl FnMut()) -> io::Result<()> {
        loop {
            if self.changes()? {
                return Ok(());
            }
            let came = signals::next()?;
            if came.number == TERM && came.word == Some(LET_GO) {
                let_go();
            } else if came.number != CHILD && self.is_for_it(came) {
                // It may have ended meanwhile, or become another user's, whose signals are not ours to send.
                let _ = signals::send(self.pid().0, came.number);
            }
        }
    }

    /// Collects the program after its end, and says what that was.
    ///
    /// # Errors
    /// The kernel does not let us wait.
    pub fn collect(self) -> io::Result<End> {
        loop {
            match waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED) {
                Ok(Some(status)) => return Ok(end(&status)),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Follows it through stops and continuations. Whether it has ended.
    fn changes(&mut self) -> io::Result<bool> {
        loop {
            let changed = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pid(self.pid), changed) {
                Ok(Some(status)) => match status.stopping_signal() {
                    Some(signal) => {
                        self.stopped = true;
                        // Continued meanwhile, there is nobody who would continue us.
                        let on = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                        if waitid(WaitId::Pid(self.pid), on).is_ok_and(|status| status.is_none()) {
                            self.asleep = true;
                            signals::stop(signal);
                        }
                    }
                    None => self.stopped = false,
                },
                Ok(None) => break,
                // Only if it is to be seen nowhere any more; it cannot be while we have not collected it.
                Err(Errno::CHILD) => break,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        match waitid(WaitId::Pid(self.pid), ended) {
            Ok(status) => Ok(status.is_some()),
            Err(Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a signal that came to us was meant for the program, and the program has not got it by itself.
    fn is_for_it(&mut self, came: Came) -> bool {
        let own = getpid();
        match came.sender {
            // What this process did to itself.
            Sender::Process(pid) if Some(pid) == u32::try_from(own.as_raw_nonzero().get()).ok() => false,
            Sender::Process(_) if came.number == CONT => {
                // Continued together with us, it needs no second one; left behind, it does.
                let woken = std::mem::take(&mut self.asleep);
                self.stopped || !woken
            }
            Sender::Process(_) => true,
            // A hang-up, and the continuation that goes with it, are sent to the leader of the session alone.
            // Timers and descriptors that were set up before us to signal this very process are the program's.
            Sender::Kernel if FOR_ONE.contains(&came.number) => true,
            Sender::Kernel => {
                (came.number == HUP || came.number == CONT) && getsid(None).is_ok_and(|leader| leader == own)
            }
        }
    }
}

/// Asks a process that balances to stop that: a program of its own it keeps.
///
/// To one that only balances it is the end (SIGTERM, as any); a parent that would hand a SIGTERM on to its program knows this one by the
/// word that comes with it.
///
/// # Errors
/// `ESRCH` when there is no such process any more, `EPERM` when it is somebody else's.
pub fn let_go(balancer: Pid) -> Result<(), Errno> {
    signals::queue(balancer.0, TERM, LET_GO)
}

/// Comes with a SIGTERM that is not for the program: `let go` in letters.
const LET_GO: usize = 0x6c65_7420_676f;

/// The numbers of the signals that are treated in their own way.
const HUP: i32 = rustix::process::Signal::HUP.as_raw();
const CONT: i32 = rustix::process::Signal::CONT.as_raw();
const TERM: i32 = rustix::process::Signal::TERM.as_raw();
const CHILD: i32 = rustix::process::Signal::CHILD.as_raw();
/// What the kernel sends to one process only, and never because of what that process did: timers, descriptors with an owner.
const FOR_ONE: [i32; 5] = [
    rustix::process::Signal::ALARM.as_raw(),
    rustix::process::Signal::VTALARM.as_raw(),
    rustix::process::Signal::PROF.as_raw(),
    rustix::process::Signal::IO.as_raw(),
    rustix::process::Signal::URG.as_raw(),
];

fn end(status: &WaitIdStatus) -> End {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(status), _) => End::Exited(u8::try_from(status & 0xff).unwrap_or(u8::MAX)),
        (None, Some(signal)) => End::Killed(signal),
        (None, None) => End::Exited(u8::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_sends_to_us_alone_is_for_the_program_and_what_it_sends_to_the_group_is_not() {
        let pid = getpid();
        let mut child = Child { pid, word: None, stopped: false, asleep: false };
        let mut is_for_it = |number, sender| child.is_for_it(Came { number, sender, word: None });
        for number in [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGIO, libc::SIGURG] {
            assert!(is_for_it(number, Sender::Kernel), "{number}");
        }
        for number in
            [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGWINCH, libc::SIGXCPU]
        {
            assert!(!is_for_it(number, Sender::Kernel), "{number}");
            assert!(is_for_it(number, Sender::Process(0)), "{number}");
        }
        let own = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
        assert!(!is_for_it(libc::SIGTERM, Sender::Process(own)), "what we did to ourselves");
    }
}
