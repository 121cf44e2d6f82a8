//! Build tools and what they know of jobservers, by words in their files: no tool is started.

use super::{Program, resolve};
use std::ffi::OsStr;
use std::path::Path;
use trimtab_core::jobserver::Form;
use trimtab_launch::facts::BuildFacts;

/// Longest tool that is searched, in bytes. GNU make has 0.3 MB, ninja 0.5 MB.
const TOOL_BYTES_MAX: usize = 16 << 20;
/// Option of GNU make since 4.4, with which paths came.
const MAKE_READS_PATHS: &str = "jobserver-style";
/// Option that ninja reads since 1.13.
const NINJA_READS: &str = "--jobserver-auth=";

/// Returns the facts about `program` itself if it is a build tool, else about the first tool of
/// each kind in the search path.
pub fn facts(program: Option<&Program>, search_path: Option<&OsStr>) -> BuildFacts {
    let own = |names: &[&str]| {
        let name = program?.path.file_name()?.to_str()?;
        names.contains(&name).then(|| program.cloned()).flatten()
    };
    let found = |name: &str| {
        let path = resolve(OsStr::new(name), search_path).ok()?;
        Program::look(&path, search_path).ok()
    };
    let make = own(&["make", "gmake", "gnumake"]).or_else(|| found("make"));
    let ninja = own(&["ninja", "ninja-build"]).or_else(|| found("ninja"));
    let mentions = |tool: &Program, word: &str| mentions(&tool.path, word);
    BuildFacts {
        make: make.map(|make| if mentions(&make, MAKE_READS_PATHS) { Form::Fifo } else { Form::Pipe }),
        ninja: ninja.map(|ninja| mentions(&ninja, NINJA_READS)),
    }
}

/// A file that cannot be searched counts as an old tool: every make reads the form of old ones.
fn mentions(path: &Path, word: &str) -> bool {
    super::mention::mentions(path, word.as_bytes(), TOOL_BYTES_MAX) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tools_are_known_by_the_words_in_their_files_and_the_program_itself_comes_first() {
        let folder = tempfile::tempdir().unwrap();
        let tool = |name: &str, content: &str| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let path = Some(folder.path().as_os_str());
        assert_eq!(facts(None, path), BuildFacts::default());
        tool("make", "GNU Make 4.3 --jobserver-auth");
        tool("ninja", "1.11");
        assert_eq!(facts(None, path), BuildFacts { make: Some(Form::Pipe), ninja: Some(false) });
        let own = tool("gmake", "GNU Make 4.4 jobserver-style");
        let own = Program::look(&own, path).unwrap();
        assert_eq!(facts(Some(&own), path).make, Some(Form::Fifo));
        tool("ninja", "1.13 --jobserver-auth=");
        assert_eq!(facts(None, path), BuildFacts { make: Some(Form::Pipe), ninja: Some(true) });
    }
}
