//! Types of elements and operators, as values: for signatures, the C interface and messages.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Type of an element.
///
/// # Examples
/// ```
/// use trimtab_team::Type;
///
/// let elements: Type = "bf16".parse()?;
/// assert_eq!((elements.name(), elements.size(), elements.is_float()), ("bf16", 2, true));
/// assert_eq!(Type::from_code(elements.code()), Some(elements));
/// assert!("complex".parse::<Type>().is_err());
/// # Ok::<(), trimtab_team::Error>(())
/// ```
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

/// Operator by which elements are combined.
///
/// # Examples
/// ```
/// use trimtab_team::reduce::check;
/// use trimtab_team::{Operator, Type};
///
/// let operator: Operator = "xor".parse()?;
/// assert_eq!((operator.name(), operator.is_bitwise()), ("xor", true));
/// assert_eq!(Operator::from_code(operator.code()), Some(operator));
/// assert!(check(Type::U8, operator).is_ok());
/// assert!(check(Type::F64, operator).is_err()); // Bits of integers only.
/// # Ok::<(), trimtab_team::Error>(())
/// ```
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

impl Type {
    /// All types, by code.
    #[rustfmt::skip]
    pub const ALL: [Self; 12] = [
        Self::I8, Self::I16, Self::I32, Self::I64, Self::U8, Self::U16, Self::U32, Self::U64,
        Self::F16, Self::BF16, Self::F32, Self::F64,
    ];

    /// Returns the bytes of an element. [`Type`] has an example.
    #[inline(always)]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Returns its name, as in `f64`. [`Type`] has an example.
    pub const fn name(self) -> &'static str {
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

    /// Returns its number in signatures and in the C interface, which never changes. [`Type`] has
    /// an example.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the type of a code; `None` for a number that is not a code. [`Type`] has an example.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Returns whether it is a floating point type. [`Type`] has an example.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }
}

impl Operator {
    /// All operators, by code.
    pub const ALL: [Self; 7] = [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::And, Self::Or, Self::Xor];

    /// Returns its name, as in `sum`. [`Operator`] has an example.
    pub const fn name(self) -> &'static str {
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

    /// Returns its number in signatures and in the C interface, which never changes. [`Operator`]
    /// has an example.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Returns the operator of a code; `None` for a number that is not a code. [`Operator`] has an
    /// example.
    pub fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(code as usize).copied()
    }

    /// Returns whether it is bitwise, which has no meaning for floating point numbers. [`Operator`]
    /// has an example.
    pub const fn is_bitwise(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor)
    }
}

/// Checks whether elements of this type can be combined by this operator. [`Operator`] has an
/// example.
///
/// # Errors
/// [`Error::Argument`] for bitwise operators on floating point numbers.
pub fn check(elements: Type, operator: Operator) -> Result<()> {
    if operator.is_bitwise() && elements.is_float() {
        return Err(Error::Argument(format!(
            "{operator} combines bits of integers, and {elements} is not an integer"
        )));
    }
    Ok(())
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Type {
    type Err = Error;

    /// Parses a name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
            Error::Argument(format!("{name:?} is not a type of elements: they are {}", list(&Self::ALL)))
        })
    }
}

impl FromStr for Operator {
    type Err = Error;

    /// Parses a name.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
            Error::Argument(format!("{name:?} is not an operator: they are {}", list(&Self::ALL)))
        })
    }
}

fn list(names: &[impl fmt::Display]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
