//! `trimtab report`: the page, the file for Perfetto, the data.

use crate::runs::Run;
use crate::util::{Sandbox, installed, need};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

const HOSTILE: &str =
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)>\u{202e}\"'&";

fn page(sandbox: &Sandbox, run: &Run) -> std::path::PathBuf {
    let trace = sandbox.write("run.trace", run.text());
    let page = sandbox.path("run.html");
    let said = sandbox.trimtab("report").arg(&trace).ends().ok();
    assert!(said.contains("run.html"), "{said}");
    page
}

/// Opens a page in a real browser without network. Returns its document.
fn browse(sandbox: &Sandbox, browser: &Path, page: &Path) -> String {
    browse_as(sandbox, browser, page, "", &[])
}

/// The same with a query after the address, and more of the browser's options.
pub(crate) fn browse_as(
    sandbox: &Sandbox,
    browser: &Path,
    page: &Path,
    query: &str,
    options: &[&str],
) -> String {
    let mut command = Command::new("timeout");
    command.arg("120").arg(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-first-run",
    ]);
    command.args(["--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking"]);
    // A separate folder each time: processes of a browser that has just ended may still use the
    // folder.
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    let folder = sandbox.path(&format!("browser-{}", OPENED.fetch_add(1, Ordering::Relaxed)));
    command.arg(format!("--user-data-dir={}", folder.display()));
    command.args(["--virtual-time-budget=4000", "--dump-dom"]).args(options);
    command.arg(format!("file://{}{query}", page.display()));
    let done = command.env("HOME", sandbox.path("home")).output().unwrap();
    let document = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(
        done.status.success() && document.contains("</html>"),
        "{}: {}{}",
        done.status,
        head(&document),
        String::from_utf8_lossy(&done.stderr)
    );
    // Requests of the page besides itself, as the browser counted them.
    assert!(document.contains("data-requests=\"0\""), "{}", head(&document));
    document
}

pub(crate) fn browser() -> Option<std::path::PathBuf> {
    installed("chromium").or_else(|| installed("chromium-browser")).or_else(|| installed("google-chrome"))
}

#[test]
fn a_browser_draws_the_page_without_network_requests() {
    let sandbox = Sandbox::new();
    let file = page(&sandbox, &Run::default());
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let document = browse(&sandbox, &browser, &file);
    assert!(
        document.contains("data-drawn=\"threads 12 columns 119 cpus 8 moves 24\""),
        "{}",
        head(&document)
    );
    let narrow = browse_as(&sandbox, &browser, &file, "", &["--window-size=420,900"]);
    assert!(narrow.contains("data-over=\"0\""), "{}", head(&narrow));
    assert!(!document.contains("data-error"), "{}", head(&document));
    for word in ["expected end balance", "worker-11", "40.0 ms behind thread 5", "12 running threads"] {
        assert!(document.contains(word), "{word}");
    }
}

#[test]
fn the_page_is_light_or_dark_as_the_system_wants_and_as_one_likes() {
    let sandbox = Sandbox::new();
    let file = page(&sandbox, &Run { steps: 5, ..Run::default() });
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let dark = ["--blink-settings=preferredColorScheme=0"];
    for (query, options, shade) in [
        ("", [].as_slice(), "light"),
        ("", &dark, "dark"),
        ("?theme=dark", &[], "dark"),
        ("?theme=light", &dark, "light"),
        // An unknown theme is ignored.
        ("?theme=blue", &dark, "dark"),
    ] {
        let document = browse_as(&sandbox, &browser, &file, query, options);
        assert!(
            document.contains(&format!("data-shade=\"{shade}\"")),
            "{query} {options:?} {}",
            head(&document)
        );
        assert!(!document.contains("blue\"") && !document.contains("data-error"), "{}", head(&document));
    }
    // Without scripts, the style sheet follows the system's preference.
    assert!(crate::util::text(&file).contains("(prefers-color-scheme: dark) { :root:not([data-theme])"));
}

#[test]
fn a_trace_without_a_sample_is_reported() {
    let sandbox = Sandbox::new();
    let text = Run { steps: 1, ..Run::default() }.text();
    let trace = sandbox.write("empty.trace", format!("{}\n", text.lines().next().unwrap()));
    let name = trace.to_str().unwrap();
    let said = sandbox.trimtab(&format!("report {name}")).ends().warns(&["contains no sample"]);
    assert!(said.contains("empty.html"), "{said}");
    let said = sandbox.trimtab(&format!("top --once --replay {name}")).ends();
    assert_eq!((said.code, said.stderr.contains("contains no sample")), (Some(2), true), "{said}");
    let said = sandbox.trimtab(&format!("replay {name}")).ends().ok();
    assert!(said.contains("0 steps") && said.contains("nothing to compare"), "{said}");
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let document = browse(&sandbox, &browser, &sandbox.path("empty.html"));
    assert!(
        document.contains("It contains no sample") && !document.contains("data-error"),
        "{}",
        head(&document)
    );
}

