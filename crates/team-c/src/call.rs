//! Collective calls from C: one structure describes any collective, blocking or started.

use crate::handles::{check_address, write_result};
use crate::mine::Mine;
use crate::rank::of_rank;
use crate::sized::{SelfSized, read_sized};
use std::ffi::{c_int, c_void};
use trimtab_team::reduce::Own;
use trimtab_team::{
    Block, CollectiveCall, Error, Kernel, Kind, Operator, Result, Sync, Type, VariedCall, When,
};

/// `struct trimtab_collective` of `team.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CallOf {
    size: usize,
    kind: u32,
    elements: u32,
    operator: u32,
    sync: u32,
    count: usize,
    root: u32,
    input: *const c_void,
    output: *mut c_void,
    own: Option<Own>,
    context: *mut c_void,
}

impl SelfSized for CallOf {
    const WHAT: &'static str = "call";
    const KNOWN: &'static [usize] = &[size_of::<Self>()];

    fn usual() -> Self {
        Self {
            size: size_of::<Self>(),
            kind: 0,
            elements: 0,
            operator: 0,
            sync: 0,
            count: 0,
            root: 0,
            input: std::ptr::null(),
            output: std::ptr::null_mut(),
            own: None,
            context: std::ptr::null_mut(),
        }
    }
}

fn when(code: u32) -> Result<When> {
    match code {
        0 => Ok(When::None),
        1 => Ok(When::Mine),
        2 => Ok(When::All),
        _ => Err(Error::Argument("no such mode of synchronisation".to_owned())),
    }
}

/// Checks a call and converts it for the library.
///
/// # Safety
/// `asked` is null or points to a call. If the call names an operator of the caller's own, that
/// function may be called in the ways that `team.h` documents.
unsafe fn read(mine: &Mine, asked: *const CallOf) -> Result<CollectiveCall> {
    // SAFETY: the caller's promise.
    let asked = unsafe { read_sized(asked) }?;
    let no = |what: &str, code: u32| Error::Argument(format!("{code} is not a known {what}"));
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| *kind as u32 == asked.kind)
        .ok_or_else(|| no("kind of call", asked.kind))?;
    let elements = Type::from_code(asked.elements).ok_or_else(|| no("type", asked.elements))?;
    let sync = Sync { enter: when(asked.sync & 3)?, leave: when(asked.sync >> 2)? };
    let (operator, kernel) = if !kind.combines() {
        (None, None)
    } else if let Some(own) = asked.own {
        // SAFETY: the caller's promise.
        (None, Some(unsafe { Kernel::own(own, asked.context, elements.size()) }?))
    } else {
        let operator = Operator::from_code(asked.operator).ok_or_else(|| no("operator", asked.operator))?;
        (Some(operator), Some(Kernel::of(elements, operator)?))
    };
    let (ranks, is_root) = (mine.rank.ranks(), asked.root == mine.rank.rank());
    let all = asked.count.checked_mul(ranks as usize).and_then(|all| all.checked_mul(elements.size()));
    if all.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(Error::Argument(format!(
            "{} elements for each of {ranks} ranks are too many",
            asked.count
        )));
    }
    let (gives, gets) = kind.shape(ranks, asked.count, is_root);
    let input = if kind == Kind::Broadcast { asked.output.cast_const() } else { asked.input };
    check_buffer(input, gives * elements.size(), "input")?;
    check_buffer(asked.output, gets * elements.size(), "output")?;
    let (from, to) = (input as usize, asked.output as usize);
    let own = mine.rank.rank() as usize * asked.count * elements.size();
    let (from_end, to_end) = (from + gives * elements.size(), to + gets * elements.size());
    if from < to_end && to < from_end && !in_place(kind, from, to, own) {
        return Err(Error::Argument(
            "input and output overlap: they may be the same, or apart, or this rank's own block of the other"
                .to_owned(),
        ));
    }
    Ok(CollectiveCall {
        kind,
        elements,
        operator,
        kernel,
        count: asked.count,
        root: asked.root,
        input: input.cast(),
        output: asked.output.cast(),
        sync,
    })
}

/// Returns whether buffers that overlap make a call in place; `own` is the offset of this rank's
/// block among those of all ranks.
fn in_place(kind: Kind, from: usize, to: usize, own: usize) -> bool {
    match kind {
        Kind::Gather | Kind::Allgather => from == to + own,
        Kind::Scatter => to == from + own,
        _ => from == to,
    }
}

fn check_buffer(address: *const c_void, bytes: usize, what: &str) -> Result<()> {
    if bytes > 0 && address.is_null() {
        return Err(Error::Argument(format!("there is no {what}")));
    }
    if (address as usize).checked_add(bytes).is_none() {
        return Err(Error::Argument(format!("the {what} goes beyond all addresses")));
    }
    Ok(())
}

/// `struct trimtab_varied` of `team.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct VariedOf {
    size: usize,
    kind: u32,
    elements: u32,
    sync: u32,
    root: u32,
    input: *const c_void,
    gives: *const usize,
    give_places: *const usize,
    output: *mut c_void,
    gets: *const usize,
    get_places: *const usize,
}

impl SelfSized for VariedOf {
    const WHAT: &'static str = "call";
    const KNOWN: &'static [usize] = &[size_of::<Self>()];

