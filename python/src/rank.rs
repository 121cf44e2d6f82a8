//! A rank: the collectives, blocks in the segment, and started calls.

use crate::block::Block;
use crate::buffer::{Buffer, dtype, name};
use crate::errors::{self, argument};
use crate::pinned::{Here, Pinned};
use crate::request::Request;
use crate::{interrupt, team};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use trimtab_team::{Call, Kernel, Kind, Operator, Shared, Sync, Team, Type};

/// A thread's place in its team. Only the thread that joined can use it.
///
/// All ranks make the same calls in the same order. Arrays are anything with the buffer protocol whose elements lie one after the
/// other: int8 to int64, uint8 to uint64, float16, bfloat16, float32, float64. Where out is not given, a numpy array is made.
///
/// op is 'sum', 'prod', 'min', 'max', 'and', 'or' or 'xor'; the result has the same bits on all ranks.
///
/// sync says who waits for whom:
///   'mine'    own arrays are given and taken when the call returns (the usual, as in MPI)
///   'loose'   nobody waits for more than its data; what lies in the segment may be used again after fence()
///   'strict'  all wait for all, before and after
///
/// dtype reads the elements as another type of the same size: dtype='bfloat16' with arrays of uint16.
#[pyclass(module = "trimtab_team", frozen, weakref)]
pub(crate) struct Rank {
    inner: Pinned<Inner>,
    team: Team,
    /// This rank's number, from 0.
    #[pyo3(get)]
    rank: u32,
    /// How many ranks the team has.
    #[pyo3(get)]
    size: u32,
    /// Whether there are more ranks than processors for them.
    #[pyo3(get)]
    crowded: bool,
}

/// What the thread alone has.
struct Inner {
    /// In a call: a signal's handler may try another.
    busy: Cell<bool>,
    rank: RefCell<Option<trimtab_team::Rank>>,
    /// Arrays of started calls; given back after the rank is gone, or the call is over.
    pending: RefCell<Vec<(trimtab_team::Request, Prepared)>>,
    /// Blocks in the segment, by where this rank's own begins.
    blocks: RefCell<HashMap<usize, Held>>,
}

struct Held {
    shared: Shared<u8>,
    shape: Vec<usize>,
    elements: Type,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Without the lock: what was started is brought to its end, for which others of this process may be needed.
        let rank = Here(self.rank.take());
        if rank.0.is_some() {
            Python::attach(|py| py.detach(move || drop(rank.get())));
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
                "this rank is in the midst of a call, and a handler of a signal can make no other",
            ));
        }
        Ok(Busy(&self.busy))
    }
}

/// What a method was asked for.
struct Asked<'a, 'py> {
    kind: Kind,
    a: Option<&'a Bound<'py, PyAny>>,
    out: Option<&'a Bound<'py, PyAny>>,
    op: Option<&'a str>,
    root: u32,
    sync: &'a str,
    dtype: Option<&'a Bound<'py, PyAny>>,
}

/// A call, and what keeps its elements in place.
struct Prepared {
    call: Call,
    result: Py<PyAny>,
    _buffers: [Option<Buffer>; 2],
}

fn mode(word: &str) -> PyResult<Sync> {
    Ok(match word {
        "mine" => Sync::MINE,
        "loose" => Sync::LOOSE,
        "strict" => Sync::STRICT,
        _ => return Err(argument(format!("sync is 'mine', 'loose' or 'strict', not {word:?}"))),
    })
}

fn operator(word: &str) -> PyResult<Operator> {
    Operator::ALL.into_iter().find(|operator| operator.name() == word).ok_or_else(|| {
        argument(format!("op is 'sum', 'prod', 'min', 'max', 'and', 'or' or 'xor', not {word:?}"))
    })
}

