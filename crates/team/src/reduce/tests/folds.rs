//! Every pair of a type and an operator: against the slow reference, in vectors and without, at any
//! place, in place.

use super::slow;
use crate::reduce::{BF16, F16, Kernel, Operator, Type};
use proptest::prelude::*;

/// All valid pairs; a few of them for an interpreter, which is slow.
fn pairs() -> impl Iterator<Item = (Type, Operator, Kernel, Kernel)> {
    Type::ALL
        .into_iter()
        .flat_map(|elements| Operator::ALL.map(|operator| (elements, operator)))
        .filter_map(|(elements, operator)| {
            let plain = Kernel::choose(elements, operator, false).ok()?;
            Some((elements, operator, Kernel::of(elements, operator).unwrap(), plain))
        })
        .step_by(if cfg!(miri) { 11 } else { 1 })
}

/// Sebastiano Vigna's splitmix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns the bits of an element: any, near 1 or small, or one at which a rule begins.
    fn element(&mut self, elements: Type) -> u64 {
        let any = self.next();
        let (infinite, one) = match elements {
            Type::F16 => (0x7c00, 0x3c00),
            Type::BF16 => (0x7f80, 0x3f80),
            Type::F32 => (0x7f80_0000, 0x3f80_0000),
            Type::F64 => (0x7ff0 << 48, 0x3ff0 << 48),
            _ => (u64::MAX >> 1, 1),
        };
        let sign = 1 << (8 * elements.size() - 1);
        let special = [0, 1, one, one + 1, infinite - 1, infinite, infinite + 1, infinite | infinite >> 1];
        match self.next() % 16 {
            0..6 => any,
            6..13 => (one ^ (any % (1 + (one >> 3)))) | (any & sign),
            _ => special[any as usize % special.len()] ^ ((any >> 7) & sign),
        }
    }

    fn row(&mut self, elements: Type, count: usize) -> Vec<u8> {
        (0..count).flat_map(|_| self.element(elements).to_le_bytes()[..elements.size()].to_vec()).collect()
    }
}

/// Rows of bytes in one piece of memory, each as far off a multiple of 64 as requested, and room
/// for a result.
struct Rows {
    memory: Vec<u8>,
    starts: Vec<usize>,
    bytes: usize,
}

impl Rows {
    fn new(rows: &[Vec<u8>], odd: impl Fn(usize) -> usize) -> Self {
        let bytes = rows[0].len();
        let stride = bytes.next_multiple_of(64) + 128;
        let mut memory = vec![0xa5; stride * (rows.len() + 1) + 64];
        let even = memory.as_ptr().align_offset(64);
        let starts: Vec<usize> = (0..=rows.len()).map(|row| even + row * stride + odd(row)).collect();
        for (row, &start) in rows.iter().zip(&starts) {
            memory[start..start + bytes].copy_from_slice(row);
        }
        Self { memory, starts, bytes }
    }

