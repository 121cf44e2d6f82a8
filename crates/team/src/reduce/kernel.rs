//! Loops that combine elements: one fold for each pair of a type and an operator, and one for an
//! operator of the caller's own.

use super::element::{And, Combine, Max, Min, Number, Or, Prod, Sum, Xor};
use super::half::{BF16, F16};
use super::kind::{Operator, Type, check};
use crate::{Error, Result};
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

/// An operator of the caller's, on `count` elements: `into[i] = into[i] op from[i]`. It must be
/// associative, the same on all ranks, and combine each element independently, since it is called
/// for pieces. Addresses are as aligned as those that a fold is given.
pub type Own =
    unsafe extern "C" fn(into: *mut c_void, from: *const c_void, count: usize, context: *mut c_void);

/// A loop with its destination, its sources in their order, and the number of elements.
type Fold = unsafe fn(into: *mut u8, sources: &[*const u8], count: usize);

/// The code that combines elements of one type by one operator. Chosen once, then called through an
/// address.
///
/// # Examples
/// ```
/// use trimtab_team::{Kernel, Operator, Type};
///
/// let kernel = Kernel::of(Type::U16, Operator::Max)?;
/// assert_eq!(kernel.size(), 2);
/// let (mut into, from, last) = ([1_u16, 5], [3_u16, 4], [2_u16, 9]);
/// let at = into.as_mut_ptr().cast::<u8>();
/// // SAFETY: all have two elements, and nothing else uses them.
/// unsafe { kernel.combine(at, from.as_ptr().cast(), 2) };
/// assert_eq!(into, [3, 5]);
///
/// let at = into.as_mut_ptr().cast::<u8>();
/// // SAFETY: as above; the destination is the first source.
/// unsafe { kernel.fold(at, &[at.cast_const(), last.as_ptr().cast()], 2) };
/// assert_eq!(into, [3, 9]);
/// # Ok::<(), trimtab_team::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    size: usize,
    code: Code,
}

#[derive(Debug, Clone, Copy)]
enum Code {
    Built(Fold),
    Own(Own, *mut c_void),
}

impl Kernel {
    /// Returns the code for a pair, in the widest vectors that both the CPU and this crate support.
    /// [`Kernel`] has an example.
    ///
    /// # Errors
    /// [`Error::Argument`] if they do not go together: see [`check`].
    pub fn of(elements: Type, operator: Operator) -> Result<Self> {
        Self::choose(elements, operator, true)
    }

    /// Returns the kernel of an operator of the caller's on elements of `size` bytes; `context` is
    /// handed to it.
    ///
    /// # Examples
    /// The longest of all ranks' intervals, as an allreduce of pairs:
    ///
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use std::ffi::c_void;
    /// use trimtab_team::{CollectiveCall, Kernel, Kind, Type};
    ///
    /// type Pair = [u32; 2];
    ///
    /// unsafe extern "C" fn longest(
    ///     into: *mut c_void,
    ///     from: *const c_void,
    ///     count: usize,
    ///     _context: *mut c_void,
    /// ) {
    ///     let length = |pair: Pair| pair[1] - pair[0];
    ///     for at in 0..count {
    ///         // SAFETY: both have `count` pairs, at addresses of any alignment.
    ///         unsafe {
    ///             let (into, from) = (into.cast::<Pair>().add(at), from.cast::<Pair>().add(at));
    ///             let (own, other) = (into.read_unaligned(), from.read_unaligned());
    ///             into.write_unaligned(if length(other) > length(own) { other } else { own });
    ///         }
    ///     }
    /// }
    ///
    /// # ranks::run(3, |rank| {
    /// // In each of three threads.
    /// let mut pair: Pair = [[0, 2], [5, 9], [7, 8]][rank.rank() as usize];
    /// let call = CollectiveCall {
    ///     kind: Kind::Allreduce,
    ///     elements: Type::U64, // As many bytes as a pair.
    ///     // SAFETY: the function accesses the elements that it is given, and does not unwind.
    ///     kernel: Some(unsafe { Kernel::own(longest, std::ptr::null_mut(), size_of::<Pair>())? }),
    ///     count: 1,
    ///     input: pair.as_ptr().cast(),
    ///     output: pair.as_mut_ptr().cast(),
    ///     ..CollectiveCall::BARRIER
    /// };
    /// // SAFETY: `pair` is one element, and is used by the call alone.
    /// unsafe { rank.call(&call)? };
    /// assert_eq!(pair, [5, 9]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Safety
    /// As long as the kernel is used, `operator` may be called with `context` and with addresses
    /// valid for the number of elements that it is given. It accesses no other memory through them,
    /// and does not unwind.
    ///
    /// # Errors
    /// [`Error::Argument`] if elements have no bytes.
    pub unsafe fn own(operator: Own, context: *mut c_void, size: usize) -> Result<Self> {
        if size == 0 {
            return Err(Error::Argument("elements of no bytes cannot be combined".into()));
        }
        Ok(Self { size, code: Code::Own(operator, context) })
    }

