//! Checks the arguments of a rank's method once, and makes them a call of the team library.
//!
//! **Properties.** Every error in arguments is an exception here, before any other rank sees the
//! call.

use crate::buffer::{Buffer, dtype, name};
use crate::errors::{self, argument};
use crate::operator::Own;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};
use trimtab_team::{CollectiveCall, Kernel, Kind, Operator, Sync, Type, When};

/// The arguments of a method, as they were passed, if they were.
pub(crate) struct CallArguments<'a, 'py> {
    pub(crate) kind: Kind,
    pub(crate) a: Option<&'a Bound<'py, PyAny>>,
    pub(crate) out: Option<&'a Bound<'py, PyAny>>,
    pub(crate) op: Option<&'a Bound<'py, PyAny>>,
    pub(crate) root: Option<&'a Bound<'py, PyAny>>,
    pub(crate) sync: Option<&'a Bound<'py, PyAny>>,
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
}

/// A call, and the objects that keep its elements in place.
pub(crate) struct Prepared {
    pub(crate) call: CollectiveCall,
    pub(crate) result: Py<PyAny>,
    /// The caller's own operator, if there is one. The call's kernel has its address.
    pub(crate) own: Option<Box<Own>>,
    _buffers: [Option<Buffer>; 2],
}

/// Returns a string, or `None` for any other object.
fn word(passed: &Bound<'_, PyAny>) -> Option<String> {
    passed.cast::<PyString>().ok().map(|word| word.to_string())
}

fn when(passed: &Bound<'_, PyAny>) -> Option<When> {
    Some(match word(passed)?.as_str() {
        "none" => When::None,
        "mine" => When::Mine,
        "all" => When::All,
        _ => return None,
    })
}

/// Returns the kind of a call by its method's name.
pub(crate) fn kind(name: &str) -> PyResult<Kind> {
    let known = Kind::ALL.map(Kind::name);
    let found = Kind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| argument(format!("{name:?} is no call of a rank (known: {})", known.join(", "))))
}

/// Returns the kinds of calls by their methods' names.
pub(crate) fn kinds(names: &[String]) -> PyResult<Vec<Kind>> {
    names.iter().map(|name| kind(name)).collect()
}

fn mode(passed: Option<&Bound<'_, PyAny>>, usual: Sync) -> PyResult<Sync> {
    let Some(passed) = passed else { return Ok(usual) };
    let found = match word(passed).as_deref() {
        Some("mine") => Some(Sync::MINE),
        Some("loose") => Some(Sync::LOOSE),
        Some("strict") => Some(Sync::STRICT),
        _ => passed
            .extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()
            .ok()
            .and_then(|(enter, leave)| Some(Sync { enter: when(&enter)?, leave: when(&leave)? })),
    };
    found.ok_or_else(|| {
        argument(format!(
            "sync is 'mine', 'loose' or 'strict', or a pair of 'none', 'mine' or 'all' for the beginning and the end, not {passed:?}"
        ))
    })
}

/// Operator by which elements are combined.
enum Combining {
    Built(Operator),
    Own(Py<PyAny>),
}

/// The operator of a call, its kernel, and the caller's own operator if it is one.
type Combination = (Option<Operator>, Option<Kernel>, Option<Box<Own>>);

fn operator(passed: Option<&Bound<'_, PyAny>>) -> PyResult<Combining> {
    let Some(passed) = passed else { return Ok(Combining::Built(Operator::Sum)) };
    let known =
        word(passed).and_then(|word| Operator::ALL.into_iter().find(|operator| operator.name() == word));
    match known {
        Some(operator) => Ok(Combining::Built(operator)),
        None if passed.is_callable() => Ok(Combining::Own(passed.clone().unbind())),
        None => Err(argument(format!(
            "op is 'sum', 'prod', 'min', 'max', 'and', 'or' or 'xor', or a function of two arrays, not {passed:?}"
        ))),
    }
}