#[test]
fn names_chosen_by_others_stay_text() {
    let sandbox = Sandbox::new();
    let file = page(&sandbox, &Run { suffix: HOSTILE.to_owned(), steps: 30, ..Run::default() });
    let text = crate::util::text(&file);
    assert!(!text.contains("<img src=x") && !text.contains("</script><script>doc"), "markup from a name");
    assert_eq!(text.matches("</script>").count(), 2, "the data and the script end once each");
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let document = browse(&sandbox, &browser, &file);
    assert!(
        document.contains("data-drawn=\"threads 12") && !document.contains("data-error"),
        "{}",
        head(&document)
    );
    assert!(!document.contains("<title>owned") && !document.contains("<img"), "{}", head(&document));
}

#[test]
fn a_thousand_threads_fit_a_page() {
    let sandbox = Sandbox::new();
    let machine = "pack:2 numa:4 l3:2 core:8 pu:2";
    let file = page(&sandbox, &Run { machine, threads: 1_000, steps: 101, ..Run::default() });
    // Longer traces have at most 600 columns: 8 bytes a cell are then below 5 MB.
    let bytes = std::fs::metadata(&file).unwrap().len();
    assert!(bytes < 1_000 * 100 * 8 + (1 << 20), "{bytes} bytes");
    let browser = need!(browser(), "no Chromium is installed: the page is not opened");
    let document = browse(&sandbox, &browser, &file);
    assert!(document.contains("data-drawn=\"threads 1000 columns 100 cpus 256"), "{}", head(&document));
}

fn head(document: &str) -> String {
    document.chars().take(1_500).collect()
}

#[test]
fn the_page_holds_nothing_of_elsewhere() {
    let sandbox = Sandbox::new();
    let text = crate::util::text(&page(&sandbox, &Run::default()));
    for word in
        ["http:", "https:", "src=", "@import", "url(", "fetch(", "XMLHttpRequest", "innerHTML", "eval("]
    {
        assert!(!text.contains(word), "{word}");
    }
    assert!(text.contains("Content-Security-Policy") && text.contains("default-src 'none'"));
}

#[test]
fn the_page_is_written_to_the_given_path() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("a.b.trace", Run { steps: 3, ..Run::default() }.text());
    let printed = sandbox.trimtab("report").arg(&trace).args(["-o", "-"]).ends().ok();
    assert!(printed.starts_with("<!doctype html>") && printed.ends_with("</html>"), "{}", head(&printed));
    let other = sandbox.path("other.html");
    sandbox.trimtab("report").arg(&trace).arg("-o").arg(&other).ends().ok();
    assert_eq!(crate::util::text(&other).trim_end(), printed);
    assert!(!sandbox.path("a.b.html").exists());
    let refused = sandbox.trimtab("report").arg(&trace).args(["-o", "/no/such/folder/x.html"]).ends();
    refused.fails(2, &["cannot write /no/such/folder/x.html"]);
}

#[test]
fn perfetto_gets_tracks_stays_moves_and_speeds() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run { suffix: HOSTILE.to_owned(), ..Run::default() }.text());
    let text = sandbox.trimtab("report").arg(&trace).args(["--chrome", "-"]).ends().ok();
    let events: Value = serde_json::from_str(&text).unwrap();
    let events = events["traceEvents"].as_array().unwrap();
    let of = |kind: &'static str| events.iter().filter(move |event| event["ph"] == kind);
    let names = of("M").filter(|event| event["name"] == "thread_name").count();
    assert_eq!((names, of("M").filter(|event| event["name"] == "process_name").count()), (12, 1));
    // Each thread changes CPU every ten steps of 120, except the late and the early one.
    let stays = |tid: u64| of("X").filter(move |event| event["tid"] == tid).count();
    assert_eq!((stays(4_001), stays(4_003), stays(4_002)), (12, 8, 6));
    assert!(
        of("X").all(|event| event["dur"].as_f64().unwrap() > 0.0 && event["ts"].as_f64().unwrap() >= 0.0)
    );
    // The stays of a thread follow each other without gap or overlap.
    let mut ends = std::collections::BTreeMap::new();
    for stay in of("X") {
        let (begin, span) = (stay["ts"].as_f64().unwrap(), stay["dur"].as_f64().unwrap());
        if let Some(end) = ends.insert(stay["tid"].as_u64().unwrap(), begin + span) {
            assert!((end - begin).abs() < 1e-3, "{stay}");
        }
    }
    assert_eq!(of("i").count(), 24);
    assert!(of("i").all(|event| event["args"]["why"].is_string() && event["args"]["outcome"] != Value::Null));
    assert!(
        of("C").any(|event| event["name"] == "speed")
            && of("C").any(|event| event["name"] == "speed of 4001")
    );
}

