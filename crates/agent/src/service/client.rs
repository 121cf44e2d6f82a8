//! Speaking to the service, from the commands that do.

use crate::say::{self, Volume};
use crate::situation::location;
use crate::world::{SOCKET, World};
use anyhow::{Context, Result, anyhow};
use rustix::process::geteuid;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use trimtab_core::tags::{Answer, Ask, Refusal, Request, Response, VERSION};
use trimtab_linux::socket::{Connection, Place, SocketError};

/// How long the service may take to answer: machines' monitors may be asked in between.
const PATIENCE: Duration = Duration::from_secs(20);

/// A service that answers.
#[derive(Debug)]
pub(crate) struct Service {
    connection: Connection,
    namespace: Option<u64>,
}

impl Service {
    /// The one that is named, else one's own, else root's.
    ///
    /// # Errors
    /// None runs; how one is started.
    pub(crate) fn find(world: &World, named: Option<&Path>) -> Result<Self> {
        let named = named.map(PathBuf::from);
        let named = named.or_else(|| world.raw(SOCKET).filter(|path| !path.is_empty()).map(PathBuf::from));
        let namespace = std::fs::metadata(world.proc().join("self/ns/pid")).ok().map(|meta| meta.ino());
        let of = |connection| Self { connection, namespace };
        if let Some(path) = named {
            return match Connection::open(&path, true, PATIENCE) {
                Err(error @ SocketError::Nobody { .. }) => {
                    let start = format!("start one with: trimtab serve --socket {}", path.display());
                    Err(anyhow!("{error}: {start}"))
                }
                connection => Ok(of(connection?)),
            };
        }
        let own = (!geteuid().is_root()).then(|| {
            let runtime = world.raw("XDG_RUNTIME_DIR").map(Path::new);
            let place = location(world).map_err(SocketError::from);
            place.and_then(|place| Place::of_user(geteuid().as_raw(), runtime, &place))
        });
        let places = own.into_iter().chain([Ok(Place::of_root(&world.root))]);
        let mut passed = None;
        for place in places {
            match place.and_then(|place| Connection::open(&place.path(), false, PATIENCE)) {
                Ok(connection) => return Ok(of(connection)),
                Err(SocketError::Nobody { .. } | SocketError::Place(_)) => {}
                // Whoever has taken the place of a daemon of ours does not keep us from root's.
                Err(stranger @ SocketError::Stranger { .. }) => {
                    say::warning(Volume::Normal, &format!("{stranger}: not asked"));
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
             systemctl start trimtab or sudo trimtab serve (for everybody's)"
        ))
    }

    /// The one that is found, if one is.
    pub(crate) fn any(world: &World) -> Option<Self> {
        Self::find(world, None).ok()
    }

    /// The one that listens at this socket, by its record of masks.
    ///
    /// # Errors
    /// None does.
    pub(crate) fn at(world: &World, socket: &Path) -> Result<Self> {
        let namespace = std::fs::metadata(world.proc().join("self/ns/pid")).ok().map(|meta| meta.ino());
        Ok(Self { connection: Connection::open(socket, true, PATIENCE)?, namespace })
    }

    /// Asks.
    ///
    /// # Errors
    /// It does not answer, or speaks otherwise.
    pub(crate) fn ask(&mut self, ask: Ask) -> Result<Answer> {
        let line = serde_json::to_string(&Request::of(ask, self.namespace))?;
        let answer = self.connection.ask(&line, PATIENCE)?;
        let strange =
            || anyhow!("the daemon speaks another version of the protocol than this trimtab: restart it");
        let response: Response = serde_json::from_slice(&answer).map_err(|_| strange())?;
        if response.version == VERSION { Ok(response.answer) } else { Err(strange()) }
    }

    /// Asks, and waits where too much was asked.
    ///
    /// # Errors
    /// As [`Service::ask`].
    pub(crate) fn ask_patiently(&mut self, ask: &Ask) -> Result<Answer> {
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