/// Makes a new numpy array, of the same type as `like`.
pub(crate) fn array(like: &Bound<'_, PyAny>, elements: Type, shape: &[usize]) -> PyResult<Py<PyAny>> {
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

impl CallArguments<'_, '_> {
    /// Makes the arguments of a call of this kind, with none passed yet.
    pub(crate) fn of(kind: Kind) -> Self {
        Self { kind, a: None, out: None, op: None, root: None, sync: None, dtype: None }
    }

    /// Checks everything that was passed, and makes the call. `usual`: its synchronisation if none
    /// was passed.
    pub(crate) fn prepare(&self, rank: u32, ranks: u32, usual: Sync) -> PyResult<Prepared> {
        let kind = self.kind;
        let root = self.root_of(ranks)?;
        let told = self.dtype.map(dtype).transpose()?;
        let sync = mode(self.sync, usual)?;
        let is_root = root == rank;
        let input = if kind != Kind::Scatter || is_root {
            let a = self.a.filter(|a| !a.is_none()).ok_or_else(|| self.missing("a"))?;
            Some(Buffer::of(a, "a", kind == Kind::Broadcast, told)?)
        } else {
            None
        };
        let gets = !matches!(kind, Kind::Reduce | Kind::Gather) || is_root;
        let (output, result) = self.output(gets, input.as_ref(), told, ranks)?;
        if let (Some(input), Some(output)) = (&input, &output) {
            fit(input, output)?;
        }
        let one = input.as_ref().or(output.as_ref()).ok_or_else(|| self.missing("a"))?;
        let elements = one.elements;
        let count = match kind {
            Kind::ReduceScatter | Kind::Scatter => output.as_ref().map_or(0, |output| output.count),
            Kind::Alltoall => one.count / ranks as usize,
            _ => one.count,
        };
        let at = |buffer: &Option<Buffer>| {
            buffer.as_ref().map_or(std::ptr::dangling_mut::<u64>().cast(), |b| b.address)
        };
        let (operator, kernel, own) = self.combining(elements)?;
        let call = CollectiveCall {
            kind,
            elements,
            operator,
            kernel,
            count,
            root,
            input: at(&input).cast_const(),
            output: if kind == Kind::Broadcast { at(&input) } else { at(&output) },
            sync,
        };
        trimtab_team::call::check(&call, ranks).map_err(errors::of)?;
        let (needs, yields) = kind.shape(ranks, count, is_root);
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
        Ok(Prepared { call, result: result.unwrap_or_else(none), own, _buffers: [input, output] })
    }

    fn missing(&self, what: &str) -> PyErr {
        argument(format!("{} needs an array as {what}", self.kind.name()))
    }

    fn root_of(&self, ranks: u32) -> PyResult<u32> {
        let Some(root) = self.root else { return Ok(0) };
        let found = root.extract::<u32>().ok().filter(|root| *root < ranks);
        found.ok_or_else(|| argument(format!("root {root} is not one of the {ranks} ranks")))
    }

    /// Returns the buffer of the output, made if none was passed, and the object that is the
    /// result.
    fn output(
        &self,
        gets: bool,
        input: Option<&Buffer>,
        told: Option<Type>,
        ranks: u32,
    ) -> PyResult<(Option<Buffer>, Option<Py<PyAny>>)> {
        if self.kind == Kind::Broadcast {
            return Ok((None, self.a.map(|a| a.clone().unbind())));
        }
        if !gets {
            return Ok((None, None));
        }
        let out = match (self.out.filter(|out| !out.is_none()), self.a, input) {
            (Some(out), _, _) => out.clone(),
            (None, Some(a), Some(input)) if self.kind != Kind::Scatter => {
                let shape = shape_of_result(self.kind, ranks as usize, &input.shape)?;
                array(a, input.elements, &shape)?.into_bound(a.py())
            }
            _ => return Err(self.missing("out")),
        };
        Ok((Some(Buffer::of(&out, "out", true, told)?), Some(out.unbind())))
    }

    /// Returns the operator or the caller's own, and the kernel, of a call that combines elements.
    fn combining(&self, elements: Type) -> PyResult<Combination> {
        if !self.kind.combines() {
            return Ok((None, None, None));
        }
        match operator(self.op)? {
            Combining::Built(built) => {
                Ok((Some(built), Some(Kernel::of(elements, built).map_err(errors::of)?), None))
            }
            Combining::Own(callable) => {
                let like = self.a.ok_or_else(|| self.missing("a"))?;
                let made = Own::new(callable, like, elements)?;
                Ok((None, Some(made.kernel().map_err(errors::of)?), Some(made)))
            }
        }
    }
}

/// Returns the shape of the array that is made if no output is given.
fn shape_of_result(kind: Kind, size: usize, shape: &[usize]) -> PyResult<Vec<usize>> {
    Ok(match (kind, shape) {
        (Kind::Gather | Kind::Allgather, shape) => [&[size], shape].concat(),
        (Kind::ReduceScatter, [first, rest @ ..]) if first % size == 0 => [&[first / size], rest].concat(),
        (Kind::ReduceScatter, _) => {
            let words = "without out= the first dimension of a is split among the ranks, and must be a multiple of their number";
            return Err(argument(words));
        }
        (_, shape) => shape.to_vec(),
    })
}

/// Checks whether an input and an output can be of one call.
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
