//! Ranks that the calling thread may use: one for each team that it has joined, with started calls
//! and blocks, and those of its process.

use crate::code::{entry, guarded, poisoned};
use crate::handles::{Handles, check_address, next_number, write_result, write_text};
use crate::mine::Mine;
use crate::process_rank::{self, ProcessRank};
use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use trimtab_team::{Error, Kind, Rank, Result, View};

/// A rank that a thread may use.
#[derive(Clone)]
enum Usable {
    OfThread(Rc<Mine>),
    OfProcess(Arc<ProcessRank>),
}

/// The ranks of a thread, and those of the process that it has used.
struct Ranks(RefCell<Handles<Usable>>);

impl Drop for Ranks {
    fn drop(&mut self) {
        // Started calls are not continued when the thread ends: their buffers may have been on the
        // stack.
        for usable in self.0.get_mut().all() {
            if let Usable::OfThread(mine) = usable {
                mine.rank.abandon();
            }
        }
    }
}

/// Memory that ranks of this process published or see: it stays when they leave.
static VIEWS: LazyLock<Mutex<Handles<View<u8>>>> = LazyLock::new(|| Mutex::new(Handles::new("view")));

thread_local! {
    static RANKS: Ranks = const { Ranks(RefCell::new(Handles::new("rank"))) };
}

fn ending<T>(_: T) -> Error {
    Error::Refused("this thread ends, and its ranks have left".to_owned())
}

/// Runs the body of an exported function on a rank. After a panic the other ranks get the error
/// that this rank is gone, and from then on it can only leave.
pub(crate) fn of_rank(handle: u64, work: impl FnOnce(&Mine) -> Result<()>) -> c_int {
    let usable = match rank(handle) {
        Ok(usable) => usable,
        Err(error) => return entry(|| Err(error)),
    };
    let used;
    let mine = match &usable {
        Usable::OfThread(mine) => &**mine,
        Usable::OfProcess(rank) => {
            used = match rank.enter() {
                Ok(used) => used,
                Err(error) => return entry(|| Err(error)),
            };
            let Some(mine) = used.mine() else { return entry(|| Err(left(handle))) };
            mine
        }
    };
    if mine.poisoned.get() {
        return poisoned();
    }
    guarded(
        || work(mine),
        || {
            mine.poisoned.set(true);
            mine.rank.resign();
        },
        |error| mine.rank.describe_error(error),
    )
}

/// Returns the rank of a handle. Inlined, since each call of a team begins with it.
#[inline(always)]
fn rank(handle: u64) -> Result<Usable> {
    let own = RANKS.try_with(|ranks| ranks.0.borrow().find(handle).cloned()).map_err(ending)?;
    own.map_or_else(|| rank_of_process(handle), Ok)
}

/// Returns the process's rank of a handle, which the thread finds by itself from then on.
#[cold]
fn rank_of_process(handle: u64) -> Result<Usable> {
    let found = process_rank::find(handle).map(Usable::OfProcess);
    let noted = RANKS.try_with(|ranks| {
        let mut ranks = ranks.0.borrow_mut();
        let usable = found.ok_or_else(|| ranks.none(handle))?;
        ranks.put(handle, usable.clone());
        Ok(usable)
    });
    noted.map_err(ending)?
}

/// Returns the error for a rank of the process that has left, which this thread then forgets.
fn left(handle: u64) -> Error {
    RANKS
        .try_with(|ranks| {
            let mut ranks = ranks.0.borrow_mut();
            let _ = ranks.take(handle);
            ranks.none(handle)
        })
        .unwrap_or_else(ending)
}

/// Keeps a rank for this thread. Ranks that the thread has not left when it ends leave then.
pub(crate) fn keep_rank(rank: Rank) -> Result<u64> {
    let mine = Usable::OfThread(Rc::new(Mine::new(rank, false)));
    RANKS.try_with(|ranks| ranks.0.borrow_mut().add(mine)).map_err(ending)
}

/// Keeps a rank for this process, until it leaves or the process ends.
pub(crate) fn keep_rank_of_process(rank: Rank) -> u64 {
    let handle = next_number();
    process_rank::keep(handle, Mine::new(rank, true));
    handle
}

fn take(handle: u64) -> Result<Rank> {
    let busy = || Error::Refused("the rank is in the middle of a call".to_owned());
    match rank(handle)? {
        Usable::OfProcess(_) => return Err(only_of_threads("continues as another one")),
        // The table has one reference, and this function another: a third is a call's.
        Usable::OfThread(mine) if Rc::strong_count(&mine) > 2 => return Err(busy()),
        Usable::OfThread(_) => {}
    }
    match RANKS.try_with(|ranks| ranks.0.borrow_mut().take(handle)).map_err(ending)?? {
        Usable::OfThread(mine) => Rc::try_unwrap(mine).map(|mine| mine.rank).map_err(|_| busy()),
        Usable::OfProcess(_) => Err(busy()),
    }
}

/// Returns the error for a call that would make another rank of a rank of the process.
fn only_of_threads(what: &str) -> Error {
    Error::Refused(format!("only a rank of a thread {what}, and this one is its process's"))
}

