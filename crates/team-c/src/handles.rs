//! Handles: objects known by number. A number is used once: an old number gives an error.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::sync::atomic::{AtomicU64, Ordering};
use trimtab_team::{Error, Result};

/// The next number; never zero, and never the same again, in any thread.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Returns a number for an object.
pub(crate) fn next_number() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Objects of one kind by number.
pub(crate) struct Handles<T> {
    what: &'static str,
    all: BTreeMap<u64, T>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, all: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, thing: T) -> u64 {
        let number = next_number();
        self.put(number, thing);
        number
    }

    /// Adds an object under a number from [`next_number`].
    pub(crate) fn put(&mut self, number: u64, thing: T) {
        self.all.insert(number, thing);
    }

    pub(crate) fn find(&self, number: u64) -> Option<&T> {
        self.all.get(&number)
    }

    /// Returns the error for a number without an object.
    pub(crate) fn none(&self, number: u64) -> Error {
        Error::Argument(format!("{number} is not a {}, was freed, or belongs to another thread", self.what))
    }

    pub(crate) fn get(&self, number: u64) -> Result<&T> {
        self.all.get(&number).ok_or_else(|| self.none(number))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.all.values()
    }

    pub(crate) fn take(&mut self, number: u64) -> Result<T> {
        self.all.remove(&number).ok_or_else(|| self.none(number))
    }
}

/// Checks that there is an address for the result, before a call does anything.
pub(crate) fn check_address<T>(to: *mut T) -> Result<()> {
    if to.is_null() {
        return Err(Error::Argument("there is no address for the answer".to_owned()));
    }
    Ok(())
}

/// Writes a result to the caller's address.
///
/// # Safety
/// `to` is null or valid for writing.
pub(crate) unsafe fn write_result<T>(to: *mut T, value: T) -> Result<()> {
    check_address(to)?;
    // SAFETY: not null, and so valid by the caller's promise; it may be unaligned.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes `words` and a zero byte to `text`.
///
/// # Safety
/// `text` is null or valid for writing `length` bytes.
pub(crate) unsafe fn write_text(text: *mut c_char, length: usize, words: &str) -> Result<()> {
    if text.is_null() || words.len() >= length {
        return Err(Error::Argument(format!(
            "the text has {} bytes, and there is room for {length}",
            words.len() + 1
        )));
    }
    // SAFETY: the room for the text and its end was checked above, by the caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(words.as_ptr().cast(), text, words.len());
        text.add(words.len()).write(0);
    }
    Ok(())
}
