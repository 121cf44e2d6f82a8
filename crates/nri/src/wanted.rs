//! What a container gets, from its pod's annotations and the configuration.
//!
//! | annotation of the pod | value |
//! |---|---|
//! | `trimtab.io/cores` | number of cores in all forms of `-c`, `shared`, or `none` |
//! | `trimtab.io/settings` | layout and memory, as the text of `--set` |
//! | `trimtab.io/near` | a device, as the text of `--near` |
//!
//! Each holds for all containers of the pod; with `.NAME` at its end, for the container of that
//! name. An annotation that cannot be used refuses the container: a pod must not run with other
//! cores than it names.

use crate::config::{Class, ClassCores, Config, Qos};
use crate::message::{Container, Cpu, Pod};
use thiserror::Error;
use trimtab_core::topology::DeviceName;
use trimtab_hold::cores::CoresRequest;

/// Beginning of the annotations.
const PREFIX: &str = "trimtab.io/";
/// The annotations.
const KNOWN: [&str; 3] = ["cores", "settings", "near"];
/// Longest value of an annotation. Chosen: lists of CPUs are longer than all other values.
const VALUE_MAX: usize = 200;
/// Weight of a CPU in `cpu.shares`.
const SHARES_OF_CPU: u64 = 1_024;

/// What a container gets.
#[derive(Clone, Debug)]
pub enum ContainerNeed {
    /// It is left as it is: no cores of its own, and it may use all CPUs.
    Alone,
    /// It has no cores of its own.
    Shared,
    /// Cores of its own.
    Cores(Box<CoresRequest>),
}

/// An annotation that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("annotation {name}: {cause}")]
pub struct BadAnnotation {
    name: String,
    cause: String,
}

/// Returns what a container gets.
///
/// # Errors
/// An annotation cannot be used.
///
/// # Examples
/// ```
/// use trimtab_nri::config::Config;
/// use trimtab_nri::message::{Container, Pod};
/// use trimtab_nri::wanted::{ContainerNeed, wanted};
///
/// let annotations = [("trimtab.io/cores".to_owned(), "2".to_owned())].into();
/// let pod = Pod { annotations, ..Pod::default() };
/// let found = wanted(&Config::default(), &pod, &Container::default());
/// assert!(matches!(found, Ok(ContainerNeed::Cores(_))));
/// ```
pub fn wanted(config: &Config, pod: &Pod, container: &Container) -> Result<ContainerNeed, BadAnnotation> {
    let own = Annotations::of(config, pod, container)?;
    let class = config.class.iter().find(|class| fits(class, pod));
    let of_class = class.and_then(|class| amount(&class.cores, container.cpu()));
    let cores = match (&own.cores, of_class) {
        (Some((_, "none")), _) => return Ok(ContainerNeed::Alone),
        (Some((_, "shared")), _) => return Ok(ContainerNeed::Shared),
        (Some((name, text)), _) => request(name, text)?,
        (None, Some(text)) => request("of the class", &text)?,
        (None, None) => match own.settings.as_ref().or(own.near.as_ref()) {
            Some((name, _)) => {
                return Err(bad(name, "it needs cores: add trimtab.io/cores"));
            }
            None => return Ok(ContainerNeed::Shared),
        },
    };
    let class_value = |value: fn(&Class) -> Option<&String>| class.and_then(value).map(String::as_str);
    let settings =
        own.settings.or_else(|| Some(("of the class", class_value(|class| class.settings.as_ref())?)));
    let near = own.near.or_else(|| Some(("of the class", class_value(|class| class.near.as_ref())?)));
    let mut cores = cores;
    if let Some((name, text)) = settings {
        cores = cores.with_settings(text).map_err(|error| bad(name, error))?;
    }
    if let Some((name, text)) = near {
        cores = cores.near(text).map_err(|error| bad(name, error))?;
        if matches!(cores.near, Some(DeviceName::File(_))) && name.starts_with(PREFIX) {
            return Err(bad(name, "a pod names no file of the machine; name a device"));
        }
    }
    Ok(ContainerNeed::Cores(Box::new(cores)))
}

fn bad(name: &str, cause: impl ToString) -> BadAnnotation {
    BadAnnotation { name: name.to_owned(), cause: cause.to_string() }
}

fn request(name: &str, text: &str) -> Result<CoresRequest, BadAnnotation> {
    CoresRequest::cores(text).map_err(|error| bad(name, error))
}

