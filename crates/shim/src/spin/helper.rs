//! The helper: a thread of this library that finds wait loops while the process has more threads
//! than CPUs.

use super::patch::{self, Memory};
use super::sampler::Samples;
use super::{CPUS, HELPED, ON, THREADS, report, system};
use crate::ticks::monotonic_ns;
use crate::{errno, plan, real};
use libc::c_void;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::atomic::Ordering::*;
use trimtab_core::spin::{Seen, Watch};

/// Starts the helper. Returns whether there is one.
pub(super) fn start() -> bool {
    errno::kept(|| {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        let mut thread = MaybeUninit::uninit();
        let mut attr = MaybeUninit::uninit();
        // SAFETY: each object is initialised by the call that gets it first; the new thread
        // inherits the signals that are blocked here, and this thread's are put back.
        unsafe {
            if libc::pthread_attr_init(attr.as_mut_ptr()) != 0 {
                return false;
            }
            libc::pthread_attr_setdetachstate(attr.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
            libc::sigfillset(all.as_mut_ptr());
            if libc::sigprocmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) != 0 {
                return false;
            }
            let made =
                real::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), run as *const c_void, null_mut());
            libc::sigprocmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
            libc::pthread_attr_destroy(attr.as_mut_ptr());
            made == 0
        }
    })
}

extern "C-unwind" fn run(_: *mut c_void) -> *mut c_void {
    let again = plan::guarded(|| Some(watch())).unwrap_or(false);
    patch::set_yielding(false);
    if again {
        HELPED.store(false, Release);
    } else {
        ON.store(false, Release);
    }
    null_mut()
}

/// Watches the process until its threads are no longer more than its CPUs. Returns whether a helper
/// can be started again.
fn watch() -> bool {
    // SAFETY: a C string of less than 16 bytes.
    unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_NAME, c"trimtab-spin".as_ptr()) };
    if let Some(plan) = plan::current() {
        plan.mask().confine_this_thread();
    }
    if !system::leave_descriptors() {
        report::fail("the kernel has no close_range (Linux 5.9)");
        return false;
    }
    let Some(memory) = Memory::open() else {
        report::fail("the memory file of the process cannot be opened for writing");
        return false;
    };
    // SAFETY: takes nothing.
    let own = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let filter = system::filter_mode();
    let (mut watch, mut turn, mut found) = (Watch::new(), 0, 0);
    loop {
        let threads = threads();
        let seen = Seen {
            now_us: monotonic_ns() / 1000,
            threads,
            cpus: CPUS.load(Relaxed),
            switches: system::switches(),
            found,
        };
        let step = watch.step(seen);
        // A filter that the program has set since may end a process that yields.
        if system::filter_mode() != filter {
            report::fail("the program filters its system calls");
            return false;
        }
        patch::set_yielding(step.yields);
        let Some(next_us) = step.next_us else {
            THREADS.store(threads.max(1), Relaxed);
            return true;
        };
        found = 0;
        // A debugger would show code that is not in the file.
        if !step.samples || is_traced() {
            system::sleep_us(next_us);
        } else {
            let Some(samples) = Samples::begin(own, &mut turn) else {
                report::fail(
                    "the kernel permits no sampling (kernel.perf_event_paranoid above 2, or a container)",
                );
                return false;
            };
            system::sleep_us(next_us);
            found = look(&memory, &samples);
            if found > 0 {
                patch::set_yielding(step.yields);
            }
        }
    }
}

/// Examines all places where threads were seen. Returns how many loops were found.
fn look(memory: &Memory, samples: &Samples) -> u32 {
    let (mut found, mut last) = (0, 0);
    samples.for_each(|_, address| {
        if address != last {
            last = address;
            found += u32::from(memory.examine(address).is_some());
        }
    });
    found
}

/// Returns the number of threads of this process but this one, from its `stat` file.
fn threads() -> u32 {
    const FIELD: usize = 20;
    let mut room = [0; 512];
    let text = system::read_file(b"/proc/self/stat\0", &mut room).unwrap_or_default();
    // The name, field 2, may contain spaces and brackets.
    let rest = text.iter().rposition(|&byte| byte == b')').and_then(|end| text.get(end + 2..));
    let field = rest.and_then(|rest| rest.split(|&byte| byte == b' ').nth(FIELD - 3));
    let count = field.and_then(|field| std::str::from_utf8(field).ok()?.parse::<u32>().ok());
    count.unwrap_or(1).saturating_sub(1)
}

/// Returns whether a debugger is attached, or whether that is unknown.
fn is_traced() -> bool {
    let mut room = [0; 2048];
    let text = system::read_file(b"/proc/self/status\0", &mut room).unwrap_or_default();
    let mut lines = text.split(|&byte| byte == b'\n');
    let tracer = lines.find_map(|line| line.strip_prefix(b"TracerPid:\t"));
    tracer != Some(b"0")
}
