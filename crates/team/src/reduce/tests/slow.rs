//! Reference for folds, one element at a time and by other means than the code under test: integers
//! by 128-bit arithmetic, 16- and 32-bit floating point by 64-bit, halves by search in the list of
//! all of them.

use crate::reduce::{Operator, Type};
use std::sync::LazyLock;

/// A format of 16 bits, and its finite numbers from 0 on: each is the one whose bits are its index.
pub(super) struct Format {
    /// Bits of the fraction.
    fraction: u32,
    finite: Vec<f64>,
}

pub(super) static BINARY16: LazyLock<Format> = LazyLock::new(|| Format::new(10, 15));
pub(super) static BRAIN: LazyLock<Format> = LazyLock::new(|| Format::new(7, 127));

impl Format {
    /// By the definition of IEEE 754, section 3.4.
    fn new(fraction: u32, bias: i32) -> Self {
        let infinite = (2 * bias + 1) << fraction;
        let number = |bits: i32| {
            let (exponent, trailing) = (bits >> fraction, f64::from(bits % (1 << fraction)));
            let part = trailing / f64::from(1 << fraction);
            if exponent == 0 {
                part * 2_f64.powi(1 - bias)
            } else {
                (1.0 + part) * 2_f64.powi(exponent - bias)
            }
        };
        Self { fraction, finite: (0..infinite).map(number).collect() }
    }

    pub(super) fn infinite(&self) -> u16 {
        self.finite.len() as u16
    }

    pub(super) fn decode(&self, bits: u16) -> f64 {
        let size = bits & 0x7fff;
        let positive = match self.finite.get(usize::from(size)) {
            Some(&number) => number,
            None if size == self.infinite() => f64::INFINITY,
            None => f64::NAN,
        };
        if bits >> 15 == 1 { -positive } else { positive }
    }

    /// Returns the nearest number, of two as near the even one; `None` for not-a-number.
    pub(super) fn encode(&self, value: f64) -> Option<u16> {
        let sign = if value.is_sign_negative() { 0x8000 } else { 0 };
        let size = value.abs();
        if size.is_nan() {
            return None;
        }
        // The number after the greatest, if there were one: from half the way to it, numbers are
        // infinite.
        let last = self.finite.len() - 1;
        let after = 2.0 * self.finite[last] - self.finite[last - 1];
        let above = self.finite.partition_point(|&number| number <= size);
        let (low, high) = (self.finite[above - 1], *self.finite.get(above).unwrap_or(&after));
        let up = size - low > high - size || (size - low == high - size && above % 2 == 0);
        Some(sign | if size.is_infinite() { self.infinite() } else { (above - usize::from(!up)) as u16 })
    }

    /// Returns the positive quiet not-a-number without payload.
    fn no_number(&self) -> u16 {
        self.infinite() | 1 << (self.fraction - 1)
    }
}

/// Returns the bits of the element at `at` of the fold. `sources` are bytes of consecutive
/// elements, little-endian, as the result.
pub(super) fn fold(elements: Type, operator: Operator, sources: &[&[u8]], at: usize) -> Vec<u8> {
    let size = elements.size();
    let raw = |source: &[u8]| {
        let mut wide = [0_u8; 16];
        wide[..size].copy_from_slice(&source[at * size..(at + 1) * size]);
        u128::from_le_bytes(wide)
    };
    let values: Vec<u128> = sources.iter().map(|source| raw(source)).collect();
    let bits = match (values.len(), elements.is_float()) {
        (1, _) => values[0],
        (_, false) => integer(elements, operator, &values),
        (_, true) => float(elements, operator, &values),
    };
    bits.to_le_bytes()[..size].to_vec()
}

fn integer(elements: Type, operator: Operator, values: &[u128]) -> u128 {
    let spare = 128 - 8 * elements.size() as u32;
    let signed = matches!(elements, Type::I8 | Type::I16 | Type::I32 | Type::I64);
    let number = |bits: u128| if signed { (bits << spare) as i128 >> spare } else { bits as i128 };
    let cut = |number: i128| (number as u128) << spare >> spare;
    let combine = |a: u128, b: u128| {
        let (x, y) = (number(a), number(b));
        cut(match operator {
            Operator::Sum => x + y,
            // Of two unsigned 64-bit numbers, all that is kept is in the lower half.
            Operator::Prod => x.wrapping_mul(y),
            Operator::Min if x <= y => x,
            Operator::Max if x >= y => x,
            Operator::Min | Operator::Max => y,
            Operator::And => x & y,
            Operator::Or => x | y,
            Operator::Xor => x ^ y,
        })
    };
    values.iter().copied().reduce(combine).unwrap()
}

/// Folds in 64 bits. A sum or product of two 32-bit numbers, rounded to 64 and then to 32 bits, is
/// as if rounded once: 53 bits are more than twice 24 and two (Figueroa 1995).
fn float(elements: Type, operator: Operator, values: &[u128]) -> u128 {
    let number = |bits: u128| match elements {
        Type::F64 => f64::from_bits(bits as u64),
        Type::F32 => f64::from(f32::from_bits(bits as u32)),
        Type::F16 => BINARY16.decode(bits as u16),
        _ => BRAIN.decode(bits as u16),
    };
    let round = |wide: f64| if elements == Type::F64 { wide } else { f64::from(wide as f32) };
    let combine = |a: f64, b: f64| match operator {
        Operator::Sum => round(a + b),
        Operator::Prod => round(a * b),
        _ if a.is_nan() || b.is_nan() => f64::NAN,
        // The total order has -0 below 0.
        Operator::Min => std::cmp::min_by(a, b, f64::total_cmp),
        _ => std::cmp::max_by(a, b, f64::total_cmp),
    };
    let result = values.iter().map(|&bits| number(bits)).reduce(combine).unwrap();
    match elements {
        Type::F64 if result.is_nan() => 0x7ff8 << 48,
        Type::F32 if result.is_nan() => 0x7fc0 << 16,
        Type::F64 => result.to_bits().into(),
        Type::F32 => (result as f32).to_bits().into(),
        Type::F16 => BINARY16.encode(result).unwrap_or(BINARY16.no_number()).into(),
        _ => BRAIN.encode(result).unwrap_or(BRAIN.no_number()).into(),
    }
}
