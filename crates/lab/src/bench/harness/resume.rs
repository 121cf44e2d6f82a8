//! Records that are gone on with: which, and whether their samples and new ones can be compared.

use anyhow::{Result, bail};
use std::fmt::Display;
use std::path::Path;

/// The record to go on with, if the options say so.
///
/// # Errors
/// It would be standard output.
pub(in crate::bench) fn resumed(json: Option<&Path>, resume: bool) -> Result<Option<&Path>> {
    match json.filter(|_| resume) {
        Some(file) if file.as_os_str() == "-" => {
            bail!("--resume needs a file with --json, and - is none")
        }
        file => Ok(file),
    }
}

/// The first fact that was another one when the record was begun, in words. Each fact is its name, its value then and its value now.
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
    fn standard_output_cannot_be_gone_on_with() {
        assert!(
            resumed(Some(Path::new("-")), true).unwrap_err().to_string().contains("--resume needs a file")
        );
        assert_eq!(resumed(Some(Path::new("-")), false).unwrap(), None);
        assert_eq!(resumed(Some(Path::new("a")), true).unwrap(), Some(Path::new("a")));
        assert_eq!(resumed(None, true).unwrap(), None);
    }
}
