//! The plug-in for container runtimes, with a runtime of the test: it speaks the protocol, and
//! needs neither containers nor root. docs/kubernetes.md names the bed of real ones.

use crate::ledger::{held, keepers};
use crate::util::{Running, Sandbox, cpus, eventually, need, two};
use prost::Message;
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::OnceLock;
use trimtab_nri::message::{
    About, Configure, Configured, Container, ContainerState, Cpu, Created, LinuxContainer, NriEvent,
    PLUGIN_SERVICE, Pod, Resources, StateChange, Synchronize, Synchronized, Update, Updates,
};
use trimtab_nri::mux::{PLUGIN, RUNTIME, Splitter, frames};
use trimtab_nri::ttrpc::{Assembler, CallRequest, CallStatus, Frame, REQUEST, RESPONSE, Response, code};

/// A runtime, and the plug-in that is connected with it.
struct TestRuntime<'s> {
    sandbox: &'s Sandbox,
    listener: UnixListener,
    stream: UnixStream,
    splitter: Splitter,
    assemblers: BTreeMap<u32, Assembler>,
    next: u32,
    plugin: Running<'s>,
    /// Changes that the plug-in asked for by itself.
    changes: Vec<Update>,
}

fn started<'s>(sandbox: &'s Sandbox, listener: &UnixListener) -> (Running<'s>, UnixStream) {
    let (socket, config) = (sandbox.path("nri.sock"), sandbox.path("nri.toml"));
    let call = sandbox.trimtab("nri --once --verbose").args(["--socket".as_ref(), socket.as_os_str()]);
    let plugin = call.args(["--config".as_ref(), config.as_os_str()]).begins();
    let (stream, _) = listener.accept().unwrap();
    // A plug-in that hangs fails the test.
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    (plugin, stream)
}

impl<'s> TestRuntime<'s> {
    /// Starts the plug-in, and registers it.
    fn new(sandbox: &'s Sandbox, config: &str) -> Self {
        sandbox.write("nri.toml", config);
        let listener = UnixListener::bind(sandbox.path("nri.sock")).unwrap();
        let (plugin, stream) = started(sandbox, &listener);
        let (splitter, assemblers, changes) = Default::default();
        let mut runtime = Self { sandbox, listener, stream, splitter, assemblers, next: 1, plugin, changes };
        runtime.registered();
        runtime
    }

    /// Starts another plug-in after the first one was killed.
    fn again(&mut self) {
        self.plugin.signal(Signal::KILL);
        (self.plugin, self.stream) = started(self.sandbox, &self.listener);
        (self.splitter, self.assemblers, self.next) = (Splitter::default(), BTreeMap::new(), 1);
        self.registered();
    }

    fn registered(&mut self) {
        let (connection, frame) = self.frame();
        assert_eq!((connection, frame.kind), (RUNTIME, REQUEST));
        self.acknowledge(&frame);
        let asked = Configure { runtime_name: "test".into(), ..Configure::default() };
        let configured: Configured = self.call("Configure", &asked).unwrap();
        let created = NriEvent::CreateContainer.bit() | NriEvent::PostStartContainer.bit();
        assert_eq!(configured.events & created, created);
    }

    /// Reads a frame.
    fn frame(&mut self) -> (u32, Frame) {
        loop {
            let mut bytes = [0; 1];
            self.stream.read_exact(&mut bytes).unwrap();
            for (connection, payload) in self.splitter.take(&bytes).unwrap() {
                let assembler = self.assemblers.entry(connection).or_default();
                if let Some(frame) = assembler.take(&payload).unwrap().pop() {
                    return (connection, frame);
                }
            }
        }
    }

    fn acknowledge(&mut self, frame: &Frame) {
        let request = CallRequest::decode(&*frame.payload).unwrap();
        if request.method == "UpdateContainers" {
            self.changes.extend(Updates::decode(&*request.payload).unwrap().update);
        }
        let payload = Response::default().encode_to_vec();
        let answer = Frame { stream: frame.stream, kind: RESPONSE, flags: 0, payload };
        self.stream.write_all(&frames(RUNTIME, &answer.bytes().unwrap())).unwrap();
    }

