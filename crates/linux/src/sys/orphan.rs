//! A program that runs beside this process and is no child of it.

use super::errno;
use rustix::io::Errno;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command};

/// Starts a program as an orphan in a session of its own: neither a child that this process or its shell would see, nor in the group that
/// a terminal signals. What comes back are the ends of the pipes to its standard input and output, where the command has such.
///
/// # Errors
/// No process can be had, or the program cannot be started.
pub fn spawn(command: &mut Command) -> io::Result<(Option<ChildStdin>, Option<ChildStdout>)> {
    // SAFETY: the closure runs in the child between fork and exec. It makes system calls only, allocates nothing and takes no lock: fork(2)
    // and setsid(2) are safe there, and `_exit` ends the process in between without running anything of this program.
    let mut child = unsafe { command.pre_exec(detach) }.spawn()?;
    // Before the wait, which closes the first of them.
    let pipes = (child.stdin.take(), child.stdout.take());
    // For the process in between, which ended when the program's own had been made. Where children are not kept (SIGCHLD ignored) it is gone.
    let _ = child.wait();
    Ok(pipes)
}

/// Leaves the family: the process that goes on is the grandchild.
fn detach() -> io::Result<()> {
    // SAFETY: takes nothing and touches no memory; the caller is a child of one thread, as after any fork.
    match unsafe { libc::fork() } {
        -1 => return Err(errno::last().into()),
        0 => {}
        // SAFETY: ends this process at once; nothing of it is used after.
        _ => unsafe { libc::_exit(0) },
    }
    // SAFETY: takes nothing and touches no memory. A process that was just made leads no group, so it cannot fail.
    unsafe { libc::setsid() };
    Ok(())
}

/// Closes all descriptors from this number on. None of them may be in use by this process.
///
/// # Errors
/// Only where the kernel (before 5.9) has no such call and the descriptors cannot be listed.
pub fn close_from(first: u32) -> Result<(), Errno> {
    let (last, flags) = (libc::c_uint::MAX, 0);
    // SAFETY: takes integers only. The caller says that no descriptor of these is owned by anything in this process.
    let answer = unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
    if answer == 0 {
        return Ok(());
    }
    let listed = std::fs::read_dir("/proc/self/fd").map_err(|_| Errno::NOSYS)?;
    let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let open: Vec<u32> = numbers.filter(|number| *number >= first).collect();
    for number in open {
        // SAFETY: as above; the one of the list itself is closed already, which is an error and does no harm in a process of one thread.
        unsafe { libc::close(number.cast_signed()) };
    }
    Ok(())
}
