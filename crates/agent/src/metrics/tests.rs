//! Tests of metrics fetched as a collector does, and by malformed requests.

use super::page::{THREADS_MAX, text};
use super::server::{Reply, reply};
use super::*;
use crate::runs::Run;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;
use trimtab_core::tags::{By, Cost, Mark, TagStatus, Why};
use trimtab_core::telemetry::account::{Keep, Playback};
use trimtab_core::trace::Trace;
use trimtab_linux::pressure::{Pressure, PressureOf};
use trimtab_linux::resctrl::{CacheMonitor, MonitorGroup};

fn account(run: &Run) -> Account {
    let trace = Trace::parse(&run.text()).unwrap();
    let mut playback = Playback::new(&trace.header, Keep::default());
    for record in &trace.steps {
        playback.step(record, &mut |_, _| ());
    }
    playback.account().clone()
}

fn ask(mut stream: impl Read + Write, request: &[u8]) -> String {
    // The server may answer and close before all of a large request is sent.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn unix(path: &Path) -> Address {
    format!("unix:{}", path.display()).parse().unwrap()
}

fn port(metrics: &Metrics) -> std::net::SocketAddr {
    match metrics.address() {
        Address::Tcp(address) => *address,
        Address::Unix(_) => panic!(),
    }
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

/// Checks the format of a page. Returns the names of its metrics.
fn names(text: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut typed = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert!(typed.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with("# HELP ") {
            let (series, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
            let name = series.split('{').next().unwrap();
            assert!(typed.contains(name), "{line}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            assert!(seen.insert(series.to_owned()), "{series} twice");
        }
    }
    typed
}

#[test]
fn the_page_follows_the_format() {
    let text = text(&account(&Run { suffix: "\"\\\n}evil 1".to_owned(), ..Run::default() }));
    names(&text);
    assert!(text.contains("name=\"worker-1\\\"\\\\\\n}evil 1\""), "{text}");
    assert!(text.contains("trimtab_finding{finding=\"uneven\"} 1\n"), "{text}");
    assert!(text.contains("trimtab_program_threads{program=\"0\",pid=\"4000\""), "{text}");
    let sleeper =
        text.lines().find(|line| line.starts_with("trimtab_thread_speed_ratio") && line.contains("\"main\""));
    assert_eq!(sleeper, None, "a sleeping thread has no speed, not the speed 0");
}

/// Returns a service's page with a tag of each mark; each counts for a program of its own.
fn service_page(marks: Vec<(Mark, Option<String>)>, figures: &ProgramFigures) -> String {
    let programs = (0..).map(ProgramId).take(marks.len()).map(|id| (id, Some(figures.clone()))).collect();
    service_page_of(marks, programs)
}

fn service_page_of(
    marks: Vec<(Mark, Option<String>)>,
    figures: Vec<(ProgramId, Option<ProgramFigures>)>,
) -> String {
    let tag = |(mark, group)| TagStatus {
        mark,
        by: By::Declared("a \"b\".toml, line 1".to_owned()),
        group,
        age: Span::ZERO,
        threads: 3,
        moves: 2,
        observe: false,
        fault: None,
        why: Why::default(),
    };
    let cost = Cost { share: Some(0.004), budget: 0.01, ..Cost::default() };
    let status = Status { tags: marks.into_iter().map(tag).collect(), cost, ..Status::default() };
    super::service_page::text(
        &status,
        &figures,
        &["one-unit", "one-unit"],
        &super::MachineFigures {
            steal: Some(Duration::from_millis(1_500)),
            pressure: vec![Pressure { of: PressureOf::Memory, some: Duration::from_millis(250), full: None }],
            monitors: vec![MonitorGroup {
                name: "p0/mon_groups/job".to_owned(),
                caches: [(1, CacheMonitor { occupied: Some(7), local: Some(60), total: Some(100) })].into(),
            }],
        },
    )
}

fn marks() -> Vec<(Mark, Option<String>)> {
    let of = |mark| (mark, None);
    vec![
        of(Mark::Process { pid: 7, start: 1 }),
        of(Mark::Thread { pid: 7, tid: 8, start: 1 }),
        of(Mark::Cgroup("/a\"\\b".to_owned())),
        of(Mark::Vm { name: "web\n".to_owned(), pid: 9, start: 1 }),
        of(Mark::Vcpu { vm: "web".to_owned(), pid: 9, start: 1, index: 2 }),
    ]
}

/// Figures without a missing one.
fn all_figures() -> ProgramFigures {
    ProgramFigures {
        threads: 3,
        active: 2,
        run: Span::from_ms(2_500),
        wait: Some(Span::from_ms(500)),
        far: Some(0.25),
        penalty: Some(80.5),
        moves: 4,
        refused: 1,
        withheld: 2,
    }
}

#[test]
fn a_services_page_follows_the_format_and_misses_what_was_not_read() {
    let page = service_page(marks(), &all_figures());
    let all = names(&page);
    let labels = "{kind=\"vm\",name=\"web\\n\",by=\"the declaration in a \\\"b\\\".toml, line 1\"";
    for line in [
        format!("trimtab_tag_wait_seconds_total{labels}}} 0.5\n"),
        format!("trimtab_tag_memory_ratio{labels},place=\"near\"}} 0.75\n"),
        format!("trimtab_tag_memory_ratio{labels},place=\"far\"}} 0.25\n"),
        format!("trimtab_tag_penalty_cycles{labels}}} 80.5\n"),
        format!("trimtab_tag_withheld_moves_total{labels}}} 2\n"),
        "trimtab_service_budget_ratio 0.01\n".to_owned(),
        "trimtab_machine_steal_seconds_total 1.5\n".to_owned(),
        "trimtab_machine_pressure_seconds_total{resource=\"memory\",tasks=\"some\"} 0.25\n".to_owned(),
        "trimtab_monitored_cache_bytes{group=\"p0/mon_groups/job\",cache=\"1\"} 7\n".to_owned(),
        "trimtab_monitored_memory_bytes_total{group=\"p0/mon_groups/job\",cache=\"1\",place=\"near\"} 60\n"
            .to_owned(),
        "trimtab_monitored_memory_bytes_total{group=\"p0/mon_groups/job\",cache=\"1\",place=\"all\"} 100\n"
            .to_owned(),
        "trimtab_finding{finding=\"one-unit\"} 1\n".to_owned(),
        "trimtab_tags_omitted 0\n".to_owned(),
    ] {
        assert!(page.contains(&line), "{line}{page}");
    }
    let unread = service_page(marks(), &ProgramFigures::default());
    let missing: Vec<String> = all.difference(&names(&unread)).cloned().collect();
    assert_eq!(
        missing,
        ["trimtab_tag_memory_ratio", "trimtab_tag_penalty_cycles", "trimtab_tag_wait_seconds_total"]
    );
}

#[test]
fn tags_have_a_bound_and_a_group_has_one_series() {
    let process = |pid| (Mark::Process { pid, start: 1 }, None);
    let most = u32::try_from(super::service_page::TAGS_MAX).unwrap();
    // Those with the most threads come first.
    let figures = |at: u32| (ProgramId(at), Some(ProgramFigures { threads: at, ..all_figures() }));
    let page = service_page_of((0..most + 50).map(process).collect(), (0..most + 50).map(figures).collect());
    names(&page);
    let series = page.lines().filter(|line| line.starts_with("trimtab_tag_threads{")).count();
    assert_eq!(u32::try_from(series).unwrap(), most);
    assert!(page.contains("\ntrimtab_tags_omitted 50\n"), "{page}");
    assert!(page.contains("name=\"177\"") && !page.contains("name=\"49\""), "{page}");
    let grouped = |pid| (Mark::Process { pid, start: 1 }, Some("solvers".to_owned()));
    let figures = |_| (ProgramId(3), Some(all_figures()));
    let page = service_page_of((0..5).map(grouped).collect(), (0..5).map(figures).collect());
    assert_eq!(page.matches("trimtab_tag_threads{kind=\"group\",name=\"solvers\"").count(), 1, "{page}");
}

/// Names of metrics in a query.
fn named(query: &str) -> Vec<String> {
    let words = query.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    words.filter(|word| word.starts_with("trimtab_")).map(str::to_owned).collect()
}

#[test]
fn the_board_of_grafana_asks_only_for_metrics_that_exist() {
    let board = include_str!("../../../../packaging/grafana/trimtab-service.json");
    let board: serde_json::Value = serde_json::from_str(board).unwrap();
    let known = names(&service_page(marks(), &all_figures()));
    let mut asked = BTreeSet::new();
    let mut titles = BTreeSet::new();
    for panel in board["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(titles.insert(title), "{title} twice");
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let names = named(query);
            assert!(!names.is_empty(), "{title}: {query}");
            for name in names {
                assert!(known.contains(&name), "{title}: there is no {name}");
                // A counter is shown as a rate, and a gauge never is.
                let rated =
                    query.contains(&format!("rate({name}")) || query.contains(&format!("increase({name}"));
                assert_eq!(rated, name.ends_with("_total"), "{title}: {query}");
                asked.insert(name);
            }
        }
    }
    for wanted in
        ["memory_ratio", "penalty_cycles", "wait_seconds_total", "moves_total", "refused_moves_total"]
    {
        assert!(asked.contains(&format!("trimtab_tag_{wanted}")), "{wanted} is on no panel: {asked:?}");
    }
    for wanted in
        ["trimtab_service_budget_ratio", "trimtab_service_cost_ratio", "trimtab_machine_steal_seconds_total"]
    {
        assert!(asked.contains(wanted), "{wanted} is on no panel: {asked:?}");
    }
}

#[test]
fn threads_have_a_bound_and_the_rest_is_counted() {
    let run = Run { threads: u32::try_from(THREADS_MAX).unwrap() + 50, steps: 4, ..Run::default() };
    let text = text(&account(&run));
    let series = text.lines().filter(|line| line.starts_with("trimtab_thread_cpu{")).count();
    assert_eq!(series, THREADS_MAX);
    // One of the threads has not started yet or has ended, by the script.
    assert!(
        text.contains("\ntrimtab_threads_omitted 4") || text.contains("\ntrimtab_threads_omitted 5"),
        "{text}"
    );
}

#[test]
fn addresses_are_loopback_unless_asked() {
    for good in ["127.0.0.1:9", "[::1]:0", "127.3.2.1:80", "public:0.0.0.0:9100", "unix:/tmp/x"] {
        assert!(good.parse::<Address>().is_ok(), "{good}");
    }
    for bad in
        ["", "9100", "localhost:1", "unix:", "127.0.0.1", "127.0.0.1:99999", "public:", "unix:a\0b", ":9100"]
    {
        assert!(bad.parse::<Address>().is_err(), "{bad}");
    }
    let refused = "0.0.0.0:9100".parse::<Address>().unwrap_err().to_string();
    assert!(refused.contains("127.0.0.1:9100") && refused.contains("public:0.0.0.0:9100"), "{refused}");
    assert!(format!("unix:/{}", "x".repeat(200)).parse::<Address>().is_err());
}

#[test]
fn a_collector_gets_the_latest_figures() {
    let metrics = Metrics::serve(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let empty = ask(TcpStream::connect(port(&metrics)).unwrap(), GET);
    assert!(empty.starts_with("HTTP/1.1 200 OK\r\n") && empty.ends_with("\r\n\r\n"), "{empty}");
    metrics.update(&account(&Run { steps: 3, ..Run::default() }));
    metrics.update(&account(&Run { steps: 4, ..Run::default() }));
    let page = ask(TcpStream::connect(port(&metrics)).unwrap(), GET);
    assert!(
        page.contains("trimtab_steps_total 3\n"),
        "made again once a second of the account's time: {page}"
    );
    metrics.update(&account(&Run { steps: 40, ..Run::default() }));
    let page = ask(TcpStream::connect(port(&metrics)).unwrap(), GET);
    assert!(page.contains("trimtab_steps_total 40\n"), "{page}");
    let body = page.split_once("\r\n\r\n").unwrap().1;
    assert!(
        page.contains(&format!("Content-Length: {}\r\n", body.len())) && page.contains("version=0.0.4"),
        "{page}"
    );
    // A second server cannot have the port.
    let taken = format!("{}", port(&metrics)).parse().unwrap();
    assert!(
        format!("{:#}", Metrics::serve(&taken).unwrap_err()).contains("cannot offer metrics on 127.0.0.1")
    );
}

#[test]
fn a_unix_socket_belongs_to_its_owner_and_is_removed_after_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    let metrics = Metrics::serve(&unix(&path)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(ask(UnixStream::connect(&path).unwrap(), GET).starts_with("HTTP/1.1 200"));
    let second = format!("{:#}", Metrics::serve(&unix(&path)).unwrap_err());
    assert!(second.contains("another run answers there"), "{second}");
    assert!(path.exists());
    drop(metrics);
    assert!(!path.exists());
}

#[test]
fn only_dead_sockets_of_ours_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    assert!(dead.exists());
    let metrics = Metrics::serve(&unix(&dead)).unwrap();
    assert!(ask(UnixStream::connect(&dead).unwrap(), GET).starts_with("HTTP/1.1 200"));
    drop(metrics);
    for (name, make) in [
        ("file", (|path: &Path| fs::write(path, "mine").unwrap()) as fn(&Path)),
        ("folder", |path| fs::create_dir(path).unwrap()),
        ("link", |path| std::os::unix::fs::symlink("/nowhere", path).unwrap()),
    ] {
        let path = folder.path().join(name);
        make(&path);
        let refused = format!("{:#}", Metrics::serve(&unix(&path)).unwrap_err());
        assert!(refused.contains("is not a socket"), "{refused}");
        assert!(fs::symlink_metadata(&path).is_ok());
    }
    let refused = Metrics::serve(&unix(Path::new("/no/such/folder/x.sock")));
    assert!(format!("{:#}", refused.unwrap_err()).contains("/no/such/folder/x.sock"));
}

#[test]
fn a_socket_that_was_replaced_is_left_to_its_new_owner() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.sock");
    let metrics = Metrics::serve(&unix(&path)).unwrap();
    fs::rename(&path, folder.path().join("old")).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(metrics);
    assert!(path.exists());
    drop(other);
}

#[test]
fn strange_requests_get_a_plain_no() {
    for (request, expected) in [
        (&b"GET /metrics HTTP/1.0\n\n"[..], Reply::Page),
        (b"GET /metrics?x=1 HTTP/1.1\r\n\r\n", Reply::Page),
        (b"GET /metricsx HTTP/1.1\r\n\r\n", Reply::NotFound),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", Reply::NotFound),
        (b"POST /metrics HTTP/1.1\r\n\r\n", Reply::NotAllowed),
        (b"GET /metrics HTTP/2\r\n\r\n", Reply::Bad),
        (b"GET /metrics", Reply::Bad),
        (b"", Reply::Bad),
        (b"\xff\xfe\x00 / HTTP/1.1\r\n\r\n", Reply::Bad),
        (b"get  /metrics  HTTP/1.1\r\n\r\n", Reply::Bad),
        (&[b'A'; 9_000], Reply::TooLarge),
    ] {
        assert_eq!(reply(request), expected, "{:?}", String::from_utf8_lossy(request));
    }
    let metrics = Metrics::serve(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let connect = || TcpStream::connect(port(&metrics)).unwrap();
    assert!(ask(connect(), b"DELETE / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    ask(connect(), &vec![b'x'; 1 << 20]);
    // Silent and numerous clients do not keep others off permanently.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let mut answered = false;
    for _ in 0..600 {
        answered = ask(connect(), GET).starts_with("HTTP/1.1 200");
        if answered {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(answered);
    drop(silent);
}

#[test]
fn the_first_seconds_are_reported_as_they_pass() {
    let metrics = Metrics::serve(&"127.0.0.1:0".parse().unwrap()).unwrap();
    let trace = Trace::parse(&Run { steps: 100, ..Run::default() }.text()).unwrap();
    let mut playback = Playback::new(&trace.header, Keep::default());
    let (mut pages, mut older) = (0, 0.0_f64);
    let mut before = String::new();
    for record in &trace.steps {
        playback.step(record, &mut |_, _| ());
        metrics.update(playback.account());
        let page = metrics.page.lock().unwrap().to_string();
        pages += usize::from(page != before);
        let told = page.lines().find_map(|line| line.strip_prefix("trimtab_watched_seconds ")).unwrap();
        let now = playback.account().watched().seconds();
        older = older.max((now - told.parse::<f64>().unwrap()) / now.max(1e-9));
        before = page;
    }
    assert!(older <= 0.5, "a page tells at least half of what there is to tell: {older}");
    assert!(pages < trace.steps.len() / 2, "and is not made at every sample: {pages}");
}
