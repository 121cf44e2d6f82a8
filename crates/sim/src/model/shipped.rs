//! Machine files that are shipped with trimtab: the machines of the published studies, two of
//! today, and a small guest.
//!
//! Each number in them has its source beside it. If a published result of these machines was used
//! to set a number, its source begins with "calibrated"; all other published results about them are
//! held out, for comparison. "estimated" gives the reasoning.

use super::{Model, file};
use crate::kernel::UnknownKernel;
use crate::reader::FileError;
use thiserror::Error;

/// Error: something that should be shipped with trimtab is not available. Tests ensure that
/// everything in use is.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum NotShipped {
    /// No machine has this name.
    #[error("the machine {0} is not shipped")]
    Machine(String),
    /// A shipped file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// No preset has this name.
    #[error(transparent)]
    Kernel(#[from] UnknownKernel),
}

/// Machine file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shipped {
    /// Name of the machine: the file name without `.toml`.
    pub name: &'static str,
    /// Text of the file.
    pub text: &'static str,
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        /// All machine files, by name.
        pub const SHIPPED: &[Shipped] =
            &[$(Shipped { name: $name, text: include_str!(concat!("../../machines/", $name, ".toml")) }),*];
    };
}

shipped![
    "barcelona-8350",
    "barcelona-8356",
    "epyc-9654-nps4",
    "guest-emulated-2",
    "guest-intel-2",
    "host-2",
    "nehalem-e5530",
    "scalemp-e5420",
    "scalemp-e5550",
    "tigerton-e7310",
    "tigerton-x7350",
    "westmere-e5620",
    "xeon-8380h-4s",
];

/// Returns the machine of this name; `None` if it is not shipped.
pub fn find(name: &str) -> Option<Result<Model, FileError>> {
    SHIPPED.iter().find(|shipped| shipped.name == name).map(Shipped::model)
}

/// Returns the machine of this name, which is required.
///
/// # Errors
/// If the machine is not shipped.
pub fn needed(name: &str) -> Result<Model, NotShipped> {
    Ok(find(name).ok_or_else(|| NotShipped::Machine(name.to_owned()))??)
}

impl Shipped {
    /// Reads the file.
    ///
    /// # Errors
    /// None, as long as the tests pass: they read each shipped file.
    pub fn model(&self) -> Result<Model, FileError> {
        file::read(&format!("{}.toml", self.name), self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::{DeTable, DeValue};

    /// Returns the full names of all values of a file outside `[source]`, except texts that only
    /// name it.
    fn keys(text: &str) -> Vec<String> {
        let table = DeTable::parse(text).unwrap();
        let mut keys = Vec::new();
        for (key, value) in table.get_ref().iter() {
            match value.get_ref() {
                DeValue::Table(_) if key.get_ref() == "source" => {}
                DeValue::Table(inner) => {
                    keys.extend(inner.keys().map(|inner| format!("{}.{}", key.get_ref(), inner.get_ref())));
                }
                _ if key.get_ref() == "name" || key.get_ref() == "title" => {}
                _ => keys.push(key.get_ref().to_string()),
            }
        }
        keys.sort();
        keys
    }

    #[test]
    fn each_is_read_and_each_number_has_its_source() {
        for shipped in SHIPPED {
            let model = shipped.model().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(model.machine.name(), shipped.name);
            let sources: Vec<String> = model.sources.keys().cloned().collect();
            assert_eq!(keys(shipped.text), sources, "{}", shipped.name);
        }
    }

    #[test]
    fn they_have_the_published_shapes() {
        let shape = |name: &str| {
            let model = find(name).unwrap().unwrap();
            let machine = &model.machine;
            let packages = machine.at(trimtab_core::topology::Level::Package).count();
            (packages, machine.nodes().len(), machine.llcs().len(), machine.cores().len(), machine.pu_count())
        };
        assert_eq!(shape("tigerton-e7310"), (4, 1, 8, 16, 16));
        assert_eq!(shape("barcelona-8350"), (4, 4, 4, 16, 16));
        assert_eq!(shape("nehalem-e5530"), (2, 2, 2, 8, 16));
        assert_eq!(shape("westmere-e5620"), (2, 2, 2, 8, 16));
        assert_eq!(shape("scalemp-e5420"), (26, 13, 52, 104, 104));
        assert_eq!(shape("scalemp-e5550"), (30, 30, 30, 120, 120));
        assert_eq!(shape("epyc-9654-nps4"), (2, 8, 24, 192, 384));
        assert_eq!(shape("xeon-8380h-4s"), (4, 4, 4, 112, 224));
        assert_eq!(shape("host-2"), (1, 1, 1, 2, 2));
        assert_eq!(find("pdp-11"), None);
    }
}