/// Leaves the team; blocks and requests of the rank become invalid.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_rank_leave(handle: u64) -> c_int {
    entry(|| {
        let Some(outcome) = process_rank::leave(handle) else { return take(handle).map(drop) };
        let _ = RANKS.try_with(|ranks| ranks.0.borrow_mut().take(handle));
        outcome
    })
}

/// # Safety
/// `number` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_rank_number(handle: u64, number: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    of_rank(handle, |mine| unsafe { write_result(number, mine.rank.rank()) })
}

/// # Safety
/// `ranks` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_rank_size(handle: u64, ranks: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    of_rank(handle, |mine| unsafe { write_result(ranks, mine.rank.ranks()) })
}

/// # Safety
/// `crowded` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_rank_crowded(handle: u64, crowded: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    of_rank(handle, |mine| unsafe { write_result(crowded, mine.rank.crowded().into()) })
}

/// Sets the waiting time after which later calls are given up; zero sets no limit.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_rank_deadline(handle: u64, deadline_ns: u64) -> c_int {
    of_rank(handle, |mine| {
        mine.rank.set_deadline((deadline_ns != 0).then(|| Duration::from_nanos(deadline_ns)));
        Ok(())
    })
}

/// `trimtab_progress_hook` of `team.h`.
type ProgressHook = unsafe extern "C" fn(*mut c_void) -> c_int;

/// Sets the function that this rank calls while it waits; NULL for none.
///
/// # Safety
/// `hook` can be called with `context` while this rank waits, until another one is set or the rank
/// has left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_rank_progress(
    handle: u64,
    hook: Option<ProgressHook>,
    context: *mut c_void,
) -> c_int {
    of_rank(handle, |mine| {
        mine.rank.set_progress(hook.map(|hook| -> Rc<dyn Fn() -> bool> {
            // SAFETY: the caller's promise.
            Rc::new(move || unsafe { hook(context) } != 0)
        }));
        Ok(())
    })
}

/// Waits until all ranks have reached the barrier.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_barrier(handle: u64) -> c_int {
    of_rank(handle, |mine| mine.rank.barrier())
}

/// # Safety
/// `part` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_split(
    handle: u64,
    colour: i64,
    key: i32,
    heap: usize,
    part: *mut u64,
) -> c_int {
    of_rank(handle, |mine| {
        check_address(part)?;
        if mine.of_process {
            return Err(only_of_threads("has parts"));
        }
        let colour = match colour {
            -1 => None,
            colour => Some(
                u32::try_from(colour).map_err(|_| Error::Argument(format!("{colour} is not a colour")))?,
            ),
        };
        let made = mine.rank.split(colour, key, heap)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(part, made.map_or(Ok(0), keep_rank)?) }
    })
}

/// Frees a handle and keeps the rank that `work` makes of its rank.
///
/// # Safety
/// `left` is null or valid for writing.
unsafe fn replaced(handle: u64, left: *mut u64, work: impl FnOnce(Rank) -> Result<Rank>) -> c_int {
    if matches!(rank(handle), Ok(Usable::OfThread(mine)) if mine.poisoned.get()) {
        return poisoned();
    }
    entry(|| {
        check_address(left)?;
        let next = work(take(handle)?)?;
        // SAFETY: the caller's promise.
        unsafe { write_result(left, keep_rank(next)?) }
    })
}

/// # Safety
/// `left` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_shrink(handle: u64, deadline_ns: u64, left: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replaced(handle, left, |rank| rank.shrink(Duration::from_nanos(deadline_ns))) }
}

/// # Safety
/// `usable` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_recover(handle: u64, deadline_ns: u64, usable: *mut u64) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { replaced(handle, usable, |rank| rank.recover(Duration::from_nanos(deadline_ns))) }
}

/// # Safety
/// `block` and `own` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_alloc(
    handle: u64,
    bytes: usize,
    block: *mut u64,
    own: *mut *mut c_void,
) -> c_int {
    of_rank(handle, |mine| {
        check_address(own)?;
        check_address(block)?;
        let shared = mine.rank.alloc::<u8>(bytes)?;
        let address = shared.own();
        // SAFETY: the caller's promise.
        unsafe {
            write_result(own, address.cast())?;
            write_result(block, mine.blocks.borrow_mut().add(shared))
        }
    })
}

/// # Safety
/// `address` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_block_of(
    handle: u64,
    block: u64,
    of: u32,
    address: *mut *mut c_void,
) -> c_int {
    of_rank(handle, |mine| {
        if of >= mine.rank.ranks() {
            return Err(Error::Argument(format!("a team of {} has no rank {of}", mine.rank.ranks())));
        }
        // SAFETY: the caller's promise.
        unsafe { write_result(address, mine.blocks.borrow().get(block)?.of(of).cast()) }
    })
}

/// Frees a block. All ranks must do so when no rank uses it any more.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_block_free(handle: u64, block: u64) -> c_int {
    of_rank(handle, |mine| {
        let shared = mine.blocks.borrow_mut().take(block)?;
        mine.rank.free(shared)
    })
}

