//! Program `trimtab-discover`: prints the model of a machine, encoded for trimtab or as JSON for
//! users, or a picture of a part of the machine for launchers.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Parts;
use trimtab_discover::Devices;
use trimtab_linux::machine::{HWLOC_ENVIRONMENT, Key, NO_DEVICES, NO_PLUGINS, encode, nodes_with_cpus};

const USAGE: &str = "\
usage: trimtab-discover live [--no-devices] [--json]       the model of this machine
       trimtab-discover xml FILE [--no-devices] [--json]   the model of the machine in an hwloc XML file
       trimtab-discover picture CPUS                       this machine with these CPUs only, as hwloc's XML
       trimtab-discover --version                          the release to which it belongs
The output is trimtab's encoded model, or the model's parts as JSON. --no-devices leaves out PCI devices, network
interfaces and disks, which take most of the time.";

/// Variable that is set once hwloc's environment is in order. It prevents an endless loop of
/// restarts if something keeps setting hwloc's variables.
const SETTLED: &str = "TRIMTAB_DISCOVER_SETTLED";

/// Command line, parsed.
enum Call {
    Help,
    Version,
    Answer(Invocation),
}

/// Task of this run.
struct Invocation {
    source: Source,
    devices: Devices,
    json: bool,
}

enum Source {
    Live,
    Xml(PathBuf),
    Picture(CpuSet),
}

fn main() -> ExitCode {
    let result = match request(std::env::args_os().skip(1).collect()) {
        Ok(Call::Answer(request)) => settle(&request).and_then(|()| answer(&request)),
        Ok(Call::Help) => print(format!("{USAGE}\n").as_bytes()),
        Ok(Call::Version) => print(format!("trimtab-discover {}\n", version()).as_bytes()),
        Err(problem) => Err(problem),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            // One line, whatever it contains: the launcher shows the last line.
            let line = problem.split_whitespace().collect::<Vec<_>>().join(" ");
            let _ = writeln!(io::stderr(), "trimtab-discover: {line}");
            ExitCode::from(2)
        }
    }
}

/// Parses the command line; `None` is a request for help.
/// Returns the version of this program: that of its mark, by which `trimtab doctor` recognises it.
fn version() -> &'static str {
    let mark = std::hint::black_box(trimtab_core::part_mark!("trimtab-discover"));
    trimtab_core::part::find(mark.as_bytes()).map_or("", |part| part.version)
}

fn request(mut words: Vec<OsString>) -> Result<Call, String> {
    let mut has = |option: &str| {
        let before = words.len();
        words.retain(|word| word != option);
        words.len() < before
    };
    let json = has("--json");
    let without = has(NO_DEVICES);
    let devices = if without { Devices::None } else { Devices::Important };
    let source = match words.as_slice() {
        [word] if word == "--help" || word == "-h" => return Ok(Call::Help),
        [word] if word == "--version" || word == "-V" => return Ok(Call::Version),
        [word] if word == "live" => Source::Live,
        [word, file] if word == "xml" => Source::Xml(file.into()),
        [word, _] if word == "picture" && without => {
            return Err(format!("a picture has devices: leave {NO_DEVICES} out"));
        }
        [word, cpus] if word == "picture" => {
            let list = cpus.to_string_lossy();
            Source::Picture(list.parse().map_err(|error| format!("picture {list}: {error}"))?)
        }
        _ => {
            return Err(
                "expected `live`, `xml FILE` or `picture CPUS`, and perhaps `--json`; see `trimtab-discover --help`"
                    .to_owned(),
            );
        }
    };
    Ok(Call::Answer(Invocation { source, devices, json }))
}

