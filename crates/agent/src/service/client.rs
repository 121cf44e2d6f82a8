//! Client: a connection to the service, for the commands that send requests.

use super::namespace;
use crate::narrator::Narrator;
use crate::paths::Paths;
use anyhow::{Context, Result, anyhow};
use rustix::process::geteuid;
use std::path::Path;
use std::time::Duration;
use trimtab_core::tags::{Answer, Ask, Refusal, Request, Response, VERSION};
use trimtab_linux::socket::{Connection, Place, SocketError};

/// Longest time that the service may take to answer: it may ask machines' monitors meanwhile.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);

/// Connection to a service that answers.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    namespace: Option<u64>,
}

impl Client {
    /// Connects to the service at the socket that is named, else to the user's own service, else
    /// to root's.
    ///
    /// # Errors
    /// No service runs; the message says how to start one.
    pub fn find(paths: &Paths, named: Option<&Path>, narrator: &dyn Narrator) -> Result<Self> {
        let named = named.or(paths.socket.as_deref());
        let namespace = namespace(&paths.proc());
        let of = |connection| Self { connection, namespace };
        if let Some(path) = named {
            return match Connection::open(path, true, ANSWER_TIME_MAX) {
                Err(error @ SocketError::NoListener { .. }) => {
                    let start = format!("start one with: trimtab serve --socket {}", path.display());
                    Err(anyhow!("{error}: {start}"))
                }
                connection => Ok(of(connection?)),
            };
        }
        let own = (!geteuid().is_root()).then(|| {
            let place = paths.location().map_err(SocketError::from);
            place.and_then(|place| Place::of_user(geteuid().as_raw(), paths.runtime.as_deref(), &place))
        });
        let places = own.into_iter().chain([Ok(Place::of_root(&paths.root))]);
        let mut passed = None;
        for place in places {
            match place.and_then(|place| Connection::open(&place.path(), false, ANSWER_TIME_MAX)) {
                Ok(connection) => return Ok(of(connection)),
                Err(SocketError::NoListener { .. } | SocketError::Place(_)) => {}
                // A stranger's socket in place of the user's own service does not hide root's
                // service.
                Err(stranger @ SocketError::Stranger { .. }) => {
                    narrator.alert(&format!("{stranger}: not asked"));
                    passed = Some(stranger);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(stranger) = passed {
            return Err(stranger.into());
        }
        Err(anyhow!(
            "no daemon runs: start one with trimtab serve (for your own programs), or as root with \
             systemctl start trimtab or sudo trimtab serve (for the programs of all users)"
        ))
    }

    /// Connects like [`Client::find`]; `None` on failure.
    pub fn any(paths: &Paths, narrator: &dyn Narrator) -> Option<Self> {
        Self::find(paths, None, narrator).ok()
    }

    /// Connects to the service at this socket; the path comes from the service's journal of masks.
    ///
    /// # Errors
    /// No service listens there.
    pub fn at(paths: &Paths, socket: &Path) -> Result<Self> {
        let namespace = namespace(&paths.proc());
        Ok(Self { connection: Connection::open(socket, true, ANSWER_TIME_MAX)?, namespace })
    }

    /// Sends a request and returns the answer.
    ///
    /// # Errors
    /// The service does not answer, or uses another protocol.
    pub fn ask(&mut self, ask: Ask) -> Result<Answer> {
        let line = serde_json::to_string(&Request::of(ask, self.namespace))?;
        let answer = self.connection.ask(&line, ANSWER_TIME_MAX)?;
        let strange =
            || anyhow!("the daemon speaks another version of the protocol than this trimtab: restart it");
        let response: Response = serde_json::from_slice(&answer).map_err(|_| strange())?;
        if response.version == VERSION { Ok(response.answer) } else { Err(strange()) }
    }

    /// Sends a request, and waits and repeats it when the service limits the rate.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub fn ask_patiently(&mut self, ask: &Ask) -> Result<Answer> {
        for _ in 0..100 {
            match self.ask(ask.clone())? {
                Answer::Refused(Refusal::TooOften { ms }) => {
                    std::thread::sleep(Duration::from_millis(ms.clamp(1, 1_000)));
                }
                answer => return Ok(answer),
            }
        }
        self.ask(ask.clone()).context("the daemon is too busy")
    }
}
