//! Cores for ranks that a launcher starts: the entries of `trimtab.h` about them.

use crate::code::{Failure, entry, give_text};
use crate::{WantedOf, place, wanted};
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use trimtab_hold::ranks::{RankOrder, Ranks, RanksRequest};
use trimtab_launch::Environment;

/// `struct trimtab_ranks_wanted` of `trimtab.h`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RanksWantedOf {
    /// Size of the structure in bytes.
    pub size: usize,
    /// The cores.
    pub cores: *const WantedOf,
    /// Number of ranks on this machine.
    pub ranks: u32,
    /// Most cores; 0: all cores of the CPUs.
    pub cores_max: u32,
    /// Process of each rank; null: not known.
    pub pids: *const u32,
    /// Environment of the ranks, up to a null; null: empty.
    pub environment: *const *const c_char,
    /// Command of the ranks, up to a null; null: not known.
    pub command: *const *const c_char,
    /// Folder in which the ranks start; null: that of this process.
    pub folder: *const c_char,
    /// Beginning of the names of holders with which cores are shared; null: none.
    pub shared_with: *const c_char,
}

/// Sizes of the structure in all versions so far.
const SIZES: [usize; 1] = [size_of::<RanksWantedOf>()];
/// Most ranks that are believed. Chosen: above the hardware threads of every machine.
const RANKS_MAX: u32 = 1 << 16;

/// Reserves cores for ranks.
///
/// # Safety
/// `wanted` is null or a structure of `trimtab.h` whose texts end with a zero byte and whose lists
/// end with a null; `pids` is null or has a number for each rank; `ranks` and `error` are null or
/// valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_ranks_reserve(
    wanted: *const RanksWantedOf,
    ranks: *mut *mut Ranks,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            Failure::unless(!ranks.is_null(), "there is no address for the ranks")?;
            ranks.write(std::ptr::null_mut());
            let kept = read(wanted)?.reserve(&place::world())?;
            ranks.write(Box::into_raw(Box::new(kept)));
            Ok(())
        })
    }
}

/// Returns the order of a rank, as a text for [`trimtab_rank_enter`].
///
/// # Safety
/// `ranks` is null or of [`trimtab_ranks_reserve`] and not released; `order` and `error` are null
/// or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_ranks_order(
    ranks: *const Ranks,
    rank: u32,
    order: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let ranks = ranks.as_ref().ok_or_else(|| Failure::argument("there are no ranks"))?;
            let words = match ranks.orders().get(rank as usize) {
                None if ranks.orders().is_empty() => String::new(),
                None => return Err(Failure::argument(format!("there is no rank {rank}"))),
                Some(order) => serde_json::to_string(order).map_err(Failure::unread)?,
            };
            give_text(order, &words)
        })
    }
}

/// Returns a line about the placement, and the warnings, a line each.
///
/// # Safety
/// As [`trimtab_ranks_order`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_ranks_tell(
    ranks: *const Ranks,
    line: *mut *mut c_char,
    warnings: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let ranks = ranks.as_ref().ok_or_else(|| Failure::argument("there are no ranks"))?;
            give_text(line, ranks.text())?;
            let words: Vec<String> = ranks.warnings().iter().map(|line| line.replace('\n', " ")).collect();
            give_text(warnings, &words.join("\n"))
        })
    }
}

/// Gives the cores of ranks back.
///
/// # Safety
/// `ranks` is null or of [`trimtab_ranks_reserve`], and no other thread uses it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_ranks_release(ranks: *mut Ranks) {
    if !ranks.is_null() {
        // SAFETY: it was made from a box, and is used by no other call.
        let ranks = unsafe { Box::from_raw(ranks) };
        // A panic here would leave the library.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(ranks)));
    }
}