    fn usual() -> Self {
        Self {
            size: size_of::<Self>(),
            kind: 0,
            elements: 0,
            sync: 0,
            root: 0,
            input: std::ptr::null(),
            gives: std::ptr::null(),
            give_places: std::ptr::null(),
            output: std::ptr::null_mut(),
            gets: std::ptr::null(),
            get_places: std::ptr::null(),
        }
    }
}

/// Reads the blocks of a buffer; without places they are one behind the other.
///
/// # Safety
/// `counts` and `places` are null or have `many` numbers.
unsafe fn read_blocks(
    what: &str,
    many: usize,
    counts: *const usize,
    places: *const usize,
) -> Result<Vec<Block>> {
    if many == 0 {
        return Ok(Vec::new());
    }
    check_buffer(counts.cast(), many * size_of::<usize>(), &format!("array of counts of {what}"))?;
    // SAFETY: the caller's promise.
    let counts = unsafe { std::slice::from_raw_parts(counts, many) };
    if places.is_null() {
        return Ok(Block::packed(counts).collect());
    }
    // SAFETY: the caller's promise.
    let places = unsafe { std::slice::from_raw_parts(places, many) };
    Ok(places.iter().zip(counts).map(|(place, count)| Block { place: *place, count: *count }).collect())
}

/// Carries out a call with blocks of different sizes and places.
///
/// # Safety
/// `asked` is null, or a call with as many numbers in its arrays as its kind needs, and with
/// buffers that are valid for their blocks (`team.h`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_call_varied(handle: u64, asked: *const VariedOf) -> c_int {
    of_rank(handle, |mine| {
        // SAFETY: the caller's promise.
        let asked = unsafe { read_sized(asked) }?;
        let no = |what: &str, code: u32| Error::Argument(format!("{code} is not a known {what}"));
        let (n, at_root) = (mine.rank.ranks() as usize, asked.root == mine.rank.rank());
        let root_has = |many| if at_root { many } else { 0 };
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u32 == asked.kind);
        let (gives, gets) = match kind {
            Some(Kind::Gather) => (1, root_has(n)),
            Some(Kind::Allgather) => (1, n),
            Some(Kind::Scatter) => (root_has(n), 1),
            Some(Kind::Alltoall) => (n, n),
            _ => return Err(no("kind of call with blocks of different sizes", asked.kind)),
        };
        let elements = Type::from_code(asked.elements).ok_or_else(|| no("type", asked.elements))?;
        // SAFETY: the caller's promise.
        let (gives, gets) = unsafe {
            (
                read_blocks("input", gives, asked.gives, asked.give_places)?,
                read_blocks("output", gets, asked.gets, asked.get_places)?,
            )
        };
        for (what, address, blocks) in
            [("input", asked.input, &gives), ("output", asked.output.cast_const(), &gets)]
        {
            let any = blocks.iter().any(|block| block.count > 0);
            check_buffer(address, usize::from(any), what)?;
        }
        let call = VariedCall {
            kind: kind.unwrap_or(Kind::Alltoall),
            elements,
            root: asked.root,
            input: asked.input.cast(),
            gives: &gives,
            output: asked.output.cast(),
            gets: &gets,
            sync: Sync { enter: when(asked.sync & 3)?, leave: when(asked.sync >> 2)? },
        };
        // SAFETY: the caller's promise.
        unsafe { mine.rank.call_varied(&call) }
    })
}

/// Carries out a call and returns when it is over.
///
/// # Safety
/// `asked` is null, or a call whose buffers are valid for the data that its kind gives and gets
/// (`team.h`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_call(handle: u64, asked: *const CallOf) -> c_int {
    of_rank(handle, |mine| {
        // SAFETY: the caller's promise.
        unsafe { mine.rank.call(&read(mine, asked)?) }
    })
}

/// Starts a call; the handle of the started call is written to `request`.
///
/// # Safety
/// As [`trimtab_call`], and the buffers stay valid until the call is over; `request` is null or
/// valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_start(handle: u64, asked: *const CallOf, request: *mut u64) -> c_int {
    of_rank(handle, |mine| {
        check_address(request)?;
        // SAFETY: the caller's promise.
        let started = unsafe { mine.rank.start(read(mine, asked)?) }?;
        let number = mine.requests.borrow_mut().add(started);
        // SAFETY: the caller's promise.
        unsafe { write_result(request, number) }
    })
}

/// Tests whether a started call is over; if it is, its handle is freed.
///
/// # Safety
/// `done` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_test(handle: u64, request: u64, done: *mut c_int) -> c_int {
    of_rank(handle, |mine| {
        let started = mine.requests.borrow().get(request)?.clone();
        let tested = mine.rank.test(&started);
        if !matches!(tested, Ok(false)) {
            let _ = mine.requests.borrow_mut().take(request);
        }
        // SAFETY: the caller's promise.
        unsafe { write_result(done, tested?.into()) }
    })
}

/// Waits for a started call, and frees its handle.
#[unsafe(no_mangle)]
pub extern "C" fn trimtab_wait(handle: u64, request: u64) -> c_int {
    of_rank(handle, |mine| {
        let started = mine.requests.borrow_mut().take(request)?;
        mine.rank.wait(&started)
    })
}