    /// Folds all rows but the last, the room, into the one at `place`; asserts that nothing else
    /// was written.
    fn fold(&mut self, kernel: &Kernel, place: usize, sources: &[usize], count: usize) -> Vec<u8> {
        let before = self.memory.clone();
        let base = self.memory.as_mut_ptr();
        let from: Vec<*const u8> =
            sources.iter().map(|&row| base.wrapping_add(self.starts[row]).cast_const()).collect();
        // SAFETY: rows are apart, and have `count` elements.
        unsafe { kernel.fold(base.add(self.starts[place]), &from, count) };
        let result = self.starts[place]..self.starts[place] + self.bytes;
        assert_eq!(self.memory[..result.start], before[..result.start]);
        assert_eq!(self.memory[result.end..], before[result.end..]);
        self.memory[result].to_vec()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 40 }))]
    #[test]
    fn every_pair_is_as_one_element_at_a_time(
        seed in any::<u64>(), ranks in 1usize..10, count in 0usize..if cfg!(miri) { 9 } else { 200 },
        odd in 0usize..64, same in any::<bool>(),
    ) {
        for (elements, operator, kernel, plain) in pairs() {
            let mut draw = Draw(seed);
            let rows: Vec<Vec<u8>> = (0..ranks).map(|_| draw.row(elements, count)).collect();
            let sources: Vec<&[u8]> = rows.iter().map(|row| &row[..]).collect();
            let expected: Vec<u8> =
                (0..count).flat_map(|at| slow::fold(elements, operator, &sources, at)).collect();
            let order: Vec<usize> = (0..ranks).collect();
            let place_of = |row: usize| if same { odd } else { (odd * (row + 1)) % 64 };
            let room = Rows::new(&rows, place_of).fold(&kernel, ranks, &order, count);
            prop_assert_eq!(&room, &expected, "{} of {}", operator, elements);
            let even = Rows::new(&rows, |_| 0).fold(&plain, ranks, &order, count);
            prop_assert_eq!(&even, &expected, "{} of {} in plain code", operator, elements);
            // Into each source, and by one combination after the other if nothing is rounded in
            // between.
            for place in 0..ranks {
                let kernel = if place % 2 == 0 { &kernel } else { &plain };
                let there = Rows::new(&rows, place_of).fold(kernel, place, &order, count);
                prop_assert_eq!(&there, &expected, "{} of {} into source {}", operator, elements, place);
            }
            if ranks == 2 || !matches!(elements, Type::F16 | Type::BF16) {
                let mut chain = rows[0].clone();
                for row in &rows[1..] {
                    // SAFETY: both have `count` elements.
                    unsafe { kernel.combine(chain.as_mut_ptr(), row.as_ptr(), count) };
                }
                prop_assert_eq!(&chain, &expected, "{} of {} one by one", operator, elements);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    #[cfg_attr(miri, ignore = "takes hours there; `blocks_meet` goes the same ways")]
    fn vectors_blocks_and_places_do_not_change_a_bit(
        seed in any::<u64>(), ranks in 2usize..10, count in 500usize..1700, cut in 0usize..500,
    ) {
        let order: Vec<usize> = (0..ranks).collect();
        for (elements, operator, kernel, plain) in pairs() {
            let mut draw = Draw(seed);
            let rows: Vec<Vec<u8>> = (0..ranks).map(|_| draw.row(elements, count)).collect();
            let whole = Rows::new(&rows, |row| row).fold(&kernel, ranks, &order, count);
            let other = Rows::new(&rows, |_| 0).fold(&plain, ranks, &order, count);
            prop_assert_eq!(&whole, &other, "{} of {}", operator, elements);
            let in_place = Rows::new(&rows, |row| 3 * row).fold(&kernel, ranks / 2, &order, count);
            prop_assert_eq!(&whole, &in_place, "{} of {} in place", operator, elements);
            // A rank that computes only the elements after `cut` gets the same bits as others
            // there.
            let bytes = cut * elements.size();
            let ends: Vec<Vec<u8>> = rows.iter().map(|row| row[bytes..].to_vec()).collect();
            let end = Rows::new(&ends, |row| 7 - row % 8).fold(&kernel, ranks, &order, count - cut);
            prop_assert_eq!(&whole[bytes..], &end[..], "{} of {} from {}", operator, elements, cut);
        }
    }
}

/// Folds numbers by both kinds of code, at every place of a vector.
fn folded<T: crate::reduce::Element + PartialEq + std::fmt::Debug>(operator: Operator, values: &[T]) -> T {
    let mut results = Vec::new();
    for wide in [false, true] {
        let kernel = Kernel::choose(T::TYPE, operator, wide).unwrap();
        let rows: Vec<Vec<T>> = values.iter().map(|&value| vec![value; 37]).collect();
        let from: Vec<*const u8> = rows.iter().map(|row| row.as_ptr().cast()).collect();
        let mut into = vec![values[0]; 37];
        // SAFETY: all have 37 elements.
        unsafe { kernel.fold(into.as_mut_ptr().cast(), &from, 37) };
        results.extend(into);
    }
    let bytes = |value: &T| {
        // SAFETY: elements have no padding.
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) }.to_vec()
    };
    assert!(results.iter().all(|it| bytes(it) == bytes(&results[0])), "{results:?}");
    results[0]
}

