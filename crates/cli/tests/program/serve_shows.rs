//! The service shows its work and the reasons: `--observe`, `trimtab status --why`, and metrics,
//! also to a real Prometheus and to hostile clients.

use crate::balance::masks;
use crate::serve::{ask, daemon, socket, status};
use crate::util::{
    HANG_TIME_MAX, Running, Sandbox, c, chmod, eventually, installed, need, text, two, workers_are_bound,
};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

fn spins<'s>(sandbox: &'s Sandbox, program: &Path) -> Running<'s> {
    let mut program = sandbox.shell(&format!("exec {} 3", program.display())).begins();
    program.line();
    program
}

fn is_untouched(pid: u32) -> bool {
    masks(pid).iter().all(|mask| mask.len() == 2)
}

/// Returns the explanation of the only tag.
fn why(sandbox: &Sandbox) -> Value {
    status(sandbox)["tags"][0]["why"].clone()
}

#[test]
fn a_service_that_observes_reports_moves_and_makes_none() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace.jsonl");
    let daemon = daemon(&sandbox, &format!("-v --observe --trace {}", trace.display()));
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    ask(&sandbox, &format!("tag {pid}")).ends().ok();
    eventually("moves are withheld", || status(&sandbox)["withheld"].as_u64() >= Some(2));
    let told = status(&sandbox);
    assert_eq!((&told["observe"], &told["moves"], &told["refused"]), (&true.into(), &0.into(), &0.into()));
    let last = &told["tags"][0]["why"]["last"];
    assert_eq!((&last["pid"], &last["end"]), (&pid.into(), &"not done: only observed".into()), "{told}");
    assert!(told["tags"][0]["why"]["withheld"].as_u64() >= Some(2), "{told}");
    let said = ask(&sandbox, "status --why").ends().ok();
    for words in
        ["only observes with policy pinned", "only observed", "(not done: only observed)", " moved to CPU "]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    eventually("that is logged", || daemon.errors().contains(" would be moved to CPU "));
    assert!(daemon.errors().contains(&format!("of process {pid} would be moved")), "{}", daemon.errors());
    assert!(is_untouched(pid), "{:?}", masks(pid));
    daemon.signal(Signal::TERM);
    let ended = daemon.ends();
    assert_eq!(ended.code, Some(0), "{ended}");
    assert!(ended.stderr.contains("only observed"), "{ended}");
    let trace = text(&trace);
    assert!(trace.contains("\"refused\":\"observed\"") && !trace.contains("\"applied\""), "{trace}");
}

#[test]
fn a_declaration_that_observes_leaves_its_threads_unless_a_tag_acts() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    // A copy, since other tests run the program at the same time.
    let program = sandbox.copy("solver", &need!(c("spins.c"), "no C compiler"));
    let declare = |observe: bool| {
        let declared = format!("[[tag]]\nprogram = '{}'\nobserve = {observe}\n", program.display());
        let file = sandbox.write("config/serve.d/a.toml", declared);
        chmod(&file, 0o644);
        chmod(file.parent().unwrap(), 0o755);
    };
    declare(true);
    let _daemon = daemon(&sandbox, "");
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    eventually("moves are withheld", || status(&sandbox)["withheld"].as_u64() >= Some(2));
    let tag = status(&sandbox)["tags"][0].clone();
    assert_eq!((&tag["observe"], &tag["moves"]), (&true.into(), &0.into()), "{tag}");
    assert!(is_untouched(pid), "{:?}", masks(pid));
    // A user's own tag on the same process acts.
    ask(&sandbox, &format!("tag {pid}")).ends().ok();
    eventually("its threads are moved", || workers_are_bound(pid));
    ask(&sandbox, &format!("untag {pid}")).ends().ok();
    eventually("they have their own masks again", || is_untouched(pid));
    // The file changes its mind.
    declare(false);
    let said = ask(&sandbox, "reload").ends().ok();
    assert!(said.contains("- a.toml, line 1: program ") && said.contains(", only observed\n"), "{said}");
    assert!(
        said.contains("+ a.toml, line 1: program ") && said.ends_with("1 declaration: 2 changes"),
        "{said}"
    );
    eventually("its threads are moved", || workers_are_bound(pid));
}

