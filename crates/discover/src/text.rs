//! Text from outside: C strings, and one-line files of the kernel.

use hwlocality::object::TopologyObject;
use std::ffi::CStr;

/// Converts a C string to text. Bytes that are not UTF-8 are marked, not refused: the texts are
/// names of makers and models.
pub(crate) fn owned(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// Returns the value of an object's info, if the object has a value that is not blank.
pub(crate) fn info(object: &TopologyObject, name: &str) -> Option<String> {
    object.info(name).map(|value| value.to_string_lossy().trim().to_owned()).filter(|value| !value.is_empty())
}

/// Returns the contents of a one-line file, if it exists and is not blank.
pub(crate) fn trimmed(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
