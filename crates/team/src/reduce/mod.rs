//! Combining elements: types, operators, and the code for each pair of them.
//!
//! **Unit.** A [`Kernel`] combines `count` elements of one [`Type`] by one [`Operator`].
//!
//! **Idea.** Sources are addresses, since they may be memory that others write next; they are read once. A fold of several sources goes
//! through them in blocks that stay in the nearest cache, always in the order of sources, so the result has the same bits wherever it
//! is computed. The loops are plain, and compiled twice on x86-64: for every processor, and for those with AVX2 (the same operations, none
//! fused, so the same bits).
//!
//! **Properties.** Integers wrap. The least and the greatest of floating point numbers are not-a-number if any is, and -0 is less than 0.
//! 16-bit floating point numbers are combined as 32-bit ones and rounded once, at the end of a fold, to the nearest, ties to even.

mod half;

pub use half::{BF16, F16};

use crate::{Error, Result};
use std::ffi::c_void;

/// What elements are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "names say it all")]
#[repr(u32)]
pub enum Type {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

impl Type {
    /// All of them, by code.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::BF16,
        Self::F32,
        Self::F64,
    ];

    /// Bytes of an element.
    #[inline(always)]
    pub fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Its name, as in `f64`.
    pub fn name(self) -> &'static str {
        match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }

    /// Its number in signatures and in the C interface.
    #[inline(always)]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The opposite.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Whether it has a fraction.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

/// How elements are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "names say it all")]
#[repr(u32)]
pub enum Operator {
    Sum,
    Prod,
    Min,
    Max,
    And,
    Or,
    Xor,
}

impl Operator {
    /// All of them, by code.
    pub const ALL: [Self; 7] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::And, Self::Or, Self::Xor];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
        }
    }

    /// Its number in signatures and in the C interface.
    #[inline(always)]
    pub fn code(self) -> u32 {
        self as u32
    }

    /// The opposite.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }
}

/// What a team can combine.
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// Its type.
    const TYPE: Type;
}

mod sealed {
    pub trait Sealed {}
}

/// An operator of the caller's: `into[i] = operator(into[i], from[i])`. It must be associative, and the same on all ranks.
pub type Own =
    unsafe extern "C" fn(into: *mut c_void, from: *const c_void, count: usize, context: *mut c_void);

type Fold = unsafe fn(*mut u8, &[*const u8], usize);

/// The code that combines elements of one type by one operator.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// One of ours.
    Built(Fold),
    /// The caller's, with its context and the bytes of an element.
    Own(Own, *mut c_void, usize),
}

/// What is folded at a time: it stays in the nearest cache.
const BLOCK: usize = 512;

/// Numbers as they are combined.
trait Number: Copy {
    type Wide: Copy;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

trait Combine<T> {
    fn combine(a: T, b: T) -> T;
}

struct Sum;
struct Prod;
struct Min;
struct Max;
struct And;
struct Or;
struct Xor;

macro_rules! integers {
    ($($type:ty => $variant:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type { const TYPE: Type = Type::$variant; }
        impl Number for $type {
            type Wide = Self;
            #[inline(always)] fn widen(self) -> Self { self }
            #[inline(always)] fn narrow(wide: Self) -> Self { wide }
        }
        impl Combine<$type> for Sum { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a.wrapping_add(b) } }
        impl Combine<$type> for Prod { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a.wrapping_mul(b) } }
        impl Combine<$type> for Min { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a.min(b) } }
        impl Combine<$type> for Max { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a.max(b) } }
        impl Combine<$type> for And { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a & b } }
        impl Combine<$type> for Or { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a | b } }
        impl Combine<$type> for Xor { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a ^ b } }
    )*};
}

macro_rules! floats {
    ($($type:ty => $variant:ident),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type { const TYPE: Type = Type::$variant; }
        impl Number for $type {
            type Wide = Self;
            #[inline(always)] fn widen(self) -> Self { self }
            #[inline(always)] fn narrow(wide: Self) -> Self { wide }
        }
        impl Combine<$type> for Sum { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a + b } }
        impl Combine<$type> for Prod { #[inline(always)] fn combine(a: $type, b: $type) -> $type { a * b } }
        impl Combine<$type> for Min {
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                // One not-a-number, whichever it was: payloads would differ by order.
                if a.is_nan() || b.is_nan() { <$type>::NAN } else if a < b || a == b && a.is_sign_negative() { a } else { b }
            }
        }
        impl Combine<$type> for Max {
            #[inline(always)]
            fn combine(a: $type, b: $type) -> $type {
                if a.is_nan() || b.is_nan() { <$type>::NAN } else if a > b || a == b && a.is_sign_positive() { a } else { b }
            }
        }
    )*};
}

integers!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64);
floats!(f32 => F32, f64 => F64);

impl sealed::Sealed for F16 {}
impl Element for F16 {
    const TYPE: Type = Type::F16;
}
impl Number for F16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        Self::from_f32(wide)
    }
}
impl sealed::Sealed for BF16 {}
impl Element for BF16 {
    const TYPE: Type = Type::BF16;
}
impl Number for BF16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
    #[inline(always)]
    fn narrow(wide: f32) -> Self {
        Self::from_f32(wide)
    }
}

