//! A program that runs as our child, with a parent that behaves towards other processes like the
//! program.
//!
//! Problem: a process that observes a program must stay beside it, and a parent between the shell
//! and the program is visible: the parent gets the signals, the terminal stops it, and the shell
//! reports its status.
//!
//! Idea: the parent stays in the program's process group, touches neither the terminal nor the
//! program's input, and passes on every event of either process to the other.
//!
//! - The parent forwards a signal that another process sends to it. A signal of the terminal
//!   reaches the whole group, so the program has it already. The hang-up of a terminal is an
//!   exception: it goes to the session leader alone, so a parent that leads the session forwards
//!   it.
//! - The parent forwards the signals that the kernel sends to it alone because of something that
//!   was set up for the program. The timers (`alarm`) become the program's.
//! - When the program is stopped, the parent stops itself with the same signal, so that the shell
//!   sees a stopped job. When the parent is continued, the program continues.
//! - The parent exits with the program's status. If a signal killed the program, the parent dies of
//!   the same signal, without a second core file.
//! - If the parent is killed, the program continues: it does not depend on the parent.
//!
//! Limit: a signal that another process sends to the whole group (`kill -TERM -GROUP`) reaches the
//! program twice, directly and through the parent, because a signal does not say how it was
//! addressed. Most programs end at the first one.
//!
//! Source: the rules are those of `sudo` and of `setpriv`-like wrappers, as seen from outside.

use crate::process::Pid;
use crate::sys::fork::{self, ForkSide};
use crate::sys::signals::{self, Inherited, ReceivedSignal, Sender};
use crate::sys::timers::Timers;
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus, getpid, getsid, waitid};
use std::io::{self, PipeReader, PipeWriter, Write};

/// The side of the fork that this process has become.
#[derive(Debug)]
pub enum Two {
    /// The process that will become the program. Its parent reads the lines sent through the
    /// [`Word`] until the exec.
    Program(Word),
    /// The process that stays as the parent.
    Parent(Child),
}

/// Sender of lines from the future program to its parent. The exec closes it.
#[derive(Debug)]
pub struct Word(PipeWriter);

impl Word {
    /// Sends a line. A parent that has ended is not an error: the program runs without it.
    pub fn say(&mut self, line: &str) {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }
}

/// How a program ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It exited with this status.
    Exited(u8),
    /// This signal killed it.
    Killed(i32),
}

