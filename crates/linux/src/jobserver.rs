//! Pipe of a jobserver ([`trimtab_core::jobserver`]): made by the launcher, inherited by the
//! program and the build tools that it starts, kept up by the launcher.

use crate::launch::inherited;
use crate::process::{self, Pid, State, Tid};
use crate::text::{self, ReadError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, ioctl_fionread};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::jobserver::Form;

/// Byte that stands for a token. Tools write back what they read; GNU make writes this one.
const TOKEN: u8 = b'+';

/// Pipe of tokens.
#[derive(Debug)]
pub struct TokenPipe {
    reader: File,
    writer: File,
}

impl TokenPipe {
    /// Creates a pipe without tokens, which programs do not inherit yet.
    ///
    /// # Errors
    /// The kernel gives no descriptors.
    pub fn create() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let file = |end: OwnedFd| File::from(end);
        Ok(Self { reader: file(reader.into()), writer: file(writer.into()) })
    }

    /// Hands both ends to the program that this process becomes, and returns the text that names
    /// them to build tools.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn hand_over(&self, form: Form) -> io::Result<String> {
        let (reads, writes) = (inherited(&self.reader)?, inherited(&self.writer)?);
        Ok(form.auth(std::process::id(), reads.into_raw_fd(), writes.into_raw_fd()))
    }

    /// Adds tokens.
    ///
    /// # Errors
    /// The pipe cannot be written.
    pub fn add(&self, count: u32) -> io::Result<()> {
        (&self.writer).write_all(&vec![TOKEN; count as usize])
    }

    /// Returns the number of unclaimed tokens.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn unclaimed(&self) -> io::Result<u32> {
        Ok(u32::try_from(ioctl_fionread(&self.reader)?).unwrap_or(u32::MAX))
    }

    /// Returns another reader, which takes tokens without waiting for them. A flag of the inherited
    /// descriptors would concern all tools.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn taker(&self) -> io::Result<Taker> {
        let path = format!("/proc/self/fd/{}", self.reader.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(Taker(File::from(open(path, flags, Mode::empty())?)))
    }
}

/// Reader that takes tokens out of a pipe.
#[derive(Debug)]
pub struct Taker(File);

impl Taker {
    /// Takes up to `count` tokens as they become unclaimed, for as long as `patience` lasts, and
    /// returns how many it got. Tools that wait for tokens may be faster.
    pub fn take(&self, count: u32, patience: Duration) -> u32 {
        let begin = Instant::now();
        let mut taken = 0;
        while taken < count {
            let mut buffer = vec![0; (count - taken) as usize];
            match (&self.0).read(&mut buffer) {
                Ok(0) => return taken,
                Ok(read) => taken += u32::try_from(read).unwrap_or(0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = patience.saturating_sub(begin.elapsed());
                    let left = Timespec::try_from(left).ok().filter(|_| !left.is_zero());
                    let Some(left) = left else { return taken };
                    let waited = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left));
                    if waited.is_err_and(|error| error != Errno::INTR) {
                        return taken;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return taken,
            }
        }
        taken
    }
}

/// Counts the tasks of a process and of its descendants that compute or wait for a disk at this
/// instant. `None` if the kernel does not list children.
pub fn computing(proc: &Path, root: Pid) -> Option<u32> {
    let (mut count, mut rest) = (0, vec![root]);
    while let Some(pid) = rest.pop() {
        // It may have ended meanwhile.
        let Ok(stat) = process::stat(proc, pid) else { continue };
        let only = [pid.main_thread()];
        let threads =
            if stat.threads > 1 { process::threads(proc, pid).unwrap_or_default() } else { only.to_vec() };
        for tid in threads {
            let state = if stat.threads > 1 {
                process::thread_stat(proc, pid, tid).ok().map(|stat| stat.state)
            } else {
                Some(stat.state)
            };
            count += u32::from(matches!(state, Some(State::Running | State::Waiting)));
            match children(proc, pid, tid) {
                Ok(children) => rest.extend(children),
                Err(error) if error.is_gone() && process::thread_stat(proc, pid, tid).is_ok() => return None,
                Err(_) => {}
            }
        }
    }
    Some(count)
}

/// Lists the children that a thread started, or inherited from an ended thread.
fn children(proc: &Path, pid: Pid, tid: Tid) -> Result<Vec<Pid>, ReadError> {
    let text = text::read(&proc.join(format!("{pid}/task/{tid}/children")))?;
    Ok(text::words(&text).filter_map(text::number).map(Pid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tokens_are_counted_added_and_taken_and_an_empty_pipe_is_waited_for() {
        let pipe = TokenPipe::create().unwrap();
        let taker = pipe.taker().unwrap();
        assert_eq!((pipe.unclaimed().unwrap(), taker.take(1, Duration::ZERO)), (0, 0));
        pipe.add(3).unwrap();
        assert_eq!(pipe.unclaimed().unwrap(), 3);
        assert_eq!(taker.take(2, Duration::ZERO), 2);
        assert_eq!(taker.take(5, Duration::from_millis(1)), 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| taker.take(1, Duration::from_secs(60)));
            pipe.add(1).unwrap();
            assert_eq!(waits.join().unwrap(), 1);
        });
        pipe.add(0).unwrap();
        assert_eq!(pipe.unclaimed().unwrap(), 0);
    }

    #[test]
    fn both_forms_name_the_pipe_and_a_tools_flags_stay_its_own() {
        let pipe = TokenPipe::create().unwrap();
        let auth = pipe.hand_over(Form::Fifo).unwrap();
        let path = auth.strip_prefix("fifo:").unwrap();
        let opened = open(path, OFlags::RDWR | OFlags::NONBLOCK, Mode::empty()).unwrap();
        File::from(opened).write_all(b"+").unwrap();
        assert_eq!(pipe.unclaimed().unwrap(), 1);
        let flags = rustix::fs::fcntl_getfl(&pipe.reader).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK));
        let auth = pipe.hand_over(Form::Pipe).unwrap();
        let ends: Vec<i32> = auth.split(',').map(|end| end.parse().unwrap()).collect();
        let same = |end: i32| std::fs::read_link(format!("/proc/self/fd/{end}")).unwrap();
        assert_eq!(same(ends[0]), same(ends[1]));
        assert_eq!(same(ends[0]), same(pipe.reader.as_raw_fd()));
    }

    #[test]
    fn tasks_that_compute_are_counted_in_all_descendants() {
        let script = "while :; do :; done & while :; do :; done & sleep 1000 & echo ready; wait";
        let mut shell = Command::new("sh");
        let mut shell = shell.args(["-c", script]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut said = [0; 6];
        shell.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
        let count = computing(Path::new("/proc"), Pid(shell.id()));
        let group = rustix::process::Pid::from_child(&shell);
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        // The shell itself may be about to wait.
        assert!(matches!(count, Some(2..=4)), "{count:?}");
        assert_eq!(computing(Path::new("/proc"), Pid(shell.id())), Some(0), "it has ended");
    }

    use std::os::unix::process::CommandExt;
}
