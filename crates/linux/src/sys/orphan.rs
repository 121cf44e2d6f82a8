//! Start of a program that runs beside this process and is not its child.

use super::errno;
use rustix::io::Errno;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command};

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