/// A new array of numpy's, of the type that `like` has.
fn array(like: &Bound<'_, PyAny>, elements: Type, shape: &[usize]) -> PyResult<Py<PyAny>> {
    let py = like.py();
    let numpy = py.import("numpy").map_err(|_| argument("without numpy an array must be given as out="))?;
    let shape = PyTuple::new(py, shape)?;
    let array = match like.getattr("dtype") {
        Ok(dtype) if !dtype.is_instance_of::<pyo3::types::PyString>() => {
            numpy.call_method1("empty", (shape, dtype))?
        }
        _ => numpy
            .call_method1("empty", (shape, if elements == Type::BF16 { "uint16" } else { name(elements) }))?,
    };
    Ok(array.unbind())
}

impl Rank {
    pub(crate) fn new(rank: trimtab_team::Rank, team: Team) -> Self {
        let (number, size, crowded) = (rank.rank(), rank.ranks(), rank.crowded());
        let inner = Inner {
            busy: Cell::new(false),
            rank: RefCell::new(Some(rank)),
            pending: RefCell::default(),
            blocks: RefCell::default(),
        };
        Self { inner: Pinned::new(inner), team, rank: number, size, crowded }
    }

    /// Does something with the rank, without the interpreter's lock.
    pub(crate) fn with<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&trimtab_team::Rank) -> trimtab_team::Result<T>,
    ) -> PyResult<T> {
        let result = self.outside(py, work)?;
        interrupt::settle(result)
    }

    /// The same, for who has to know whether it was done before an exception of a handler is raised.
    fn outside<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&trimtab_team::Rank) -> trimtab_team::Result<T>,
    ) -> PyResult<trimtab_team::Result<T>> {
        let inner = self.inner.get()?;
        let busy = inner.enter()?;
        let rank = inner.rank.borrow();
        let rank = rank.as_ref().ok_or_else(|| errors::raise("Refused", "this rank has left its team"))?;
        let job = Here((rank, work));
        let result = py.detach(move || {
            let (rank, work) = job.get();
            Here(work(rank))
        });
        let pending = &inner.pending;
        if !pending.borrow().is_empty() {
            pending.borrow_mut().retain(|(request, _)| matches!(rank.test(request), Ok(false)));
        }
        drop(busy);
        Ok(result.get())
    }

    /// Looks at all that was passed, and makes the call of it.
    fn prepare(&self, asked: &Asked<'_, '_>) -> PyResult<Prepared> {
        let (kind, size) = (asked.kind, self.size as usize);
        if asked.root >= self.size {
            return Err(argument(format!("root {} is not one of the {size} ranks", asked.root)));
        }
        let told = asked.dtype.map(dtype).transpose()?;
        let sync = mode(asked.sync)?;
        let is_root = asked.root == self.rank;
        let gives = kind != Kind::Scatter || is_root;
        let gets = !matches!(kind, Kind::Reduce | Kind::Gather) || is_root;
        let missing = |what: &str| argument(format!("{} needs an array as {what}", kind.name()));
        let input = if gives {
            let a = asked.a.filter(|a| !a.is_none()).ok_or_else(|| missing("a"))?;
            Some((a, Buffer::of(a, "a", kind == Kind::Broadcast, told)?))
        } else {
            None
        };
        let (mut output, mut result) = (None, None);
        if kind == Kind::Broadcast {
            result = asked.a.map(|a| a.clone().unbind());
        } else if gets {
            let out = match (asked.out.filter(|out| !out.is_none()), &input) {
                (Some(out), _) => out.clone(),
                (None, Some((a, input))) if kind != Kind::Scatter => {
                    let shape = self.shape_of_result(kind, &input.shape)?;
                    array(a, input.elements, &shape)?.into_bound(a.py())
                }
                _ => return Err(missing("out")),
            };
            output = Some(Buffer::of(&out, "out", true, told)?);
            result = Some(out.unbind());
        }
        let input = input.map(|(_, input)| input);
        if let (Some(input), Some(output)) = (&input, &output) {
            fit(input, output)?;
        }
        let one = input.as_ref().or(output.as_ref()).ok_or_else(|| missing("a"))?;
        let elements = one.elements;
        let count = match kind {
            Kind::ReduceScatter | Kind::Scatter => output.as_ref().map_or(0, |output| output.count),
            Kind::Alltoall => one.count / size,
            _ => one.count,
        };
        let at = |buffer: &Option<Buffer>| {
            buffer.as_ref().map_or(std::ptr::dangling_mut::<u64>().cast(), |b| b.address)
        };
        let operator = asked.op.map(operator).transpose()?;
        let kernel =
            operator.map(|operator| Kernel::of(elements, operator)).transpose().map_err(errors::of)?;
        let call = Call {
            kind,
            elements,
            operator,
            kernel,
            count,
            root: asked.root,
            input: at(&input).cast_const(),
            output: if kind == Kind::Broadcast { at(&input) } else { at(&output) },
            sync,
        };
        trimtab_team::call::check(&call, self.size).map_err(errors::of)?;
        let (needs, yields) = kind.shape(self.size, count, is_root);
        for (what, buffer, right) in [("a", &input, needs), ("out", &output, yields)] {
            if let Some(buffer) = buffer
                && buffer.count != right
                && kind != Kind::Broadcast
            {
                let words = format!("{} needs {right} elements in {what}, not {}", kind.name(), buffer.count);
                return Err(argument(words));
            }
        }
        let none = || Python::attach(|py| py.None());
        Ok(Prepared { call, result: result.unwrap_or_else(none), _buffers: [input, output] })
    }

    /// What is made where no output is given.
    fn shape_of_result(&self, kind: Kind, shape: &[usize]) -> PyResult<Vec<usize>> {
        let size = self.size as usize;
        Ok(match (kind, shape) {
            (Kind::Gather | Kind::Allgather, shape) => [&[size], shape].concat(),
            (Kind::ReduceScatter, [first, rest @ ..]) if first % size == 0 => {
                [&[first / size], rest].concat()
            }
            (Kind::ReduceScatter, _) => {
                let words = "without out= the first dimension of a is split among the ranks, and must be a multiple of their number";
                return Err(argument(words));
            }
            (_, shape) => shape.to_vec(),
        })
    }

    fn go(&self, py: Python<'_>, asked: &Asked<'_, '_>) -> PyResult<Py<PyAny>> {
        let prepared = self.prepare(asked)?;
        // SAFETY: the buffers are as long as was just seen, the same or apart, and held until the call is over.
        self.with(py, |rank| unsafe { rank.call(&prepared.call) })?;
        Ok(prepared.result)
    }

    fn start(slf: &Bound<'_, Self>, asked: &Asked<'_, '_>) -> PyResult<Request> {
        let py = slf.py();
        let this = slf.get();
        let prepared = this.prepare(asked)?;
        // SAFETY: as above, and `pending` holds the buffers until the call is over or the rank gone.
        let started = this.outside(py, |rank| unsafe { rank.start(prepared.call) })?;
        let result = prepared.result.clone_ref(py);
        if let Ok(request) = &started {
            this.inner.get()?.pending.borrow_mut().push((request.clone(), prepared));
        }
        let request = interrupt::settle(started)?;
        Ok(Request { rank: slf.clone().unbind(), request: Pinned::new(request), result })
    }

    /// The block that begins where an array does.
    fn block_of<T>(&self, a: &Bound<'_, PyAny>, work: impl FnOnce(&Held) -> T) -> PyResult<T> {
        let begin = Buffer::of(a, "a", false, None)?.address as usize;
        let blocks = self.inner.get()?.blocks.borrow();
        blocks
            .get(&begin)
            .map(work)
            .ok_or_else(|| argument("a does not begin where an array of this rank's empty() does"))
    }
}