/// The annotations of a container, each with its name.
#[derive(Default)]
struct Annotations<'a> {
    cores: Option<(&'a str, &'a str)>,
    settings: Option<(&'a str, &'a str)>,
    near: Option<(&'a str, &'a str)>,
}

impl<'a> Annotations<'a> {
    fn of(config: &Config, pod: &'a Pod, container: &Container) -> Result<Self, BadAnnotation> {
        let mut found = Self::default();
        if !config.annotations {
            return Ok(found);
        }
        // The names for one container are longer, and so come after those for all.
        for (name, value) in &pod.annotations {
            let Some(rest) = name.strip_prefix(PREFIX) else { continue };
            let (what, of) = rest.split_once('.').map_or((rest, None), |(what, of)| (what, Some(of)));
            if of.is_some_and(|of| of != container.name) {
                continue;
            }
            let slot = match what {
                "cores" => &mut found.cores,
                "settings" => &mut found.settings,
                "near" => &mut found.near,
                _ => {
                    let known = KNOWN.map(|known| format!("{PREFIX}{known}")).join(", ");
                    return Err(bad(&shown(name), format!("it is unknown (known: {known})")));
                }
            };
            if value.len() > VALUE_MAX || value.chars().any(char::is_control) {
                return Err(bad(
                    name,
                    format!("its value is longer than {VALUE_MAX} bytes, or not printable"),
                ));
            }
            *slot = Some((name, value));
        }
        Ok(found)
    }
}

/// Returns a name for a message.
fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(VALUE_MAX).collect()
}

fn fits(class: &Class, pod: &Pod) -> bool {
    class.qos.is_none_or(|wanted| qos(pod) == Some(wanted))
        && class.runtime_class.as_ref().is_none_or(|wanted| pod.runtime_handler == *wanted)
}

/// Returns a pod's class of service, which the kubelet shows only in the name of its control group;
/// `None` for a pod that is not the kubelet's.
fn qos(pod: &Pod) -> Option<Qos> {
    let group = &pod.linux.as_ref()?.cgroup_parent;
    match group {
        group if !group.contains("kubepods") => None,
        group if group.contains("besteffort") => Some(Qos::BestEffort),
        group if group.contains("burstable") => Some(Qos::Burstable),
        _ => Some(Qos::Guaranteed),
    }
}

/// Returns the cores of a class as the text of `-c`; `None` if it depends on the container, and
/// that has no whole number of CPUs.
fn amount(cores: &ClassCores, cpu: Option<&Cpu>) -> Option<String> {
    let whole =
        |sum: u64, of: u64| (sum > 0 && of > 0 && sum.is_multiple_of(of)).then(|| (sum / of).to_string());
    match cores {
        ClassCores::Amount(text) => Some(text.clone()),
        ClassCores::Request => whole(cpu?.shares?.value, SHARES_OF_CPU),
        ClassCores::Limit => whole(u64::try_from(cpu?.quota?.value).ok()?, cpu?.period?.value),
    }
}

