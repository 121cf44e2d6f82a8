//! Element types that can be combined, and the operators on two elements.

use super::half::{BF16, F16};
use super::kind::Type;

/// An element that a team can combine: integers of 8 to 64 bits, floating point numbers of 16 to 64
/// bits.
///
/// # Examples
/// ```
/// use trimtab_team::{Element, Operator, Rank, Result};
///
/// /// Returns the sum of all ranks' values, of any type.
/// fn total<T: Element>(rank: &Rank, value: T) -> Result<T> {
///     let mut sum = [value];
///     rank.mine().allreduce_in_place(&mut sum, Operator::Sum)?;
///     Ok(sum[0])
/// }
/// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
/// # ranks::run(2, |rank| {
/// // In each of two threads.
/// assert_eq!((total(&rank, 2_u8)?, total(&rank, 0.5)?), (4, 1.0));
/// # Ok(())
/// # });
/// ```
pub trait Element: Copy + Send + Sync + 'static + sealed::Sealed {
    /// Its type.
    const TYPE: Type;
}

mod sealed {
    pub trait Sealed {}
}

/// An element as a kernel works on it: read, combined in a type that may be wider, and rounded once
/// when it is written.
pub(super) trait Number: Copy {
    /// Type in which it is combined.
    type Wide: Copy;
    /// Converts exactly.
    fn widen(self) -> Self::Wide;
    /// Converts with rounding, and with a single form of not-a-number.
    fn narrow(wide: Self::Wide) -> Self;
}

/// One operator on two numbers.
pub(super) trait Combine<T> {
    fn combine(a: T, b: T) -> T;
}

pub(super) struct Sum;
pub(super) struct Prod;
pub(super) struct Min;
pub(super) struct Max;
pub(super) struct And;
pub(super) struct Or;
pub(super) struct Xor;

macro_rules! combine {
    ($operator:ident, $type:ty, |$a:ident, $b:ident| $result:expr) => {
        impl Combine<$type> for $operator {
            #[inline(always)]
            fn combine($a: $type, $b: $type) -> $type {
                $result
            }
        }
    };
}

macro_rules! element {
    ($type:ty, $variant:ident, $wide:ty, |$narrow:ident| $element:expr, |$self:ident| $widened:expr) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const TYPE: Type = Type::$variant;
        }
        impl Number for $type {
            type Wide = $wide;
            #[inline(always)]
            fn widen($self) -> $wide {
                $widened
            }
            #[inline(always)]
            fn narrow($narrow: $wide) -> Self {
                $element
            }
        }
    };
}

macro_rules! integers {
    ($($type:ty => $variant:ident),*) => {$(
        element!($type, $variant, $type, |wide| wide, |self| self);
        combine!(Sum, $type, |a, b| a.wrapping_add(b));
        combine!(Prod, $type, |a, b| a.wrapping_mul(b));
        combine!(Min, $type, |a, b| a.min(b));
        combine!(Max, $type, |a, b| a.max(b));
        combine!(And, $type, |a, b| a & b);
        combine!(Or, $type, |a, b| a | b);
        combine!(Xor, $type, |a, b| a ^ b);
    )*};
}

macro_rules! floats {
    ($($type:ty => $variant:ident),*) => {$(
        element!($type, $variant, $type, |wide| if wide.is_nan() { <$type>::from_bits(NO_NUMBER.$variant) } else { wide }, |self| self);
        combine!(Sum, $type, |a, b| a + b);
        combine!(Prod, $type, |a, b| a * b);
        // Equal numbers have equal bits, except for the two zeros: the least of both has the
        // negative sign, and the greatest the positive one. A comparison with not-a-number is
        // false, so the first selection gives `b` then, and the last `a`.
        combine!(Min, $type, |a, b| {
            let less = if a < b { a } else { b };
            let least = if a == b { <$type>::from_bits(a.to_bits() | b.to_bits()) } else { less };
            if a.is_nan() { a } else { least }
        });
        combine!(Max, $type, |a, b| {
            let more = if a > b { a } else { b };
            let greatest = if a == b { <$type>::from_bits(a.to_bits() & b.to_bits()) } else { more };
            if a.is_nan() { a } else { greatest }
        });
    )*};
}

/// The bits of the single not-a-number that results have.
#[expect(non_snake_case, reason = "named as the types' variants")]
struct NoNumber {
    F16: u16,
    BF16: u16,
    F32: u32,
    F64: u64,
}

const NO_NUMBER: NoNumber =
    NoNumber { F16: 0x7e00, BF16: 0x7fc0, F32: 0x7fc0_0000, F64: 0x7ff8_0000_0000_0000 };

integers!(i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8, u16 => U16, u32 => U32, u64 => U64);
floats!(f32 => F32, f64 => F64);
element!(
    F16,
    F16,
    f32,
    |wide| if wide.is_nan() { F16(NO_NUMBER.F16) } else { F16::from_f32(wide) },
    |self| self.to_f32()
);
element!(
    BF16,
    BF16,
    f32,
    |wide| if wide.is_nan() { BF16(NO_NUMBER.BF16) } else { BF16::from_f32(wide) },
    |self| self.to_f32()
);