#[test]
fn the_reason_why_nothing_happens_is_told() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    // One node and one cache: no move between nodes can help.
    let options = "serve --policy brm --interval 5ms --budget 50%";
    let daemon = ask(&sandbox, options).env("TRIMTAB_MACHINE", "pack:1 numa:1 l3:1 core:2 pu:1").begins();
    eventually("the daemon answers", || UnixStream::connect(socket(&sandbox)).is_ok());
    let sleeper = sandbox.shell("exec sleep 1000").begins();
    ask(&sandbox, &format!("tag {}", sleeper.pid())).ends().ok();
    let still = || why(&sandbox)["still"].as_str().unwrap_or_default().to_owned();
    eventually("it sleeps", || still() == "its thread sleeps and wants no CPU");
    assert!(why(&sandbox)["still_for"].as_u64().is_some() && why(&sandbox)["last"].is_null());
    ask(&sandbox, "untag --all").ends().ok();
    let program = spins(&sandbox, &program);
    ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
    eventually("nothing can be gained", || {
        still().starts_with("nothing can be gained by moves between nodes")
    });
    let said = ask(&sandbox, "status --why").ends().ok();
    assert!(said.contains("no decision so far") && said.contains("share one memory node"), "{said}");
    assert!(said.contains(&format!("process {}, tagged by ", program.pid())), "{said}");
    daemon.signal(Signal::TERM);
    daemon.ends().ok();
}

#[test]
fn what_a_reload_refuses_changes_nothing_and_only_operators_may_ask() {
    let sandbox = Sandbox::new();
    let declare = |declared: &str| {
        let file = sandbox.write("config/serve.d/a.toml", declared);
        chmod(&file, 0o644);
        chmod(file.parent().unwrap(), 0o755);
    };
    let name = format!("reloaded-{}", std::process::id());
    let sleeper = sandbox.path(&name);
    std::fs::copy("/bin/sleep", &sleeper).unwrap();
    declare(&format!("[[tag]]\nprogram = '{name}'\n"));
    let daemon = daemon(&sandbox, "-v");
    let _sleeper = sandbox.shell(&format!("exec {} 1000", sleeper.display())).begins();
    let place = || status(&sandbox)["tags"][0]["by"]["declared"].clone();
    eventually("it is tagged", || place() == "a.toml, line 1");
    let since = || status(&sandbox)["tags"][0]["age"].as_u64();
    declare("[[tag]]\nprogramm = 'x'\n");
    ask(&sandbox, "reload")
        .ends()
        .fails(2, &["the declared tags stay as they were", "a.toml, line 2", "programm"]);
    assert_eq!(place(), "a.toml, line 1");
    // A declaration that only has another line keeps its tags.
    let before = since();
    declare(&format!("# A comment.\n\n[[tag]]\nprogram = '{name}'\n"));
    assert_eq!(ask(&sandbox, "reload").ends().ok(), "1 declaration: nothing changed");
    assert_eq!(place(), "a.toml, line 3");
    assert!(since() >= before, "the same tag");
    if let Some([one, _]) = crate::util::two_users() {
        ask(&sandbox, "reload").user(one).ends().fails(2, &["only root and the user of the daemon"]);
    } else {
        crate::util::skip("only root can act as others");
    }
    declare("");
    let said = ask(&sandbox, "reload").ends().ok();
    assert_eq!(said, format!("- a.toml, line 3: program {name}\n0 declarations: 1 change"));
    eventually("it is not tagged", || status(&sandbox)["tags"].as_array().unwrap().is_empty());
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.ends().code, Some(0));
    ask(&sandbox, "reload").ends().fails(2, &["no daemon runs"]);
}

