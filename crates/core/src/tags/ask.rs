//! Protocol of the socket: one line of JSON for a request, one for its answer.
//!
//! A client may send anything. A line is at most [`LINE_MAX`] bytes. Its version is checked before
//! the rest, so that a request of another version gets the right error. Unknown words are an error,
//! since a request that is half understood would be half granted.

use super::refusal::Refusal;
use super::status::Status;
use serde::{Deserialize, Serialize};

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Longest request, in bytes.
pub const LINE_MAX: usize = 4 << 10;
/// Longest name of a group of tags, in bytes.
const GROUP_MAX: usize = 64;
/// Longest name of a machine, in bytes.
const VM_MAX: usize = 256;
/// Longest path of a control group, in bytes.
const PATH_MAX: usize = 2_048;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of the protocol: [`VERSION`].
    pub version: u32,
    /// Process-id namespace of the numbers, by its inode; `None` for the daemon's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<u64>,
    /// Requested action.
    pub ask: Ask,
}

/// Action of a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// Tags an object.
    Tag {
        /// Object.
        what: What,
        /// Group of the tag.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<String>,
    },
    /// Clears tags.
    Clear {
        /// Object; `None` for all of the user's own tags.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        what: Option<What>,
    },
    /// Asks for the status.
    Status,
    /// Has the files of declared tags read again.
    Reload,
}

/// Object of a request, as named by the user.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum What {
    /// A process and its descendants.
    Process {
        /// Process number.
        pid: u32,
    },
    /// One thread.
    Thread {
        /// Process number.
        pid: u32,
        /// Thread number.
        tid: u32,
    },
    /// A control group, by its folder as the daemon sees it.
    Cgroup(String),
    /// A virtual machine, by its name or its monitor's process number.
    Vm(String),
}

/// Response to a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Response {
    /// Version of the protocol: [`VERSION`].
    pub version: u32,
    /// Result of the request.
    pub answer: Answer,
}

/// Result of a request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The object is tagged.
    Tagged {
        /// Object, in words.
        what: String,
        /// Whether the tag is new.
        new: bool,
    },
    /// The tags are cleared.
    Cleared {
        /// Number of tags removed.
        tags: u32,
        /// Number of further tags of the object, which only others can clear.
        others: u32,
    },
    /// Status of the daemon.
    Status(Box<Status>),
    /// The files of declared tags were read again.
    Reloaded {
        /// Number of declarations in them.
        declarations: u32,
        /// Declarations that came (`+ ...`) or went (`- ...`), in words.
        changes: Vec<String>,
    },
    /// The request is refused.
    Refused(Refusal),
}

impl Response {
    /// Creates a response of this version.
    pub fn of(answer: Answer) -> Self {
        Self { version: VERSION, answer }
    }
}

impl Request {
    /// Creates a request of this version.
    pub fn of(ask: Ask, namespace: Option<u64>) -> Self {
        Self { version: VERSION, namespace, ask }
    }

    /// Parses a line, without its line feed.
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
    /// Returns whether the object is named, or found, by process numbers: these have another
    /// meaning in another container.
    pub fn is_numbered(&self) -> bool {
        match self {
            Self::Process { .. } | Self::Thread { .. } | Self::Vm(_) => true,
            Self::Cgroup(_) => false,
        }
    }

    /// Checks whether the object can exist.
    ///
    /// # Errors
    /// [`Refusal::Garbage`] with the problem.
    pub fn check(&self) -> Result<(), Refusal> {
        let garbage = |why: &str| Err(Refusal::Garbage(why.to_owned()));
        let number = |number: u32| (1..=i32::MAX.unsigned_abs()).contains(&number);
        match self {
            Self::Process { pid } if !number(*pid) => garbage("this is not a process number"),
            Self::Thread { pid, tid } if !number(*pid) || !number(*tid) => {
                garbage("these are not a process number and a thread number")
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

/// Returns a path without its empty parts: one group has one name.
fn plain(path: &str) -> String {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    format!("/{}", parts.join("/"))
}

/// Returns whether a name can be shown at terminals.
fn is_name(name: &str, most: usize) -> bool {
    (1..=most).contains(&name.len()) && !name.chars().any(char::is_control)
}

fn is_path(path: &str) -> bool {
    let plain = |part: &str| part != "." && part != "..";
    path.starts_with('/') && path.len() <= PATH_MAX && is_name(path, PATH_MAX) && path.split('/').all(plain)
}
