//! The C library's version.

/// Returns the major and minor number of the C library that this process runs with; `None` if it is
/// not GNU's.
pub fn glibc() -> Option<(u32, u32)> {
    text().and_then(|text| {
        let mut numbers = text.split('.').map(|part| part.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    })
}

#[cfg(target_env = "gnu")]
fn text() -> Option<&'static str> {
    // SAFETY: the library returns a text that lives as long as the library and ends with a zero
    // byte.
    unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) }.to_str().ok()
}

#[cfg(not(target_env = "gnu"))]
fn text() -> Option<&'static str> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_version_is_two_numbers() {
        assert_eq!(super::glibc().is_some(), cfg!(target_env = "gnu"));
    }
}
