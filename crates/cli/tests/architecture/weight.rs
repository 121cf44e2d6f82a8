//! Weight of the tree: long raw records are kept compressed.

use std::path::Path;
use std::process::Command;

/// Longest file of the tree that is not compressed, in bytes.
const PLAIN_BYTES_MAX: u64 = 200_000;

#[test]
fn long_records_are_kept_compressed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(&root).output();
    let Some(listed) = listed.ok().filter(|output| output.status.success()) else {
        return crate::skip("this is not a checkout of git: the files of the tree cannot be listed");
    };
    let names = String::from_utf8(listed.stdout).unwrap();
    let mut seen = 0;
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // A file that is deleted but not committed is still listed.
        let Ok(about) = root.join(name).metadata() else { continue };
        seen += 1;
        let packed = [".gz", ".png"].iter().any(|end| name.ends_with(end));
        assert!(packed || about.len() <= PLAIN_BYTES_MAX, "{name} has {} bytes: compress it", about.len());
    }
    assert!(seen > 500, "only {seen} files are listed");
}