#[test]
fn tags_by_hand_survive_the_service_and_not_an_interrupt() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    let tagged = || -> Vec<Value> {
        let told = status(&sandbox);
        let tags = told["tags"].as_array().unwrap().iter();
        tags.map(|tag| tag["mark"]["process"]["pid"].clone()).collect()
    };
    let first = daemon(&sandbox, "");
    let gone = sandbox.shell("exec sleep 1000").begins();
    ask(&sandbox, &format!("tag {pid} {}", gone.pid())).ends().ok();
    first.signal(Signal::TERM);
    first.ends().ok();
    assert!(is_untouched(pid), "until the next one starts");
    gone.signal(Signal::KILL);
    gone.ends();
    let second = daemon(&sandbox, "");
    assert_eq!(tagged(), [pid], "of the living one");
    eventually("it is balanced again", || workers_are_bound(pid));
    let kept = sandbox.path("shared/socket.tags");
    eventually("only that is kept", || text(&kept).matches("\"pid\"").count() == 1);
    crate::guardian::kill_with_guardian(&second);
    second.ends();
    let third = daemon(&sandbox, "");
    assert_eq!(tagged(), [pid], "after a kill too");
    third.signal(Signal::INT);
    assert_eq!(third.ends().code, Some(0));
    assert!(!kept.exists(), "a user at a terminal ended it");
    let fourth = daemon(&sandbox, "");
    assert_eq!(tagged(), [0; 0]);
    fourth.signal(Signal::TERM);
    fourth.ends().ok();
}

/// Ends a daemon that has printed messages.
fn stopped(daemon: Running<'_>) {
    daemon.signal(Signal::TERM);
    let ended = daemon.ends();
    assert_eq!(ended.code, Some(0), "{ended}");
}

/// Returns the port of a daemon's metrics.
fn port(daemon: &Running<'_>) -> u16 {
    let at =
        || Some(daemon.errors().split_once("metrics: http://127.0.0.1:")?.1.split('/').next()?.to_owned());
    eventually("the address is told", || at().is_some());
    at().unwrap().parse().unwrap()
}

/// Fetches a page by HTTP.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(HANG_TIME_MAX)).ok()?;
    stream
        .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes())
        .ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let (head, body) = page.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}

fn metrics(port: u16) -> String {
    get(port, "/metrics").unwrap_or_default()
}

#[test]
fn metrics_of_the_service_follow_its_tags() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "-v --metrics 127.0.0.1:0");
    let port = port(&daemon);
    eventually("there is a page", || metrics(port).contains("trimtab_service_tags 0\n"));
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    ask(&sandbox, &format!("tag {pid}")).ends().ok();
    let user = rustix::process::geteuid().as_raw();
    let series = format!("{{kind=\"process\",name=\"{pid}\",by=\"user {user}\"}}");
    let value = |name: &str| -> Option<f64> {
        let page = metrics(port);
        page.lines().find_map(|line| line.strip_prefix(&format!("trimtab_{name}{series} "))?.parse().ok())
    };
    eventually("its moves are counted", || value("tag_moves_total") >= Some(3.0));
    eventually("its threads wait", || value("tag_wait_seconds_total") > Some(0.0));
    assert_eq!((value("tag_threads"), value("tag_fault")), (Some(4.0), Some(0.0)));
    assert!(value("tag_run_seconds_total") > Some(0.0));
    let page = metrics(port);
    for line in
        ["trimtab_service_budget_ratio 0.5\n", "trimtab_service_observing 0\n", "trimtab_tags_omitted 0\n"]
    {
        assert!(page.contains(line), "{line}: {page}");
    }
    if let Some(promtool) = installed("promtool") {
        let checked =
            sandbox.shell(&format!("exec {} check metrics", promtool.display())).input(&page).ends();
        assert!(checked.code == Some(0) && checked.out().is_empty(), "{checked}");
    }
    ask(&sandbox, "untag --all").ends().ok();
    eventually("its series end with the tag", || !metrics(port).contains(&series));
    stopped(daemon);
}