    /// Calls the plug-in with bytes. The runtime is patient, so that a crowded machine fails no
    /// test.
    fn call_bytes(&mut self, method: &str, payload: Vec<u8>) -> Result<Vec<u8>, CallStatus> {
        self.call_within(60_000_000_000, method, payload)
    }

    /// Calls the plug-in, and lets it know after how many nanoseconds the runtime gives up.
    fn call_within(
        &mut self,
        timeout_nano: i64,
        method: &str,
        payload: Vec<u8>,
    ) -> Result<Vec<u8>, CallStatus> {
        let stream = self.next;
        self.next += 2;
        let request =
            CallRequest { service: PLUGIN_SERVICE.into(), method: method.into(), payload, timeout_nano };
        let frame = Frame { stream, kind: REQUEST, flags: 1, payload: request.encode_to_vec() };
        self.stream.write_all(&frames(PLUGIN, &frame.bytes().unwrap())).unwrap();
        loop {
            match self.frame() {
                (PLUGIN, frame) if frame.stream == stream => {
                    return Response::decode(&*frame.payload).unwrap().result();
                }
                (RUNTIME, frame) => self.acknowledge(&frame),
                other => panic!("{other:?}"),
            }
        }
    }

    fn call<A: Message + Default>(&mut self, method: &str, argument: &impl Message) -> Result<A, CallStatus> {
        self.call_bytes(method, argument.encode_to_vec()).map(|bytes| A::decode(&*bytes).unwrap())
    }

    fn synchronize(&mut self, pods: &[Pod], containers: &[Container]) -> Vec<Update> {
        // In two parts, as for many containers.
        let first = Synchronize { pods: pods.to_vec(), containers: Vec::new(), more: true };
        assert!(self.call::<Synchronized>("Synchronize", &first).unwrap().more);
        let last = Synchronize { pods: Vec::new(), containers: containers.to_vec(), more: false };
        self.call::<Synchronized>("Synchronize", &last).unwrap().update
    }

    fn create(&mut self, pod: &Pod, container: &Container) -> Result<Created, CallStatus> {
        self.call("CreateContainer", &About { pod: Some(pod.clone()), container: Some(container.clone()) })
    }

    /// Reports a container as started.
    fn start(&mut self, pod: &Pod, container: &Container) {
        let event = NriEvent::PostStartContainer as i32;
        let change = StateChange { event, pod: Some(pod.clone()), container: Some(container.clone()) };
        self.call_bytes("StateChange", change.encode_to_vec()).unwrap();
    }
}

fn pod(name: &str, cores: &str) -> Pod {
    let annotations = [("trimtab.io/cores".to_owned(), cores.to_owned())].into();
    Pod {
        id: format!("p-{name}"),
        name: name.into(),
        namespace: "default".into(),
        annotations,
        ..Pod::default()
    }
}

fn container(pod: &Pod) -> Container {
    // Control groups are named after it, and tests run at once.
    let id = format!("c{}-{:?}-{}", std::process::id(), std::thread::current().id(), pod.name);
    Container { id, pod_sandbox_id: pod.id.clone(), name: "main".into(), ..Container::default() }
}

/// A container that runs, with the CPUs that the runtime has for it.
fn running(pod: &Pod, process: &First, list: &str) -> Container {
    let cpu = Some(Cpu { cpus: list.into(), ..Cpu::default() });
    let linux = Some(LinuxContainer { resources: Some(Resources { cpu }), ..LinuxContainer::default() });
    Container { pid: process.id(), state: ContainerState::Running as i32, linux, ..container(pod) }
}

/// The CPUs of a new container.
fn given(created: &Created) -> BTreeSet<u32> {
    let linux = created.adjust.as_ref().unwrap().linux.as_ref().unwrap();
    cpus(&linux.resources.as_ref().unwrap().cpu.as_ref().unwrap().cpus)
}

fn of_update(update: &Update) -> BTreeSet<u32> {
    cpus(&update.linux.as_ref().unwrap().resources.as_ref().unwrap().cpu.as_ref().unwrap().cpus)
}

/// The first process of a container, in a control group of that container.
struct First {
    process: Child,
    group: Option<PathBuf>,
}