/// Carries out a rank's order on this process, which then executes the rank's program.
///
/// # Safety
/// `order` is null or ends with a zero byte; `variable` may be called with `data` until this
/// returns; `missing` and `error` are null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_rank_enter(
    order: *const c_char,
    variable: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> c_int>,
    data: *mut c_void,
    missing: *mut *mut c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let text = wanted::text(order, "order")?.ok_or_else(|| Failure::argument("there is no order"))?;
            let order: RankOrder = serde_json::from_str(&text).map_err(|why| {
                Failure::argument(format!("this is no order of trimtab_ranks_order: {why}"))
            })?;
            let gone = order.apply().map_err(|why| Failure::system(why.to_string()))?;
            let Some(variable) = variable else { return give_text(missing, &gone.join("\n")) };
            for (name, value) in &order.environment {
                let words = |text: &str| CString::new(text).map_err(Failure::unread);
                let value = value.as_deref().map(words).transpose()?;
                let at = value.as_ref().map_or(std::ptr::null(), |value| value.as_ptr());
                if variable(data, words(name)?.as_ptr(), at) != 0 {
                    return Err(Failure::system(format!("{name} cannot be set")));
                }
            }
            give_text(missing, &gone.join("\n"))
        })
    }
}

/// Checks the text of `settings`, without a look at the machine.
///
/// # Safety
/// `settings` is null or ends with a zero byte; `error` is null or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trimtab_cores_check_settings(
    settings: *const c_char,
    error: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        entry(error, || {
            let text = wanted::text(settings, "settings")?.unwrap_or_default();
            wanted::checked(&text).map(drop)
        })
    }
}

/// Reads a caller's structure.
///
/// # Safety
/// As [`trimtab_ranks_reserve`].
unsafe fn read(from: *const RanksWantedOf) -> Result<RanksRequest, Failure> {
    Failure::unless(!from.is_null(), "no ranks are described")?;
    // SAFETY: not null, and so the structure's first field by the caller's promise.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !SIZES.contains(&size) {
        let own = size_of::<RanksWantedOf>();
        return Err(Failure::argument(format!(
            "struct trimtab_ranks_wanted has {size} bytes, and this library knows {own}: set its first field to its size; a program built with a later header needs a library of that version"
        )));
    }
    // SAFETY: it has as many bytes by the caller's promise.
    let raw = unsafe { from.read_unaligned() };
    let most = format!("the number of ranks is {}: 1 to {RANKS_MAX}", raw.ranks);
    Failure::unless((1..=RANKS_MAX).contains(&raw.ranks), &most)?;
    // SAFETY: by the caller's promise.
    unsafe {
        let pids = match raw.pids.is_null() {
            true => Vec::new(),
            false => std::slice::from_raw_parts(raw.pids, raw.ranks as usize).to_vec(),
        };
        Ok(RanksRequest {
            cores: wanted::read(raw.cores)?.wanted()?,
            ranks: raw.ranks,
            cores_max: (raw.cores_max > 0).then_some(raw.cores_max),
            pids,
            environment: environment(&words(raw.environment)),
            command: words(raw.command),
            folder: wanted::text(raw.folder, "folder")?.map(PathBuf::from),
            library: place::preload(),
            shared_with: wanted::text(raw.shared_with, "shared_with")?,
        })
    }
}

/// Reads a list of texts.
///
/// # Safety
/// It is null or ends with a null; its texts end with a zero byte.
unsafe fn words(mut at: *const *const c_char) -> Vec<OsString> {
    let mut all = Vec::new();
    if at.is_null() {
        return all;
    }
    // SAFETY: the list goes on to its null by the caller's promise.
    unsafe {
        while !(*at).is_null() {
            all.push(OsStr::from_bytes(CStr::from_ptr(*at).to_bytes()).to_owned());
            at = at.add(1);
        }
    }
    all
}

/// Returns the variables of texts of the form `NAME=value`; others are no variables.
fn environment(entries: &[OsString]) -> Environment {
    let variable = |entry: &OsString| {
        let bytes = entry.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        Some((OsStr::from_bytes(&bytes[..at]).to_owned(), OsStr::from_bytes(&bytes[at + 1..]).to_owned()))
    };
    entries.iter().filter_map(variable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_from_entries() {
        let entries = ["A=1", "B=x=y", "C=", "=D", "E"].map(OsString::from);
        let read = environment(&entries);
        let found: Vec<_> = read.entries().map(|(name, value)| (name.to_str(), value.to_str())).collect();
        assert_eq!(found, [(Some("A"), Some("1")), (Some("B"), Some("x=y")), (Some("C"), Some(""))]);
    }
}
