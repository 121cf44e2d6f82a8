//! Reading of trace files.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{Read, stdin};
use std::path::Path;
use trimtab_core::trace::Trace;

/// Largest trace in bytes: 1,000 threads sampled every 100 ms make 1 MB a second, so this is more
/// than two hours of them.
const BYTES_MAX: u64 = 8 << 30;

/// Returns a trace's name for messages.
pub fn name(file: &Path) -> String {
    if file.as_os_str() == "-" { "standard input".to_owned() } else { file.display().to_string() }
}

/// Reads a trace; `-` is standard input. A trace cut off by a crash is accepted.
///
/// # Errors
/// The file cannot be read or is not a trace; the message names it.
pub fn read(file: &Path) -> Result<Trace> {
    Trace::parse(&text(file)?).with_context(|| name(file))
}

/// Reads the text of a trace or another record, without what a crash left of a last character.
///
/// # Errors
/// It cannot be read, is too large, or is no text.
pub fn text(file: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let name = name(file);
    if file.as_os_str() == "-" {
        stdin().lock().take(BYTES_MAX).read_to_end(&mut bytes).context("cannot read standard input")?;
    } else {
        let open = File::open(file).with_context(|| format!("cannot read {name}"))?;
        let meta = open.metadata().with_context(|| format!("cannot read {name}"))?;
        if meta.is_dir() {
            bail!("{name} is a folder: name a trace file that --trace wrote");
        }
        if meta.len() > BYTES_MAX {
            bail!("{name} is larger than {} GiB", BYTES_MAX >> 30);
        }
        open.take(BYTES_MAX).read_to_end(&mut bytes).with_context(|| format!("cannot read {name}"))?;
    }
    // A crash may cut a character in two. Only the last line can be affected, and it is dropped
    // anyway.
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) if error.utf8_error().error_len().is_none() => {
            let whole = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(whole);
            Ok(String::from_utf8(bytes).unwrap_or_default())
        }
        Err(_) => bail!("{name} is not a trimtab trace: it is not text"),
    }
}

/// Checks that an output does not overwrite the trace that it is made from.
///
/// # Errors
/// Both are the same file, under whatever names.
pub fn keeps(trace: &Path, output: &Path) -> Result<(), anyhow::Error> {
    use std::os::unix::fs::MetadataExt;
    // A file that does not exist yet, and standard output, are other files.
    if let (Ok(trace), Ok(out)) = (std::fs::metadata(trace), std::fs::metadata(output))
        && (trace.dev(), trace.ino()) == (out.dev(), out.ino())
    {
        let name = output.display();
        return Err(anyhow::anyhow!(
            "{name} is the trace itself and would be overwritten: write to another file"
        ));
    }
    Ok(())
}