/// # Safety
/// As [`Kernel::fold`].
#[inline(always)]
unsafe fn fold<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    let into = into.cast::<T>();
    // SAFETY: each index is below `count`, for which all addresses are valid by the caller's promise; nothing need be aligned.
    let get = |source: *const u8, at: usize| unsafe { source.cast::<T>().add(at).read_unaligned().widen() };
    // SAFETY: the same.
    let set = |at: usize, wide: T::Wide| unsafe { into.add(at).write_unaligned(T::narrow(wide)) };
    match *sources {
        [] => {}
        [a] => (0..count).for_each(|at| set(at, get(a, at))),
        [a, b] => (0..count).for_each(|at| set(at, O::combine(get(a, at), get(b, at)))),
        [a, b, c] => {
            (0..count).for_each(|at| set(at, O::combine(O::combine(get(a, at), get(b, at)), get(c, at))))
        }
        [a, b, c, d] => (0..count).for_each(|at| {
            set(at, O::combine(O::combine(O::combine(get(a, at), get(b, at)), get(c, at)), get(d, at)));
        }),
        [first, ref rest @ ..] => {
            let mut from = 0;
            while from < count {
                let some = (count - from).min(BLOCK);
                let mut wide: [T::Wide; BLOCK] = [get(first, from); BLOCK];
                (0..some).for_each(|at| wide[at] = get(first, from + at));
                for source in rest {
                    (0..some).for_each(|at| wide[at] = O::combine(wide[at], get(*source, from + at)));
                }
                (0..some).for_each(|at| set(from + at, wide[at]));
                from += some;
            }
        }
    }
}

unsafe fn plain<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold::<T, O>(into, sources, count) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn wide<T: Number, O: Combine<T::Wide>>(into: *mut u8, sources: &[*const u8], count: usize) {
    // SAFETY: the caller's promise.
    unsafe { fold::<T, O>(into, sources, count) }
}

fn build<T: Number, O: Combine<T::Wide>>(allow_wide: bool) -> Kernel {
    #[cfg(target_arch = "x86_64")]
    if allow_wide && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what it is compiled for.
        return Kernel::Built(|into, sources, count| unsafe { wide::<T, O>(into, sources, count) });
    }
    let _ = allow_wide;
    Kernel::Built(plain::<T, O>)
}

impl Kernel {
    /// The code for a pair; bits are combined of integers alone.
    pub fn of(elements: Type, operator: Operator) -> Result<Self> {
        Self::choose(elements, operator, true)
    }

    fn choose(elements: Type, operator: Operator, wide: bool) -> Result<Self> {
        macro_rules! arithmetic {
            ($type:ty) => {
                match operator {
                    Operator::Sum => build::<$type, Sum>(wide),
                    Operator::Prod => build::<$type, Prod>(wide),
                    Operator::Min => build::<$type, Min>(wide),
                    Operator::Max => build::<$type, Max>(wide),
                    Operator::And | Operator::Or | Operator::Xor => {
                        return Err(Error::Argument(format!(
                            "{} combines bits of integers, not {}",
                            operator.name(),
                            elements.name()
                        )));
                    }
                }
            };
        }
        macro_rules! all {
            ($type:ty) => {
                match operator {
                    Operator::And => build::<$type, And>(wide),
                    Operator::Or => build::<$type, Or>(wide),
                    Operator::Xor => build::<$type, Xor>(wide),
                    _ => arithmetic!($type),
                }
            };
        }
        Ok(match elements {
            Type::I8 => all!(i8),
            Type::I16 => all!(i16),
            Type::I32 => all!(i32),
            Type::I64 => all!(i64),
            Type::U8 => all!(u8),
            Type::U16 => all!(u16),
            Type::U32 => all!(u32),
            Type::U64 => all!(u64),
            Type::F16 => arithmetic!(F16),
            Type::BF16 => arithmetic!(BF16),
            Type::F32 => arithmetic!(f32),
            Type::F64 => arithmetic!(f64),
        })
    }

    /// `into[i] = (sources[0][i] op sources[1][i]) op sources[2][i] ...`, in this order.
    ///
    /// # Safety
    /// All are valid for `count` elements. `into` is no source and overlaps none, except that it may be exactly the first with an operator of
    /// ours.
    #[inline(always)]
    pub unsafe fn fold(&self, into: *mut u8, sources: &[*const u8], count: usize) {
        #[cfg(trimtab_model)]
        sources.iter().for_each(|source| crate::sync::model::touch(*source, false));
        match *self {
            // SAFETY: the caller's promise.
            Self::Built(fold) => unsafe { fold(into, sources, count) },
            Self::Own(own, context, size) => {
                let [first, rest @ ..] = sources else { return };
                // SAFETY: the caller's promise; the operator's code is the caller's as well.
                unsafe {
                    std::ptr::copy_nonoverlapping(*first, into, count * size);
                    for source in rest {
                        own(into.cast(), source.cast(), count, context);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
