//! Memory that one rank writes and all others can only read: parameters, tables, whatever one prepares for many.
//!
//! **Unit.** A [`View`], of a number of elements. The publisher's is mapped for writing; those of the others are not, and cannot be made so: the
//! seal `F_SEAL_FUTURE_WRITE` forbids whoever has the descriptor to write, to map for writing, to shorten or to lengthen it. A program
//! that tries to write through its view gets SIGSEGV, and what it would have spoilt is whole.
//!
//! **Problem.** The descriptor has to come to processes that are there already, met in any way, and that wait in a team and not at a socket.
//!
//! **Idea.** The publisher says its process, the descriptor's number and the file's identity in a broadcast; the others open
//! `/proc/PID/fd/N` for reading and see that it is the very file, with the seals. Considered and left: `pidfd_getfd` needs the right to attach a debugger,
//! which many systems give to ancestors alone (Yama), and would pass on the publisher's own descriptor. A socket in the file system needs a
//! folder, an abstract one is open to all users, and both need a wait that is not the team's, with deaths of its own. Memory set aside
//! when the team is made would have to be as large as whatever is published later. `/proc` asks for the same user (or more rights), gives
//! each reader a descriptor of its own that is for reading only, leaves nothing behind, and what is waited for is the team's own calls.
//!
//! **Properties.** All ranks come to the same: where one cannot map it, all are told. Where `/proc` is not to be had (another user, another
//! namespace of processes, a publisher that is not dumpable) the error says so. A view stays when its rank leaves and when its publisher
//! dies; the memory goes with the last one.

use crate::rank::Rank;
use crate::reduce::{Element, Operator};
use crate::segment::memfd;
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};

/// What a publisher tells of its file: process, its namespace, descriptor, device, file, elements. All zero where it has none.
type Announced = [u64; 6];

#[derive(Debug)]
enum Pages {
    Own(memfd::Published),
    Others(memfd::View),
}

/// What a rank published, seen by a process. See the module.
pub struct View<T> {
    pages: Pages,
    publisher: u32,
    count: usize,
    /// One thread at a time stores: a view can be sent, and is not shared.
    elements: PhantomData<std::cell::Cell<T>>,
}

impl<T> std::fmt::Debug for View<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} elements published by rank {}", self.count, self.publisher)
    }
}

impl<T: Element> View<T> {
    /// How many elements there are.
    #[expect(clippy::len_without_is_empty, reason = "as long as was asked for, and never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Who published it.
    pub fn publisher(&self) -> u32 {
        self.publisher
    }

    /// Where it is in this process: for reading, while the publisher does not write.
    pub fn base(&self) -> *const T {
        match &self.pages {
            Pages::Own(own) => own.base().cast_const().cast(),
            Pages::Others(view) => view.base().cast(),
        }
    }

    /// Where the publisher writes; nobody else can.
    pub fn own(&self) -> Option<*mut T> {
        match &self.pages {
            Pages::Own(own) => Some(own.base().cast()),
            Pages::Others(_) => None,
        }
    }

    fn within(&self, from: usize, count: usize) -> Result<()> {
        if from.checked_add(count).is_some_and(|end| end <= self.count) {
            return Ok(());
        }
        Err(Error::Argument(format!("elements {from} to {from}+{count} of {}", self.count)))
    }

    /// Copies into it, from element `at` on. Others see it after the next call of the team's that brings them something from this rank: a barrier,
    /// for instance.
    ///
    /// # Errors
    /// `Refused` for whoever did not publish it; `Argument` beyond its end.
    pub fn store(&self, at: usize, values: &[T]) -> Result<()> {
        self.within(at, values.len())?;
        let Some(own) = self.own() else {
            return Err(Error::Refused(format!(
                "rank {} published this, and alone may write it",
                self.publisher
            )));
        };
        // SAFETY: within the mapping, by the check; plain data, that others only read, by copies.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), own.add(at), values.len()) };
        Ok(())
    }