impl First {
    /// Starts it. Engines name the group after the container.
    fn of(pod: &Pod) -> Self {
        let mut first = Self::stranger();
        let group = hierarchy().expect("node() was asked").join(container(pod).id);
        fs::create_dir(&group).unwrap();
        fs::write(group.join("cgroup.procs"), first.id().to_string()).unwrap();
        first.group = Some(group);
        first
    }

    /// Starts a process that is of no container.
    fn stranger() -> Self {
        let process = Command::new("sleep").arg("600").spawn().unwrap();
        Self { process, group: None }
    }

    fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // The kernel takes a moment to empty a group.
        if let Some(group) = &self.group {
            while fs::remove_dir(group).is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
                std::thread::yield_now();
            }
        }
    }
}

/// A hierarchy of control groups in which these tests may make groups.
fn hierarchy() -> Option<&'static Path> {
    static FOUND: OnceLock<Option<PathBuf>> = OnceLock::new();
    let probed = FOUND.get_or_init(|| {
        let all = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/freezer"].map(PathBuf::from);
        let probe = format!("trimtab-test-{}", std::process::id());
        all.into_iter().find(|root| {
            let group = root.join(&probe);
            let is_one = fs::create_dir(&group).is_ok() && group.join("cgroup.procs").exists();
            let _ = fs::remove_dir(&group);
            is_one
        })
    });
    probed.as_deref()
}

/// Two CPUs, where the test may also make control groups.
fn node() -> Option<[u32; 2]> {
    two().filter(|_| hierarchy().is_some())
}

#[test]
fn a_container_has_its_cores_from_its_making_to_its_end() {
    need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    assert!(runtime.synchronize(&[], &[]).is_empty());
    let pod = pod("web", "1");
    let mut own = container(&pod);
    own.env = vec!["OPENBLAS_NUM_THREADS=900".into(), "OMPI_COMM_WORLD_LOCAL_RANK=0".into()];
    let created = runtime.create(&pod, &own).unwrap();
    let cores = given(&created);
    assert_eq!((cores.len(), &held(&sandbox)), (1, &cores));
    let variables: BTreeMap<String, String> =
        created.adjust.unwrap().env.into_iter().map(|variable| (variable.key, variable.value)).collect();
    assert_eq!(variables["OPENBLAS_NUM_THREADS"], "1");
    assert!(variables["TRIMTAB_HOLD"].starts_with("0 -1 "), "{variables:?}");
    // The plug-in stands for the container until that has a process.
    assert_eq!(sandbox.ps()["holds"][0]["pid"], runtime.plugin.pid());
    let first = First::of(&pod);
    runtime.start(&pod, &running(&pod, &first, ""));
    let row = sandbox.ps()["holds"][0].clone();
    assert_eq!((&row["pid"], &row["command"]), (&first.id().into(), &"pod default/web/main".into()));
    assert_eq!(held(&sandbox), cores);
    let name = format!("process {}", first.id());
    eventually("its keeper has the hold", || keepers(&name).len() == 1);
    // The plug-in is not needed for the end.
    runtime.plugin.signal(Signal::KILL);
    drop(first);
    eventually("the hold ends", || held(&sandbox).is_empty() && keepers(&name).is_empty());
}

#[test]
fn a_container_without_free_cores_is_refused_and_a_removed_one_gives_its_back() {
    let [a, b] = need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    runtime.synchronize(&[], &[]);
    let all = pod("all", "100%");
    let whole = runtime.create(&all, &container(&all)).unwrap();
    assert!(given(&whole).is_superset(&BTreeSet::from([a, b])));
    let more = pod("more", "1");
    let refused = runtime.create(&more, &container(&more)).unwrap_err();
    assert_eq!(refused.code, code::RESOURCE_EXHAUSTED);
    assert!(refused.message.starts_with("trimtab: pod default/more/main: 1 core asked for"), "{refused:?}");
    assert!(!refused.message.contains("--"), "options are of no use to a pod: {refused:?}");
    sandbox.run("-c 1").arg("true").ends().fails(124, &["held by others"]);
    // It was never started.
    runtime
        .call_bytes("StopContainer", About { pod: None, container: Some(container(&all)) }.encode_to_vec())
        .unwrap();
    eventually("the hold ends", || held(&sandbox).is_empty());
    runtime.create(&more, &container(&more)).unwrap();
    let gone =
        StateChange { event: NriEvent::RemoveContainer as i32, pod: None, container: Some(container(&more)) };
    runtime.call_bytes("StateChange", gone.encode_to_vec()).unwrap();
    eventually("the hold ends", || held(&sandbox).is_empty());
}

