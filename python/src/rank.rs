//! A rank: its calls, blocks in the segment, started calls, and the teams made from its own.
//! [`crate::calls`] has the collectives.

use crate::arguments::{CallArguments, Prepared, kind, kinds};
use crate::batch::Batch;
use crate::block::Block;
use crate::buffer::Buffer;
use crate::errors::{self, Failure, argument};
use crate::pinned::{Here, Pinned};
use crate::request::Request;
use crate::view::View;
use crate::{interrupt, layout, team};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use trimtab_team::tune::{Plan, Tuning, tune};
use trimtab_team::{Shared, Sync, Team, Type};

/// A thread's place in its team. Only the thread that joined can use it.
///
/// All ranks make the same calls in the same order. Arrays are anything with the buffer protocol
/// whose elements are contiguous: int8 to int64, uint8 to uint64, float16, bfloat16, float32,
/// float64. If out is not given, a numpy array is made.
///
/// op is 'sum', 'prod', 'min', 'max', 'and', 'or' or 'xor', or a function: op(a, b) gets two arrays
/// of one dimension, parts of ranks' arrays, and returns their combination, element by element, or
/// changes a. The result has the same bits on all ranks.
///
/// sync says which ranks wait for which:
///   'mine'    when the call returns, own arrays may be used again and own results are there
///             (the usual, as in MPI)
///   'loose'   a rank waits only for its data; memory in the segment may be used again after
///             fence()
///   'strict'  all ranks wait for all, before and after
///   (x, y)    each of 'none', 'mine' and 'all', for the waiting before and after; the three
///             above are such pairs
///
/// dtype reads the elements as another type of the same size: dtype='bfloat16' with arrays of
/// uint16.
#[pyclass(module = "trimtab_team", frozen, weakref)]
pub(crate) struct Rank {
    inner: Pinned<Inner>,
    team: Team,
    /// This rank's number, from 0.
    #[pyo3(get)]
    rank: u32,
    /// Number of ranks of the team.
    #[pyo3(get)]
    size: u32,
    /// Whether there are more ranks than CPUs for them.
    #[pyo3(get)]
    crowded: bool,
}

/// State that only the thread accesses.
struct Inner {
    /// Whether a call is under way: a signal's handler may try another.
    busy: Cell<bool>,
    /// Whether calls that do not say their synchronisation are loose (`batch`).
    batched: Cell<bool>,
    rank: RefCell<Option<trimtab_team::Rank>>,
    /// Arrays of started calls; released after the rank is gone, or the call is over.
    pending: RefCell<Vec<(trimtab_team::PendingCall, Prepared)>>,
    /// Blocks in the segment, by the address of this rank's own.
    blocks: RefCell<HashMap<usize, Held>>,
}

struct Held {
    shared: Shared<u8>,
    shape: Vec<usize>,
    elements: Type,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without the lock: started calls are carried to their end, for which other ranks of this
        // process may be needed.
        let rank = Here(self.rank.take());
        if rank.0.is_some() {
            Python::attach(|py| {
                py.detach(move || drop(rank.get()));
                interrupt::put_off(py);
            });
        }
    }
}

/// Resets the mark when the call is over.
struct Busy<'a>(&'a Cell<bool>);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Inner {
    fn enter(&self) -> PyResult<Busy<'_>> {
        if self.busy.replace(true) {
            return Err(argument(
                "this rank is in the middle of a call, during which a signal handler or an operator cannot make another",
            ));
        }
        Ok(Busy(&self.busy))
    }
}

/// Returns the lengths, the type and the bytes of an array.
fn sized(shape: &Bound<'_, PyAny>, dtype: Option<&Bound<'_, PyAny>>) -> PyResult<(Vec<usize>, Type, usize)> {
    let shape: Vec<usize> = match shape.extract::<usize>() {
        Ok(length) => vec![length],
        Err(_) => shape.extract().map_err(|_| argument("shape is a length, or a tuple of them"))?,
    };
    let elements = dtype.map_or(Ok(Type::F64), crate::buffer::dtype)?;
    let bytes = shape.iter().try_fold(elements.size(), |bytes, length| bytes.checked_mul(*length));
    let bytes = bytes.ok_or_else(|| argument(format!("{shape:?} elements are too many")))?;
    Ok((shape, elements, bytes))
}