    /// Returns the bytes of an element. [`Kernel`] has an example.
    #[inline(always)]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Computes `into[i] = into[i] op from[i]`: a fold of these two. [`Kernel`] has an example.
    ///
    /// # Safety
    /// Both are valid for `count` elements, `into` for writing too, and nothing else writes either
    /// meanwhile. They are equal, or do not overlap. They need not be aligned, unless an operator
    /// of the caller's requires it.
    #[inline]
    pub unsafe fn combine(&self, into: *mut u8, from: *const u8, count: usize) {
        // SAFETY: the caller's promise; `into` is exactly the first source.
        unsafe { self.fold(into, &[into.cast_const(), from], count) }
    }

    /// Computes `into[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ...`. Without
    /// sources nothing is written; one source is copied. [`Kernel`] has an example.
    ///
    /// # Safety
    /// All are valid for `count` elements, `into` for writing, and nothing else writes any of them
    /// meanwhile. `into` may be exactly one of the sources, or several of them; otherwise it
    /// overlaps none. Sources may overlap each other. None need be aligned, unless an operator of
    /// the caller's requires it.
    #[inline(always)]
    pub unsafe fn fold(&self, into: *mut u8, sources: &[*const u8], count: usize) {
        #[cfg(trimtab_model)]
        sources.iter().for_each(|source| crate::sync::model::touch(*source, false));
        match self.code {
            // SAFETY: the caller's promise.
            Code::Built(fold) => unsafe { fold(into, sources, count) },
            // SAFETY: the caller's promise, and that of `own`.
            Code::Own(own, context) => unsafe { fold_own(own, context, self.size, into, sources, count) },
        }
    }

    /// Chooses the code of a pair; without `wide`, the code for every CPU.
    pub(super) fn choose(elements: Type, operator: Operator, wide: bool) -> Result<Self> {
        check(elements, operator)?;
        macro_rules! pick {
            ($type:ty: $($operator:ident)*) => {
                match operator {
                    $(Operator::$operator => build::<$type, $operator>(wide),)*
                    #[allow(unreachable_patterns, reason = "integers have them all")]
                    _ => return Err(Error::Argument(format!("{operator} is not for {elements}"))),
                }
            };
        }
        // If the sign makes no difference to the bits, one loop serves both.
        macro_rules! signed {
            ($type:ty, $unsigned:ty) => {
                match operator {
                    Operator::Min | Operator::Max => pick!($type: Min Max),
                    _ => pick!($unsigned: Sum Prod And Or Xor),
                }
            };
        }
        let fold = match elements {
            Type::I8 => signed!(i8, u8),
            Type::I16 => signed!(i16, u16),
            Type::I32 => signed!(i32, u32),
            Type::I64 => signed!(i64, u64),
            Type::U8 => pick!(u8: Sum Prod Min Max And Or Xor),
            Type::U16 => pick!(u16: Sum Prod Min Max And Or Xor),
            Type::U32 => pick!(u32: Sum Prod Min Max And Or Xor),
            Type::U64 => pick!(u64: Sum Prod Min Max And Or Xor),
            Type::F16 => pick!(F16: Sum Prod Min Max),
            Type::BF16 => pick!(BF16: Sum Prod Min Max),
            Type::F32 => pick!(f32: Sum Prod Min Max),
            Type::F64 => pick!(f64: Sum Prod Min Max),
        };
        Ok(Self { size: elements.size(), code: Code::Built(fold) })
    }
}

fn build<T: Number, O: Combine<T::Wide>>(allow_wide: bool) -> Fold {
    #[cfg(target_arch = "x86_64")]
    if allow_wide && std::arch::is_x86_feature_detected!("avx2") {
        return fold_avx2::<T, O>;
    }
    let _ = allow_wide;
    fold_plain::<T, O>
}

/// # Safety
/// As [`Kernel::fold`].
unsafe fn fold_plain<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold::<T, O>(into, sources, count) }
}

/// # Safety
/// As [`Kernel::fold`], on a CPU with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn fold_avx2<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold::<T, O>(into, sources, count) }
}

