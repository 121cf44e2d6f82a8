//! 16-bit floating point: IEEE's binary16, and the upper half of a binary32.
//!
//! The conversions have no branch that depends on the value, only selections, so that loops over
//! them become vector code.

/// IEEE 754 binary16, by its bits: 11 bits of precision, up to 65,504. Equality is of bits.
///
/// # Examples
/// ```
/// use trimtab_team::{BF16, F16};
///
/// assert_eq!(F16::from_f32(1.5), F16(0x3e00));
/// assert_eq!(F16(0x3e00).to_f32(), 1.5);
/// assert!(F16::from_f32(70_000.0).to_f32().is_infinite());
/// assert_eq!(BF16::from_f32(70_000.0).to_f32(), 70_144.0); // The range of f32, and 8 bits.
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of a binary32, by its bits: 8 bits of precision, and the range of a binary32.
/// Equality is of bits. [`F16`] has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct BF16(pub u16);

/// The bits of an infinite `f32`; greater values, without the sign, are not-a-number.
const INFINITE_BITS: u32 = 0x7f80_0000;
/// First fraction bit, set in every not-a-number: otherwise cutting the fraction off could leave an
/// infinity.
const QUIET_BIT: u32 = 0x0040_0000;

impl F16 {
    /// Returns the same number, exactly; not-a-number keeps sign and payload. [`F16`] has an
    /// example.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let size = u32::from(self.0 & 0x7fff);
        // Exponents are biased by 127 there and by 15 here; the greatest means infinite or
        // not-a-number in both.
        let normal = (size << 13) + (112 << 23);
        let beyond = (size << 13) | INFINITE_BITS;
        // Numbers below 2^-14 are multiples of 2^-24.
        let below = (size as i32 as f32 * (1.0 / 16_777_216.0)).to_bits();
        let at_least_normal = if size >= 0x7c00 { beyond } else { normal };
        f32::from_bits(sign | if size < 0x0400 { below } else { at_least_normal })
    }

    /// Returns the nearest number, ties to even; infinite from 65,520 on. Not-a-number stays so,
    /// quiet, with its sign and the upper bits of its payload. [`F16`] has an example.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16) & 0x8000;
        let size = bits & 0x7fff_ffff;
        // The addend carries into the last bit that stays, and from there into the exponent.
        let normal = size.wrapping_sub(112 << 23).wrapping_add(0x0fff + ((size >> 13) & 1)) >> 13;
        // Below 2^-14 the last place is 2^-24, as it is of 0.5: the addition rounds.
        let below = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
        let no_number = ((size | QUIET_BIT) >> 13) & 0x03ff | 0x7c00;
        let finite = if size < 0x3880_0000 { below } else { normal };
        let number = if size >= 0x477f_f000 { 0x7c00 } else { finite };
        Self((sign | if size > INFINITE_BITS { no_number } else { number }) as u16)
    }
}

impl BF16 {
    /// Returns the same number, exactly; not-a-number keeps sign and payload. [`F16`] has an
    /// example.
    #[inline(always)]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// Returns the nearest number, ties to even; infinite beyond the greatest. Not-a-number stays
    /// so, quiet, with its sign and the upper bits of its payload. [`F16`] has an example.
    #[inline(always)]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let number = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let no_number = (bits | QUIET_BIT) >> 16;
        Self(if bits & 0x7fff_ffff > INFINITE_BITS { no_number } else { number } as u16)
    }
}

impl From<F16> for f32 {
    fn from(half: F16) -> Self {
        half.to_f32()
    }
}

impl From<BF16> for f32 {
    fn from(half: BF16) -> Self {
        half.to_f32()
    }
}
