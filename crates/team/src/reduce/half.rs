//! 16-bit floating point: IEEE's binary16 and the upper half of a binary32.

/// IEEE 754 binary16: 11 bits of precision, up to 65,504.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct F16(pub u16);

/// The upper half of a binary32: 8 bits of precision, and its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct BF16(pub u16);

impl F16 {
    /// Exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let (exponent, fraction) = (u32::from(self.0 >> 10 & 0x1f), u32::from(self.0 & 0x3ff));
        match exponent {
            // Below 2^-14 they are multiples of 2^-24.
            0 => f32::from_bits(sign | (fraction as f32 * (1.0 / 16_777_216.0)).to_bits()),
            31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
            _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
        }
    }

    /// The nearest, ties to even; beyond the greatest is infinite.
    #[inline]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let sign = (bits >> 16 & 0x8000) as u16;
        let size = bits & 0x7fff_ffff;
        let half = if size > 0x7f80_0000 {
            0x7e00 | (size >> 13 & 0x3ff)
        } else if size >= 0x4780_0000 {
            0x7c00
        } else if size >= 0x3880_0000 {
            // What is added carries into the last bit that stays, and from there into the exponent.
            (size + 0xfff + (size >> 13 & 1) - (112 << 23)) >> 13
        } else {
            // The sum's last bit is worth 2^-24, and the processor rounds to it.
            (f32::from_bits(size) + 0.5).to_bits() - 0.5_f32.to_bits()
        };
        Self(sign | half as u16)
    }
}

impl BF16 {
    /// Exactly.
    #[inline]
    pub fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.0) << 16)
    }

    /// The nearest, ties to even.
    #[inline]
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        if value.is_nan() {
            return Self((bits >> 16) as u16 | 0x40);
        }
        Self((bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16) as u16)
    }
}