/// Returns the measurements of a tuning as dictionaries.
fn measurements<'py>(py: Python<'py>, tuning: &Tuning) -> PyResult<Bound<'py, PyList>> {
    let found = PyList::empty(py);
    for cell in &tuning.cells {
        let one = PyDict::new(py);
        one.set_item("call", cell.job.kind.name())?;
        one.set_item("bytes", cell.job.bytes)?;
        one.set_item("usual_us", cell.usual().median)?;
        one.set_item("us", cell.winner().median)?;
        one.set_item("changed", cell.verdict.winner != 0)?;
        one.set_item("why", &cell.verdict.why)?;
        found.append(one)?;
    }
    Ok(found)
}

fn gone() -> PyErr {
    errors::raise("Refused", "this rank has left its team")
}

impl Rank {
    pub(crate) fn new(rank: trimtab_team::Rank, team: Team) -> Self {
        let (number, size, crowded) = (rank.rank(), rank.ranks(), rank.crowded());
        let inner = Inner {
            busy: Cell::new(false),
            batched: Cell::new(false),
            rank: RefCell::new(Some(rank)),
            pending: RefCell::default(),
            blocks: RefCell::default(),
        };
        Self { inner: Pinned::new(inner), team, rank: number, size, crowded }
    }

    /// Uses the rank, without the interpreter's lock.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&trimtab_team::Rank) -> trimtab_team::Result<T>,
    ) -> PyResult<T> {
        let result = self.outside(py, work)?;
        interrupt::settle(result)
    }

    /// The same, for a caller that must know whether it was done before an exception of a handler
    /// is raised.
    fn outside<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&trimtab_team::Rank) -> trimtab_team::Result<T>,
    ) -> PyResult<Result<T, Failure>> {
        let inner = self.inner.get()?;
        let busy = inner.enter()?;
        let rank = inner.rank.borrow();
        let rank = rank.as_ref().ok_or_else(gone)?;
        let job = Here((rank, work));
        let result = py.detach(move || {
            let (rank, work) = job.get();
            Here(work(rank).map_err(|error| Failure::of_rank(rank, error)))
        });
        let pending = &inner.pending;
        if !pending.borrow().is_empty() {
            pending.borrow_mut().retain(|(request, _)| matches!(rank.test(request), Ok(false)));
        }
        drop(busy);
        Ok(result.get())
    }

    /// Carries a call out.
    pub(crate) fn go(slf: &Bound<'_, Self>, asked: &CallArguments<'_, '_>) -> PyResult<Py<PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let prepared = asked.prepare(this.rank, this.size, this.usual()?)?;
        // SAFETY: the buffers have the lengths just checked, are the same or apart, and are held
        // until the call is over; so is an operator.
        let call = |rank: &trimtab_team::Rank| unsafe { rank.call(&prepared.call) };
        let Some(own) = &prepared.own else {
            this.with(py, call)?;
            return Ok(prepared.result);
        };
        let result = this.outside(py, |rank| own.during(rank, call))?;
        if let Some(error) = own.raised() {
            return Err(error);
        }
        interrupt::settle(result)?;
        Ok(prepared.result)
    }

    /// Starts a call.
    pub(crate) fn start(slf: &Bound<'_, Self>, asked: &CallArguments<'_, '_>) -> PyResult<Request> {
        let (py, this) = (slf.py(), slf.get());
        let prepared = asked.prepare(this.rank, this.size, this.usual()?)?;
        if prepared.own.is_some() {
            return Err(argument(
                "a call that is started combines by an operator of the team's: a function as op may raise, and then \
                 no caller would be waiting to get the exception",
            ));
        }
        // SAFETY: as above, and `pending` holds the buffers until the call is over or the rank
        // gone.
        let started = this.outside(py, |rank| unsafe { rank.start(prepared.call) })?;
        let result = prepared.result.clone_ref(py);
        if let Ok(request) = &started {
            this.inner.get()?.pending.borrow_mut().push((request.clone(), prepared));
        }
        let request = interrupt::settle(started)?;
        Ok(Request { rank: slf.clone().unbind(), request: Pinned::new(request), result })
    }

    /// Returns the synchronisation of calls that do not say it.
    fn usual(&self) -> PyResult<Sync> {
        Ok(if self.inner.get()?.batched.get() { Sync::LOOSE } else { Sync::MINE })
    }

    /// Waits for all ranks, and makes calls loose from now on.
    pub(crate) fn begin_batch(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        if inner.batched.get() {
            return Err(argument("this rank is in a batch already: batches do not nest"));
        }
        self.barrier(py)?;
        inner.batched.set(true);
        Ok(())
    }

    /// Ends what `begin_batch` began, and waits for all ranks if all calls went well.
    pub(crate) fn end_batch(&self, py: Python<'_>, is_well: bool) -> PyResult<()> {
        self.inner.get()?.batched.set(false);
        if is_well { self.barrier(py) } else { Ok(()) }
    }

    /// Finds the block that begins at the same address as an array.
    fn block_of<T>(&self, a: &Bound<'_, PyAny>, work: impl FnOnce(&Held) -> T) -> PyResult<T> {
        let begin = Buffer::of(a, "a", false, None)?.address as usize;
        let blocks = self.inner.get()?.blocks.borrow();
        blocks
            .get(&begin)
            .map(work)
            .ok_or_else(|| argument("a does not begin where an array of this rank's empty() does"))
    }

    /// Ends this rank and returns the one that `work` makes of it.
    fn replaced(
        &self,
        py: Python<'_>,
        deadline: f64,
        work: fn(trimtab_team::Rank, std::time::Duration) -> trimtab_team::Result<trimtab_team::Rank>,
    ) -> PyResult<Self> {
        let deadline = team::seconds("deadline", deadline)?;
        let inner = self.inner.get()?;
        let busy = inner.enter()?;
        let rank = Here(inner.rank.take().ok_or_else(gone)?);
        let left = py.detach(move || Here(work(rank.get(), deadline))).get();
        inner.pending.borrow_mut().clear();
        inner.blocks.borrow_mut().clear();
        drop(busy);
        Ok(Self::new(interrupt::settle(left)?, self.team.clone()))
    }
}

