//! Samples of the instruction addresses of threads, written by the kernel into memory.
//!
//! A software event of the kernel counts the time that a thread is on a CPU. Each half millisecond
//! of it the kernel writes the address of the thread's next instruction into memory, but only if it
//! interrupted the program's own code. The thread is not signalled and does not notice.

use super::system;
use libc::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// Time of a thread between two samples, in nanoseconds. Chosen: three threads of four in a window
/// of [`trimtab_core::spin::tuning::WINDOW_US`] give several samples each.
const PERIOD_NS: u64 = 500_000;
/// Most threads that are sampled at the same time. Each needs two pages.
const THREADS_MAX: usize = 16;
const PAGE: usize = 4096;
/// Positions, in bytes, of words in the first page: where the kernel writes next.
const HEAD_AT: usize = 1024;

/// Attributes of an event in the form of 2010, which all kernels accept.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample: u64,
    read: u64,
    flags: u64,
    wake: u32,
    breakpoint: u32,
    more: u64,
}

/// Event of one thread with the memory for its samples.
struct ThreadSamples {
    file: c_int,
    memory: *mut c_void,
}

impl ThreadSamples {
    fn open(thread: u32) -> Option<Self> {
        const SOFTWARE: u32 = 1;
        const TASK_CLOCK: u64 = 1;
        const ADDRESS: u64 = 1;
        // Neither the kernel's code nor the hypervisor's.
        const USER_ONLY: u64 = 1 << 5 | 1 << 6;
        const CLOSED_BY_EXEC: u64 = 1 << 3;
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: TASK_CLOCK,
            period: PERIOD_NS,
            sample: ADDRESS,
            flags: USER_ONLY,
            ..Attributes::default()
        };
        // SAFETY: attributes of the stated size; -1 is any CPU, and no group.
        let file = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, thread, -1, -1, CLOSED_BY_EXEC)
        };
        let file = c_int::try_from(file).ok().filter(|&file| file >= 0)?;
        // SAFETY: a new mapping of the event's memory: a page of positions and one of samples.
        let memory = unsafe {
            libc::mmap(null_mut(), 2 * PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, file, 0)
        };
        if memory == libc::MAP_FAILED {
            system::close(file);
            return None;
        }
        Some(Self { file, memory })
    }

    /// Calls `each` with the addresses of all samples.
    fn for_each(&self, mut each: impl FnMut(u64)) {
        const SAMPLE: u32 = 9;
        const WORDS: usize = PAGE / 8;
        let base: *const AtomicU64 = self.memory.cast();
        // SAFETY: the mapping has this word, and the kernel writes it as a whole.
        let head = unsafe { &*base.add(HEAD_AT / 8) }.load(Acquire);
        // SAFETY: the mapping's second page; the kernel may write it, and any value is valid.
        let word = |at: u64| unsafe { &*base.add(WORDS + at as usize % WORDS) }.load(Relaxed);
        let end = head / 8;
        let mut at = 0;
        // The kernel stops at the end of the page, as nothing takes samples out.
        while at < end && at < WORDS as u64 {
            let header = word(at);
            let size = (header >> 48) / 8;
            if header as u32 == SAMPLE && size == 2 {
                each(word(at + 1));
            }
            at += size.max(1);
        }
    }
}

impl Drop for ThreadSamples {
    fn drop(&mut self) {
        // SAFETY: mapped by `open`, and not used again.
        unsafe { libc::munmap(self.memory, 2 * PAGE) };
        system::close(self.file);
    }
}

/// Threads that are being sampled.
pub(super) struct Samples {
    events: [Option<ThreadSamples>; THREADS_MAX],
}

impl Samples {
    /// Starts to sample the threads of this process but the calling one. If there are many, each
    /// call takes others. Returns `None` if the kernel permits no sampling.
    pub(super) fn begin(own: u32, turn: &mut usize) -> Option<Self> {
        let mut threads = [0u32; 256];
        let mut count = 0;
        system::for_each_thread(|thread| {
            if thread != own
                && let Some(to) = threads.get_mut(count)
            {
                *to = thread;
                count += 1;
            }
        });
        let mut made = Self { events: [const { None }; THREADS_MAX] };
        for event in made.events.iter_mut().take(count) {
            *event = threads.get(*turn % count).and_then(|&thread| ThreadSamples::open(thread));
            *turn += 1;
        }
        made.events.iter().any(Option::is_some).then_some(made)
    }

    /// Calls `each` with the addresses of all samples so far, thread by thread.
    pub(super) fn for_each(&self, mut each: impl FnMut(usize, u64)) {
        for (at, event) in self.events.iter().enumerate() {
            if let Some(event) = event {
                event.for_each(|address| each(at, address));
            }
        }
    }
}
