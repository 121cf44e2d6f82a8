//! Trace files, read.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use trimtab_core::trace::Trace;

/// A larger file is not read: 1,000 threads looked at every 100 ms make 1 MB a second, so this is more than two hours of them.
const BYTES_MAX: u64 = 8 << 30;

/// What a trace is called to people.
pub fn name(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

/// Reads a trace; `-` is standard input. What was cut off by a crash is fine.
///
/// # Errors
/// The file cannot be read or is no trace; the message names it.
pub fn read(file: &Path) -> Result<Trace> {
    let mut bytes = Vec::new();
    let name = name(file);
    if file.as_os_str() == "-" {
        stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        let open = File::open(file).with_context(|| format!("cannot read {name}"))?;
        let meta = open.metadata().with_context(|| format!("cannot read {name}"))?;
        if meta.is_dir() {
            bail!("{name} is a folder: name the trace that --trace wrote");
        }
        if meta.len() > BYTES_MAX {
            bail!("{name} is larger than {} GiB", BYTES_MAX >> 30);
        }
        open.take(BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    }
    // A crash may cut a character in two; only the last line can be hurt by that, and it is cut anyway.
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            String::from_utf8(bytes).unwrap_or_default()
        }
        Err(_) => bail!("{name} is no trimtab trace: it is no text"),
    };
    Trace::parse(&text).with_context(|| name)
}
/// Makes sure that what is written does not take the place of the trace that it is made from.
///
/// # Errors
/// Both are the same file, by whatever names.
pub fn keeps(trace: &Path, output: &Path) -> Result<(), anyhow::Error> {
    use std::os::unix::fs::MetadataExt;
    // What is not there yet, or is standard output, is another file.
    if let (Ok(trace), Ok(out)) = (std::fs::metadata(trace), std::fs::metadata(output))
        && (trace.dev(), trace.ino()) == (out.dev(), out.ino())
    {
        let name = output.display();
        return Err(anyhow::anyhow!("{name} is the trace itself, and would be lost: write to another file"));
    }
    Ok(())
}