/// Returns a container's limit of CPU time in thousandths of a CPU; `None` without a limit.
pub fn quota(container: &Container) -> Option<u32> {
    let cpu = container.cpu()?;
    let (quota, period) = (u64::try_from(cpu.quota?.value).ok()?, cpu.period?.value);
    u32::try_from(quota.saturating_mul(1_000).checked_div(period)?).ok().filter(|&share| share > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{LinuxContainer, LinuxPod, OptionalI64, OptionalU64, Resources};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn pod(annotations: &[(&str, &str)], group: &str) -> Pod {
        let annotations: BTreeMap<String, String> =
            annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let linux = Some(LinuxPod { cgroup_parent: group.to_owned() });
        Pod { annotations, linux, ..Pod::default() }
    }

    fn container(name: &str, quota: i64, period: u64, shares: u64) -> Container {
        let cpu = Cpu {
            quota: Some(OptionalI64 { value: quota }),
            period: Some(OptionalU64 { value: period }),
            shares: Some(OptionalU64 { value: shares }),
            ..Cpu::default()
        };
        let linux =
            Some(LinuxContainer { resources: Some(Resources { cpu: Some(cpu) }), ..Default::default() });
        Container { name: name.to_owned(), linux, ..Container::default() }
    }

    /// What a container gets, in words.
    fn told(config: &str, pod: &Pod, container: &Container) -> String {
        match wanted(&config.parse().unwrap(), pod, container) {
            Ok(ContainerNeed::Cores(request)) => {
                let near = request.near.as_ref().map(|near| format!(" near {near}")).unwrap_or_default();
                format!(
                    "{}{near}",
                    request.options.cores.map(|amount| amount.to_string()).unwrap_or_default()
                )
            }
            Ok(other) => format!("{other:?}").to_lowercase(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn annotations_count_for_all_containers_or_for_one() {
        let both =
            [("trimtab.io/cores", "2"), ("trimtab.io/cores.web", "3"), ("trimtab.io/cores.log", "shared")];
        let pod = pod(&both, "");
        for (name, expected) in [("web", "3"), ("log", "shared"), ("other", "2")] {
            assert_eq!(told("", &pod, &container(name, 0, 0, 0)), expected);
            assert_eq!(told("annotations = false", &pod, &container(name, 0, 0, 0)), "shared");
        }
    }

    #[test]
    fn an_annotation_that_cannot_be_used_is_refused() {
        for (name, value, word) in [
            ("trimtab.io/cores", "many", "many"),
            ("trimtab.io/core", "1", "trimtab.io/settings"),
            ("trimtab.io/settings", "smt=all", "needs cores"),
            ("trimtab.io/cores", &"9".repeat(201), "longer"),
            ("trimtab.io/cores", "1\u{1b}", "printable"),
        ] {
            let said = told("", &pod(&[(name, value)], ""), &container("web", 0, 0, 0));
            assert!(said.contains(word) && said.contains("trimtab.io/"), "{said}");
        }
        for (device, word) in [("gpu:", "missing"), ("file:/etc/shadow", "no file")] {
            let pod = pod(&[("trimtab.io/cores", "1"), ("trimtab.io/near", device)], "");
            assert!(told("", &pod, &container("web", 0, 0, 0)).contains(word), "{device}");
        }
    }

    #[test]
    fn classes_are_those_of_the_kubelets_groups() {
        let text = "[[class]]\nqos = \"guaranteed\"\ncores = \"limit\"\n[[class]]\nqos = \"burstable\"\n\
                    cores = \"request\"\n[[class]]\nruntime-class = \"fast\"\ncores = \"1\"\nnear = \"gpu:0\"";
        let whole = container("web", 200_000, 100_000, 3_072);
        for (group, expected) in [
            ("/kubepods/pod1f", "2"),
            ("kubepods-pod1f.slice", "2"),
            ("/kubepods/burstable/pod1f", "3"),
            ("kubepods-besteffort-pod1f.slice", "shared"),
            ("/other", "shared"),
        ] {
            assert_eq!(told(text, &pod(&[], group), &whole), expected, "{group}");
        }
        let part = container("web", 150_000, 100_000, 3_000);
        assert_eq!(told(text, &pod(&[], "/kubepods/pod1f"), &part), "shared");
        assert_eq!(told(text, &pod(&[], "/kubepods/burstable/pod1f"), &part), "shared");
        assert_eq!(told(text, &pod(&[("trimtab.io/cores", "none")], "/kubepods/pod1f"), &whole), "alone");
        let fast = Pod { runtime_handler: "fast".into(), ..pod(&[], "/other") };
        assert_eq!(told(text, &fast, &part), "1 near gpu:0");
    }

    proptest! {
        /// Any numbers of a runtime give a limit or none.
        #[test]
        fn limits_are_read_from_any_numbers(quota_us in any::<i64>(), period in any::<u64>()) {
            let found = quota(&container("a", quota_us, period, 0));
            let exact = (quota_us > 0 && period > 0).then(|| quota_us as u128 * 1_000 / u128::from(period));
            match found {
                Some(share) => prop_assert!(share > 0 && exact.is_some_and(|exact| u128::from(share) <= exact)),
                None => prop_assert!(exact.is_none_or(|exact| exact == 0 || exact > u128::from(u32::MAX))),
            }
        }

        #[test]
        fn any_annotation_is_used_or_refused(rest in "(cores|near|settings|[a-z.]{0,8})(|[.]a|[.]b)", value in ".{0,30}") {
            let name = format!("{PREFIX}{rest}");
            let pod = pod(&[(&name, &value)], "");
            match wanted(&Config::default(), &pod, &container("a", 0, 0, 0)) {
                Ok(ContainerNeed::Cores(request)) => {
                    prop_assert!(request.options.cores.is_some() && rest.starts_with("cores"));
                }
                // An annotation of another container, or a word.
                Ok(_) => prop_assert!(rest.contains('.') || ["none", "shared"].contains(&value.as_str())),
                Err(error) => prop_assert!(error.to_string().starts_with("annotation trimtab.io/")),
            }
        }
    }
}
