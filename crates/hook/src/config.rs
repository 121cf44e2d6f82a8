//! Rules of the site for guests: `hook.toml` beside the site's rules.

use serde::Deserialize;
use std::fmt;
use std::str::FromStr;
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::toml_text::{NamePattern, parse};

/// Name of the file beside the site's rules.
pub const CONFIG: &str = "hook.toml";
/// Longest file.
const TEXT_MAX: usize = 1 << 20;

/// The rules. Unknown keys are errors.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HookConfig {
    /// Rules for guests: the first one whose name fits counts.
    pub guest: Vec<GuestRule>,
}

/// The cores of some guests.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GuestRule {
    /// The guests, by name; for Proxmox VE by number.
    pub name: NamePattern,
    /// Their cores.
    #[serde(default)]
    pub cores: GuestCores,
    /// Settings, as the text of `--set`.
    pub settings: Option<String>,
    /// A device to be near to.
    pub near: Option<String>,
    /// Whether a guest is refused its start if it cannot have its cores.
    #[serde(default)]
    pub required: bool,
}

/// Cores of a guest.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(try_from = "String")]
pub enum GuestCores {
    /// One for each vCPU, or for each core of a guest that sees hardware threads.
    #[default]
    Vcpus,
    /// None.
    None,
    /// The text of `-c`.
    Amount(String),
}

impl TryFrom<String> for GuestCores {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "vcpus" => Ok(Self::Vcpus),
            "none" => Ok(Self::None),
            _ => match CoresRequest::cores(&text) {
                Ok(_) => Ok(Self::Amount(text)),
                Err(error) => Err(format!("{error} (or vcpus, or none)")),
            },
        }
    }
}

impl HookConfig {
    /// Returns the rule for a guest.
    ///
    /// # Examples
    /// ```
    /// use trimtab_hook::config::{GuestCores, HookConfig};
    ///
    /// let config: HookConfig = "[[guest]]\nname = 'db-*'\nrequired = true".parse()?;
    /// assert!(config.rule("db-1").required && !config.rule("web").required);
    /// assert_eq!(config.rule("web").cores, GuestCores::Vcpus);
    /// # Ok::<(), String>(())
    /// ```
    pub fn rule(&self, name: &str) -> GuestRule {
        self.guest.iter().find(|rule| rule.name.matches(name)).cloned().unwrap_or_default()
    }
}

impl FromStr for HookConfig {
    type Err = String;

    /// Reads the text of the file.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("it has more than {TEXT_MAX} bytes"));
        }
        let config: Self = parse(text).map_err(|fault| fault.to_string())?;
        for rule in &config.guest {
            let at = |error: &dyn fmt::Display| format!("guest {}: {error}", rule.name);
            let request = CoresRequest::default().with_settings(rule.settings.as_deref().unwrap_or_default());
            request.map_err(|error| at(&error))?;
            if let Some(device) = &rule.near {
                CoresRequest::default().near(device).map_err(|error| at(&error))?;
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_fits_counts() {
        let text = "[[guest]]\nname = \"db-*\"\ncores = \"4\"\nsettings = \"memory=bind\"\nrequired = true\n\
                    [[guest]]\nname = \"10[0-9]\"\ncores = \"vcpus\"\n[[guest]]\nname = \"*\"\ncores = \"none\"\n";
        let config: HookConfig = text.parse().unwrap();
        assert_eq!(config.rule("db-1").cores, GuestCores::Amount("4".into()));
        assert!(config.rule("db-1").required && !config.rule("104").required);
        assert_eq!(config.rule("104").cores, GuestCores::Vcpus);
        assert_eq!(config.rule("web").cores, GuestCores::None);
        assert_eq!("".parse(), Ok(HookConfig::default()));
        assert_eq!(HookConfig::default().rule("web"), GuestRule::default());
    }

    #[test]
    fn faults_are_named() {
        for (text, word) in [
            ("guests = 1", "guests"),
            ("[[guest]]\ncores = \"2\"", "name"),
            ("[[guest]]\nname = \"[\"", "line 2, column 8: \"[\" is not a valid pattern"),
            ("[[guest]]\nname = \"a\"\ncores = \"two\"", "two"),
            ("[[guest]]\nname = \"a\"\nrequired = 1", "boolean"),
            ("[[guest]]\nname = \"a\"\nsettings = \"memory=gold\"", "gold"),
            ("[[guest]]\nname = \"a\"\nnear = \"gpu:\"", "missing"),
        ] {
            let said = text.parse::<HookConfig>().unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
        assert!("x".repeat(TEXT_MAX + 1).parse::<HookConfig>().is_err());
    }
}