#[test]
fn hostile_clients_of_the_metrics_do_not_stop_the_service() {
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "-v --metrics 127.0.0.1:0");
    let port = port(&daemon);
    // Clients that send nothing, half a request, rubbish without an end, and many of them.
    let mut crowd: Vec<TcpStream> =
        (0..100).filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok()).collect();
    for (at, client) in crowd.iter_mut().enumerate() {
        let _ = match at % 4 {
            0 => Ok(()),
            1 => client.write_all(b"GET /metr"),
            2 => client.write_all(&[b'x'; 2_000]),
            _ => client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n"),
        };
    }
    let flood = std::thread::spawn(move || {
        for _ in 0..300 {
            let _ =
                TcpStream::connect(("127.0.0.1", port)).and_then(|mut one| one.write_all(b"\xff\xfe\n\n"));
        }
    });
    // The service tags, moves and answers meanwhile.
    let program = spins(&sandbox, &program);
    let pid = program.pid();
    ask(&sandbox, &format!("tag {pid}")).ends().ok();
    eventually("its threads are moved", || workers_are_bound(pid));
    assert_eq!(status(&sandbox)["clients"]["dropped"], 0, "these are other connections");
    flood.join().unwrap();
    drop(crowd);
    eventually("a collector is served again", || metrics(port).contains("trimtab_service_moves_total"));
    stopped(daemon);
}

#[test]
fn metrics_at_an_address_in_use_or_open_to_others_are_refused_at_the_start() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    ask(&sandbox, &format!("serve --metrics {address}"))
        .ends()
        .fails(2, &["cannot offer metrics", &address.to_string()]);
    assert!(!socket(&sandbox).exists());
    let open = ask(&sandbox, "serve --metrics 0.0.0.0:9100").ends();
    assert!(open.code == Some(2) && open.stderr.contains("can be reached from other machines"), "{open}");
}

/// Returns a free port.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_real_prometheus_collects_the_metrics_and_answers_the_boards_queries() {
    let prometheus =
        need!(installed("prometheus"), "prometheus is not installed (Debian: prometheus, 19 MB)");
    need!(two(), "two cores are needed");
    let program = need!(c("spins.c"), "no C compiler");
    let sandbox = Sandbox::new();
    let daemon = daemon(&sandbox, "-v --metrics 127.0.0.1:0");
    let program = spins(&sandbox, &program);
    ask(&sandbox, &format!("tag {}", program.pid())).ends().ok();
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: trimtab\n  static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
        port(&daemon)
    );
    let config = sandbox.write("prometheus.yml", config);
    let own = free_port();
    let line = format!(
        "exec {} --config.file={} --storage.tsdb.path={} --web.listen-address=127.0.0.1:{own}",
        prometheus.display(),
        config.display(),
        sandbox.path("tsdb").display()
    );
    let collector = sandbox.shell(&line).begins();
    let query = |query: &str| -> Option<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer: Value =
            serde_json::from_str(&unchunked(&get(own, &format!("/api/v1/query?query={encoded}"))?)).ok()?;
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        Some(answer["data"]["result"].clone())
    };
    let is_there = |text: &str| query(text).is_some_and(|found| !found.as_array().unwrap().is_empty());
    eventually("it has collected twice", || is_there("rate(trimtab_service_samples_total[1m]) > 0"));
    eventually("the tag's moves are there", || is_there("trimtab_tag_moves_total >= 3"));
    let board =
        text(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana/trimtab-service.json"));
    let board: Value = serde_json::from_str(&board).unwrap();
    let mut asked = 0;
    for panel in board["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let text = target["expr"].as_str().unwrap();
            let filled =
                text.replace("$__rate_interval", "1m").replace("$job", ".*").replace("$instance", ".*");
            assert!(query(&filled).is_some(), "{filled}");
            // Without nodes or counters, memory and the penalty are missing.
            if !text.contains("memory_ratio") && !text.contains("penalty") && !text.contains("steal") {
                eventually(text, || is_there(&filled));
            }
            asked += 1;
        }
    }
    assert!(asked > 15, "{asked}");
    collector.signal(Signal::TERM);
    collector.ends();
    stopped(daemon);
}

/// Joins the pieces of an HTTP body that is sent in pieces, each after its length.
fn unchunked(body: &str) -> String {
    match (body.find('{'), body.rfind('}')) {
        (Some(0), _) | (None, _) | (_, None) => body.to_owned(),
        (Some(_), _) => {
            let (mut rest, mut whole) = (body, String::new());
            while let Some((length, after)) = rest.split_once("\r\n") {
                let Ok(length) = usize::from_str_radix(length.trim(), 16) else { break };
                if length == 0 || length > after.len() {
                    break;
                }
                whole.push_str(&after[..length]);
                rest = after[length..].trim_start_matches("\r\n");
            }
            whole
        }
    }
}
