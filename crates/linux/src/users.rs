//! Names of users from `/etc/passwd`.
//!
//! The module reads only that file: users of a directory service appear as numbers. Asking the
//! system's name service would load its plug-ins into the launcher and may wait for a network.

use crate::text::{self, ReadError};
use std::collections::BTreeMap;
use std::path::Path;

/// Names by user id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Users {
    names: BTreeMap<u32, String>,
}

impl Users {
    /// Reads a file in the format of passwd(5); a missing file gives no names.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Ok(text::read_if_there(path)?.map_or_else(Self::default, |passwd| Self::parse(&passwd)))
    }

    /// Parses the text of such a file. Lines without a user are skipped; the first name of a user
    /// counts, as in the C library.
    pub fn parse(passwd: &[u8]) -> Self {
        let mut names = BTreeMap::new();
        for line in passwd.split(|&byte| byte == b'\n') {
            let mut fields = line.split(|&byte| byte == b':');
            let (name, uid) = (fields.next().unwrap_or_default(), fields.nth(1).and_then(text::number));
            if let (false, Some(uid)) = (name.is_empty(), uid) {
                names.entry(uid).or_insert_with(|| text::printable(name));
            }
        }
        Self { names }
    }

    /// Returns the number of the user with this name; `None` if the file has no such name.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.names.iter().find(|(_, known)| *known == name).map(|(uid, _)| *uid)
    }

    /// Returns the name of a user, or the number if it has no name.
    pub fn name(&self, uid: u32) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn users_have_names_or_numbers() {
        let text = "root:x:0:0:root:/root:/bin/sh\n# a comment\ntoor:x:0:0::/:\nann\x1b:x:1000:7::/:\n:x:5:5::/:\nbad:x:-1:5\nshort\n";
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("passwd"), text).unwrap();
        let users = Users::read(&root.path().join("passwd")).unwrap();
        let names: Vec<_> = [0, 1000, 5, 4_294_967_295].map(|uid| users.name(uid)).into();
        assert_eq!(names, ["root", "ann\\x1b", "5", "4294967295"]);
        assert_eq!(Users::read(&root.path().join("none")).unwrap().name(0), "0");
        assert!(Users::read(root.path()).unwrap_err().to_string().starts_with("cannot read "));
    }

    proptest! {
        #[test]
        fn every_user_has_a_name_whatever_the_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(!Users::parse(&bytes).name(0).is_empty());
        }
    }
}