impl End {
    /// Returns the status that shells show: 128 plus the number for a signal.
    pub fn status(self) -> u8 {
        match self {
            Self::Exited(status) => status,
            Self::Killed(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// Ends this process the same way. Returns the status to exit with if the end was not a signal,
    /// or if the signal does not end this process (the first process of a container).
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
    /// This process stopped together with the program, and has not seen it continue since.
    asleep: bool,
}

/// Forks this process. From here on the parent gets signals only in [`Child::attend`].
///
/// # Errors
/// No pipe or no process is available.
pub fn two() -> io::Result<Two> {
    let (reader, writer) = io::pipe()?;
    let inherited: Inherited = signals::block()?;
    // A deadline that was set for the program belongs to the program. One that passed just now is
    // forwarded as a signal.
    let timers = Timers::take();
    match fork::fork() {
        Ok(ForkSide::Child) => {
            drop(reader);
            timers.set();
            inherited.restore();
            Ok(Two::Program(Word(writer)))
        }
        Ok(ForkSide::Parent(child)) => {
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
    /// Returns the program's process id.
    pub fn pid(&self) -> Pid {
        Pid(self.pid.as_raw_nonzero().get().unsigned_abs())
    }

    /// Returns the reading end of the [`Word`], once. It ends when the program has begun, or could
    /// not.
    pub fn word(&mut self) -> Option<PipeReader> {
        self.word.take()
    }

    /// Forwards signals and follows stops until the program has ended. Does not collect it: the
    /// kernel's data on it can still be read. Calls `let_go` when the function [`let_go`] asks for
    /// it.
    ///
    /// # Errors
    /// The kernel does not let us wait.
    pub fn attend(&mut self, mut let_go: impl FnMut()) -> io::Result<()> {
        loop {
            if self.changes()? {
                return Ok(());
            }
            let came = signals::next()?;
            if came.number == SIG_TERM && came.word == Some(LET_GO) {
                let_go();
            } else if came.number != SIG_CHLD && self.is_for_program(came) {
                // The program may have ended meanwhile, or run as another user, to whom this
                // process may not send signals.
                let _ = signals::send(self.pid().0, came.number);
            }
        }
    }

    /// Collects the program after its end, and returns how it ended.
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

    /// Follows the program through stops and continuations. Returns whether it has ended.
    fn changes(&mut self) -> io::Result<bool> {
        loop {
            let changed = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pid(self.pid), changed) {
                Ok(Some(status)) => match status.stopping_signal() {
                    Some(signal) => {
                        self.stopped = true;
                        // If the program has continued meanwhile, nothing would continue this
                        // process.
                        let on = WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                        if waitid(WaitId::Pid(self.pid), on).is_ok_and(|status| status.is_none()) {
                            self.asleep = true;
                            signals::stop(signal);
                        }
                    }
                    None => self.stopped = false,
                },
                Ok(None) => break,
                // Only if the child is not visible any more, which cannot happen before it is
                // collected.
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

    /// Returns whether a signal that this process received was meant for the program, and the
    /// program has not received it by itself.
    fn is_for_program(&mut self, came: ReceivedSignal) -> bool {
        let own = getpid();
        match came.sender {
            // This process sent it to itself.
            Sender::Process(pid) if Some(pid) == u32::try_from(own.as_raw_nonzero().get()).ok() => false,
            Sender::Process(_) if came.number == SIG_CONT => {
                // A program that was continued together with us needs no second signal; a program
                // that is still stopped needs one.
                let woken = std::mem::take(&mut self.asleep);
                self.stopped || !woken
            }
            Sender::Process(_) => true,
            // A hang-up, and the continuation that goes with it, are sent to the session leader
            // alone. Timers and descriptors that were set up before the fork to signal this very
            // process are the program's.
            Sender::Kernel if FOR_ONE.contains(&came.number) => true,
            Sender::Kernel => {
                (came.number == SIG_HUP || came.number == SIG_CONT)
                    && getsid(None).is_ok_and(|leader| leader == own)
            }
        }
    }
}

/// Asks a process that balances to stop balancing. If it runs a program of its own, the program
/// continues.
///
/// A process that only balances ends (as by any SIGTERM). A parent that forwards each SIGTERM to
/// its program recognises this one by the word queued with it.
///
/// # Errors
/// `ESRCH` when the process has ended, `EPERM` when it belongs to another user.
pub fn let_go(balancer: Pid) -> Result<(), Errno> {
    signals::queue(balancer.0, SIG_TERM, LET_GO)
}

/// Word queued with a SIGTERM that is not for the program: `let go` in letters.
const LET_GO: usize = 0x6c65_7420_676f;

/// Numbers of the signals that are treated specially.
const SIG_HUP: i32 = rustix::process::Signal::HUP.as_raw();
const SIG_CONT: i32 = rustix::process::Signal::CONT.as_raw();
const SIG_TERM: i32 = rustix::process::Signal::TERM.as_raw();
const SIG_CHLD: i32 = rustix::process::Signal::CHILD.as_raw();
/// Signals that the kernel sends to one process only, and never because of an action of that
/// process: from timers, and from descriptors with an owner.
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
    fn signals_of_the_kernel_to_us_alone_are_passed_on_and_those_to_the_group_are_not() {
        let pid = getpid();
        let mut child = Child { pid, word: None, stopped: false, asleep: false };
        let mut is_for_program =
            |number, sender| child.is_for_program(ReceivedSignal { number, sender, word: None });
        for number in [libc::SIGALRM, libc::SIGVTALRM, libc::SIGPROF, libc::SIGIO, libc::SIGURG] {
            assert!(is_for_program(number, Sender::Kernel), "{number}");
        }
        for number in
            [libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP, libc::SIGTTIN, libc::SIGWINCH, libc::SIGXCPU]
        {
            assert!(!is_for_program(number, Sender::Kernel), "{number}");
            assert!(is_for_program(number, Sender::Process(0)), "{number}");
        }
        let own = u32::try_from(pid.as_raw_nonzero().get()).unwrap();
        assert!(!is_for_program(libc::SIGTERM, Sender::Process(own)), "what we did to ourselves");
    }
}