#[test]
fn the_data_and_the_page_agree() {
    let sandbox = Sandbox::new();
    let trace = sandbox.write("run.trace", Run::default().text());
    let text = sandbox.trimtab("report --json").arg(&trace).ends().ok();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["schema"], &report["policy"]), (&"trimtab.report/1".into(), &"exchange".into()));
    assert_eq!(
        (&report["seed"], &report["steps"], &report["complete"]),
        (&7.into(), &120.into(), &true.into())
    );
    assert_eq!(report["threads"].as_array().unwrap().len(), 12, "ended ones too");
    assert_eq!((&report["programs"][0]["threads"], &report["programs"][0]["ended"]), (&11.into(), &1.into()));
    let run = |row: &Value| row["run_ns"].as_u64().unwrap();
    let threads: u64 = report["threads"].as_array().unwrap().iter().map(run).sum();
    assert_eq!(threads, run(&report["programs"][0]), "{text}");
    assert_eq!((&report["decided"], report["moves"].as_array().unwrap().len()), (&24.into(), 24));
    let applied = report["moves"].as_array().unwrap().iter().filter(|one| one["end"] == "applied").count();
    assert_eq!(report["programs"][0]["moves"], applied);
}

#[test]
fn a_trace_that_was_cut_anywhere_is_reported_up_to_there() {
    let sandbox = Sandbox::new();
    let text = Run { suffix: "日本".to_owned(), steps: 8, ..Run::default() }.text();
    let header = text.find('\n').unwrap() + 1;
    let bytes = text.as_bytes();
    for cut in [header, header + 1, header + 700, bytes.len() / 2, bytes.len() - 70, bytes.len() - 2] {
        let trace = sandbox.write("cut.trace", &bytes[..cut]);
        let json = sandbox.trimtab("report --json").arg(&trace).ends().ok();
        let report: Value = serde_json::from_str(&json).unwrap();
        let whole = bytes[..cut].iter().filter(|&&byte| byte == b'\n').count() - 1;
        assert_eq!(report["steps"], whole, "cut at {cut}");
        assert_eq!(report["complete"], false);
        let page = sandbox.trimtab("report").arg(&trace).ends();
        if whole > 0 {
            page.ok()
        } else {
            page.warns(&["contains no sample"])
        };
    }
}

#[test]
fn a_file_that_is_no_trace_is_refused_in_one_line() {
    let sandbox = Sandbox::new();
    let refused = |name: &str, bytes: &[u8], words: &[&str]| {
        let file = sandbox.write(name, bytes);
        sandbox.trimtab("report").arg(&file).ends().fails(2, words);
    };
    refused("empty", b"", &["empty: ", "the trace is empty"]);
    refused("words", b"hello\n", &["this is not a trimtab trace"]);
    refused("binary", b"\x7fELF\xff\xfe\x00\x01 and more", &["it is not text"]);
    let text = Run { steps: 3, ..Run::default() }.text();
    refused(
        "newer",
        text.replace("\"trimtab-trace\":1", "\"trimtab-trace\":9").as_bytes(),
        &["version 9", "another trimtab"],
    );
    refused("damaged", text.replacen("{\"step\"", "{\"stop\"", 1).as_bytes(), &["line 2 cannot be read"]);
    sandbox.trimtab("report /no/such/file").ends().fails(2, &["cannot read /no/such/file"]);
    sandbox.trimtab("report /").ends().fails(2, &["is a folder"]);
    assert_eq!(sandbox.trimtab("report").ends().code, Some(2));
}

#[test]
fn a_trace_is_never_written_over() {
    let sandbox = Sandbox::new();
    let text = Run { steps: 3, ..Run::default() }.text();
    let trace = sandbox.write("run.html", text.as_bytes());
    let name = trace.to_str().unwrap();
    // The page beside it would have its name, too.
    for words in [
        format!("report {name}"),
        format!("report {name} -o {name}"),
        format!("report {name} --chrome {name}"),
        format!("replay {name} --to {name}"),
    ] {
        sandbox.trimtab(&words).ends().fails(2, &["is the trace itself"]);
        assert_eq!(std::fs::read_to_string(&trace).unwrap(), text, "{words}");
    }
}