/// # Safety
/// `text` is null or valid for writing `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_explain(
    handle: u64,
    kind: u32,
    bytes: usize,
    text: *mut c_char,
    length: usize,
) -> c_int {
    of_rank(handle, |mine| {
        let known = Kind::ALL.into_iter().find(|known| *known as u32 == kind);
        let kind = known.ok_or_else(|| Error::Argument(format!("{kind} is not a kind of call")))?;
        // SAFETY: the caller's promise.
        unsafe { write_text(text, length, &mine.rank.explain(kind, bytes)) }
    })
}

/// Returns the last calls of all ranks. Waits for no rank, and works after an error.
///
/// # Safety
/// `text` is null or valid for writing `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_report(handle: u64, text: *mut c_char, length: usize) -> c_int {
    // SAFETY: the caller's promise.
    of_rank(handle, |mine| unsafe { write_text(text, length, &mine.rank.report()) })
}

/// Makes memory of `bytes` bytes that one rank writes and the others can only read.
///
/// # Safety
/// `view` and `address` are null or valid for writing; so is `own`, which may be null at ranks that
/// are not the publisher.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_publish(
    handle: u64,
    publisher: u32,
    bytes: usize,
    view: *mut u64,
    address: *mut *const c_void,
    own: *mut *mut c_void,
) -> c_int {
    of_rank(handle, |mine| {
        check_address(view)?;
        check_address(address)?;
        if mine.rank.rank() == publisher {
            check_address(own)?;
        }
        let published = mine.rank.publish::<u8>(publisher, bytes)?;
        let (at, writes) = (published.base(), published.own());
        let mut views = VIEWS.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the caller's promise.
        unsafe {
            if !own.is_null() {
                write_result(own, writes.unwrap_or(std::ptr::null_mut()).cast())?;
            }
            write_result(address, at.cast())?;
            write_result(view, views.add(published))
        }
    })
}

/// Unmaps a view; the views of other ranks stay.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_view_free(view: u64) -> c_int {
    entry(|| VIEWS.lock().unwrap_or_else(PoisonError::into_inner).take(view).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use trimtab_team::{Options, Team};

    fn words() -> String {
        // SAFETY: a text that stays until the next call.
        unsafe { CStr::from_ptr(crate::trimtab_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_rank_with_a_fault_can_only_leave_and_the_others_get_an_error() {
        const PANIC: c_int = 13;
        const POISONED: c_int = 14;
        let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(2) }).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let rank = team.join(Some(0)).unwrap();
                assert_eq!(rank.barrier(), Err(Error::PeerLeft(1)));
            });
            scope.spawn(|| {
                let handle = keep_rank(team.join(Some(1)).unwrap()).unwrap();
                assert_eq!(of_rank(handle, |_| panic!("a fault")), PANIC);
                assert!(words().contains("can only leave"));
                let (mut number, mut left) = (7, 0);
                assert_eq!(trimtab_barrier(handle), POISONED);
                assert!(words().contains("met a fault"));
                // SAFETY: memory of this function.
                unsafe {
                    assert_eq!(trimtab_rank_number(handle, &raw mut number), POISONED);
                    assert_eq!(trimtab_shrink(handle, 0, &raw mut left), POISONED);
                }
                assert_eq!((number, trimtab_rank_leave(handle)), (7, 0));
                assert_eq!(trimtab_rank_leave(handle), 7);
            });
        });
    }

    #[test]
    fn threads_use_a_rank_of_the_process_one_after_the_other() {
        const ARGUMENT: c_int = 7;
        const REFUSED: c_int = 10;
        let team = Team::new(Options { heap: 4096, cell: 1024, ..Options::new(1) }).unwrap();
        let made = std::thread::scope(|scope| {
            let join = || keep_rank_of_process(team.join_process(Some(0)).unwrap());
            scope.spawn(join).join().unwrap()
        });
        // The thread that joined has ended.
        assert_eq!(trimtab_barrier(made), 0);
        std::thread::scope(|scope| scope.spawn(|| assert_eq!(trimtab_barrier(made), 0)).join().unwrap());
        // While one is in a call, another one is refused, and so is a call within the call.
        let within = of_rank(made, |_| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    assert_eq!(trimtab_barrier(made), REFUSED);
                    assert!(words().contains("one thread at a time"), "{}", words());
                    assert_eq!(trimtab_rank_leave(made), REFUSED);
                });
            });
            assert_eq!(trimtab_barrier(made), REFUSED);
            Ok(())
        });
        assert_eq!(within, 0);
        let mut other = 0;
        // SAFETY: memory of this function.
        unsafe {
            assert_eq!(trimtab_split(made, 0, 0, 0, &raw mut other), REFUSED);
            assert_eq!(trimtab_shrink(made, 0, &raw mut other), REFUSED);
        }
        assert!(words().contains("rank of a thread"), "{}", words());
        assert_eq!((trimtab_barrier(made), trimtab_rank_leave(made)), (0, 0));
        assert_eq!((trimtab_barrier(made), trimtab_rank_leave(made)), (ARGUMENT, ARGUMENT));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(trimtab_barrier(made), ARGUMENT)).join().unwrap()
        });
    }
}