#[test]
fn a_plug_in_that_was_killed_finds_the_holds_again() {
    need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    runtime.synchronize(&[], &[]);
    let (stays, goes) = (pod("stays", "1"), pod("goes", "1"));
    let mut sets = Vec::new();
    let [first, second] = [&stays, &goes].map(First::of);
    for (pod, process) in [&stays, &goes].into_iter().zip([&first, &second]) {
        sets.push(given(&runtime.create(pod, &container(pod)).unwrap()));
        runtime.start(pod, &running(pod, process, ""));
    }
    runtime.again();
    assert_eq!(held(&sandbox).len(), 2, "keepers have the holds meanwhile");
    let list = sets[0].first().unwrap().to_string();
    // The runtime does not list the other one any more, and its process still runs.
    let updates = runtime.synchronize(std::slice::from_ref(&stays), &[running(&stays, &first, &list)]);
    assert!(updates.is_empty(), "{updates:?}");
    assert_eq!(held(&sandbox), &sets[0] | &sets[1]);
    drop(second);
    eventually("the other hold ends with its process", || held(&sandbox) == sets[0]);
    // A container that was started meanwhile keeps the CPUs that it has.
    let early = pod("early", "1");
    let (list, third) = (sets[1].first().unwrap().to_string(), First::of(&early));
    runtime.again();
    let containers = [running(&stays, &first, ""), running(&early, &third, &list)];
    let updates = runtime.synchronize(&[stays, early], &containers);
    assert_eq!(updates.iter().map(of_update).collect::<Vec<_>>(), [sets[0].clone()], "it was told of none");
    assert_eq!(held(&sandbox), &sets[0] | &sets[1]);
    drop((first, third));
    eventually("the holds end", || held(&sandbox).is_empty());
}

#[test]
fn a_container_that_was_never_started_holds_nothing_until_it_is() {
    need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    // The runtime was killed between making and starting it. Another container shows that the
    // upkeep has been at work.
    let (idle, runs) = (pod("idle", "1"), pod("runs", "1"));
    let made = Container { state: ContainerState::Created as i32, ..container(&idle) };
    let processes = [&runs, &idle].map(First::of);
    runtime.synchronize(&[idle.clone(), runs.clone()], &[made, running(&runs, &processes[0], "")]);
    let keepers_of = |process: &First| keepers(&format!("process {}", process.id())).len();
    assert_eq!((held(&sandbox).len(), keepers_of(&processes[0])), (1, 1));
    runtime.start(&idle, &running(&idle, &processes[1], ""));
    eventually("the other hold is made at the start", || keepers_of(&processes[1]) == 1);
    assert_eq!(held(&sandbox).len(), 2);
    drop(processes);
    eventually("the holds end", || held(&sandbox).is_empty());
}

#[test]
fn a_hold_is_not_handed_over_to_a_process_of_another_container() {
    need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    runtime.synchronize(&[], &[]);
    let web = pod("web", "1");
    runtime.create(&web, &container(&web)).unwrap();
    let (stranger, other) = (First::stranger(), First::of(&pod("other", "1")));
    for lie in [&stranger, &other] {
        runtime.start(&web, &running(&web, lie, ""));
        assert!(keepers(&format!("process {}", lie.id())).is_empty());
        assert_eq!(sandbox.ps()["holds"][0]["pid"], runtime.plugin.pid(), "the engine still stands for it");
    }
    // Neither does process 1 get it from the runtime's list, nor the end of a stranger end it.
    let first = Container { pid: 1, ..running(&web, &stranger, "") };
    runtime.synchronize(std::slice::from_ref(&web), &[first]);
    drop((stranger, other));
    assert_eq!(held(&sandbox).len(), 1);
    let gone = About { pod: None, container: Some(container(&web)) };
    runtime.call_bytes("StopContainer", gone.encode_to_vec()).unwrap();
    eventually("the hold ends with the container", || held(&sandbox).is_empty());
}

