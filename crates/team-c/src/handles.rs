//! Things known by number. A number is used once: whoever asks by an old one is told that there is no such thing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use trimtab_team::{Error, Result};

/// The next number; never zero, and never again the same, in whatever thread.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Things of one kind by number.
pub(crate) struct Handles<T> {
    what: &'static str,
    all: BTreeMap<u64, T>,
}

impl<T> Handles<T> {
    pub(crate) const fn new(what: &'static str) -> Self {
        Self { what, all: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, thing: T) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.all.insert(number, thing);
        number
    }

    fn none(&self, number: u64) -> Error {
        Error::Argument(format!("{number} is no {}, was given back, or is another thread's", self.what))
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

/// Sees, before anything is done, that there is somewhere to put the answer.
pub(crate) fn place<T>(to: *mut T) -> Result<()> {
    if to.is_null() {
        return Err(Error::Argument("there is no address for the answer".to_owned()));
    }
    Ok(())
}

/// Writes an answer to an address.
///
/// # Safety
/// It is null or valid for writing.
pub(crate) unsafe fn answer<T>(to: *mut T, value: T) -> Result<()> {
    place(to)?;
    // SAFETY: not null, and so valid by the caller's promise; nothing says that it is aligned.
    unsafe { to.write_unaligned(value) };
    Ok(())
}