#[pymethods]
impl Rank {
    /// Waits until all ranks have reached the barrier.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, trimtab_team::Rank::barrier)
    }

    /// Ends a sequence of loose calls: each rank may use its memory in the segment again.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, trimtab_team::Rank::fence)
    }

    /// Returns the last calls of all ranks, and for which rank each waits, as text. Waits for no
    /// rank, and works after an error. With TRIMTAB_TEAM_CHECK=on the text of an error includes it.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        self.with(py, |rank| Ok(rank.report()))
    }

    /// Breaks calls off from now on after this many seconds of waiting, and the team with them;
    /// None for no limit.
    #[pyo3(signature = (seconds))]
    fn set_deadline(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let deadline = seconds.map(|seconds| team::seconds("deadline", seconds)).transpose()?;
        self.with(py, move |rank| {
            rank.set_deadline(deadline);
            Ok(())
        })
    }

    /// Splits the team: ranks of one colour become a team of their own, in the order of their keys,
    /// then of their ranks, and each gets its rank in it. Ranks of colour None get None. All ranks
    /// must call it. heap is the size of each part's memory for empty(), out of this team's.
    #[pyo3(signature = (colour, key = 0, *, heap = 0))]
    fn split(&self, py: Python<'_>, colour: Option<u32>, key: i32, heap: usize) -> PyResult<Option<Self>> {
        let part = self.with(py, |rank| rank.split(colour, key, heap))?;
        Ok(part.map(|part| Self::new(part, self.team.clone())))
    }

    /// Makes, after a loss, the team of the ranks that are left, in the order of ranks, in place of
    /// this one, which is over. All ranks that are left must call it within deadline seconds;
    /// otherwise it fails. Arrays of empty() become invalid: their memory belongs to the new team.
    #[pyo3(signature = (deadline = 5.0))]
    fn shrink(&self, py: Python<'_>, deadline: f64) -> PyResult<Self> {
        self.replaced(py, deadline, trimtab_team::Rank::shrink)
    }

    /// The same ranks as a team that is usable again after a call failed without a loss: Mismatch,
    /// Timeout, Revoked. All live ranks must call it within deadline seconds. Arrays of
    /// empty() become invalid.
    #[pyo3(signature = (deadline = 5.0))]
    fn recover(&self, py: Python<'_>, deadline: f64) -> PyResult<Self> {
        self.replaced(py, deadline, trimtab_team::Rank::recover)
    }

    /// Makes a numpy array in the team's memory: collectives use it where it lies, without a copy,
    /// and other ranks can access it (peer()). It is zero at first, and later holds whatever
    /// earlier arrays left there. All ranks must call it with the same arguments, in the same
    /// order; no rank waits.
    #[pyo3(signature = (shape, dtype = None))]
    fn empty(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.block(py, shape, dtype)?.array(py)
    }

    /// The same without numpy: a block that has __array_interface__ and __dlpack__.
    #[pyo3(signature = (shape, dtype = None))]
    fn block(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Block> {
        let (shape, elements, bytes) = sized(shape, dtype)?;
        let shared = self.with(py, |rank| rank.alloc::<u8>(bytes.max(1)))?;
        let address = shared.own().expose_provenance();
        let held = Held { shared, shape: shape.clone(), elements };
        self.inner.get()?.blocks.borrow_mut().insert(address, held);
        Ok(Block::new(self.team.clone(), address, shape, elements))
    }

    /// Returns another rank's block of the same empty(), as an array of the same shape: data
    /// written there is written for that rank. The order of reads and writes is ensured by
    /// barrier() or fence().
    fn peer(&self, py: Python<'_>, a: &Bound<'_, PyAny>, rank: u32) -> PyResult<Py<PyAny>> {
        if rank >= self.size {
            return Err(argument(format!("rank {rank} is not one of the {} ranks", self.size)));
        }
        let team = self.team.clone();
        let block = self.block_of(a, |held| {
            let address = held.shared.of(rank).expose_provenance();
            Block::new(team, address, held.shape.clone(), held.elements)
        })?;
        block.array(py)
    }

    /// Frees an array of empty(), so that later ones can use its memory. All ranks must do so,
    /// after a barrier beyond which no rank uses it.
    fn free(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<()> {
        let begin = self.block_of(a, |held| held.shared.own().expose_provenance())?;
        if let Some(held) = self.inner.get()?.blocks.borrow_mut().remove(&begin) {
            self.with(py, move |rank| rank.free(held.shared))?;
        }
        Ok(())
    }

    /// Makes an array that rank publisher writes and all others can only read, zero at first. All
    /// ranks must call it with the same arguments; it returns when all have it. What the publisher
    /// has written is there after the next barrier. The array stays valid when ranks leave or die.
    #[pyo3(signature = (shape, dtype = None, publisher = 0))]
    fn publish(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
        publisher: u32,
    ) -> PyResult<Py<PyAny>> {
        let (shape, elements, bytes) = sized(shape, dtype)?;
        let pages = self.with(py, |rank| rank.publish::<u8>(publisher, bytes))?;
        layout::array(Bound::new(py, View::new(pages, shape, elements))?.as_any(), elements)
    }

    /// For a with statement: all ranks wait for all before its block and after it, and calls in it
    /// are loose unless they say otherwise. After an exception in the block no rank is waited for.
    fn batch(slf: Bound<'_, Self>) -> Batch {
        Batch { rank: slf.unbind() }
    }

    /// Returns in words how a call with blocks of so many bytes is carried out, and what was
    /// measured of it. Waits for no rank.
    #[pyo3(signature = (call, bytes))]
    fn explain(&self, py: Python<'_>, call: &str, bytes: usize) -> PyResult<String> {
        let kind = kind(call)?;
        self.with(py, move |rank| Ok(rank.explain(kind, bytes)))
    }

    /// Measures which algorithms are fastest for this team, and uses them from now on: for these
    /// calls, each with blocks of these sizes in bytes. All ranks must call it with the same
    /// arguments. Calls left after seconds stay as they were. Returns a dictionary for each
    /// measurement: call, bytes, us and usual_us (microseconds of the present algorithm and
    /// of the usual one; None if there was no time for it), changed, why.
    #[pyo3(signature = (calls = None, sizes = None, seconds = 4.0))]
    fn tune<'py>(
        &self,
        py: Python<'py>,
        calls: Option<Vec<String>>,
        sizes: Option<Vec<usize>>,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut plan = Plan { budget: team::seconds("seconds", seconds)?, ..Plan::default() };
        if let Some(calls) = calls {
            plan.kinds = kinds(&calls)?;
        }
        if let Some(sizes) = sizes {
            plan.sizes = sizes;
        }
        let tuning = self.with(py, |rank| tune(rank, &plan))?;
        measurements(py, &tuning)
    }

    /// Leaves the team, after all started calls are over. Ranks that still wait for this rank get
    /// PeerLeft. Arrays of empty() stay usable.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        let busy = inner.enter()?;
        let rank = Here(inner.rank.take());
        py.detach(move || drop(rank.get()));
        inner.pending.borrow_mut().clear();
        drop(busy);
        interrupt::settle(Ok::<(), Failure>(()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.leave(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        format!("<trimtab_team.Rank {} of {}>", self.rank, self.size)
    }
}
