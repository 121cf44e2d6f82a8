//! Sockets of bad monitors: silent, endless, garbled, closed too early, another user's.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trimtab_linux::vcpus::qmp::{self, QmpCpu, QmpError};
use trimtab_linux::vcpus::{VmError, VmName, Vms};

const GREETING: &str = r#"{"QMP": {"version": {"qemu": {"major": 9}}, "capabilities": ["oob"]}}"#;
const LONG: Duration = Duration::from_secs(60);
/// Longer than a loaded machine takes for an answer.
const SHORT: Duration = Duration::from_secs(1);

/// A listener that treats each client in one manner, until it is dropped.
struct Server {
    folder: tempfile::TempDir,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn new(treat: impl Fn(&mut UnixStream) + Send + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("q")).unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ended);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if told.load(Ordering::Relaxed) {
                    return;
                }
                treat(&mut client.unwrap());
            }
        });
        Self { folder, ended }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("q")
    }

    fn ask(&self, patience: Duration) -> Result<qmp::Answer, QmpError> {
        qmp::ask(&self.path(), patience)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(self.path());
    }
}

/// Returns a server that greets, and answers each line with the next of these.
fn answering(answers: Vec<String>) -> Server {
    Server::new(move |client| {
        let _ = writeln!(client, "{GREETING}");
        for answer in &answers {
            if read_line(client).is_empty() || client.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        // Until the client goes.
        while client.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    })
}

fn read_line(client: &mut UnixStream) -> String {
    let (mut line, mut byte) = (String::new(), [0]);
    while client.read(&mut byte).is_ok_and(|read| read == 1) {
        line.push(char::from(byte[0]));
        if byte[0] == b'\n' {
            break;
        }
    }
    line
}

fn cpus(list: &str) -> Server {
    answering(vec!["{\"return\": {}}\n".to_owned(), format!("{{\"return\": [{list}]}}\n")])
}

#[test]
fn a_valid_answer_is_read_in_any_pieces_and_layout() {
    let list = r#"{"cpu-index": 1, "thread-id": 8, "props": {"node-id": 1, "socket-id": 0, "core-id": 3, "thread-id": 0}, "more": [{}]},
                  {"cpu-index": 0, "thread-id": 7}"#;
    let answer = cpus(list).ask(LONG).unwrap();
    let [QmpCpu { index: 1, thread: 8, place }, QmpCpu { index: 0, thread: 7, .. }] = answer.cpus[..] else {
        panic!("{answer:?}")
    };
    assert_eq!((place.node, place.socket, place.core, place.thread), (Some(1), Some(0), Some(3), Some(0)));
    assert_eq!(answer.peer.map(|pid| pid.0), Some(std::process::id()));
    assert_eq!(answer.user, Some(rustix::process::geteuid().as_raw()));
    // Events between, several lines, and a byte at a time.
    let event = "{\"event\": \"RESUME\",\n \"timestamp\": {\"seconds\": 1}}\n";
    let text = format!("{event}{{\n  \"return\": {{\n  }}\n}}\n{event}{event}");
    let dribbling = Server::new(move |client| {
        let _ = writeln!(client, "{GREETING}");
        read_line(client);
        for byte in text.bytes() {
            let _ = client.write_all(&[byte]);
        }
        read_line(client);
        let _ = client.write_all(b"{\"return\":[{\"cpu-index\":0,\"thread-id\":7}]}\r\n");
    });
    assert_eq!(dribbling.ask(LONG).unwrap().cpus.len(), 1);
}

#[test]
fn nothing_waits_longer_than_it_may() {
    let silent = Server::new(|client| drop(client.read(&mut [0])));
    assert!(matches!(silent.ask(SHORT), Err(QmpError::Busy)));
    let stuck = answering(vec!["{\"return\": {}}\n".to_owned()]);
    assert!(matches!(stuck.ask(SHORT), Err(QmpError::Silent(_))));
    let trickling = Server::new(|client| {
        while client.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    assert!(matches!(trickling.ask(SHORT), Err(QmpError::Silent(_))));
    let forever = answering(vec!["{\"event\": \"X\"}\n".to_owned().repeat(100)]);
    assert!(matches!(forever.ask(SHORT), Err(QmpError::Silent(_))));
}

#[test]
fn a_full_queue_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q");
    let _listener = UnixListener::bind(&path).unwrap();
    // No client is ever accepted; at some point none can even queue.
    let flags = rustix::net::SocketFlags::NONBLOCK;
    let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
    let mut queued = Vec::new();
    loop {
        let socket = rustix::net::socket_with(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            flags,
            None,
        )
        .unwrap();
        if rustix::net::connect(&socket, &address).is_err() || queued.len() > 10_000 {
            break;
        }
        queued.push(socket);
    }
    assert!(matches!(qmp::ask(&path, LONG), Err(QmpError::Busy)));
}

#[test]
fn garbage_is_distinguished_from_qmp() {
    for text in [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "QEMU 7.2 monitor - type 'help'\r\n(qemu) \n",
        "[]\n",
        "{\"return\": 1}\n",
        "}\n",
        "\0\0\n",
    ] {
        let server = Server::new(move |client| {
            let _ = client.write_all(text.as_bytes());
            let _ = client.read(&mut [0]);
        });
        assert!(matches!(server.ask(LONG), Err(QmpError::Strange(_))), "{text:?}");
    }
    let endless = Server::new(|client| while client.write_all(&[b'{'; 4096]).is_ok() {});
    assert!(matches!(endless.ask(LONG), Err(QmpError::Strange(_))), "a line without end");
    let long = Server::new(|client| {
        let _ = client.write_all(b"{\"QMP\": \"");
        while client.write_all(&[b'x'; 4096]).is_ok() {}
    });
    assert!(matches!(long.ask(LONG), Err(QmpError::Strange(_))), "a word without end");
    for list in
        ["7", "{}", "{\"cpu-index\": -1, \"thread-id\": 1}", "{\"cpu-index\": 0, \"thread-id\": 99999999999}"]
    {
        assert!(matches!(cpus(list).ask(LONG), Err(QmpError::Strange(_))), "{list}");
    }
}

#[test]
fn early_ends_and_refusals_are_reported() {
    let closed = Server::new(|_| {});
    assert!(matches!(closed.ask(LONG), Err(QmpError::Closed)));
    let greets = Server::new(|client| drop(writeln!(client, "{GREETING}")));
    assert!(matches!(greets.ask(LONG), Err(QmpError::Closed)));
    let half = Server::new(|client| drop(client.write_all(&GREETING.as_bytes()[..20])));
    assert!(matches!(half.ask(LONG), Err(QmpError::Closed)));
    let old = answering(vec![
        "{\"return\": {}}\n".to_owned(),
        "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"The command \\u001b[2J is not there\"}}\n"
            .to_owned(),
    ]);
    let said = old.ask(LONG).unwrap_err().to_string();
    assert!(said.starts_with("query-cpus-fast is refused") && !said.contains('\x1b'), "{said}");
    let folder = tempfile::tempdir().unwrap();
    assert!(matches!(qmp::ask(&folder.path().join("none"), LONG), Err(QmpError::Connect(_))));
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(qmp::ask(&file, LONG).is_err());
    let stale = folder.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(matches!(qmp::ask(&stale, LONG), Err(QmpError::Stale)));
    let long = folder.path().join("x".repeat(200));
    assert!(matches!(qmp::ask(&long, LONG), Err(QmpError::Connect(_))));
}

#[test]
fn only_threads_of_the_machine_count() {
    let vms = Vms::new(Path::new("/proc"));
    let find = |server: &Server| vms.find(&VmName::Socket(server.path()));
    // The socket belongs to this test, and so do its threads.
    let own = std::process::id();
    let vm = find(&cpus(&format!(
        "{{\"cpu-index\": 0, \"thread-id\": {own}}}, {{\"cpu-index\": 1, \"thread-id\": 1}}"
    )))
    .unwrap();
    assert_eq!(vm.vcpus.len(), 1, "the first process of the machine is none of it");
    // A thread number that occurs twice counts once.
    let twice =
        format!("{{\"cpu-index\": 1, \"thread-id\": {own}}}, {{\"cpu-index\": 0, \"thread-id\": {own}}}");
    assert_eq!(find(&cpus(&twice)).unwrap().vcpus[0].index, Some(0));
    for none in ["", "{\"cpu-index\": 0, \"thread-id\": 4194999}"] {
        let said = find(&cpus(none)).unwrap_err().to_string();
        assert!(matches!(find(&cpus(none)), Err(VmError::NoVcpus { .. })), "{said}");
    }
}

#[test]
fn damaged_answers_are_read_without_harm() {
    let whole = format!(
        "{GREETING}\n{{\"return\": {{}}}}\n{{\"event\": \"X\"}}\n{{\"return\": [{{\"cpu-index\": 0, \"thread-id\": 7, \"props\": {{\"node-id\": 1}}}}]}}\n"
    );
    let length = whole.len();
    let turn = std::sync::atomic::AtomicUsize::new(0);
    // Each client gets the whole dialogue at once, with one byte changed, and then the end.
    let server = Server::new(move |client| {
        let at = turn.fetch_add(1, Ordering::Relaxed);
        let mut text = whole.clone().into_bytes();
        if at > 0 {
            text[(at - 1) % length] = b"\0}{\"[,9\xff\n"[at % 9];
        }
        let _ = client.write_all(&text);
        let _ = client.shutdown(std::net::Shutdown::Write);
        while client.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
    });
    assert_eq!(server.ask(LONG).unwrap().cpus.len(), 1, "undamaged");
    for _ in 0..3 * length {
        match server.ask(LONG) {
            Ok(answer) => assert!(answer.cpus.len() <= 1, "{answer:?}"),
            Err(QmpError::Closed | QmpError::Strange(_) | QmpError::Answered { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

/// A process of another user that claims to be QEMU with this QMP socket.
struct Impostor(std::process::Child);

impl Impostor {
    fn new(socket: &Path, user: u32) -> Self {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("sh");
        command.arg0("qemu-system-x86_64").args(["-c", "echo up; read x", "sh", "-qmp"]);
        command.arg(format!("unix:{}", socket.display())).uid(user).current_dir("/");
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdout.take().unwrap().read_exact(&mut [0; 3]).unwrap();
        Self(child)
    }

    /// Returns the error of asking for its vCPUs.
    fn said(&self) -> String {
        let pid = trimtab_linux::process::Pid(self.0.id());
        Vms::new(Path::new("/proc")).patient(SHORT).find(&VmName::Pid(pid)).unwrap_err().to_string()
    }
}

impl Drop for Impostor {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_command_line_does_not_lead_to_sockets_of_other_users() {
    let user = 65_534;
    need!(rustix::process::geteuid().is_root().then_some(()), "to act as two users a test needs root");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("system");
    let listener = UnixListener::bind(&path).unwrap();
    listener.set_nonblocking(true).unwrap();
    let process = Impostor::new(&path, user);
    let said = process.said();
    assert!(said.contains("it belongs to user 0, and the machine to user 65534"), "{said}");
    assert!(listener.accept().is_err(), "a socket of ours was connected to on the user's behalf");
    // By a name that changes its target.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(Impostor::new(&link, user).said().contains("belongs to user 0"));
    assert!(listener.accept().is_err());
    // The file belongs to the user, but the listener does not: nothing is sent.
    std::os::unix::fs::chown(&path, Some(user), None).unwrap();
    assert!(process.said().contains("belongs to user 0"));
    let (mut client, _) = listener.accept().unwrap();
    let mut text = Vec::new();
    client.read_to_end(&mut text).unwrap();
    assert_eq!(text, b"");
}
