//! Messages of Incus: events of `incus monitor`, and the description of instances by `incus query`.

use crate::engine::usable;
use crate::shape::{GuestShape, OwnCpus};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Longest event, and longest answer.
pub const ANSWER_MAX: u64 = 16 << 20;
/// Beginning of the path of an instance.
const INSTANCES: &str = "/1.0/instances/";
/// Setting that counts or names the CPUs of an instance.
const LIMIT: &str = "limits.cpu";

/// A virtual machine of Incus.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct IncusGuest {
    /// Its project.
    pub project: String,
    /// Its name.
    pub name: String,
}

/// What happened to an instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IncusEvent {
    /// It runs.
    Started(IncusGuest),
    /// It has ended.
    Ended(IncusGuest),
}

/// A running virtual machine, as Incus describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningGuest {
    /// Its identity.
    pub guest: IncusGuest,
    /// CPUs that Incus was told.
    pub own: OwnCpus,
}

#[derive(Deserialize)]
struct EventText {
    #[serde(rename = "type")]
    kind: String,
    metadata: Action,
}

#[derive(Deserialize)]
struct Action {
    action: String,
    source: String,
}

#[derive(Deserialize)]
struct Instance {
    name: String,
    #[serde(default)]
    project: String,
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    expanded_config: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct InstanceState {
    pid: i64,
}

impl IncusGuest {
    /// Returns the name of the guest in holds and rules: with its project, unless that is Incus's
    /// usual one.
    pub fn full_name(&self) -> String {
        match self.project.as_str() {
            "default" => self.name.clone(),
            project => format!("{project}_{}", self.name),
        }
    }

    /// Returns the path of the guest's state, for `incus query`.
    pub fn state_path(&self) -> String {
        format!("{INSTANCES}{}/state?project={}", escaped(&self.name), escaped(&self.project))
    }

    fn new(project: &str, name: &str) -> Result<Self, String> {
        usable(name)?;
        let project = if project.is_empty() { "default" } else { project };
        usable(project)?;
        let guest = Self { project: project.to_owned(), name: name.to_owned() };
        usable(&guest.full_name())?;
        Ok(guest)
    }

