//! Server of all connections in one thread.

use super::place::Claim;
use crate::process::Pid;
use crate::sys::peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::tags::Bucket;
use trimtab_core::time::{Moment, Span};

/// Pause after a failed accept: when descriptors have run out, the next would fail too.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Largest number of connections accepted in one turn, so that new clients do not delay those that
/// are served.
const ACCEPTS_PER_TURN: usize = 64;
/// Connections accepted at once, and per second after that: a client that connects over and over
/// costs no more. Chosen: some 2 % of a CPU, and a queue of waiting connections that is empty after
/// moments.
const CONNECTS_BURST: u32 = 256;
const CONNECTS_PER_SECOND: u32 = 2_000;
/// Connections of one user that are served at once, and per second after that; root ten times as
/// many. Those beyond wait among the user's connections, or are closed if these are too many, so
/// that the kernel's queue moves on to other users.
const CONNECTS_OF_USER_BURST: u32 = 128;
const CONNECTS_OF_USER_PER_SECOND: u32 = 50;
/// Number of stored rates of users above which those of idle users are dropped.
const RATES_KEPT_MAX: usize = 1_024;

/// Limits of the server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub clients: usize,
    /// Connections of each user but root.
    pub of_user: usize,
    /// Connections out of all that only root may use.
    pub of_root: usize,
    /// The longest line, in bytes.
    pub line: usize,
    /// The longest time without progress: for a line, and for reading the answer.
    pub patience: Duration,
}

impl Limits {
    /// Returns whether a user may be served beside those who are served already.
    fn admits(&self, uid: u32, served: impl Iterator<Item = u32> + Clone) -> bool {
        let others = || served.clone().filter(|of| *of != 0);
        let room = served.clone().count() < self.clients;
        match uid {
            0 => room,
            _ => {
                others().filter(|of| *of == uid).count() < self.of_user
                    && others().count() < self.clients.saturating_sub(self.of_root)
                    && room
            }
        }
    }
}

/// Number of a connection; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(u64);

/// The peer of a connection, as the kernel recorded it at the connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// The user id.
    pub uid: u32,
    /// The process; `None` if it is in a process-id namespace that is not visible from here.
    pub pid: Option<Pid>,
}

/// Event of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientEvent {
    /// A line, without its line feed. Nothing more of this client is read until it is answered.
    Line(ClientId, Peer, Vec<u8>),
    /// A line longer than the limit. The caller should answer it and close the connection.
    TooLong(ClientId, Peer),
    /// A connection beyond the limits. It is closed when it is answered.
    TooMany(ClientId, Peer),
}

/// Counts of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counted {
    /// Connections open now.
    pub now: u32,
    /// Connections that were served.
    pub served: u64,
    /// Connections that the server closed.
    pub dropped: u64,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    peer: Peer,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// A line was read and not answered.
    asked: bool,
    /// The client has closed its sending side.
    ended: bool,
    /// To be closed when the outbox is empty.
    closing: bool,
    /// The connection is beyond the limits.
    extra: bool,
    /// Time before which it is not read.
    rest: Option<Instant>,
    progress: Instant,
}

/// The server.
#[derive(Debug)]
pub struct Server {
    claim: Claim,
    limits: Limits,
    clients: BTreeMap<ClientId, Client>,
    next: u64,
    rest: Option<Instant>,
    began: Instant,
    connects: Bucket,
    /// Connections of each user.
    of_users: BTreeMap<u32, Bucket>,
    counted: Counted,
}

impl Server {
    /// Begins to serve at a place.
    pub fn new(claim: Claim, limits: Limits) -> Self {
        let counted = Counted::default();
        Self {
            claim,
            limits,
            clients: BTreeMap::new(),
            next: 0,
            rest: None,
            began: Instant::now(),
            connects: Bucket::new(CONNECTS_BURST, CONNECTS_PER_SECOND),
            of_users: BTreeMap::new(),
            counted,
        }
    }

    /// Returns the socket's path.
    pub fn path(&self) -> &Path {
        self.claim.path()
    }

    /// Returns the counts.
    pub fn counted(&self) -> Counted {
        Counted { now: u32::try_from(self.clients.len()).unwrap_or(u32::MAX), ..self.counted }
    }

