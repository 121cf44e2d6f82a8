//! Names of programs: unique, because keys, events and tables refer to programs by name.

use crate::program::ProgramSpec;
use crate::reader::{CountLimits, FileError, Section};
use std::collections::{BTreeMap, BTreeSet};

/// Refuses names that were given twice in this list of sections, and makes the default names
/// differ. `programs` are the programs of the sections, copies one after the other.
pub(super) fn differ(
    top: &Section<'_>,
    key: &'static str,
    mut programs: Vec<&mut ProgramSpec>,
) -> Result<(), FileError> {
    let sections = top.sections(key, usize::MAX)?;
    let mut places = Vec::new();
    for (place, section) in sections.iter().enumerate() {
        let copies = section.count("count", CountLimits::new(0, u64::MAX, "copies"))?.unwrap_or(1);
        places.extend((0..copies).map(|_| place));
    }
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for (&place, program) in places.iter().zip(&programs).filter(|(place, _)| sections[**place].has("name")) {
        if let Some(other) = taken.insert(program.name.clone(), place) {
            let problem = format!(
                "{key} {} at line {} has this name too, \"{}\": names must differ, or be left out",
                other + 1,
                sections[other].line(),
                crate::reader::shown(&program.name),
            );
            return Err(sections[place].error("name", problem));
        }
    }
    let mut taken: BTreeSet<String> = taken.into_keys().collect();
    let unnamed = places.iter().zip(&mut programs).filter(|(place, _)| !sections[**place].has("name"));
    for (place, program) in unnamed {
        let plain = program.name.clone();
        // By its place, if its default name is taken.
        for number in place + 1.. {
            if taken.insert(program.name.clone()) {
                break;
            }
            program.name = format!("{plain} {number}");
        }
    }
    Ok(())
}
