//! Line about the result, at the exit of a process for which the user asked for it.

use super::patch;
use crate::{objects, plan, standard_error};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Why nothing more is done.
static FAILURE: Mutex<Option<&'static str>> = Mutex::new(None);

/// The process that reports. A forked child has the counts of its parent.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Records why loops are left alone.
pub(super) fn fail(why: &'static str) {
    if let Ok(mut failure) = FAILURE.try_lock() {
        *failure = Some(why);
    }
}

/// Registers the lines for when the process ends by itself.
pub(super) fn at_exit() {
    extern "C" fn at_end() {
        plan::guarded(|| {
            write();
            Some(())
        });
    }
    PROCESS.store(std::process::id(), Relaxed);
    standard_error::remember();
    // SAFETY: `at_end` lives as long as the process, the library being `nodelete`.
    unsafe { libc::atexit(at_end) };
}

/// Writes a line for each loop. A process that never had more threads than CPUs writes none.
fn write() {
    if PROCESS.load(Relaxed) != std::process::id() {
        return;
    }
    if let Some(why) = FAILURE.try_lock().ok().and_then(|failure| *failure) {
        standard_error::write(format!("trimtab: --spin yield: loops were left alone: {why}\n").as_bytes());
    }
    for known in patch::loops() {
        let jump = known.jump.load(Relaxed);
        let (file, offset) = place(jump);
        let text = if known.changed.load(Relaxed) == 1 {
            format!("yielded {} times", known.yields.load(Relaxed))
        } else {
            "was left alone: there is no room near it".to_owned()
        };
        let line = format!("trimtab: --spin yield: the wait loop at {file}+{offset:#x} {text}\n");
        standard_error::write(line.as_bytes());
    }
}

/// Returns the name of the object at an address, and the address relative to the object.
fn place(address: u64) -> (String, u64) {
    let found = objects::visit(|object| {
        if !object.holds(address as usize) {
            return ControlFlow::Continue(());
        }
        let name = String::from_utf8_lossy(object.file()).into_owned();
        ControlFlow::Break((name, address - object.range().start as u64))
    });
    let (name, offset) = found.unwrap_or_default();
    if name.is_empty() { ("the program".to_owned(), offset) } else { (name, offset) }
}