    /// Waits until a client sends a line, one of the other descriptors can be read, or the timeout
    /// has passed.
    ///
    /// # Errors
    /// The kernel refuses to wait.
    pub fn turn(
        &mut self,
        others: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> io::Result<(Vec<ClientEvent>, Vec<bool>)> {
        let now = Instant::now();
        let listens = self.rest.is_none_or(|rest| rest <= now);
        let mut fds = Vec::new();
        let listener = if listens { PollFlags::IN } else { PollFlags::empty() };
        fds.push(PollFd::new(&self.claim.listener, listener));
        fds.extend(others.iter().map(|other| PollFd::from_borrowed_fd(*other, PollFlags::IN)));
        for client in self.clients.values() {
            let mut wanted = PollFlags::empty();
            wanted.set(PollFlags::IN, client.may_ask() && !client.ended);
            wanted.set(PollFlags::OUT, !client.outbox.is_empty());
            fds.push(PollFd::from_borrowed_fd(client.stream.as_fd(), wanted));
        }
        let due = self.clients.values().map(|client| client.progress + self.limits.patience).min();
        // A rest that has just ended is due at once. The listener's is over if it is listened to.
        let rests = self.clients.values().filter_map(|client| client.rest);
        let due = due.into_iter().chain(rests).chain(self.rest.filter(|_| !listens)).min();
        let timeout = due.map_or(timeout, |due| timeout.min(due.saturating_duration_since(now)));
        match poll(&mut fds, Some(&timespec(timeout))) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        drop(fds);
        let others_ready: Vec<bool> =
            ready.iter().skip(1).take(others.len()).map(|flags| !flags.is_empty()).collect();
        let mut heard = Vec::new();
        let ids: Vec<ClientId> = self.clients.keys().copied().collect();
        for (id, flags) in ids.into_iter().zip(ready.iter().skip(1 + others.len())) {
            let Some(client) = self.clients.get_mut(&id) else { continue };
            let rested = client.rest.take_if(|rest| *rest <= Instant::now()).is_some();
            // A client that hung up while its answer is being made will not read it, and would wake
            // the server until then.
            if flags.intersects(PollFlags::HUP | PollFlags::ERR) && (client.asked || client.rest.is_some()) {
                self.clients.remove(&id);
            } else if !flags.is_empty() || rested {
                self.serve(id, &mut heard);
            }
        }
        if ready.first().is_some_and(|flags| !flags.is_empty()) {
            self.accept(&mut heard);
        }
        self.drop_slow();
        Ok((heard, others_ready))
    }

    /// Counts a connection of a user.
    ///
    /// # Errors
    /// The user connects too often: the span is the time for which the connection waits.
    fn count_connection(&mut self, uid: u32, now: Moment) -> Result<(), Span> {
        if self.of_users.len() > RATES_KEPT_MAX {
            self.of_users.retain(|_, bucket| !bucket.is_full(now));
        }
        let times = if uid == 0 { 10 } else { 1 };
        let new = || Bucket::new(times * CONNECTS_OF_USER_BURST, times * CONNECTS_OF_USER_PER_SECOND);
        let wait = match self.of_users.entry(uid).or_insert_with(new).take(now) {
            Ok(()) => return Ok(()),
            Err(wait) => wait,
        };
        // Behind those of the same user that wait already.
        let waiting = self.clients.values().filter(|client| client.peer.uid == uid && client.rest.is_some());
        Err(wait.times(1.0 + waiting.count() as f64))
    }

    fn accept(&mut self, heard: &mut Vec<ClientEvent>) {
        for _ in 0..ACCEPTS_PER_TURN {
            let now = Moment(0) + Span::from(self.began.elapsed());
            if let Err(wait) = self.connects.take(now) {
                self.rest = Some(Instant::now() + Duration::from(wait));
                return;
            }
            let stream = match self.claim.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => {
                    self.rest = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            };
            let Ok(credentials) = peer::credentials(&stream) else { continue };
            let rest = self.count_connection(credentials.uid, now).err();
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let peer = Peer { uid: credentials.uid, pid: credentials.pid.map(Pid) };
            let of = |extra: bool| {
                let clients = self.clients.values().filter(move |client| client.extra == extra);
                clients.map(|client| client.peer.uid)
            };
            let extra = !self.limits.admits(peer.uid, of(false));
            // The connections that are refused with an answer are bounded in the same way.
            if extra && (rest.is_some() || !self.limits.admits(peer.uid, of(true))) {
                self.counted.dropped += 1;
                continue;
            }
            let id = ClientId(self.next);
            self.next += 1;
            self.clients.insert(
                id,
                Client {
                    stream,
                    peer,
                    inbox: Vec::new(),
                    outbox: Vec::new(),
                    asked: extra,
                    ended: false,
                    closing: false,
                    extra,
                    rest: rest.map(|rest| Instant::now() + Duration::from(rest)),
                    progress: Instant::now(),
                },
            );
            if extra {
                self.counted.dropped += 1;
                heard.push(ClientEvent::TooMany(id, peer));
            } else {
                self.counted.served += 1;
                // The client may have sent a line already.
                self.serve(id, heard);
            }
        }
    }

    /// Writes and reads as much as is possible without waiting.
    fn serve(&mut self, id: ClientId, heard: &mut Vec<ClientEvent>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !client.flush() {
            self.clients.remove(&id);
            return;
        }
        if client.may_ask() {
            client.read(self.limits.line);
            heard.extend(client.heard(id, self.limits.line));
        }
        self.finish(id);
    }

    fn finish(&mut self, id: ClientId) {
        let done = self.clients.get(&id).is_some_and(|client| {
            client.outbox.is_empty() && (client.closing || (client.ended && !client.asked))
        });
        if done {
            self.clients.remove(&id);
        }
    }

    /// Answers the client's last line. If the client has gone, does nothing.
    pub fn answer(&mut self, id: ClientId, line: &[u8], heard: &mut Vec<ClientEvent>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.outbox.extend_from_slice(line);
        client.outbox.push(b'\n');
        client.asked = false;
        client.closing |= client.extra;
        client.progress = Instant::now();
        if !client.flush() {
            self.clients.remove(&id);
            return;
        }
        // It may have sent more already.
        if client.may_ask() {
            heard.extend(client.heard(id, self.limits.line));
        }
        self.finish(id);
    }

    /// Does not read a connection for this time.
    pub fn rest(&mut self, id: ClientId, time: Duration) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.rest = Some(Instant::now() + time);
        }
    }

    /// Closes a connection when the client has read the answer.
    pub fn close(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.closing = true;
            self.counted.dropped += 1;
        }
        self.finish(id);
    }

    fn drop_slow(&mut self) {
        let (now, patience) = (Instant::now(), self.limits.patience);
        let before = self.clients.len();
        // A client that waits for our answer is not slow.
        self.clients.retain(|_, client| {
            (client.asked && client.outbox.is_empty()) || client.progress + patience > now
        });
        self.counted.dropped += (before - self.clients.len()) as u64;
    }
}

