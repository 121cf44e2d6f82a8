use super::super::Place;
use super::*;
use std::io::{BufRead, BufReader};
use std::net::Shutdown;

const LIMITS: Limits =
    Limits { clients: 4, of_user: 4, of_root: 0, line: 64, patience: Duration::from_secs(3_600) };

fn server(limits: Limits) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let place = Place::named(&folder.path().join("s")).unwrap();
    (Server::new(place.claim().unwrap(), limits), folder)
}

/// Answers each line with itself, until no client sends one.
fn echo(server: &mut Server) {
    loop {
        let (mut heard, _) = server.turn(&[], Duration::from_millis(20)).unwrap();
        if heard.is_empty() {
            return;
        }
        while let Some(one) = heard.pop() {
            match one {
                ClientEvent::Line(id, _, line) => server.answer(id, &line, &mut heard),
                ClientEvent::TooLong(id, _) => {
                    server.answer(id, b"too long", &mut heard);
                    server.close(id);
                }
                ClientEvent::TooMany(id, _) => server.answer(id, b"too many", &mut heard),
            }
        }
    }
}

fn lines(stream: &UnixStream) -> Vec<String> {
    BufReader::new(stream).lines().map_while(Result::ok).collect()
}

#[test]
fn each_line_is_answered_in_order_and_the_client_is_identified() {
    let (mut server, _folder) = server(LIMITS);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(b"one\ntwo\nthr").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    let [ClientEvent::Line(_, peer, line)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((peer.pid, peer.uid), (Some(Pid::own()), rustix::process::geteuid().as_raw()));
    assert_eq!(line, b"one");
    let (more, _) = server.turn(&[], Duration::from_millis(1)).unwrap();
    assert_eq!(more, [], "not before the first is answered");
    let mut more = Vec::new();
    let ClientEvent::Line(id, ..) = heard[0] else { panic!() };
    server.answer(id, b"1", &mut more);
    let [ClientEvent::Line(_, _, line)] = &more[..] else { panic!("{more:?}") };
    assert_eq!(line, b"two");
    server.answer(id, b"2", &mut Vec::new());
    client.write_all(b"ee\n").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    echo(&mut server);
    assert_eq!(lines(&client), ["1", "2", "three"]);
    assert_eq!(server.counted(), Counted { now: 0, served: 1, dropped: 0 });
}

#[test]
fn clients_that_are_too_many_too_slow_or_send_long_lines_are_refused_or_dropped() {
    let (mut server, _folder) = server(LIMITS);
    let mut clients: Vec<UnixStream> = (0..6).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    echo(&mut server);
    assert_eq!([lines(&clients[4]), lines(&clients[5])], [["too many"], ["too many"]]);
    clients[0].write_all(&[b'x'; 200]).unwrap();
    echo(&mut server);
    assert_eq!(lines(&clients[0]), ["too long"]);
    assert_eq!(server.counted(), Counted { now: 3, served: 4, dropped: 3 });
    // A client that sends nothing, and one that sends byte by byte.
    clients[1].write_all(b"x").unwrap();
    server.limits.patience = Duration::ZERO;
    server.turn(&[], Duration::ZERO).unwrap();
    assert_eq!(server.counted().now, 0);
    assert_eq!(lines(&clients[1]), [""; 0]);
}

#[test]
fn a_client_that_never_reads_is_dropped() {
    let limits = Limits { line: 1 << 20, ..LIMITS };
    let (mut server, _folder) = server(limits);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(b"ask\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    let [ClientEvent::Line(id, ..)] = heard[..] else { panic!("{heard:?}") };
    server.answer(id, &[b'y'; 8 << 20], &mut Vec::new());
    assert!(!server.clients[&id].outbox.is_empty(), "the kernel's buffer is full");
    server.limits.patience = Duration::ZERO;
    server.turn(&[], Duration::ZERO).unwrap();
    assert_eq!((server.counted().now, server.counted().dropped), (0, 1));
}

#[test]
fn a_client_that_does_not_read_its_answers_is_not_heard_until_it_reads() {
    let (mut server, _folder) = server(LIMITS);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(b"one\ntwo\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    let [ClientEvent::Line(id, ..)] = heard[..] else { panic!("{heard:?}") };
    let mut more = Vec::new();
    server.answer(id, &[b'y'; 8 << 20], &mut more);
    client.write_all(b"three\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_millis(20)).unwrap();
    assert_eq!((more, heard), (Vec::new(), Vec::new()), "the answer is not taken yet");
    let reader = std::thread::spawn(move || {
        let mut first = String::new();
        BufReader::new(&client).read_line(&mut first).unwrap();
        (client, first.len())
    });
    let (heard, _) = loop {
        let turn = server.turn(&[], Duration::from_secs(60)).unwrap();
        if !turn.0.is_empty() {
            break turn;
        }
    };
    let [ClientEvent::Line(_, _, line)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(line, b"two");
    assert_eq!(reader.join().unwrap().1, (8 << 20) + 1);
}

#[test]
fn a_client_that_disconnects_while_it_waits_is_forgotten() {
    let (mut server, _folder) = server(LIMITS);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(b"ask\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    let [ClientEvent::Line(id, ..)] = heard[..] else { panic!("{heard:?}") };
    drop(client);
    server.turn(&[], Duration::from_secs(60)).unwrap();
    assert_eq!(server.counted().now, 0);
    server.answer(id, b"late", &mut Vec::new());
}

#[test]
fn root_can_always_connect() {
    let limits = Limits { clients: 6, of_user: 3, of_root: 2, ..LIMITS };
    let admits = |uid: u32, served: &[u32]| limits.admits(uid, served.iter().copied());
    assert!(admits(7, &[7, 7, 0, 8]) && !admits(7, &[7, 7, 7]), "so many of each user");
    assert!(!admits(9, &[7, 7, 8, 8]), "so many of all");
    assert!(admits(0, &[7, 7, 8, 8]) && admits(0, &[7, 7, 8, 8, 0]));
    assert!(!admits(0, &[7, 7, 8, 8, 0, 0]) && !admits(7, &[0; 6]));
}

#[test]
fn refused_clients_take_no_place() {
    let limits = Limits { clients: 2, of_user: 2, ..LIMITS };
    let (mut server, _folder) = server(limits);
    let mut clients: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    server.turn(&[], Duration::from_secs(60)).unwrap();
    assert_eq!(server.counted().now, 3, "one is extra, and not answered yet");
    drop(clients.remove(0));
    server.turn(&[], Duration::from_secs(60)).unwrap();
    clients.push(UnixStream::connect(server.path()).unwrap());
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    assert_eq!((heard, server.counted().served), (Vec::new(), 3));
}

#[test]
fn a_throttled_client_is_not_heard_and_may_disconnect() {
    let (mut server, _folder) = server(LIMITS);
    let mut client = UnixStream::connect(server.path()).unwrap();
    client.write_all(b"one\ntwo\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    let [ClientEvent::Line(id, ..)] = heard[..] else { panic!("{heard:?}") };
    let mut more = Vec::new();
    server.rest(id, Duration::from_secs(3_600));
    server.answer(id, b"too often", &mut more);
    client.write_all(b"three\n").unwrap();
    let (heard, _) = server.turn(&[], Duration::from_millis(20)).unwrap();
    assert_eq!((&more, heard), (&Vec::new(), Vec::new()));
    // A pause that has ended is due at once: the turn would take an hour otherwise.
    server.rest(id, Duration::ZERO);
    let (heard, _) = server.turn(&[], Duration::from_secs(3_600)).unwrap();
    let [ClientEvent::Line(_, _, line)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(line, b"two");
    server.rest(id, Duration::from_secs(3_600));
    server.answer(id, b"too often", &mut more);
    drop(client);
    server.turn(&[], Duration::from_secs(60)).unwrap();
    assert_eq!(server.counted().now, 0, "and does not wake us until its rest is over");
}

#[test]
fn the_rate_of_accepted_connections_is_limited() {
    let limits = Limits { clients: 10_000, of_user: 10_000, ..LIMITS };
    let (mut server, _folder) = server(limits);
    // The clock does not advance.
    server.connects = Bucket::new(20, 1);
    server.began = Instant::now() + Duration::from_secs(3_600);
    let _clients: Vec<UnixStream> = (0..40).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    for _ in 0..5 {
        server.turn(&[], Duration::from_millis(5)).unwrap();
    }
    assert_eq!(server.counted().served, 20);
}

#[test]
fn a_user_who_connects_too_often_waits_and_others_do_not() {
    let (mut server, _folder) = server(LIMITS);
    let now = Moment(1);
    for _ in 0..CONNECTS_OF_USER_BURST {
        assert_eq!(server.count_connection(7, now), Ok(()));
    }
    let wait = server.count_connection(7, now).unwrap_err();
    assert!(wait > Span::ZERO, "{wait}");
    assert_eq!(server.count_connection(8, now), Ok(()));
    for _ in 0..10 * CONNECTS_OF_USER_BURST {
        assert_eq!(server.count_connection(0, now), Ok(()), "root has ten times as many");
    }
    assert!(server.count_connection(0, now).is_err());
    assert_eq!(server.count_connection(7, now + wait), Ok(()));
}

#[test]
fn a_connection_that_waits_is_accepted_and_served_in_its_turn() {
    let limits = Limits { clients: 8, of_user: 8, ..LIMITS };
    let (mut server, _folder) = server(limits);
    let own = rustix::process::geteuid().as_raw();
    server.of_users.insert(own, Bucket::new(1, 1));
    // The clock does not advance for its rate, and the rest of each is a second or more.
    server.began = Instant::now() + Duration::from_secs(3_600);
    let mut clients: Vec<UnixStream> = (0..3).map(|_| UnixStream::connect(server.path()).unwrap()).collect();
    for client in &mut clients {
        client.write_all(b"x\n").unwrap();
    }
    let (heard, _) = server.turn(&[], Duration::ZERO).unwrap();
    assert_eq!((heard.len(), server.counted().now), (1, 3), "the queue is empty, and one is heard");
    let rests: Vec<Instant> = server.clients.values().filter_map(|client| client.rest).collect();
    assert!(rests.len() == 2 && rests[0] < rests[1], "the third is behind the second");
    for client in server.clients.values_mut().filter(|client| client.rest.is_some()) {
        client.rest = Some(Instant::now());
    }
    let (heard, _) = server.turn(&[], Duration::from_secs(60)).unwrap();
    assert_eq!(heard.len(), 2);
}

#[test]
fn the_kernels_queue_of_connections_is_short() {
    let (server, _folder) = server(LIMITS);
    let address = rustix::net::SocketAddrUnix::new(server.path()).unwrap();
    let connect = || super::super::found::connect_to(&address);
    let waiting: Vec<_> = std::iter::from_fn(|| connect().ok()).take(1_000).collect();
    assert!((32..=128).contains(&waiting.len()), "{}", waiting.len());
    assert_eq!(connect().unwrap_err(), Errno::AGAIN);
}

#[test]
fn other_descriptors_are_waited_for_too() {
    let (mut server, _folder) = server(LIMITS);
    let (mut one, other) = UnixStream::pair().unwrap();
    let (_, ready) = server.turn(&[other.as_fd()], Duration::ZERO).unwrap();
    assert_eq!(ready, [false]);
    one.write_all(b"x").unwrap();
    let (_, ready) = server.turn(&[other.as_fd()], Duration::from_secs(60)).unwrap();
    assert_eq!(ready, [true]);
}
