//! Reduction: types, operators, and the code for each pair of them.
//!
//! **Unit.** A [`Kernel`] combines `count` elements of one [`Type`] by one [`Operator`], element by
//! element.
//!
//! **Problem.** Several ranks compute parts of one result, or all compute all of it, each from its
//! own buffers at any address; they must get the same bits. The sources are memory that other ranks
//! write before and after.
//!
//! **Idea.** Sources are addresses and are read by value, each element once; no reference to them
//! is ever made. A result is always `((s0 op s1) op s2) ...` in the order of sources. Blocks and
//! vectors divide the elements, never this chain, so the result does not depend on the begin of the
//! blocks. The loops are plain, and compiled twice on x86-64: for every CPU, and for those with
//! AVX2 (the same operations, none fused). The choice between them is made once, when a kernel is
//! made.
//!
//! **Properties.**
//! - The same sources in the same order give the same bits: for every alignment, count and place in
//!   a buffer, in place or not, on every CPU. (As long as the thread has the usual floating point
//!   environment: round to nearest, subnormal numbers kept.)
//! - Integers wrap in sums and products. Only integers are combined by bits ([`check`]).
//! - A floating point result that is not a number is *the* not-a-number (positive, quiet, no
//!   payload), since the payload that survives depends on the CPU and the compiler's choice of
//!   operand. This holds for all four operators.
//! - The least and the greatest of floating point numbers are not-a-number if any source is, in any
//!   order; -0 is less than +0.
//! - 16-bit floating point numbers are combined as 32-bit ones and rounded once, at the end of a
//!   fold, to the nearest, ties to even. So a fold of three sources differs from two combinations
//!   in a row, which round twice.
//! - A fold of one source is a copy, bit by bit: also of a not-a-number.
//!
//! **In place.** The destination may be at exactly the address of any source; otherwise it overlaps
//! none.

mod element;
mod half;
mod kernel;
mod kind;

pub use element::Element;
pub use half::{BF16, F16};
pub use kernel::{Kernel, Own};
pub use kind::{Operator, Type, check};

#[cfg(test)]
mod tests;
