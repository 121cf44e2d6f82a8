//! Copies that leave the caches to others.

/// Copies memory that nobody on this core reads soon: past the caches where the processor can, so that they keep what they have and no
/// line is fetched only to be overwritten. Copies that fit the last cache are slower by it; and the C library's plain copy goes past the caches
/// by itself from some size on, so where this one pays is to be measured, not assumed.
///
/// What it wrote is seen by whoever sees a later store of this thread, as it is with a plain copy: stores past the caches are not in
/// order with others by themselves, and are fenced before this returns.
///
/// # Safety
/// As [`std::ptr::copy_nonoverlapping`] for `bytes` bytes: both are valid, do not overlap, and nobody else writes either meanwhile.
pub unsafe fn stream_copy(to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        lines(to, from, bytes);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        std::ptr::copy_nonoverlapping(from, to, bytes);
    }
}

/// What is written at once: whole lines, else the processor writes parts of them to memory one by one.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const LINE: usize = 64;

/// # Safety
/// As [`stream_copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn lines(to: *mut u8, from: *const u8, bytes: usize) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let head = to.align_offset(LINE).min(bytes);
    let tail = (bytes - head) % LINE;
    let end = bytes - tail;
    // SAFETY: head, lines and tail are `bytes` bytes together, for which both are valid by the caller's promise; `to` is aligned to lines
    // from `head` on. SSE2 is part of x86-64.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to, head);
        let mut at = head;
        while at < end {
            let (from, to) = (from.add(at).cast(), to.add(at).cast());
            let line = [
                _mm_loadu_si128(from),
                _mm_loadu_si128(from.add(1)),
                _mm_loadu_si128(from.add(2)),
                _mm_loadu_si128(from.add(3)),
            ];
            _mm_stream_si128(to, line[0]);
            _mm_stream_si128(to.add(1), line[1]);
            _mm_stream_si128(to.add(2), line[2]);
            _mm_stream_si128(to.add(3), line[3]);
            at += LINE;
        }
        std::ptr::copy_nonoverlapping(from.add(end), to.add(end), tail);
        if end > head {
            _mm_sfence();
        }
    }
}