#[test]
fn a_container_that_is_started_late_never_starts_on_cores_of_others() {
    let [a, _] = need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    // The runtime was killed between making and starting it, and its CPUs were given to others.
    let late = pod("late", "1");
    let first = First::of(&late);
    let made =
        Container { pid: 0, state: ContainerState::Created as i32, ..running(&late, &first, &a.to_string()) };
    runtime.synchronize(std::slice::from_ref(&late), std::slice::from_ref(&made));
    assert!(held(&sandbox).is_empty());
    let others = sandbox.run("-c 100%").args(["sleep", "600"]).begins();
    eventually("others have all cores", || held(&sandbox).len() >= 2);
    let event = NriEvent::StartContainer as i32;
    let change = StateChange { event, pod: Some(late.clone()), container: Some(made) }.encode_to_vec();
    let refused = runtime.call_bytes("StateChange", change.clone()).unwrap_err();
    assert_eq!(refused.code, code::RESOURCE_EXHAUSTED);
    assert!(refused.message.starts_with("trimtab: pod default/late/main: "), "{refused:?}");
    others.signal(Signal::KILL);
    eventually("others have ended", || held(&sandbox).is_empty());
    runtime.call_bytes("StateChange", change).unwrap();
    assert!(held(&sandbox).contains(&a), "its own CPU is free again");
    runtime.start(&late, &running(&late, &first, &a.to_string()));
    eventually("its process has the hold", || keepers(&format!("process {}", first.id())).len() == 1);
    drop(first);
    eventually("the hold ends", || held(&sandbox).is_empty());
}

#[test]
fn a_container_that_is_started_late_on_cores_of_others_is_told_its_own_when_it_runs() {
    let [a, b] = need!(node(), "two cores and control groups that may be made are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    let late = pod("late", "1");
    let first = First::of(&late);
    let made =
        Container { pid: 0, state: ContainerState::Created as i32, ..running(&late, &first, &a.to_string()) };
    runtime.synchronize(std::slice::from_ref(&late), std::slice::from_ref(&made));
    let others = sandbox.run(&format!("--cpus {a}")).args(["sleep", "600"]).begins();
    eventually("others have its core", || held(&sandbox).contains(&a));
    let event = NriEvent::StartContainer as i32;
    let change = StateChange { event, pod: Some(late.clone()), container: Some(made) };
    runtime.call_bytes("StateChange", change.encode_to_vec()).unwrap();
    assert!(held(&sandbox).contains(&b));
    // The upkeep looks several times meanwhile. The runtime would take a change for its files only.
    for _ in 0..4 {
        std::thread::sleep(std::time::Duration::from_millis(300));
        runtime.call_bytes("RunPodSandbox", Vec::new()).unwrap();
    }
    assert!(runtime.changes.is_empty(), "{:?}", runtime.changes);
    runtime.start(&late, &running(&late, &first, &a.to_string()));
    while runtime.changes.is_empty() {
        let (connection, frame) = runtime.frame();
        assert_eq!(connection, RUNTIME);
        runtime.acknowledge(&frame);
    }
    let told: Vec<_> = runtime.changes.iter().map(of_update).collect();
    assert!(told.iter().all(|cpus| cpus.contains(&b) && !cpus.contains(&a)), "{told:?}");
    others.signal(Signal::KILL);
    drop(first);
}

#[test]
fn the_shared_pool_follows_holds_and_is_never_empty() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "shared = true\n");
    let shared = Pod { annotations: BTreeMap::new(), ..pod("shared", "") };
    let process = First::stranger();
    let first = runtime.synchronize(std::slice::from_ref(&shared), &[running(&shared, &process, "")]);
    let all = of_update(&first[0]);
    assert!(all.len() >= 2);
    let web = pod("web", "1");
    let created = runtime.create(&web, &container(&web)).unwrap();
    // The upkeep may have seen the hold before the answer was made.
    let updates: Vec<_> = runtime.changes.iter().chain(&created.update).map(of_update).collect();
    assert_eq!(updates, [&all - &given(&created)]);
    let rest = pod("rest", "100%");
    let refused = runtime.create(&rest, &container(&rest)).unwrap_err();
    assert!(refused.message.contains("asked for") || refused.message.contains("shared pool"), "{refused:?}");
    let late = Pod { annotations: BTreeMap::new(), ..pod("late", "") };
    assert_eq!(given(&runtime.create(&late, &container(&late)).unwrap()), &all - &given(&created));
    // The pool grows by itself.
    runtime
        .call_bytes("StopContainer", About { pod: None, container: Some(container(&web)) }.encode_to_vec())
        .unwrap();
    let grown = |runtime: &TestRuntime<'_>| {
        let to_all = runtime.changes.iter().filter(|update| of_update(update) == all);
        to_all.map(|update| update.container_id.clone()).collect::<BTreeSet<_>>()
    };
    while grown(&runtime).len() < 2 {
        let (connection, frame) = runtime.frame();
        assert_eq!(connection, RUNTIME);
        runtime.acknowledge(&frame);
    }
    drop(process);
}