    /// Reads the source of an event: `/1.0/instances/web?project=p`.
    fn of_source(source: &str) -> Result<Option<Self>, String> {
        let Some(rest) = source.strip_prefix(INSTANCES) else { return Ok(None) };
        let (name, query) = rest.split_once('?').unwrap_or((rest, ""));
        let project = query.split('&').find_map(|part| part.strip_prefix("project="));
        Self::new(&unescaped(project.unwrap_or_default())?, &unescaped(name)?).map(Some)
    }
}

/// Reads an event; `None` if it does not concern the cores of an instance.
///
/// # Errors
/// It is not an event of Incus.
///
/// # Examples
/// ```
/// use trimtab_hook::incus::{IncusEvent, event};
///
/// let about = r#"{"action":"instance-started","source":"/1.0/instances/web"}"#;
/// let line = format!(r#"{{"type":"lifecycle","metadata":{about}}}"#);
/// assert!(matches!(event(&line)?, Some(IncusEvent::Started(guest)) if guest.name == "web"));
/// # Ok::<(), String>(())
/// ```
pub fn event(line: &str) -> Result<Option<IncusEvent>, String> {
    let text: EventText =
        serde_json::from_str(line).map_err(|error| format!("no event of Incus: {error}"))?;
    if text.kind != "lifecycle" {
        return Ok(None);
    }
    let make: fn(IncusGuest) -> IncusEvent = match text.metadata.action.as_str() {
        "instance-started" | "instance-restarted" => IncusEvent::Started,
        "instance-stopped" | "instance-shutdown" | "instance-deleted" => IncusEvent::Ended,
        _ => return Ok(None),
    };
    Ok(IncusGuest::of_source(&text.metadata.source)?.map(make))
}

/// Reads the list of all instances, and returns the virtual machines that run.
///
/// # Errors
/// It is not a list of instances.
pub fn running(text: &str) -> Result<Vec<RunningGuest>, String> {
    let all: Vec<Instance> =
        serde_json::from_str(text).map_err(|error| format!("no list of instances: {error}"))?;
    let live = all.into_iter().filter(|one| one.kind == "virtual-machine" && one.status == "Running");
    live.map(|one| {
        let own = one.expanded_config.get(LIMIT).map_or(OwnCpus::None, |limit| own(limit));
        Ok(RunningGuest { guest: IncusGuest::new(&one.project, &one.name)?, own })
    })
    .collect()
}

/// Returns the CPUs that `limits.cpu` names: it is a number of CPUs, or a list of them.
fn own(limit: &str) -> OwnCpus {
    match limit.trim().parse::<u32>() {
        Ok(_) => OwnCpus::None,
        // Incus binds one vCPU to each of the list, and gives the list to every guest that has it.
        Err(_) if limit.trim().is_empty() => OwnCpus::None,
        Err(_) => limit.trim().parse().map_or(OwnCpus::Shared, OwnCpus::Exclusive),
    }
}

/// Reads the process of an instance from its state; `None` if it does not run.
///
/// # Errors
/// It is not the state of an instance.
pub fn process(text: &str) -> Result<Option<u32>, String> {
    let state: InstanceState =
        serde_json::from_str(text).map_err(|error| format!("no state of an instance: {error}"))?;
    Ok(u32::try_from(state.pid).ok().filter(|pid| *pid > 1))
}

/// Returns the shape of a guest with as many vCPUs as were found in its process.
pub fn shape(vcpus: usize, own: OwnCpus) -> GuestShape {
    GuestShape { vcpus: u32::try_from(vcpus).unwrap_or(u32::MAX), threads: 1, own, ..GuestShape::default() }
}

/// Returns a text as a part of a path or query.
fn escaped(text: &str) -> String {
    let one = |byte: u8| match byte {
        b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(one).collect()
}

/// Reads a part of a path or query.
fn unescaped(text: &str) -> Result<String, String> {
    let bad = || "the source of an event of Incus has a fault".to_owned();
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next().ok_or_else(bad)?, rest.next().ok_or_else(bad)?].map(char::from);
        let digit = |digit: char| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let (high, low) = (digit(digits[0]).ok_or_else(bad)?, digit(digits[1]).ok_or_else(bad)?);
        bytes.push(high * 16 + low);
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line(action: &str, source: &str) -> String {
        format!(
            r#"{{"location":"none","metadata":{{"action":"{action}","source":"{source}","context":null}},
            "timestamp":"2026-03-14T00:00:00Z","type":"lifecycle"}}"#
        )
    }

    fn guest(project: &str, name: &str) -> IncusGuest {
        IncusGuest { project: project.into(), name: name.into() }
    }

    #[test]
    fn events_of_instances_are_read() {
        let web = "/1.0/instances/web";
        let started = Ok(Some(IncusEvent::Started(guest("default", "web"))));
        assert_eq!(event(&line("instance-started", web)), started);
        assert_eq!(event(&line("instance-restarted", &format!("{web}?project=default"))), started);
        let ended = IncusEvent::Ended(guest("a b", "web"));
        assert_eq!(event(&line("instance-stopped", &format!("{web}?x=1&project=a%20b"))), Ok(Some(ended)));
        for other in ["instance-created", "network-updated", ""] {
            assert_eq!(event(&line(other, web)), Ok(None));
        }
        assert_eq!(event(&line("instance-started", "/1.0/networks/a")), Ok(None));
        assert_eq!(event(r#"{"type":"logging","metadata":{"action":"","source":""}}"#), Ok(None));
    }

    #[test]
    fn hostile_events_are_errors() {
        for source in [
            "/1.0/instances/",
            "/1.0/instances/..",
            "/1.0/instances/a%2F..%2Fb",
            "/1.0/instances/a%",
            "/1.0/instances/a%zz",
            "/1.0/instances/%ff",
            "/1.0/instances/web?project=..%2f",
        ] {
            assert!(event(&line("instance-started", source)).is_err(), "{source}");
        }
        let deep = "[".repeat(100_000);
        for text in ["", "{", "null", r#"{"type":"lifecycle"}"#, &deep] {
            assert!(event(text).is_err() && running(text).is_err() && process(text).is_err());
        }
    }

    #[test]
    fn running_virtual_machines_are_listed() {
        let one = |name: &str, kind: &str, status: &str, limit: &str| {
            format!(
                r#"{{"name":"{name}","project":"p","type":"{kind}","status":"{status}",
                "expanded_config":{{"limits.cpu":"{limit}"}}}}"#
            )
        };
        let list = [
            one("a", "virtual-machine", "Running", "2"),
            one("b", "container", "Running", "2"),
            one("c", "virtual-machine", "Stopped", "2"),
            one("d", "virtual-machine", "Running", "4-5"),
            one("e", "virtual-machine", "Running", "x"),
        ];
        let found = running(&format!("[{}]", list.join(","))).unwrap();
        let told: Vec<(String, OwnCpus)> =
            found.into_iter().map(|one| (one.guest.full_name(), one.own)).collect();
        let exclusive = OwnCpus::Exclusive("4-5".parse().unwrap());
        let expected = [("p_a", OwnCpus::None), ("p_d", exclusive), ("p_e", OwnCpus::Shared)];
        assert_eq!(told, expected.map(|(name, own)| (name.to_owned(), own)));
        assert_eq!(process(r#"{"pid":77,"status":"Running"}"#), Ok(Some(77)));
        assert_eq!(process(r#"{"pid":-1}"#), Ok(None));
    }

    proptest! {
        #[test]
        fn a_path_is_read_back(text in "\\PC{0,20}") {
            prop_assert_eq!(unescaped(&escaped(&text)), Ok(text));
        }

        #[test]
        fn any_line_is_an_answer(text in ".{0,200}") {
            let _ = (event(&text), running(&text), process(&text));
        }
    }
}
