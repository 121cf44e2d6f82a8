//! Entry into a program without the standard library's preparations.
//!
//! Problem: before `main` the standard library reads this process's map of memory and installs
//! handlers, so that an overflow of the stack is reported in words. That is 16 system calls of
//! every launch. Idea: the C library enters [`run`] instead, which keeps the other preparations:
//! descriptors 0 to 2 are open, SIGPIPE does not end the program, a panic ends it with status 101,
//! and standard output is flushed at the end. An overflow of the stack ends the program by SIGSEGV,
//! without words.
//!
//! SIGPIPE gets a handler without effect, where the standard library ignores the signal: the next
//! program gets the default action from the kernel, and a launcher need not restore it.

use std::ffi::c_int;
use std::process;

/// Status of a program that ended by a panic; the standard library has the same.
const PANIC_STATUS: c_int = 101;

/// Makes a function that returns an exit status the program's entry. The file says `#![no_main]`.
#[macro_export]
macro_rules! entry {
    ($main:path) => {
        // SAFETY: no other function of the program has this name, and the C library, which calls it
        // once, expects this signature.
        #[unsafe(no_mangle)]
        extern "C" fn main(_: ::std::ffi::c_int, _: *const *const ::std::ffi::c_char) -> ::std::ffi::c_int {
            $crate::sys::entry::run($main)
        }
    };
}

/// Runs a program and ends this process with its status. To be called by [`entry!`](crate::entry)
/// alone.
pub fn run(main: fn() -> u8) -> c_int {
    open_standard_streams();
    survive_broken_pipes();
    let status = std::panic::catch_unwind(main).map_or(PANIC_STATUS, c_int::from);
    process::exit(status)
}

/// Makes writing into a pipe without readers an error only. If the caller of this program had the
/// signal ignored, it stays so, here and in the next program.
fn survive_broken_pipes() {
    extern "C" fn nothing(_: c_int) {}
    let handler = nothing as extern "C" fn(c_int) as libc::sighandler_t;
    // SAFETY: the handler does nothing, and ignoring a signal is always valid.
    unsafe {
        if libc::signal(libc::SIGPIPE, handler) == libc::SIG_IGN {
            libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        }
    }
    super::exec::leave_sigpipe();
}

/// Opens the descriptors 0 to 2 that are closed. Otherwise the next file that is opened would get
/// such a number, and messages would be written into it.
fn open_standard_streams() {
    let mut streams = [0, 1, 2].map(|fd| libc::pollfd { fd, events: 0, revents: 0 });
    // SAFETY: the kernel reads and writes the three values of the live array, and keeps no
    // reference.
    let answer = unsafe { libc::poll(streams.as_mut_ptr(), 3, 0) };
    for stream in streams {
        let is_closed = match answer {
            // The call failed.
            // SAFETY: this asks for flags of a number, which need not be open.
            -1 => unsafe { libc::fcntl(stream.fd, libc::F_GETFD) == -1 },
            _ => stream.revents & libc::POLLNVAL != 0,
        };
        // SAFETY: a C string. The kernel gives the lowest number that is free, which is this one.
        if is_closed && unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) } == -1 {
            process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the exit status of a forked process that closes its standard streams, has this
    /// action for SIGPIPE and enters `main`; `None` if a signal ended it.
    fn status_of(action: libc::sighandler_t, main: fn() -> u8) -> Option<c_int> {
        // SAFETY: the child allocates, which the C library allows after a fork, and takes no lock
        // that another thread may hold: a panic prints nothing there.
        let child = unsafe { libc::fork() };
        if child == 0 {
            std::panic::set_hook(Box::new(|_| {}));
            for stream in 0..3 {
                // SAFETY: this process has no other use for the number.
                unsafe { libc::close(stream) };
            }
            // SAFETY: both calls are always valid. The runner ignores SIGPIPE, and the child would
            // inherit it.
            unsafe {
                libc::signal(libc::SIGPIPE, action);
                libc::alarm(60);
            }
            run(main);
        }
        let mut status = 0;
        // SAFETY: the call writes one number to valid memory.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
    }

    /// Returns the number of the first preparation that is missing; 0 if none is.
    fn missing_preparation() -> u8 {
        for stream in 0..3_u8 {
            // SAFETY: this asks for flags of a number, which need not be open.
            if unsafe { libc::fcntl(stream.into(), libc::F_GETFD) } == -1 {
                return 1 + stream;
            }
        }
        let Ok((reader, writer)) = std::io::pipe() else { return 4 };
        drop(reader);
        if rustix::io::write(&writer, b"x") == Err(rustix::io::Errno::PIPE) { 0 } else { 5 }
    }

    /// Becomes a shell that sends itself SIGPIPE; returns if that fails.
    fn shell_with_broken_pipe() -> u8 {
        let words = [c"sh", c"-c", c"kill -PIPE $$; exit 42"].map(std::ffi::CStr::to_owned);
        super::super::exec::execve(c"/bin/sh", &words, &[]);
        1
    }

    #[test]
    fn streams_are_open_a_broken_pipe_is_an_error_and_a_panic_has_its_status() {
        let default = libc::SIG_DFL;
        assert_eq!(status_of(default, missing_preparation), Some(0));
        assert_eq!(status_of(libc::SIG_IGN, missing_preparation), Some(0));
        assert_eq!(status_of(default, || 42), Some(42));
        assert_eq!(status_of(default, || panic!("on purpose")), Some(PANIC_STATUS));
    }

    #[test]
    fn the_next_program_has_the_action_for_broken_pipes_that_this_one_was_given() {
        assert_eq!(status_of(libc::SIG_DFL, shell_with_broken_pipe), None);
        assert_eq!(status_of(libc::SIG_IGN, shell_with_broken_pipe), Some(42));
    }
}
