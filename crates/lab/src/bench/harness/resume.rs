//! Continuation of records: the record to continue, and whether its samples are comparable with new
//! ones.

use anyhow::{Result, bail};
use std::fmt::Display;
use std::path::Path;

/// Returns the record to continue, if the options ask for it.
///
/// # Errors
/// The record would be standard output.
pub(in crate::bench) fn resumed(json: Option<&Path>, resume: bool) -> Result<Option<&Path>> {
    match json.filter(|_| resume) {
        Some(file) if file.as_os_str() == "-" => {
            bail!("--resume needs a file with --json, but - is standard output")
        }
        file => Ok(file),
    }
}

/// Returns the first fact that differs between the record and now, as text. A fact has a name, its
/// recorded value and its present value.
pub(in crate::bench) fn difference(facts: &[(&str, &dyn Display, &dyn Display)]) -> Option<String> {
    facts.iter().find_map(|(name, then, now)| {
        let (then, now) = (then.to_string(), now.to_string());
        (then != now).then(|| format!("its {name} was {then}, now it is {now}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_named() {
        assert_eq!(difference(&[("seed", &1, &1), ("kernel", &"6.1", &"6.1")]), None);
        let found = difference(&[("seed", &1, &1), ("kernel", &"6.1", &"6.18"), ("--quick", &true, &false)]);
        assert_eq!(found.as_deref(), Some("its kernel was 6.1, now it is 6.18"));
    }

    #[test]
    fn a_record_on_standard_output_cannot_be_resumed() {
        assert!(
            resumed(Some(Path::new("-")), true).unwrap_err().to_string().contains("--resume needs a file")
        );
        assert_eq!(resumed(Some(Path::new("-")), false).unwrap(), None);
        assert_eq!(resumed(Some(Path::new("a")), true).unwrap(), Some(Path::new("a")));
        assert_eq!(resumed(None, true).unwrap(), None);
    }
}