/// Folds a few sources side by side, without storing intermediate results. If the result overwrites
/// a source, the compiler cannot use vectors there, and [`fold_blocks`] is used instead.
///
/// # Safety
/// As [`Kernel::fold`].
#[inline(always)]
unsafe fn fold<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    let in_place = || sources.contains(&into.cast_const());
    // SAFETY: each index is below `count`, for which all addresses are valid by the caller's
    // promise.
    unsafe {
        match *sources {
            [] => {}
            [only] => ptr::copy(only, into, count * size_of::<T>()),
            _ if in_place() => fold_blocks::<T, O>(into, sources, count),
            [a, b] => {
                for at in 0..count {
                    put::<T>(into, at, O::combine(get::<T>(a, at), get::<T>(b, at)));
                }
            }
            [a, b, c] => {
                for at in 0..count {
                    let two = O::combine(get::<T>(a, at), get::<T>(b, at));
                    put::<T>(into, at, O::combine(two, get::<T>(c, at)));
                }
            }
            [a, b, c, d] => {
                for at in 0..count {
                    let two = O::combine(get::<T>(a, at), get::<T>(b, at));
                    let three = O::combine(two, get::<T>(c, at));
                    put::<T>(into, at, O::combine(three, get::<T>(d, at)));
                }
            }
            _ => fold_blocks::<T, O>(into, sources, count),
        }
    }
}

/// Elements folded at a time: at most 4 KiB of intermediate results, which stay in the nearest
/// cache.
const BLOCK_ELEMENTS: usize = 512;

/// Folds any number of sources from two on, two of them at a time over a block that only this
/// thread sees. All sources of a block are read before it is written, so the result may overwrite a
/// source.
///
/// # Safety
/// As [`Kernel::fold`], with at least two sources.
#[inline(always)]
unsafe fn fold_blocks<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    let [a, b, rest @ ..] = sources else { return };
    let mut between = [MaybeUninit::<T::Wide>::uninit(); BLOCK_ELEMENTS];
    let mut from = 0;
    while from < count {
        let some = (count - from).min(BLOCK_ELEMENTS);
        let between = &mut between[..some];
        // SAFETY: `from + at` is below `count`, for which all addresses are valid by the caller's
        // promise; the first loop writes every element of `between` that the others read.
        unsafe {
            for (at, wide) in between.iter_mut().enumerate() {
                wide.write(O::combine(get::<T>(*a, from + at), get::<T>(*b, from + at)));
            }
            for pair in rest.chunks(2) {
                match *pair {
                    [c, d] => {
                        for (at, wide) in between.iter_mut().enumerate() {
                            let three = O::combine(wide.assume_init(), get::<T>(c, from + at));
                            wide.write(O::combine(three, get::<T>(d, from + at)));
                        }
                    }
                    [c] => {
                        for (at, wide) in between.iter_mut().enumerate() {
                            wide.write(O::combine(wide.assume_init(), get::<T>(c, from + at)));
                        }
                    }
                    _ => {}
                }
            }
            for (at, wide) in between.iter().enumerate() {
                put::<T>(into, from + at, wide.assume_init());
            }
        }
        from += some;
    }
}

/// # Safety
/// `from` is valid for more than `at` elements.
#[inline(always)]
unsafe fn get<T: Number>(from: *const u8, at: usize) -> T::Wide {
    // SAFETY: the caller's promise; it need not be aligned.
    unsafe { from.cast::<T>().add(at).read_unaligned() }.widen()
}

/// # Safety
/// `into` is valid for more than `at` elements.
#[inline(always)]
unsafe fn put<T: Number>(into: *mut u8, at: usize, wide: T::Wide) {
    // SAFETY: the caller's promise; it need not be aligned.
    unsafe { into.cast::<T>().add(at).write_unaligned(T::narrow(wide)) }
}

/// Memory for pieces, with the greatest alignment that an element may need.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct AlignedLine([u8; 64]);

/// Bytes of a piece that is folded in separate memory.
const ASIDE_BYTES: usize = 4096;

/// # Safety
/// As [`Kernel::fold`] and [`Kernel::own`].
unsafe fn fold_own(
    own: Own,
    context: *mut c_void,
    size: usize,
    into: *mut u8,
    sources: &[*const u8],
    count: usize,
) {
    let [first, rest @ ..] = sources else { return };
    if !rest.contains(&into.cast_const()) {
        // SAFETY: the caller's promise; `copy` permits that the first source is where the result
        // goes.
        unsafe {
            ptr::copy(*first, into, count * size);
            for source in rest {
                own(into.cast(), source.cast(), count, context);
            }
        }
        return;
    }
    // The result would overwrite a later source: pieces are folded in separate memory, then copied
    // to their place.
    let piece = (ASIDE_BYTES / size).max(1).min(count);
    let mut aside = vec![AlignedLine([0; 64]); (piece * size).div_ceil(64)];
    let aside = aside.as_mut_ptr().cast::<u8>();
    let mut from = 0;
    while from < count {
        let some = (count - from).min(piece);
        // SAFETY: `from + some` is at most `count`, for which all addresses are valid by the
        // caller's promise; `aside` has room for `piece` elements, and belongs to this function.
        unsafe {
            ptr::copy_nonoverlapping(first.add(from * size), aside, some * size);
            for source in rest {
                own(aside.cast(), source.add(from * size).cast(), some, context);
            }
            ptr::copy_nonoverlapping(aside, into.add(from * size), some * size);
        }
        from += some;
    }
}