#[test]
fn a_runtime_that_sends_nonsense_gets_errors_and_a_hostile_one_loses_the_connection() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    for method in ["CreateContainer", "Synchronize", "UpdateContainer", "StateChange", "StopContainer"] {
        let error = runtime.call_bytes(method, vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]).unwrap_err();
        assert_eq!(error.code, code::INVALID_ARGUMENT, "{method}");
    }
    let nameless = About { pod: None, container: Some(Container::default()) };
    assert_eq!(
        runtime.call::<Created>("CreateContainer", &nameless).unwrap_err().code,
        code::INVALID_ARGUMENT
    );
    assert_eq!(runtime.call_bytes("Reboot", Vec::new()).unwrap_err().code, code::UNIMPLEMENTED);
    assert!(runtime.call_bytes("RunPodSandbox", Vec::new()).is_ok());
    // A process that does not exist: the hold stays with the runtime, and ends with the container.
    let liar = pod("liar", "1");
    runtime.create(&liar, &container(&liar)).unwrap();
    runtime.start(&liar, &Container { pid: u32::MAX, ..container(&liar) });
    assert_eq!(held(&sandbox).len(), 1);
    runtime.synchronize(&[], &[]);
    eventually("the hold ends", || held(&sandbox).is_empty());
    runtime.stream.write_all(&[0xff; 64]).unwrap();
    let done = runtime.plugin.ends();
    assert_eq!(done.code, Some(2), "{done}");
    assert!(done.stderr.contains("the runtime sent a frame of 4294967295 bytes"), "{done}");
}

#[test]
fn a_decision_that_comes_too_late_holds_nothing() {
    need!(two(), "two cores are needed");
    let sandbox = Sandbox::new();
    let mut runtime = TestRuntime::new(&sandbox, "");
    runtime.synchronize(&[], &[]);
    let mut late = 0;
    for (number, patience) in [1, 300_000_001, 310_000_000, 400_000_000].into_iter().enumerate() {
        let web = pod(&format!("web{number}"), "1");
        let about = About { pod: Some(web.clone()), container: Some(container(&web)) }.encode_to_vec();
        match runtime.call_within(patience, "CreateContainer", about.clone()) {
            Ok(_) => drop(runtime.call_bytes("StopContainer", about).unwrap()),
            Err(error) if error.code == code::DEADLINE_EXCEEDED => late += 1,
            // The one before may be about to give its cores back.
            Err(error) => assert_eq!(error.code, code::RESOURCE_EXHAUSTED, "{error:?}"),
        }
    }
    assert!(late >= 1, "a nanosecond is not enough");
    eventually("nothing is held", || held(&sandbox).is_empty());
}

#[test]
fn a_configuration_is_checked_without_a_runtime() {
    let sandbox = Sandbox::new();
    let good = sandbox.write("good.toml", "shared = true\n");
    let said = sandbox.trimtab("nri --check --config").arg(&good).ends().ok();
    assert!(said.contains("share the CPUs that no hold has"), "{said}");
    let bad = sandbox.write("bad.toml", "share = true\n");
    sandbox.trimtab("nri --check --config").arg(&bad).ends().fails(2, &["bad.toml", "share"]);
    sandbox.trimtab("nri --index x --once").ends().fails(2, &["two digits"]);
    let nowhere = sandbox.path("nowhere");
    sandbox.trimtab("nri --once --socket").arg(&nowhere).ends().fails(2, &["is NRI enabled"]);
}
