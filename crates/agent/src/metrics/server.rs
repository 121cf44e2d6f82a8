//! Minimal HTTP server: one page, one request a connection.
//!
//! A client may be slow, wrong or malicious. A request is at most 8 KiB and takes at most two
//! seconds, a few connections are served at a time and others are closed at once, the rate of
//! connections is bounded, and only the first line of a request is ever used. Work for clients has
//! threads of its own, so no client delays anything but other clients.

use super::Address;
use anyhow::{Context, Result, bail};
use rustix::process::geteuid;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_core::tags::Bucket;
use trimtab_core::time::{Moment, Span};

/// Longest request, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// Longest time that a request takes to arrive, and that its answer takes to leave.
const EXCHANGE_TIME_MAX: Duration = Duration::from_secs(2);
/// Bound of the connections that are served at a time.
const CONNECTIONS_MAX: usize = 8;
/// Connections accepted at once, and per second after that: a client that connects over and over
/// costs no more. Chosen: some 0.5 % of a CPU.
const CONNECTS_BURST: u32 = 64;
const CONNECTS_PER_SECOND: u32 = 50;
/// Pause after a failed accept: when descriptors have run out, the next accept would fail too.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

type Page = Arc<Mutex<Arc<str>>>;

#[derive(Debug)]
enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// Connection of either kind.
trait Stream: Read + Write + Send {
    fn limit(&self, left: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Stream for UnixStream {
    fn limit(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Unix(listener) => Box::new(listener.accept()?.0),
            Self::Tcp(listener) => Box::new(listener.accept()?.0),
        })
    }
}

/// Bound address that is not served yet: bound before the program is started, served after.
#[derive(Debug)]
pub struct Offer {
    listener: Listener,
    address: Address,
    socket: Option<SocketFile>,
}

/// File of a Unix socket, removed with its run if it is still the same.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
    /// Process that made the file. A forked child that fails does not remove its parent's file.
    owner: u32,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same = || fs::symlink_metadata(&self.path).is_ok_and(|meta| identity(&meta) == self.file);
        if self.owner == std::process::id() && same() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Offer {
    /// Binds an address.
    ///
    /// # Errors
    /// It is in use or not available; the message names it.
    pub fn bind(address: &Address) -> Result<Self> {
        Ok(match address {
            Address::Unix(path) => {
                let (listener, file) = unix(path)?;
                let socket = SocketFile { path: path.clone(), file, owner: std::process::id() };
                Self { listener: Listener::Unix(listener), address: address.clone(), socket: Some(socket) }
            }
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted)
                    .with_context(|| format!("cannot offer metrics on {wanted} (is another run there?)"))?;
                let real = listener.local_addr().context("cannot offer metrics")?;
                Self { listener: Listener::Tcp(listener), address: Address::Tcp(real), socket: None }
            }
        })
    }
}

/// Server that answers until dropped.
#[derive(Debug)]
pub(super) struct Server {
    address: Address,
    over: Arc<AtomicBool>,
    _socket: Option<SocketFile>,
}

impl Server {
    pub(super) fn start(offer: Offer, page: Page) -> Result<Self> {
        let Offer { listener, address, socket } = offer;
        let over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&over);
        let serve = move || accept(&listener, &page, &until);
        thread::Builder::new().name("metrics".to_owned()).spawn(serve).context("cannot offer metrics")?;
        Ok(Self { address, over, _socket: socket })
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // A last connection wakes the listener up.
        match &self.address {
            Address::Unix(path) => drop(UnixStream::connect(path)),
            Address::Tcp(address) => drop(TcpStream::connect_timeout(address, EXCHANGE_TIME_MAX)),
        }
    }
}

