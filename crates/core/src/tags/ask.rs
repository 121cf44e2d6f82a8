//! What is said over the socket: one line of JSON for a request, one for its answer.
//!
//! Whoever connects may say anything. A line is at most [`LINE_MAX`] bytes; its version is looked at before the rest, so that a
//! request of another version is told so; unknown words are an error, since a wish that is half understood is half granted.

use super::refusal::Refusal;
use super::status::Status;
use serde::{Deserialize, Serialize};

/// The version of the protocol.
pub const VERSION: u32 = 1;
/// The longest request, in bytes.
pub const LINE_MAX: usize = 4 << 10;
/// The longest name of a group of tags.
const GROUP_MAX: usize = 64;
/// The longest name of a machine.
const VM_MAX: usize = 256;
/// The longest path of a control group.
const PATH_MAX: usize = 2_048;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// [`VERSION`].
    pub version: u32,
    /// The process-id namespace that the numbers are of, by its inode; missing is the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// What is wanted.
    pub ask: Ask,
}

/// What is wanted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// To tag.
    Tag {
        /// What.
        what: What,
        /// As part of this group.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// To clear.
    Clear {
        /// What; missing is all of one's own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        what: Option<What>,
    },
    /// To be told what is tagged.
    Status,
}

/// What is meant, in words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A process and all that comes from it.
    Process {
        /// Its number.
        pid: u32,
    },
    /// One thread.
    Thread {
        /// Its process.
        pid: u32,
        /// Its number.
        tid: u32,
    },
    /// A control group, by its folder as the daemon sees it.
    Cgroup(String),
    /// A virtual machine, by its name or its monitor's number.
    Vm(String),
}

/// An answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Response {
    /// [`VERSION`].
    pub version: u32,
    /// What came of it.
    pub answer: Answer,
}

/// What came of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is tagged.
    Tagged {
        /// What, in words.
        what: String,
        /// Whether it was not before.
        new: bool,
    },
    /// It is cleared.
    Cleared {
        /// How many tags that took away.
        tags: u32,
        /// How many more there are of it that are others' to clear.
        others: u32,
    },
    /// What is tagged.
    Status(Box<Status>),
    /// It is not granted.
    Refused(Refusal),
}

impl Response {
    /// An answer of this version.
    pub fn of(answer: Answer) -> Self {
        Self { version: VERSION, answer }
    }
}

impl Request {
    /// A request of this version.
    pub fn of(ask: Ask, namespace: Option<u64>) -> Self {
        Self { version: VERSION, namespace, ask }
    }

    /// Reads a line, without its line feed.
    ///
    /// # Errors
    /// [`Refusal::TooLong`], [`Refusal::Version`], [`Refusal::Garbage`].
    pub fn parse(line: &[u8]) -> Result<Self, Refusal> {
        #[derive(Deserialize)]
        struct Spoken {
            version: u32,
        }
        if line.len() > LINE_MAX {
            return Err(Refusal::TooLong { most: u32::try_from(LINE_MAX).unwrap_or(u32::MAX) });
        }
        let garbage = |error: serde_json::Error| Refusal::Garbage(error.to_string());
        let Spoken { version } = serde_json::from_slice(line).map_err(garbage)?;
        if version != VERSION {
            return Err(Refusal::Version { spoken: VERSION });
        }
        let mut request: Self = serde_json::from_slice(line).map_err(garbage)?;
        request.ask.check()?;
        if let Ask::Tag { what: What::Cgroup(path), .. } | Ask::Clear { what: Some(What::Cgroup(path)) } =
            &mut request.ask
        {
            *path = plain(path);
        }
        Ok(request)
    }
}

impl Ask {
    fn check(&self) -> Result<(), Refusal> {
        let garbage = |why: &str| Err(Refusal::Garbage(why.to_owned()));
        match self {
            Self::Tag { group: Some(group), .. } if !is_name(group, GROUP_MAX) => {
                return garbage("the name of a group is 1 to 64 printable characters");
            }
            _ => {}
        }
        match self {
            Self::Tag { what, .. } | Self::Clear { what: Some(what) } => what.check(),
            _ => Ok(()),
        }
    }
}

impl What {
    /// Whether numbers of processes say what is meant, or what is named was found by them: these mean others in another container.
    pub fn is_numbered(&self) -> bool {
        match self {
            Self::Process { .. } | Self::Thread { .. } | Self::Vm(_) => true,
            Self::Cgroup(_) => false,
        }
    }

    /// Whether it can be meant at all.
    ///
    /// # Errors
    /// [`Refusal::Garbage`] with what is wrong.
    pub fn check(&self) -> Result<(), Refusal> {
        let garbage = |why: &str| Err(Refusal::Garbage(why.to_owned()));
        let number = |number: u32| (1..=i32::MAX.unsigned_abs()).contains(&number);
        match self {
            Self::Process { pid } if !number(*pid) => garbage("this is no number of a process"),
            Self::Thread { pid, tid } if !number(*pid) || !number(*tid) => {
                garbage("these are no numbers of a process and a thread")
            }
            Self::Cgroup(path) if !is_path(path) => {
                garbage("a control group is named by its whole path, without . or .. in it")
            }
            Self::Vm(name) if !is_name(name, VM_MAX) => {
                garbage("the name of a machine is 1 to 256 printable characters")
            }
            _ => Ok(()),
        }
    }
}

/// A path without its empty parts: one group has one name.
fn plain(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// Names are shown to people, at terminals.
fn is_name(name: &str, most: usize) -> bool {
    (1..=most).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn is_path(path: &str) -> bool {
    let plain = |part: &str| part != "." && part != "..";
    path.starts_with('/') && path.len() <= PATH_MAX && is_name(path, PATH_MAX) && path.split('/').all(plain)
}
