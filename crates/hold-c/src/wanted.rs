//! Wanted cores as a C program states them.

use crate::code::Failure;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::time::Duration;
use trimtab_hold::cores::CoresRequest;

/// `struct trimtab_cores_wanted` of `trimtab.h`, field by field.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct WantedOf {
    /// Size of the structure in bytes.
    pub size: usize,
    /// Number of cores; null: all idle ones.
    pub cores: *const c_char,
    /// CPUs to choose from; null: all.
    pub cpus: *const c_char,
    /// Device to be near to; null: none.
    pub near: *const c_char,
    /// Settings; null: none.
    pub settings: *const c_char,
    /// Name of the holder; null: the program's.
    pub label: *const c_char,
    /// Flags.
    pub flags: u32,
    /// Priority in the queue.
    pub priority: i32,
    /// Milliseconds to wait; -1 without a limit.
    pub wait_ms: i64,
    /// Receiver of lines about the wait, which may end it.
    pub look: Option<unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int>,
    /// First argument of `look`.
    pub data: *mut c_void,
}

const OR_FEWER: u32 = 1;
const SHARE: u32 = 2;
const NO_RULES: u32 = 4;
const STRICT: u32 = 8;

/// Sizes of the structure in all versions so far.
const SIZES: [usize; 1] = [size_of::<WantedOf>()];

impl Default for WantedOf {
    fn default() -> Self {
        let none = std::ptr::null();
        Self {
            size: size_of::<Self>(),
            cores: none,
            cpus: none,
            near: none,
            settings: none,
            label: none,
            flags: 0,
            priority: 0,
            wait_ms: 0,
            look: None,
            data: std::ptr::null_mut(),
        }
    }
}

/// Wanted cores, read.
pub(crate) struct Asked {
    cores: Option<String>,
    cpus: Option<String>,
    near: Option<String>,
    settings: Option<String>,
    label: Option<String>,
    raw: WantedOf,
    /// Whether the caller ended the wait when it got a line.
    ended: Cell<bool>,
}

/// Reads a caller's structure.
///
/// # Safety
/// `from` is null, or valid for reading a size, and then as many bytes, if it is that of a version;
/// its texts are null or end with a zero byte.
pub(crate) unsafe fn read(from: *const WantedOf) -> Result<Asked, Failure> {
    Failure::unless(!from.is_null(), "no cores are described")?;
    // SAFETY: not null, and so the structure's first field by the caller's promise.
    let size = unsafe { from.cast::<usize>().read_unaligned() };
    if !SIZES.contains(&size) {
        let own = size_of::<WantedOf>();
        return Err(Failure::argument(format!(
            "struct trimtab_cores_wanted has {size} bytes, and this library knows {own}: set its first field to its size; a program built with a later header needs a library of that version"
        )));
    }
    // SAFETY: it has as many bytes by the caller's promise.
    let raw = unsafe { from.read_unaligned() };
    // SAFETY: by the caller's promise.
    unsafe {
        Ok(Asked {
            cores: text(raw.cores, "cores")?,
            cpus: text(raw.cpus, "cpus")?,
            near: text(raw.near, "near")?,
            settings: text(raw.settings, "settings")?,
            label: text(raw.label, "label")?,
            raw,
            ended: Cell::new(false),
        })
    }
}

/// Reads a text.
///
/// # Safety
/// It is null or ends with a zero byte.
pub(crate) unsafe fn text(from: *const c_char, name: &str) -> Result<Option<String>, Failure> {
    if from.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    let text = unsafe { CStr::from_ptr(from) };
    let text = text.to_str().map_err(|_| Failure::argument(format!("{name} is not text in UTF-8")))?;
    Ok(Some(text.to_owned()))
}

impl Asked {
    /// Returns the wanted cores.
    pub(crate) fn wanted(&self) -> Result<CoresRequest, Failure> {
        let flags = self.raw.flags;
        let unknown = flags & !(OR_FEWER | SHARE | NO_RULES | STRICT);
        Failure::unless(unknown == 0, &format!("flags {unknown:#x} are unknown to this version"))?;
        let mut wanted = match &self.cores {
            Some(cores) => CoresRequest::cores(cores).map_err(argument)?,
            None => CoresRequest::default(),
        };
        if let Some(cpus) = &self.cpus {
            wanted = wanted.within(cpus).map_err(argument)?;
        }
        if let Some(near) = &self.near {
            wanted = wanted.near(near).map_err(argument)?;
        }
        if let Some(settings) = &self.settings {
            wanted = wanted.with_settings(settings).map_err(argument)?;
        }
        wanted.options.or_fewer = flags & OR_FEWER != 0;
        wanted.options.share = flags & SHARE != 0;
        wanted.options.strict = flags & STRICT != 0;
        wanted.rules = flags & NO_RULES == 0;
        wanted.priority = self.raw.priority;
        wanted.wait = match self.raw.wait_ms {
            0 => None,
            -1 => Some(None),
            ms => {
                let ms = u64::try_from(ms).map_err(|_| {
                    Failure::argument(format!("wait_ms is {ms}: a time, 0 for no wait, -1 for no limit"))
                })?;
                Some(Some(Duration::from_millis(ms)))
            }
        };
        wanted.label = self.label.clone().unwrap_or_else(program);
        Ok(wanted)
    }

    /// Returns the wanted cores of a target, whose name is that of the target unless it is given.
    pub(crate) fn wanted_of_target(&self) -> Result<CoresRequest, Failure> {
        Ok(CoresRequest { label: self.label.clone().unwrap_or_default(), ..self.wanted()? })
    }

    /// Shows the caller a line about the wait.
    pub(crate) fn tell(&self, line: &str) {
        if let (Some(look), Ok(line)) = (self.raw.look, CString::new(line)) {
            // SAFETY: the caller's function, with the caller's argument.
            let answer = unsafe { look(self.raw.data, line.as_ptr()) };
            self.ended.set(self.ended.get() || answer != 0);
        }
    }

    /// Asks the caller whether the wait goes on.
    pub(crate) fn goes_on(&self) -> bool {
        // SAFETY: as above.
        let asks = |look: unsafe extern "C" fn(_, _) -> _| unsafe { look(self.raw.data, std::ptr::null()) };
        !self.ended.get() && self.raw.look.is_none_or(|look| asks(look) == 0)
    }
}

/// Returns a request with these settings.
pub(crate) fn checked(settings: &str) -> Result<CoresRequest, Failure> {
    CoresRequest::default().with_settings(settings).map_err(argument)
}

/// Returns the error for a text that does not parse.
fn argument(error: trimtab_hold::reserve::ReserveError) -> Failure {
    Failure::argument(error.to_string())
}

/// Returns the name of the program of this process.
fn program() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    name.trim_end().to_owned()
}
