//! The 16-bit formats, against the list of all their numbers.

use super::slow::{BINARY16, BRAIN, Format};
use crate::reduce::{BF16, F16};
use proptest::prelude::*;

/// One format's conversions beside its definition.
struct FormatPair {
    format: &'static Format,
    decode: fn(u16) -> f32,
    encode: fn(f32) -> u16,
}

fn pairs() -> [FormatPair; 2] {
    [
        FormatPair {
            format: &BINARY16,
            decode: |bits| F16(bits).to_f32(),
            encode: |value| F16::from_f32(value).0,
        },
        FormatPair {
            format: &BRAIN,
            decode: |bits| BF16(bits).to_f32(),
            encode: |value| BF16::from_f32(value).0,
        },
    ]
}

impl FormatPair {
    fn encodes(&self, value: f32) {
        let bits = (self.encode)(value);
        match self.format.encode(value.into()) {
            Some(expected) => assert_eq!(bits, expected, "{value:e}, {:#x}", value.to_bits()),
            None => {
                assert!((self.decode)(bits).is_nan(), "{:#x}", value.to_bits());
                assert_eq!(bits >> 15 == 1, value.is_sign_negative());
            }
        }
    }
}

#[test]
fn all_halves_have_the_right_value_and_are_encoded_back() {
    for pair in pairs() {
        for bits in (0..=u16::MAX).step_by(if cfg!(miri) { 251 } else { 1 }) {
            let (value, expected) = ((pair.decode)(bits), pair.format.decode(bits));
            let back = (pair.encode)(value);
            if expected.is_nan() {
                // Only a signalling one comes back changed, as quiet.
                let quiet = (pair.format.infinite() >> 1) & !pair.format.infinite();
                assert!(value.is_nan());
                assert_eq!(back, bits | quiet, "{bits:#x}");
            } else {
                assert_eq!(f64::from(value).to_bits(), expected.to_bits(), "{bits:#x}");
                assert_eq!(back, bits);
            }
        }
    }
}

#[test]
fn the_nearest_is_taken_and_of_two_the_even_one() {
    // Around each number, and around the middle between it and the next.
    for pair in pairs() {
        for bits in (0..pair.format.infinite()).step_by(if cfg!(miri) { 97 } else { 1 }) {
            let low = (pair.decode)(bits);
            let up = if bits + 1 < pair.format.infinite() { (pair.decode)(bits + 1) } else { 2.0 * low };
            let middle = (f64::from(low) + f64::from(up)) / 2.0;
            for value in [low, middle as f32] {
                for near in [value.next_down(), value, value.next_up()] {
                    pair.encodes(near);
                    pair.encodes(-near);
                }
            }
        }
    }
}

#[test]
fn ends_of_the_ranges() {
    assert_eq!(F16::from_f32(65_504.0).0, 0x7bff);
    assert_eq!(F16::from_f32(65_519.996).0, 0x7bff);
    assert_eq!(F16::from_f32(65_520.0).0, 0x7c00);
    assert_eq!(F16::from_f32(f32::NEG_INFINITY).0, 0xfc00);
    assert_eq!(F16::from_f32(2_f32.powi(-24)).0, 1);
    assert_eq!(F16::from_f32(2_f32.powi(-25)).0, 0);
    assert_eq!(F16::from_f32(-2_f32.powi(-25).next_up()).0, 0x8001);
    assert_eq!(F16::from_f32(-0.0).0, 0x8000);
    assert_eq!(BF16::from_f32(f32::MAX).0, 0x7f80);
    assert_eq!(BF16::from_f32(f32::from_bits(1)).0, 0);
    assert_eq!(BF16::from_f32(f32::from_bits(0x8001)).0, 1);
    // A payload only in the bits that are cut off would leave an infinity.
    assert_eq!(F16::from_f32(f32::from_bits(0x7f80_0001)).0, 0x7e00);
    assert_eq!(BF16::from_f32(f32::from_bits(0xff80_0001)).0, 0xffc0);
    assert_eq!(f32::from(F16(0x3c00)) + f32::from(BF16(0x3f80)), 2.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 16 } else { 20_000 }))]
    #[test]
    fn any_number_is_rounded_as_by_search(bits in any::<u32>(), scale in -30i32..18, part in -2.0f32..2.0) {
        for pair in pairs() {
            pair.encodes(f32::from_bits(bits));
            pair.encodes(part * 2_f32.powi(scale));
        }
    }
}
