//! Test of the pictures that are kept in `experiments/`: each equals the one that its record gives
//! today, and has no fault that can be seen without a browser. `TRIMTAB_PICTURES=write` draws them
//! again; only the commands of their folders measure or simulate the values that they show.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use trimtab_front::chart::text::faults;

/// A file in `experiments/`.
pub(crate) fn kept(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments").join(file)
}

/// Compares a kept picture with one drawn from its record, or writes it if the user asks for that.
pub(crate) fn is_kept(file: &str, drawn: &str) {
    assert_eq!(faults(drawn), Vec::<String>::new(), "{file}");
    let path = kept(file);
    if env::var_os("TRIMTAB_PICTURES").is_some_and(|word| word == "write") {
        fs::write(&path, drawn).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap();
    assert!(stored == drawn, "{file} is not what its record gives: draw it with TRIMTAB_PICTURES=write");
}