    /// Copies out of it, from element `at` on.
    ///
    /// # Errors
    /// `Argument` beyond its end.
    pub fn load(&self, at: usize, values: &mut [T]) -> Result<()> {
        self.within(at, values.len())?;
        // SAFETY: within the mapping, by the check; every bit pattern is an element.
        unsafe { std::ptr::copy_nonoverlapping(self.base().add(at), values.as_mut_ptr(), values.len()) };
        Ok(())
    }
}

impl Rank {
    /// Memory for `count` elements, zero at first, that rank `publisher` writes and all others can only read. All ranks of the team call it
    /// alike; it returns when all have it.
    ///
    /// # Errors
    /// At all ranks, where any cannot: what is wrong at those, and `Refused`, naming one of them, at the others.
    pub fn publish<T: Element>(&self, publisher: u32, count: usize) -> Result<View<T>> {
        self.ready()?;
        if publisher >= self.ranks() {
            return Err(Error::Argument(format!("a team of {} has no rank {publisher}", self.ranks())));
        }
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| Error::Argument(format!("{count} elements cannot be published")))?;
        let mut told: Announced = [0; 6];
        let own = (self.rank() == publisher).then(|| tell(bytes, count));
        if let Some(Ok((_, tells))) = &own {
            told = *tells;
        }
        self.mine().broadcast(&mut told, publisher)?;
        let pages = match own {
            Some(own) => own.map(|(own, _)| Pages::Own(own)),
            None => find(&told, bytes, count).map(Pages::Others),
        };
        let mut failed = [if pages.is_ok() { u32::MAX } else { self.rank() }];
        self.mine().allreduce_in_place(&mut failed, Operator::Min)?;
        let pages = pages?;
        if failed[0] != u32::MAX {
            return Err(Error::Refused(format!(
                "rank {} could not map what rank {publisher} published: it says why",
                failed[0]
            )));
        }
        Ok(View { pages, publisher, count, elements: PhantomData })
    }
}

/// Makes it, and what the others need to find it.
fn tell(bytes: usize, count: usize) -> Result<(memfd::Published, Announced)> {
    let own = memfd::Published::create(bytes)?;
    let about = rustix::fs::fstat(own.view_fd()).map_err(|e| Error::system("fstat of a view", e))?;
    let number = own.view_fd().as_raw_fd() as u64;
    let process = u64::from(std::process::id());
    let told = [process, crate::liveness::namespace(), number, about.st_dev, about.st_ino, count as u64];
    Ok((own, told))
}

/// Maps what another, or another thread of this process, has made.
fn find(told: &Announced, bytes: usize, wanted: usize) -> Result<memfd::View> {
    let [process, namespace, number, device, file, count] = *told;
    if process == 0 {
        return Err(Error::Refused("its publisher could not make it: it says why".to_owned()));
    }
    if count != wanted as u64 {
        return Err(Error::Argument(format!(
            "its publisher asked for {count} elements, and this rank for {wanted}"
        )));
    }
    if namespace != crate::liveness::namespace() {
        return Err(Error::Refused(
            "the publisher is in another namespace of processes (a container's): its memory cannot be found here".to_owned(),
        ));
    }
    let path = format!("/proc/{process}/fd/{number}");
    let fd: OwnedFd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())
        .map_err(|e| Error::Refused(format!(
            "{path}: {e}. What is published is found there: /proc must be mounted, and the publisher be this user's and dumpable (PR_SET_DUMPABLE)"
        )))?;
    let about = rustix::fs::fstat(&fd).map_err(|e| Error::system("fstat of a view", e))?;
    if (about.st_dev, about.st_ino) != (device, file) {
        return Err(Error::NotATeam(format!("{path} is another file than its publisher says")));
    }
    let view = memfd::View::adopt(fd)?;
    if view.len() < bytes {
        return Err(Error::NotATeam(format!("{} bytes are published, and {bytes} were to be", view.len())));
    }
    Ok(view)
}