impl Client {
    /// Returns whether it is read: not before the client has read the last answer, or answers would
    /// pile up here.
    fn may_ask(&self) -> bool {
        !self.asked && !self.closing && self.rest.is_none() && self.outbox.is_empty()
    }

    /// Writes; returns whether the connection is alive.
    fn flush(&mut self) -> bool {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return false,
                Ok(written) => {
                    self.outbox.drain(..written);
                    self.progress = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Reads up to the longest line and its end.
    fn read(&mut self, longest: usize) {
        let mut part = [0; 4 << 10];
        while self.inbox.len() <= longest && !self.inbox.contains(&b'\n') {
            let room = (longest + 1 - self.inbox.len()).min(part.len());
            match self.stream.read(&mut part[..room]) {
                Ok(0) => {
                    self.ended = true;
                    return;
                }
                // Time runs from the first byte of a line: a client that sends it byte by byte
                // makes no progress.
                Ok(read) => self.inbox.extend_from_slice(&part[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    /// Takes a line from the bytes read.
    fn heard(&mut self, id: ClientId, longest: usize) -> Option<ClientEvent> {
        if self.asked {
            return None;
        }
        if let Some(end) = self.inbox.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.inbox.drain(..=end).collect();
            line.pop();
            self.asked = true;
            return Some(ClientEvent::Line(id, self.peer, line));
        }
        if self.inbox.len() > longest {
            self.inbox.clear();
            self.asked = true;
            return Some(ClientEvent::TooLong(id, self.peer));
        }
        None
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}

#[cfg(test)]
mod tests;