fn identity(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Makes a socket for its owner alone. The file of a dead run is removed; any other file is left
/// alone.
fn unix(path: &Path) -> Result<(UnixListener, (u64, u64))> {
    let name = path.display();
    if let Ok(meta) = fs::symlink_metadata(path) {
        if !meta.file_type().is_socket() {
            bail!("cannot offer metrics on {name}: the path exists and is not a socket");
        }
        if meta.uid() != geteuid().as_raw() {
            bail!("cannot offer metrics on {name}: the socket there belongs to another user");
        }
        match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                fs::remove_file(path).with_context(|| format!("cannot remove the dead socket {name}"))?;
            }
            _ => bail!("cannot offer metrics on {name}: another run answers there"),
        }
    }
    let listener = UnixListener::bind(path).with_context(|| format!("cannot offer metrics on {name}"))?;
    // Until here others could connect only if the user's umask lets them write to all new files
    // anyway.
    fs::set_permissions(path, Permissions::from_mode(0o600))
        .with_context(|| format!("cannot restrict access to {name}"))?;
    let meta = fs::symlink_metadata(path).with_context(|| format!("cannot read the metadata of {name}"))?;
    Ok((listener, identity(&meta)))
}

fn accept(listener: &Listener, page: &Page, over: &AtomicBool) {
    let served = Arc::new(AtomicUsize::new(0));
    let (began, mut connects) = (Instant::now(), Bucket::new(CONNECTS_BURST, CONNECTS_PER_SECOND));
    while !over.load(Ordering::Acquire) {
        if let Err(wait) = connects.take(Moment(0) + Span::from(began.elapsed())) {
            thread::sleep(Duration::from(wait));
            continue;
        }
        let Ok(mut stream) = listener.accept() else {
            thread::sleep(ACCEPT_RETRY);
            continue;
        };
        if over.load(Ordering::Acquire) {
            return;
        }
        if served.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
            served.fetch_sub(1, Ordering::AcqRel);
            continue; // dropped: closed
        }
        let (page, count) = (Arc::clone(page), Arc::clone(&served));
        let serve = move || {
            // A client that has disconnected needs no answer.
            let _ = answer(&mut *stream, &page);
            count.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().spawn(serve).is_err() {
            served.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn answer(stream: &mut dyn Stream, page: &Page) -> io::Result<()> {
    let request = read(stream)?;
    let (status, body): (&str, Arc<str>) = match reply(&request) {
        Reply::Page => ("200 OK", page.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        Reply::NotFound => ("404 Not Found", "only /metrics is here\n".into()),
        Reply::NotAllowed => ("405 Method Not Allowed", "only GET is answered\n".into()),
        Reply::Bad => ("400 Bad Request", "this is not an HTTP request\n".into()),
        Reply::TooLarge => ("431 Request Header Fields Too Large", "the request is too large\n".into()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.limit(EXCHANGE_TIME_MAX)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    stream.flush()
}

/// Reads the request up to its empty line, its end, or the limit.
fn read(stream: &mut dyn Stream) -> io::Result<Vec<u8>> {
    let begin = Instant::now();
    let mut request = Vec::new();
    let mut part = [0; 1_024];
    loop {
        let left = EXCHANGE_TIME_MAX.checked_sub(begin.elapsed()).filter(|left| !left.is_zero());
        stream.limit(left.ok_or(ErrorKind::TimedOut)?)?;
        let count = stream.read(&mut part)?;
        request.extend_from_slice(&part[..count]);
        let whole =
            request.windows(4).any(|end| end == b"\r\n\r\n") || request.windows(2).any(|end| end == b"\n\n");
        if count == 0 || whole || request.len() > REQUEST_MAX {
            return Ok(request);
        }
    }
}

/// Kind of answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Page,
    NotFound,
    NotAllowed,
    Bad,
    TooLarge,
}

/// Decides by the first line alone.
pub(super) fn reply(request: &[u8]) -> Reply {
    if request.len() > REQUEST_MAX {
        return Reply::TooLarge;
    }
    let line = request.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = std::str::from_utf8(line).unwrap_or_default().trim_end_matches('\r');
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        [_, _, version] if !version.starts_with("HTTP/1.") => Reply::Bad,
        ["GET", path, _] if path == "/metrics" || path.starts_with("/metrics?") => Reply::Page,
        ["GET", _, _] => Reply::NotFound,
        [method, _, _] if !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase()) => {
            Reply::NotAllowed
        }
        _ => Reply::Bad,
    }
}
