//! Published memory: one rank writes it and all others can only read it. For parameters, tables and
//! other data that one rank prepares for many.
//!
//! **Unit.** A [`View`], of a number of elements. The publisher's view is mapped for writing. The
//! other views are read-only, and cannot be made writable: the seal `F_SEAL_FUTURE_WRITE` forbids
//! every holder of the descriptor to write, to map for writing, to shorten or to lengthen the file.
//! A program that tries to write through its view gets SIGSEGV, and the data stays intact.
//!
//! **Problem.** The descriptor must reach processes that already exist, that joined in any way, and
//! that wait in a team and not at a socket.
//!
//! **Idea.** The publisher broadcasts its process, the descriptor's number and the file's identity.
//! The others open `/proc/PID/fd/N` for reading and check that it is the same file, with the seals.
//! `/proc` requires the same user (or more rights), gives each reader its own read-only descriptor,
//! and leaves no files; all waiting is in the team's own calls.
//!
//! **Rejected.** `pidfd_getfd` needs the right to attach a debugger, which many systems give to
//! ancestors alone (Yama), and would pass on the publisher's own descriptor. A socket in the file
//! system needs a folder, an abstract one is open to all users, and both need a wait that is not
//! the team's, with failures of its own. Memory reserved when the team is made would have to be as
//! large as all data published later.
//!
//! **Properties.** All ranks get the same outcome: if one cannot map the memory, all get an error.
//! If `/proc` cannot be used (another user, another namespace of processes, a publisher that is not
//! dumpable) the error names the cause. A view stays valid when its rank leaves and when its
//! publisher dies; the memory is freed with the last view.

use crate::rank::Rank;
use crate::reduce::{Element, Operator};
use crate::segment::memfd;
use crate::{Error, Result};
use rustix::fs::{Mode, OFlags};
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};

/// Data that a publisher announces of its file: process, its namespace, descriptor, device, file,
/// elements. All zero if it has no file.
type Announced = [u64; 6];

#[derive(Debug)]
enum ViewPages {
    Own(memfd::Published),
    Others(memfd::View),
}

/// Published memory as mapped in one process: writable at its publisher, read-only elsewhere.
/// [`Rank::publish`] makes it.
///
/// # Examples
/// ```
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// let view = rank.publish::<u32>(1, 4)?;
/// assert_eq!((view.len(), view.publisher()), (4, 1));
/// match view.own() {
///     // SAFETY: no rank reads before the barrier.
///     Some(own) => unsafe { own.add(3).write(9) }, // At rank 1.
///     None => assert!(view.store(3, &[0]).is_err()), // Only the publisher may.
/// }
/// rank.barrier()?;
///
/// let mut copy = [0];
/// view.load(3, &mut copy)?;
/// // SAFETY: the publisher writes no more.
/// let in_place = unsafe { *view.base().add(3) };
/// assert_eq!((copy, in_place), ([9], 9));
/// # rank.barrier()?;
/// # Ok(())
/// # });
/// ```
pub struct View<T> {
    pages: ViewPages,
    publisher: u32,
    count: usize,
    /// Only one thread at a time may store: a view can be sent, and is not shared.
    elements: PhantomData<std::cell::Cell<T>>,
}

impl<T> std::fmt::Debug for View<T> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} elements published by rank {}", self.count, self.publisher)
    }
}

impl<T: Element> View<T> {
    /// Returns the number of elements. [`View`] has an example.
    #[expect(clippy::len_without_is_empty, reason = "as long as was asked for, and never empty")]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns the rank that published it. [`View`] has an example.
    pub fn publisher(&self) -> u32 {
        self.publisher
    }

    /// Returns its address in this process: for reading, while the publisher does not write.
    /// [`View`] has an example.
    pub fn base(&self) -> *const T {
        match &self.pages {
            ViewPages::Own(own) => own.base().cast_const().cast(),
            ViewPages::Others(view) => view.base().cast(),
        }
    }

    /// Returns the address at which the publisher writes; `None` at all other ranks. [`View`] has
    /// an example.
    pub fn own(&self) -> Option<*mut T> {
        match &self.pages {
            ViewPages::Own(own) => Some(own.base().cast()),
            ViewPages::Others(_) => None,
        }
    }

    fn within(&self, from: usize, count: usize) -> Result<()> {
        if from.checked_add(count).is_some_and(|end| end <= self.count) {
            return Ok(());
        }
        Err(Error::Argument(format!("elements {from} to {from}+{count} of {}", self.count)))
    }

