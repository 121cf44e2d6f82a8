mod folds;
mod halves;
mod slow;

use super::{Element, F16, Kernel, Operator, Type, check};
use crate::Error;
use std::ffi::c_void;

#[test]
fn codes_and_names_lead_back() {
    for (code, it) in Type::ALL.into_iter().enumerate() {
        assert_eq!((it.code() as usize, Type::from_code(it.code())), (code, Some(it)));
        assert_eq!((it.to_string().parse(), it.to_string().as_str()), (Ok(it), it.name()));
    }
    for (code, it) in Operator::ALL.into_iter().enumerate() {
        assert_eq!((it.code() as usize, Operator::from_code(it.code())), (code, Some(it)));
        assert_eq!((it.to_string().parse(), it.to_string().as_str()), (Ok(it), it.name()));
    }
    assert_eq!((Type::from_code(12), Operator::from_code(7), Type::from_code(u32::MAX)), (None, None, None));
    let said = "f8".parse::<Type>().unwrap_err().to_string();
    assert!(said.contains("\"f8\"") && said.contains("bf16, f32, f64"), "{said}");
    assert!("Sum".parse::<Operator>().unwrap_err().to_string().contains("sum, prod, min"));
}

#[test]
fn elements_have_their_types_size() {
    fn holds<T: Element>() -> bool {
        T::TYPE.size() == size_of::<T>()
    }
    assert!(holds::<i8>() && holds::<i16>() && holds::<i32>() && holds::<i64>());
    assert!(holds::<u8>() && holds::<u16>() && holds::<u32>() && holds::<u64>());
    assert!(holds::<F16>() && holds::<super::BF16>() && holds::<f32>() && holds::<f64>());
    assert_eq!((i8::TYPE, F16::TYPE, f64::TYPE), (Type::I8, Type::F16, Type::F64));
}

#[test]
fn bits_are_combined_of_integers_alone() {
    for elements in Type::ALL {
        for operator in Operator::ALL {
            let refused = elements.is_float() && operator.is_bitwise();
            assert_eq!(check(elements, operator).is_err(), refused);
            assert_eq!(Kernel::of(elements, operator).is_err(), refused);
        }
    }
    let Err(Error::Argument(said)) = Kernel::of(Type::BF16, Operator::Xor) else { panic!() };
    assert_eq!(said, "xor combines bits of integers, and bf16 is not an integer");
}

/// Combines by `into = 3 * into + from`, which shows the order of sources, and counts its calls.
unsafe extern "C" fn thrice(into: *mut c_void, from: *const c_void, count: usize, context: *mut c_void) {
    // SAFETY: the tests give `count` numbers, and a counter.
    unsafe {
        *context.cast::<usize>() += 1;
        for at in 0..count {
            let (into, from) = (into.cast::<u32>().add(at), from.cast::<u32>().add(at));
            into.write_unaligned(into.read_unaligned().wrapping_mul(3).wrapping_add(from.read_unaligned()));
        }
    }
}

#[test]
fn an_operator_of_the_callers() {
    let long: &[usize] = if cfg!(miri) { &[] } else { &[1023, 1024, 3000] };
    for &count in [0, 1, 2, 1025].iter().chain(long) {
        for sources in 1..5_usize {
            // Into memory of its own, and into each of the sources.
            for place in 0..=sources {
                let mut called = 0_usize;
                // SAFETY: the operator and its context are as it asks for.
                let kernel = unsafe { Kernel::own(thrice, (&raw mut called).cast(), 4) }.unwrap();
                let mut rows: Vec<Vec<u32>> = (0..=sources as u32)
                    .map(|row| (0..count as u32).map(|at| at.wrapping_mul(0x9e37_79b9) ^ row).collect())
                    .collect();
                let expected: Vec<u32> = (0..count)
                    .map(|at| {
                        rows[1..sources]
                            .iter()
                            .fold(rows[0][at], |sum, row| sum.wrapping_mul(3).wrapping_add(row[at]))
                    })
                    .collect();
                let addresses: Vec<*mut u32> = rows.iter_mut().map(|row| row.as_mut_ptr()).collect();
                let from: Vec<*const u8> = addresses[..sources].iter().map(|&it| it as *const u8).collect();
                // SAFETY: all have `count` elements.
                unsafe { kernel.fold(addresses[place].cast(), &from, count) };
                assert_eq!(rows[place], expected, "{sources} sources of {count} into {place}");
                assert!(called >= if count > 0 { sources - 1 } else { 0 });
            }
        }
    }
    // SAFETY: it is never called.
    assert!(matches!(unsafe { Kernel::own(thrice, std::ptr::null_mut(), 0) }, Err(Error::Argument(_))));
}

#[test]
fn a_large_element_of_the_callers_is_folded_aside_too() {
    unsafe extern "C" fn xor(into: *mut c_void, from: *const c_void, count: usize, _: *mut c_void) {
        for at in 0..count * 5000 {
            // SAFETY: elements have 5000 bytes.
            unsafe { *into.cast::<u8>().add(at) ^= *from.cast::<u8>().add(at) };
        }
    }
    // SAFETY: as it asks for.
    let kernel = unsafe { Kernel::own(xor, std::ptr::null_mut(), 5000) }.unwrap();
    let (a, mut b) = (vec![5_u8; 10_000], vec![6_u8; 10_000]);
    let into = b.as_mut_ptr();
    // SAFETY: two elements each.
    unsafe { kernel.fold(into, &[a.as_ptr(), into], 2) };
    assert_eq!((kernel.size(), b), (5000, vec![3_u8; 10_000]));
}