#[test]
fn a_nan_wins_in_any_order_and_has_one_form() {
    let odd = f64::from_bits(0xfff0_0000_0000_0001);
    for operator in [Operator::Sum, Operator::Prod, Operator::Min, Operator::Max] {
        for values in [[1.0, 2.0, odd], [1.0, odd, 2.0], [odd, 1.0, 2.0], [odd, -f64::NAN, f64::INFINITY]] {
            assert_eq!(folded(operator, &values).to_bits(), 0x7ff8 << 48, "{operator} of {values:?}");
            let short = values.map(|value| value as f32);
            assert_eq!(folded(operator, &short).to_bits(), 0x7fc0 << 16);
            assert_eq!(folded(operator, &short.map(F16::from_f32)).0, 0x7e00);
            assert_eq!(folded(operator, &short.map(BF16::from_f32)).0, 0x7fc0);
        }
    }
    // A not-a-number made by the operation: CPUs differ in its sign.
    assert_eq!(folded(Operator::Sum, &[f32::INFINITY, f32::NEG_INFINITY]).to_bits(), 0x7fc0_0000);
    assert_eq!(folded(Operator::Prod, &[0.0, f64::INFINITY]).to_bits(), 0x7ff8 << 48);
    // A copy is a copy.
    assert_eq!(folded(Operator::Sum, &[odd]).to_bits(), odd.to_bits());
}

#[test]
fn the_zero_below_is_less() {
    for values in [[0.0_f64, -0.0], [-0.0, 0.0]] {
        assert_eq!(folded(Operator::Min, &values).to_bits(), (-0.0_f64).to_bits());
        assert_eq!(folded(Operator::Max, &values).to_bits(), 0);
        let half = values.map(|value| F16::from_f32(value as f32));
        assert_eq!((folded(Operator::Min, &half).0, folded(Operator::Max, &half).0), (0x8000, 0));
    }
    assert_eq!(folded(Operator::Sum, &[-0.0_f32, -0.0]).to_bits(), 0x8000_0000);
}

#[test]
fn integers_wrap() {
    assert_eq!(folded(Operator::Sum, &[i8::MAX, 1]), i8::MIN);
    assert_eq!(folded(Operator::Sum, &[u64::MAX, 3, 4]), 6);
    assert_eq!(folded(Operator::Prod, &[i64::MIN, -1]), i64::MIN);
    assert_eq!(folded(Operator::Prod, &[200_u8, 2]), 144);
    assert_eq!(folded(Operator::Min, &[-1_i16, 1]), -1);
    assert_eq!(folded(Operator::Min, &[u16::MAX, 1]), 1);
}

#[test]
fn halves_are_rounded_once() {
    // 2048 + 1 is in the middle and goes back to 2048; 2048 + 2 is a half.
    let values = [2048.0, 1.0, 1.0].map(F16::from_f32);
    assert_eq!(folded(Operator::Sum, &values).to_f32(), 2050.0);
    let twice = folded(Operator::Sum, &[folded(Operator::Sum, &values[..2]), values[2]]);
    assert_eq!(twice.to_f32(), 2048.0);
    // The intermediate result may be greater than the greatest half.
    let values = [60_000.0, 60_000.0, -60_000.0].map(F16::from_f32);
    assert_eq!(folded(Operator::Sum, &values).to_f32(), values[0].to_f32());
}

#[test]
fn blocks_meet() {
    let kernel = Kernel::of(Type::U16, Operator::Sum).unwrap();
    for place in 0..6 {
        let mut rows: Vec<Vec<u16>> = (1..=6).map(|row| (0..1030).map(|at| row * at).collect()).collect();
        let at: Vec<*mut u8> = rows.iter_mut().map(|row| row.as_mut_ptr().cast()).collect();
        let from: Vec<*const u8> = at[..5].iter().map(|it| it.cast_const()).collect();
        // SAFETY: all have 1030 elements.
        unsafe { kernel.fold(at[place], &from, 1030) };
        assert!(rows[place].iter().enumerate().all(|(at, &sum)| sum == 15 * at as u16), "into {place}");
    }
}

#[test]
fn nothing_is_written_without_sources() {
    let mut into = [7_u32; 3];
    // SAFETY: three elements.
    unsafe { Kernel::of(Type::U32, Operator::Sum).unwrap().fold(into.as_mut_ptr().cast(), &[], 3) };
    assert_eq!(into, [7; 3]);
}