    /// Copies into it, from element `at` on. Other ranks see the data after the team's next call
    /// that transfers data from this rank to them, such as a barrier. [`Rank::publish`] has an
    /// example.
    ///
    /// # Errors
    /// `Refused` for all ranks but the publisher; `Argument` beyond its end.
    pub fn store(&self, at: usize, values: &[T]) -> Result<()> {
        self.within(at, values.len())?;
        let Some(own) = self.own() else {
            return Err(Error::Refused(format!(
                "only rank {}, which published this memory, may write it",
                self.publisher
            )));
        };
        // SAFETY: within the mapping, by the check; plain data, which others only read, by copies.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), own.add(at), values.len()) };
        Ok(())
    }

    /// Copies out of it, from element `at` on. [`View`] has an example.
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
    /// Makes memory for `count` elements, zero at first, that rank `publisher` writes and all
    /// others can only read. All ranks of the team call it with the same arguments; it returns when
    /// all have it.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let view = rank.publish::<f32>(0, 3)?;
    /// if rank.rank() == 0 {
    ///     view.store(0, &[0.5, 1.5, 2.5])?;
    /// }
    /// rank.barrier()?;
    /// let mut parameters = [0.0; 3];
    /// view.load(0, &mut parameters)?;
    /// assert_eq!(parameters, [0.5, 1.5, 2.5]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// At all ranks, if any fails: the cause at the ranks that fail, and `Refused`, naming one of
    /// them, at the others.
    pub fn publish<T: Element>(&self, publisher: u32, count: usize) -> Result<View<T>> {
        self.ready()?;
        if publisher >= self.ranks() {
            return Err(Error::Argument(format!("a team of {} has no rank {publisher}", self.ranks())));
        }
        let bytes = count.checked_mul(size_of::<T>()).filter(|bytes| *bytes > 0);
        let bytes = bytes.ok_or_else(|| Error::Argument(format!("{count} elements cannot be published")))?;
        let mut announced: Announced = [0; 6];
        let own = (self.rank() == publisher).then(|| announce(bytes, count));
        if let Some(Ok((_, announcement))) = &own {
            announced = *announcement;
        }
        self.mine().broadcast(&mut announced, publisher)?;
        let pages = match own {
            Some(own) => own.map(|(own, _)| ViewPages::Own(own)),
            None => find(&announced, bytes, count).map(ViewPages::Others),
        };
        let mut failed = [if pages.is_ok() { u32::MAX } else { self.rank() }];
        self.mine().allreduce_in_place(&mut failed, Operator::Min)?;
        let pages = pages?;
        if failed[0] != u32::MAX {
            return Err(Error::Refused(format!(
                "rank {} could not map the memory that rank {publisher} published: see that rank's error",
                failed[0]
            )));
        }
        Ok(View { pages, publisher, count, elements: PhantomData })
    }
}

/// Makes the memory, and the data that the others need to find it.
fn announce(bytes: usize, count: usize) -> Result<(memfd::Published, Announced)> {
    let own = memfd::Published::create(bytes)?;
    let about = rustix::fs::fstat(own.view_fd()).map_err(|e| Error::system("fstat of a view", e))?;
    let number = own.view_fd().as_raw_fd() as u64;
    let process = u64::from(std::process::id());
    let announced = [process, crate::liveness::namespace(), number, about.st_dev, about.st_ino, count as u64];
    Ok((own, announced))
}

/// Maps memory that another process, or another thread of this one, has made.
fn find(announced: &Announced, bytes: usize, wanted: usize) -> Result<memfd::View> {
    let [process, namespace, number, device, file, count] = *announced;
    if process == 0 {
        return Err(Error::Refused("its publisher could not make it: see that rank's error".to_owned()));
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
            "{path}: {e}. Published memory is found there: /proc must be mounted, and the publisher must be this user's and dumpable (PR_SET_DUMPABLE)"
        )))?;
    let about = rustix::fs::fstat(&fd).map_err(|e| Error::system("fstat of a view", e))?;
    if (about.st_dev, about.st_ino) != (device, file) {
        return Err(Error::NotATeam(format!("{path} is not the file that its publisher announced")));
    }
    let view = memfd::View::adopt(fd)?;
    if view.len() < bytes {
        return Err(Error::NotATeam(format!(
            "{} bytes are published, and {bytes} were expected",
            view.len()
        )));
    }
    Ok(view)
}