/// Restarts the program with hwloc's environment in order, unless it is in order already.
///
/// Variables such as `HWLOC_XMLFILE` and `HWLOC_SYNTHETIC` would make hwloc describe another
/// machine. Here `live` means the machine on which programs are about to be placed, and its model
/// is kept for later starts without the variable; a user who wants another machine names it to
/// trimtab (`--machine`). The variables must be gone before any code of hwloc runs, and only a new
/// program can safely get a new environment.
fn settle(request: &Invocation) -> Result<(), String> {
    // A picture has the nodes that other programs see, and these do not see the memory of
    // accelerators.
    let mut wanted = match request.source {
        Source::Picture(_) => HWLOC_ENVIRONMENT[..3].to_vec(),
        Source::Live | Source::Xml(_) => HWLOC_ENVIRONMENT.to_vec(),
    };
    if matches!((&request.source, request.devices), (Source::Live, Devices::None)) {
        wanted.push(NO_PLUGINS);
    }
    let ours = |name: &str| wanted.iter().find(|(wanted, _)| *wanted == name).map(|(_, value)| *value);
    let mut foreign: Vec<OsString> = Vec::new();
    let mut right = 0;
    for (name, value) in std::env::vars_os() {
        match name.to_str().and_then(ours) {
            Some(wanted) if value == wanted => right += 1,
            Some(_) => {}
            None if name.as_encoded_bytes().starts_with(b"HWLOC_") => foreign.push(name),
            None => {}
        }
    }
    if (foreign.is_empty() && right == wanted.len()) || std::env::var_os(SETTLED).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe()
        .map_err(|error| format!("cannot find this program: {error} (is /proc mounted?)"))?;
    let mut again = Command::new(&program);
    again.args(std::env::args_os().skip(1)).envs(wanted.iter().copied()).env(SETTLED, "1");
    for name in foreign {
        again.env_remove(name);
    }
    Err(format!("cannot start {}: {}", program.display(), again.exec()))
}

/// Discovers the machine and prints it.
fn answer(request: &Invocation) -> Result<(), String> {
    if let Source::Picture(cpus) = &request.source {
        let text = guarded(|| trimtab_discover::picture(cpus))
            .map_err(|crash| crash_line(&request.source, &crash))?
            .map_err(|error| error.to_string())?;
        return print(text.as_bytes());
    }
    // The launcher reports a missing key; here it only means that the model will not be kept.
    let key = match (&request.source, Key::live()) {
        (Source::Live, Ok(key)) => key,
        _ => Key::file(),
    };
    let key = match (&request.source, request.devices) {
        (Source::Live, Devices::None) => key.without_devices(),
        _ => key,
    };
    let parts = guarded(|| match &request.source {
        Source::Live | Source::Picture(_) => {
            trimtab_discover::live(nodes_with_cpus().as_ref(), request.devices)
        }
        Source::Xml(file) => trimtab_discover::from_xml(file, request.devices),
    })
    .map_err(|crash| crash_line(&request.source, &crash))?
    .map_err(|error| error.to_string())?;
    let bytes =
        if request.json { json(&parts)? } else { encode(&key, &parts).map_err(|error| error.to_string())? };
    print(&bytes)
}

/// Runs `work` and turns a panic into its message: the hwloc binding asserts its assumptions on
/// hwloc.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    panic::set_hook(Box::new(|_| {})); // main prints the message once
    let result = panic::catch_unwind(panic::AssertUnwindSafe(work));
    let _ = panic::take_hook();
    result.map_err(|payload| {
        let words = payload.downcast_ref::<String>().map(String::as_str);
        words.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no reason given").to_owned()
    })
}

fn crash_line(source: &Source, crash: &str) -> String {
    let what: &Path = match source {
        Source::Live | Source::Picture(_) => Path::new("this machine"),
        Source::Xml(file) => file,
    };
    let hwloc = trimtab_discover::hwloc_version();
    format!(
        "hwloc (API {hwloc}) and its binding disagree over {}: {crash} (please report it, with `lstopo machine.xml`)",
        what.display()
    )
}

fn json(parts: &Parts) -> Result<Vec<u8>, String> {
    let mut text = serde_json::to_vec_pretty(parts).map_err(|error| error.to_string())?;
    text.push(b'\n');
    Ok(text)
}

/// Writes to standard output; a reader that stops reading is not an error.
fn print(bytes: &[u8]) -> Result<(), String> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("cannot write the model: {error}"))
        }
        _ => Ok(()),
    }
}
