//! Names of users from `/etc/passwd`.
//!
//! Only that file: users of a directory service appear as numbers. Asking the system's name service would load its
//! plug-ins into the launcher and may wait for a network.

use crate::text::{self, ReadError};
use std::collections::BTreeMap;
use std::path::Path;

/// Names by user id.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Users {
    names: BTreeMap<u32, String>,
}

impl Users {
    /// Reads a file in the format of passwd(5); one that is not there knows nobody.
    ///
    /// # Errors
    /// The file is there but cannot be read.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        Ok(text::read_if_there(path)?.map_or_else(Self::default, |passwd| Self::parse(&passwd)))
    }

    /// Reads the text of such a file. Lines that name no user are skipped; the first name of a user counts, as for the
    /// C library.
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

    /// The name of a user, or the number where there is none.
    pub fn name(&self, uid: u32) -> String {
        self.names.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}