/// Whether an input and an output can be of one call.
fn fit(input: &Buffer, output: &Buffer) -> PyResult<()> {
    if input.elements != output.elements {
        return Err(argument(format!(
            "a has elements of {}, and out of {}",
            name(input.elements),
            name(output.elements)
        )));
    }
    let (from, to) = (input.address as usize, output.address as usize);
    let overlap = from < to + output.bytes() && to < from + input.bytes();
    if overlap && (from, input.bytes()) != (to, output.bytes()) {
        return Err(argument("a and out overlap: they must be the same memory, or apart"));
    }
    Ok(())
}

#[pymethods]
impl Rank {
    /// Waits until all ranks have come.
    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, trimtab_team::Rank::barrier)
    }

    /// Ends a stretch of loose calls: what lies in the segment is everybody's own again.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, trimtab_team::Rank::fence)
    }

    /// From now on waits are broken off after so many seconds, and the team with them; None waits for ever.
    #[pyo3(signature = (seconds))]
    fn set_deadline(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<()> {
        let deadline = seconds.map(|seconds| team::seconds("deadline", seconds)).transpose()?;
        self.with(py, move |rank| {
            rank.set_deadline(deadline);
            Ok(())
        })
    }

    /// A numpy array in the team's memory: collectives use it where it lies, without a copy, and others can reach it (peer()). It is
    /// zero at first, or what was there before. All ranks must ask alike, and in the same order; nobody waits.
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
        let shape: Vec<usize> = match shape.extract::<usize>() {
            Ok(length) => vec![length],
            Err(_) => shape.extract().map_err(|_| argument("shape is a length, or a tuple of them"))?,
        };
        let elements = dtype.map_or(Ok(Type::F64), crate::buffer::dtype)?;
        let bytes = shape.iter().try_fold(elements.size(), |bytes, length| bytes.checked_mul(*length));
        let bytes = bytes.ok_or_else(|| argument(format!("{shape:?} elements are too many")))?;
        let shared = self.with(py, |rank| rank.alloc::<u8>(bytes.max(1)))?;
        let address = shared.own().expose_provenance();
        let held = Held { shared, shape: shape.clone(), elements };
        self.inner.get()?.blocks.borrow_mut().insert(address, held);
        Ok(Block { team: self.team.clone(), address, shape, elements })
    }

    /// Another rank's block of the same empty(), as an array of the same shape: what is written there is written for that rank. Who
    /// reads and writes when is ordered by barrier() or fence().
    fn peer(&self, py: Python<'_>, a: &Bound<'_, PyAny>, rank: u32) -> PyResult<Py<PyAny>> {
        if rank >= self.size {
            return Err(argument(format!("rank {rank} is not one of the {} ranks", self.size)));
        }
        let team = self.team.clone();
        let block = self.block_of(a, |held| Block {
            team,
            address: held.shared.of(rank).expose_provenance(),
            shape: held.shape.clone(),
            elements: held.elements,
        })?;
        block.array(py)
    }

    /// Gives an array of empty() back, so that later ones can lie there. All ranks must do so alike, after a barrier at which nobody
    /// uses it any more.
    fn free(&self, py: Python<'_>, a: &Bound<'_, PyAny>) -> PyResult<()> {
        let begin = self.block_of(a, |held| held.shared.own().expose_provenance())?;
        if let Some(held) = self.inner.get()?.blocks.borrow_mut().remove(&begin) {
            self.with(py, move |rank| rank.free(held.shared))?;
        }
        Ok(())
    }

    /// Leaves the team, after all that was started is over. Who still waits for this rank gets PeerLeft. Arrays of empty() stay usable.
    fn leave(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get()?;
        let busy = inner.enter()?;
        let rank = Here(inner.rank.take());
        py.detach(move || drop(rank.get()));
        inner.pending.borrow_mut().clear();
        drop(busy);
        interrupt::settle(Ok(()))
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

    /// The root's elements into a on all ranks; returns a.
    #[pyo3(signature = (a, root = 0, *, sync = "mine", dtype = None))]
    fn broadcast(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Broadcast, a: Some(a), out: None, op: None, root, sync, dtype })
    }

    /// All ranks' elements combined, to the root, which gets an array like a; others get None.
    #[pyo3(signature = (a, out = None, op = "sum", root = 0, *, sync = "mine", dtype = None))]
    #[expect(clippy::too_many_arguments, reason = "as Python's keywords are")]
    fn reduce(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Reduce, a: Some(a), out, op: Some(op), root, sync, dtype })
    }

    /// All ranks' elements combined, to all. out may be a itself.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn allreduce(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Allreduce, a: Some(a), out, op: Some(op), root: 0, sync, dtype })
    }

    /// All ranks' elements combined, split along the first dimension, a part to each.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn reduce_scatter(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::ReduceScatter, a: Some(a), out, op: Some(op), root: 0, sync, dtype })
    }

    /// All ranks' arrays, stacked along a new first dimension, to the root; others get None.
    #[pyo3(signature = (a, out = None, root = 0, *, sync = "mine", dtype = None))]
    fn gather(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Gather, a: Some(a), out, op: None, root, sync, dtype })
    }

    /// All ranks' arrays, stacked along a new first dimension, to all.
    #[pyo3(signature = (a, out = None, *, sync = "mine", dtype = None))]
    fn allgather(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Allgather, a: Some(a), out, op: None, root: 0, sync, dtype })
    }

    /// Parts of the root's a into out, in the order of ranks; the others' a is None. Returns out.
    #[pyo3(signature = (a, out, root = 0, *, sync = "mine", dtype = None))]
    fn scatter(
        &self,
        py: Python<'_>,
        a: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Scatter, a, out, op: None, root, sync, dtype })
    }

    /// Part i of a to rank i, and what rank i has for this one into part i of the result.
    #[pyo3(signature = (a, out = None, *, sync = "mine", dtype = None))]
    fn alltoall(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Alltoall, a: Some(a), out, op: None, root: 0, sync, dtype })
    }

    /// The elements of ranks 0 to this one combined.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn scan(
        &self,
        py: Python<'_>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<PyAny>> {
        self.go(py, &Asked { kind: Kind::Scan, a: Some(a), out, op: Some(op), root: 0, sync, dtype })
    }

    /// Starts broadcast(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, root = 0, *, sync = "mine", dtype = None))]
    fn start_broadcast(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Broadcast, a: Some(a), out: None, op: None, root, sync, dtype })
    }

    /// Starts reduce(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, op = "sum", root = 0, *, sync = "mine", dtype = None))]
    fn start_reduce(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Reduce, a: Some(a), out, op: Some(op), root, sync, dtype })
    }

    /// Starts allreduce(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn start_allreduce(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(
            slf,
            &Asked { kind: Kind::Allreduce, a: Some(a), out, op: Some(op), root: 0, sync, dtype },
        )
    }

    /// Starts reduce_scatter(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn start_reduce_scatter(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(
            slf,
            &Asked { kind: Kind::ReduceScatter, a: Some(a), out, op: Some(op), root: 0, sync, dtype },
        )
    }

    /// Starts gather(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, root = 0, *, sync = "mine", dtype = None))]
    fn start_gather(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Gather, a: Some(a), out, op: None, root, sync, dtype })
    }

    /// Starts allgather(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, *, sync = "mine", dtype = None))]
    fn start_allgather(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Allgather, a: Some(a), out, op: None, root: 0, sync, dtype })
    }

    /// Starts scatter(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out, root = 0, *, sync = "mine", dtype = None))]
    fn start_scatter(
        slf: &Bound<'_, Self>,
        a: Option<&Bound<'_, PyAny>>,
        out: Option<&Bound<'_, PyAny>>,
        root: u32,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Scatter, a, out, op: None, root, sync, dtype })
    }

    /// Starts alltoall(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, *, sync = "mine", dtype = None))]
    fn start_alltoall(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Alltoall, a: Some(a), out, op: None, root: 0, sync, dtype })
    }

    /// Starts scan(): it goes on while this rank tests it, waits for it or makes other calls.
    #[pyo3(signature = (a, out = None, op = "sum", *, sync = "mine", dtype = None))]
    fn start_scan(
        slf: &Bound<'_, Self>,
        a: &Bound<'_, PyAny>,
        out: Option<&Bound<'_, PyAny>>,
        op: &str,
        sync: &str,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Request> {
        Self::start(slf, &Asked { kind: Kind::Scan, a: Some(a), out, op: Some(op), root: 0, sync, dtype })
    }
}
