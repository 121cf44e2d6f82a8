//! Against one element at a time, in the widest arithmetic there is.

use super::*;
use proptest::prelude::*;

/// The slow way: an element of any type as a number, combined, and back.
fn slow(elements: Type, operator: Operator, sources: &[Vec<u8>], at: usize) -> Vec<u8> {
    let size = elements.size();
    let bytes = |source: &Vec<u8>| source[at * size..(at + 1) * size].to_vec();
    let integer = |bytes: &[u8], signed: bool| {
        let mut all = [if signed && bytes[size - 1] >= 128 { 255 } else { 0 }; 16];
        all[..size].copy_from_slice(bytes);
        i128::from_le_bytes(all)
    };
    if !elements.is_float() {
        let signed = matches!(elements, Type::I8 | Type::I16 | Type::I32 | Type::I64);
        let folded = sources
            .iter()
            .map(|source| integer(&bytes(source), signed))
            .reduce(|a, b| {
                let wide = match operator {
                    Operator::Sum => a.wrapping_add(b),
                    Operator::Prod => a.wrapping_mul(b),
                    Operator::Min => a.min(b),
                    Operator::Max => a.max(b),
                    Operator::And => a & b,
                    Operator::Or => a | b,
                    Operator::Xor => a ^ b,
                };
                integer(&wide.to_le_bytes()[..size], signed)
            })
            .unwrap();
        return folded.to_le_bytes()[..size].to_vec();
    }
    let number = |bytes: Vec<u8>| match elements {
        Type::F64 => f64::from_le_bytes(bytes.try_into().unwrap()),
        Type::F32 => f64::from(f32::from_le_bytes(bytes.try_into().unwrap())),
        Type::F16 => f64::from(F16(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32()),
        _ => f64::from(BF16(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32()),
    };
    let round = |wide: f64| if elements == Type::F64 { wide } else { f64::from(wide as f32) };
    let folded = sources
        .iter()
        .map(|source| number(bytes(source)))
        .reduce(|a, b| {
            round(match operator {
                Operator::Sum => a + b,
                Operator::Prod => a * b,
                _ if a.is_nan() || b.is_nan() => f64::NAN,
                // The order of all numbers has -0 below 0.
                Operator::Min => {
                    if a.total_cmp(&b).is_le() {
                        a
                    } else {
                        b
                    }
                }
                _ => {
                    if a.total_cmp(&b).is_ge() {
                        a
                    } else {
                        b
                    }
                }
            })
        })
        .unwrap();
    match elements {
        Type::F64 => folded.to_le_bytes().to_vec(),
        Type::F32 => (folded as f32).to_le_bytes().to_vec(),
        Type::F16 => F16::from_f32(folded as f32).0.to_le_bytes().to_vec(),
        _ => BF16::from_f32(folded as f32).0.to_le_bytes().to_vec(),
    }
}

fn is_nan(elements: Type, bytes: &[u8]) -> bool {
    match elements {
        Type::F64 => f64::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Type::F32 => f32::from_le_bytes(bytes.try_into().unwrap()).is_nan(),
        Type::F16 => F16(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32().is_nan(),
        Type::BF16 => BF16(u16::from_le_bytes(bytes.try_into().unwrap())).to_f32().is_nan(),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn every_pair_is_as_one_element_at_a_time(
        seed in prop::collection::vec(any::<u8>(), 9 * 8 * 40 + 16),
        ranks in 1usize..10, count in 0usize..40, odd in 0usize..3, long in any::<bool>(),
    ) {
        for elements in Type::ALL {
            for operator in Operator::ALL {
                let Ok(kernel) = Kernel::of(elements, operator) else {
                    prop_assert!(elements.is_float() && operator as u32 >= Operator::And as u32);
                    continue;
                };
                let plain = Kernel::choose(elements, operator, false).unwrap();
                let count = if long { count * 30 } else { count };
                let size = elements.size() * count;
                let sources: Vec<Vec<u8>> = (0..ranks)
                    .map(|rank| seed.iter().cycle().skip(rank * 41 + odd).take(size).copied().collect())
                    .collect();
                let shifted: Vec<Vec<u8>> = sources.iter().map(|source| [&vec![0; odd], &source[..]].concat()).collect();
                let addresses: Vec<*const u8> = shifted.iter().map(|source| source[odd..].as_ptr()).collect();
                let (mut into, mut other) = (vec![0_u8; size + odd], vec![0_u8; size]);
                // SAFETY: all have as many elements, and the outputs are others.
                unsafe {
                    kernel.fold(into[odd..].as_mut_ptr(), &addresses, count);
                    plain.fold(other.as_mut_ptr(), &addresses, count);
                }
                for at in 0..count {
                    let range = at * elements.size()..(at + 1) * elements.size();
                    let (fast, other) = (&into[odd..][range.clone()], &other[range]);
                    let slow = slow(elements, operator, &sources, at);
                    if is_nan(elements, &slow) {
                        prop_assert!(is_nan(elements, fast) && is_nan(elements, other));
                    } else {
                        prop_assert_eq!(fast, &slow[..], "{:?} {:?}", elements, operator);
                        prop_assert_eq!(other, &slow[..], "{:?} {:?}", elements, operator);
                    }
                }
            }
        }
    }
}

#[test]
fn halves_come_back_as_they_went() {
    for bits in 0..=u16::MAX {
        let (half, brain) = (F16(bits), BF16(bits));
        if half.to_f32().is_nan() {
            assert!(F16::from_f32(half.to_f32()).to_f32().is_nan());
        } else {
            assert_eq!(F16::from_f32(half.to_f32()), half);
        }
        if brain.to_f32().is_nan() {
            assert!(BF16::from_f32(brain.to_f32()).to_f32().is_nan());
        } else {
            assert_eq!(BF16::from_f32(brain.to_f32()), brain);
        }
    }
}

#[test]
fn halves_are_the_nearest_and_ties_go_to_even() {
    // Between neighbours: below the middle down, above it up, in the middle to the even one.
    for bits in 0..0x7bff_u16 {
        let (low, high) = (F16(bits), F16(bits + 1));
        let middle = (f64::from(low.to_f32()) + f64::from(high.to_f32())) / 2.0;
        let middle = middle as f32;
        let even = if bits % 2 == 0 { low } else { high };
        assert_eq!(F16::from_f32(middle), even, "{bits:#x}");
        assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() - 1)), low);
        assert_eq!(F16::from_f32(f32::from_bits(middle.to_bits() + 1)), high);
        assert_eq!(F16::from_f32(-middle).0, even.0 | 0x8000);
    }
    assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
    assert_eq!(F16::from_f32(65519.996).0, 0x7bff);
    assert_eq!(F16::from_f32(f32::INFINITY).0, 0x7c00);
    for bits in 0..0x7f7f_u16 {
        let middle = u32::from(bits) << 16 | 0x8000;
        let even = if bits % 2 == 0 { bits } else { bits + 1 };
        assert_eq!(BF16::from_f32(f32::from_bits(middle)).0, even);
        assert_eq!(BF16::from_f32(f32::from_bits(middle - 1)).0, bits);
        assert_eq!(BF16::from_f32(f32::from_bits(middle + 1)).0, bits + 1);
    }
}

#[test]
fn an_operator_of_the_callers() {
    unsafe extern "C" fn least_even(
        into: *mut c_void,
        from: *const c_void,
        count: usize,
        context: *mut c_void,
    ) {
        for at in 0..count {
            // SAFETY: the test gives as many numbers, and a count as context.
            unsafe {
                *context.cast::<usize>() += 1;
                let (into, from) = (into.cast::<u32>().add(at), from.cast::<u32>().add(at));
                into.write_unaligned(into.read_unaligned() | from.read_unaligned() & !1);
            }
        }
    }
    let mut called = 0_usize;
    let kernel = Kernel::Own(least_even, (&raw mut called).cast(), 4);
    let (a, b, c) = ([1_u32, 2], [4_u32, 9], [17_u32, 32]);
    let mut into = [0_u32; 2];
    // SAFETY: two elements each.
    unsafe {
        kernel.fold(into.as_mut_ptr().cast(), &[a.as_ptr().cast(), b.as_ptr().cast(), c.as_ptr().cast()], 2)
    };
    assert_eq!((into, called), ([21, 42], 4));
}
