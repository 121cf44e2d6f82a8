//! Start of a program that runs beside this process and is not its child.

use super::errno;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command};

/// Longest wait for a program that was started to be ready. It ends later only if the machine is
/// so busy that the program does not run, or if a process that was forked meanwhile has a copy of
/// the pipe.
const READY_WAIT_MAX: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Starts a program as an orphan in a session of its own: it is neither a child that this process
/// or its shell would see, nor in the group that a terminal signals. Returns the ends of the pipes
/// to its standard input and output, if the command has them.
///
/// # Errors
/// No process is available, or the program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<(Option<ChildStdin>, Option<ChildStdout>)> {
    // SAFETY: the closure runs in the child between fork and exec. It makes system calls only,
    // allocates nothing and takes no lock: fork(2) and setsid(2) are safe there, and `_exit` ends
    // the process in between without running anything of this program.
    let mut child = unsafe { command.pre_exec(detach) }.spawn()?;
    // Taken before the wait, which closes the pipe to the input.
    let pipes = (child.stdin.take(), child.stdout.take());
    // Collects the intermediate process, which ended after it had forked the program's process. If
    // SIGCHLD is ignored, the kernel keeps no ended children and it is gone already.
    let _ = child.wait();
    Ok(pipes)
}

/// Starts a program as [`spawn`] does, and waits until it is ready: until it closes the descriptors
/// that it has no use for ([`close_from`]), or has ended.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_ready(mut command: Command) -> io::Result<()> {
    let (ready, open) = io::pipe()?;
    let copy = open.try_clone()?;
    // SAFETY: the closure runs in the child between fork and exec; it makes one system call.
    unsafe { command.pre_exec(move || Ok(fcntl_setfd(&copy, FdFlags::empty())?)) };
    spawn(&mut command)?;
    // The command owns a copy of the end that the program closes.
    drop(command);
    drop(open);
    // Readiness is a courtesy to the caller: a wait that fails leaves a program that runs.
    let _ = poll(&mut [PollFd::new(&ready, PollFlags::IN)], Some(&READY_WAIT_MAX));
    Ok(())
}

/// Forks again: the grandchild becomes the program.
fn detach() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory; the caller is a child of one thread, as after
    // any fork.
    match unsafe { libc::fork() } {
        -1 => return Err(errno::last().into()),
        0 => {}
        // SAFETY: ends this process at once; nothing of it is used after.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: takes nothing and touches no memory. A process that was just made leads no group, so
    // the call cannot fail.
    unsafe { libc::setsid() };
    Ok(())
}

/// Closes all descriptors from this number on. None of them may be in use by this process.
///
/// # Errors
/// Only if the kernel (before 5.9) has no such call and the descriptors cannot be listed.
pub fn close_from(first: u32) -> Result<(), Errno> {
    let (last, flags) = (libc::c_uint::MAX, 0);
    // SAFETY: takes integers only. The caller guarantees that nothing in this process owns one of
    // these descriptors.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if answer == 0 {
        return Ok(());
    }
    let listed = std::fs::read_dir("/proc/self/fd").map_err(|_| Errno::NOSYS)?;
    let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let open: Vec<u32> = numbers.filter(|number| *number >= first).collect();
    for number in open {
        // SAFETY: as above. The descriptor of the list itself is closed already; closing it again
        // is an error that does no harm in a process of one thread.
        unsafe { libc::close(number.cast_signed()) };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_waited_for_until_it_closes_its_descriptors() {
        let folder = tempfile::tempdir().unwrap();
        let done = folder.path().join("done");
        let mut command = Command::new("/bin/sh");
        // The shell has the pipe until it ends.
        command.args(["-c", "sleep 0.3; : > \"$0\""]).arg(&done);
        spawn_ready(command).unwrap();
        assert!(done.exists());
    }

    #[test]
    fn a_program_that_does_not_exist_is_an_error() {
        assert!(spawn_ready(Command::new("/nowhere/program")).is_err());
    }
}
