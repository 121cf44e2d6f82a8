//! Standard output: machine output, or a command's answer.

use std::io::{self, Write};

/// Writes a text, with a line feed at its end.
///
/// # Errors
/// Stdout cannot be written: its reader has closed it, or the disk is full.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        out.write_all(b"\n")?;
    }
    out.flush()
}
