//! Virtual machines: scripted ones of every monitor, hostile sockets, and real guests of QEMU if it
//! is installed. Nothing here asserts a time.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]
#![allow(clippy::unwrap_used, reason = "all of it is test")]

macro_rules! need {
    ($what:expr, $why:expr) => {
        match $what {
            Some(found) => found,
            None => {
                eprintln!("SKIPPED: {}", $why);
                return;
            }
        }
    };
}

mod guest;
mod hostile;
mod live;
mod paper;
mod qemu;
