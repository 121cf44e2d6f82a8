//! Boot id of the running kernel, read once: it does not change while a process runs, and a start
//! needs it for the machine's model, the journal of masks and the ledger.

use crate::text::{self, ReadError};
use std::path::Path;
use std::sync::OnceLock;

static LIVE: OnceLock<Vec<u8>> = OnceLock::new();

/// Returns the text of a boot id's file. The kernel's own file is read once.
pub(crate) fn id(path: &Path) -> Result<Vec<u8>, ReadError> {
    if path != Path::new(trimtab_core::fingerprint::BOOT_ID) {
        return text::read_piece(path);
    }
    match LIVE.get() {
        Some(known) => Ok(known.clone()),
        None => {
            let text = text::read_piece(path)?;
            Ok(LIVE.get_or_init(|| text).clone())
        }
    }
}
