//! Text at the edges: C strings, and one-line files of the kernel.

use hwlocality::object::TopologyObject;
use std::ffi::CStr;

/// A C string as text. What is not UTF-8 is marked, not refused: these are names of makers and models.
pub(crate) fn owned(text: &CStr) -> String {
    text.to_string_lossy().into_owned()
}

/// The value of an object's info, if it has one that says something.
pub(crate) fn info(object: &TopologyObject, name: &str) -> Option<String> {
    object.info(name).map(|value| value.to_string_lossy().trim().to_owned()).filter(|value| !value.is_empty())
}

/// The contents of a one-line file, if it is there and not blank.
pub(crate) fn trimmed(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}
