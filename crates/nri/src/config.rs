//! Configuration of the plug-in: `nri.toml` beside the site's rules, or the text that the runtime
//! has for the plug-in.

use serde::Deserialize;
use std::str::FromStr;
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::toml_text::parse;

/// The configuration. Unknown keys are errors.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// Whether annotations of pods count.
    pub annotations: bool,
    /// Whether containers without cores of their own run on the CPUs that no hold has.
    pub shared: bool,
    /// Cores of containers without an annotation: the first class that fits.
    pub class: Vec<Class>,
}

impl Default for Config {
    fn default() -> Self {
        Self { annotations: true, shared: false, class: Vec::new() }
    }
}

/// What the containers of some pods get.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Class {
    /// Class of service that the pods have.
    pub qos: Option<Qos>,
    /// Handler of the RuntimeClass that the pods have.
    pub runtime_class: Option<String>,
    /// Their cores.
    pub cores: ClassCores,
    /// Settings, as the text of `--set`.
    pub settings: Option<String>,
    /// A device to be near to.
    pub near: Option<String>,
}

/// Class of service of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Qos {
    /// Limits equal requests.
    Guaranteed,
    /// Some requests.
    Burstable,
    /// No requests.
    BestEffort,
}

/// Cores of the containers of a class.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub enum ClassCores {
    /// As many as the container's CPU limit says, if that is a whole number.
    Limit,
    /// As many as the container's CPU request says, if that is a whole number.
    Request,
    /// The text of `-c`.
    Amount(String),
}

impl TryFrom<String> for ClassCores {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "limit" => Ok(Self::Limit),
            "request" => Ok(Self::Request),
            _ => match CoresRequest::cores(&text) {
                Ok(_) => Ok(Self::Amount(text)),
                Err(error) => Err(format!("{error} (or limit, or request)")),
            },
        }
    }
}

impl FromStr for Config {
    type Err = String;

    /// Reads the text of a configuration.
    fn from_str(text: &str) -> Result<Self, String> {
        let config: Self = parse(text).map_err(|fault| fault.to_string())?;
        for (number, class) in (1..).zip(&config.class) {
            if class.qos.is_none() && class.runtime_class.is_none() {
                return Err(format!(
                    "class {number} has neither qos nor runtime-class: it would fit all pods"
                ));
            }
            let request =
                CoresRequest::default().with_settings(class.settings.as_deref().unwrap_or_default());
            request.map_err(|error| format!("class {number}: {error}"))?;
            if let Some(device) = &class.near {
                CoresRequest::default().near(device).map_err(|error| format!("class {number}: {error}"))?;
            }
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_and_faults_are_named() {
        let text = "shared = true\n[[class]]\nqos = \"guaranteed\"\ncores = \"limit\"\n\
                    [[class]]\nruntime-class = \"fast\"\ncores = \"2xl3\"\nsettings = \"memory=bind\"\n";
        let config: Config = text.parse().unwrap();
        assert!(config.shared && config.annotations);
        assert_eq!(config.class[0].cores, ClassCores::Limit);
        assert_eq!(config.class[1].cores, ClassCores::Amount("2xl3".into()));
        assert_eq!("".parse(), Ok(Config::default()));
        for (text, word) in [
            ("share = true", "line 1, column 1: unknown field `share`"),
            ("shared = 1", "boolean"),
            ("[[class]]\ncores = \"2\"", "neither"),
            ("[[class]]\nqos = \"gold\"\ncores = \"2\"", "gold"),
            ("[[class]]\nqos = \"guaranteed\"", "cores"),
            ("[[class]]\nqos = \"guaranteed\"\ncores = \"two\"", "two"),
            ("[[class]]\nqos = \"guaranteed\"\ncores = \"2\"\nsettings = \"memory=gold\"", "gold"),
            ("[[class]]\nqos = \"guaranteed\"\ncores = \"2\"\nnear = \"gpu:\"", "missing"),
        ] {
            let said = text.parse::<Config>().unwrap_err();
            assert!(said.contains(word), "{text}: {said}");
        }
    }
}
