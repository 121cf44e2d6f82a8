//! Claim of a process to be part of a hold: a variable of its environment.
//!
//! The launcher writes it, and the program and all that it starts inherit it. It is a claim and no
//! proof: each process chooses the environment of the programs that it starts.

use std::fmt;
use std::str::FromStr;

/// Variable with which an enclosing run passes its hold to inner runs.
pub const HOLD: &str = "TRIMTAB_HOLD";

/// Number of no descriptor: the program has not inherited the hold's file.
pub const NO_DESCRIPTOR: i32 = -1;

/// A claim, as text `DEPTH DESCRIPTOR HOLD`.
///
/// # Examples
/// ```
/// use trimtab_core::hold_claim::HoldClaim;
///
/// let claim: HoldClaim = "0 600 26".parse().unwrap();
/// assert_eq!((claim.depth, claim.descriptor, claim.hold), (0, 600, Some(26)));
/// let found = HoldClaim::in_environment(b"HOME=/\0TRIMTAB_HOLD=0 600 26\0");
/// assert_eq!(found, Some(claim));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HoldClaim {
    /// Nesting depth of the hold: 0 for a hold of the machine.
    pub depth: u8,
    /// Descriptor of the hold's file in the program that the launcher started, or
    /// [`NO_DESCRIPTOR`].
    pub descriptor: i32,
    /// Number of the hold; `None` if the ledger had no name for it.
    pub hold: Option<u64>,
}

impl HoldClaim {
    /// Returns the claim in an environment, as `/proc/PID/environ` shows it: entries that end in a
    /// zero byte. `None` without the variable, or if its value is malformed.
    pub fn in_environment(text: &[u8]) -> Option<Self> {
        let value = text
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(HOLD.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()?.parse().ok()
    }
}

impl FromStr for HoldClaim {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split(' ');
        let depth = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let descriptor = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let hold = words.next().map(|word| word.parse().map_err(drop)).transpose()?;
        if words.next().is_some() { Err(()) } else { Ok(Self { depth, descriptor, hold }) }
    }
}

impl fmt::Display for HoldClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.depth, self.descriptor)?;
        self.hold.map_or(Ok(()), |hold| write!(f, " {hold}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn malformed_claims_are_none() {
        for text in
            ["", "0", "0 x", "x 3 1", "0 3 x", "0 3 1 1", "256 3 1", "0  3", "0 99999999999 1", "-1 3 1"]
        {
            assert_eq!(text.parse::<HoldClaim>(), Err(()), "{text:?}");
        }
    }

    #[test]
    fn the_first_entry_of_this_name_counts() {
        let of = |text: &[u8]| HoldClaim::in_environment(text).map(|claim| claim.to_string());
        assert_eq!(of(b"A=1\0TRIMTAB_HOLD=0 -1 77\0TRIMTAB_HOLD=0 -1 78"), Some("0 -1 77".to_owned()));
        assert_eq!(of(b"TRIMTAB_HOLD=1 3"), Some("1 3".to_owned()));
        for text in
            [&b""[..], b"XTRIMTAB_HOLD=0 3 1", b"TRIMTAB_HOLDER=0 3 1", b"TRIMTAB_HOLD=\xff", b"TRIMTAB_HOLD"]
        {
            assert_eq!(of(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_claim_is_read_as_it_was_written(depth: u8, descriptor: i32, hold: Option<u64>) {
            let claim = HoldClaim { depth, descriptor, hold };
            prop_assert_eq!(claim.to_string().parse(), Ok(claim));
        }

        #[test]
        fn any_environment_is_read(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = HoldClaim::in_environment(&text);
        }
    }
}
