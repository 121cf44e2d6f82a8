//! Requests: the service's thread that answers at the socket, reads from guests and the scan for
//! bound threads, and changes the registry.

use super::channel::Channel;
use super::declared::{self, Changes, Declared};
use super::guests::{Guests, OPERATOR};
use super::kept::KeptTags;
use super::pinned::Pinned;
use super::resolve::Resolver;
use super::vm_registry::{Asker, LookupResult, VmRegistry};
use super::{MonitorId, ServiceState, SharedState, namespace, spent};
use crate::metrics::{MachineFigures, Metrics};
use crate::narrator::Narrator;
use anyhow::{Context, Result};
use rustix::process::geteuid;
use rustix::time::ClockId;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use trimtab_core::balance::Finding;
use trimtab_core::ids::ProgramId;
use trimtab_core::set::CpuSet;
use trimtab_core::tags::{
    Answer, Ask, Bucket, ClientStatus, Cost, Explainer, LINE_MAX, Mark, Owner, Reach, Refusal, Request,
    Requester, Response, Status, TagStatus, Turns, What,
};
use trimtab_core::time::{Moment, Span};
use trimtab_core::words::plural;
use trimtab_linux::host::Stopper;
use trimtab_linux::socket::{ClientEvent, ClientId, Limits, Peer, Server};
use trimtab_linux::users::Users;
use trimtab_linux::vcpus::VirtualMachine;

/// Limits at the socket. Chosen: enough for people and scripts, little for an attacker.
pub(super) const SOCKET_LIMITS: Limits =
    Limits { clients: 128, of_user: 16, of_root: 16, line: LINE_MAX, patience: Duration::from_secs(10) };
/// Requests that a user may make at once; root ten times as many.
const REQUESTS_BURST: u32 = 200;
/// Requests that a user may make each second in the long run; root ten times as many.
const REQUESTS_PER_SECOND: u32 = 50;
/// Least time for which a client that asks too often is not read.
const REFUSED_REST: Duration = Duration::from_millis(100);
/// Number of stored rates of users above which those of idle users are dropped.
const RATES_KEPT_MAX: usize = 1_024;
/// Requests answered before new connections are accepted. Chosen: milliseconds of work.
const ANSWERS_PER_TURN: usize = 16;
/// Longest wait for a request.
const IDLE_POLL: Duration = Duration::from_millis(500);
/// Longest wait while a virtual machine is looked up.
const LOOKUP_POLL: Duration = Duration::from_millis(10);
/// Time between two rounds over virtual machines, guests and bound threads.
const TEND_PERIOD: Duration = Duration::from_millis(250);

/// Settings of the server.
#[derive(Debug)]
pub(super) struct RequestSetup {
    /// The policy's word.
    pub(super) policy: String,
    /// CPUs to which threads may be moved.
    pub(super) usable: CpuSet,
    /// CPUs of the machine.
    pub(super) online: CpuSet,
    /// Share of a core that the service may take, from 0 to 1.
    pub(super) budget: f64,
    /// Whether bound threads are taken as tagged.
    pub(super) pinned: bool,
    /// The guests.
    pub(super) guests: Vec<Channel>,
    /// Folder with the files of declared tags.
    pub(super) declared: Option<PathBuf>,
    /// Set by a signal to read these files again.
    pub(super) reload: Arc<AtomicBool>,
    /// Set by a signal from a terminal: the tags are not meant to come back.
    pub(super) forget: Arc<AtomicBool>,
    /// Whether no thread is moved.
    pub(super) observe: bool,
    /// Metrics that are offered.
    pub(super) metrics: Option<Metrics>,
    /// Gets reports of guests that cannot be reached.
    pub(super) narrator: Arc<dyn Narrator>,
}

/// Request of a client that waits for a virtual machine to be found.
#[derive(Clone, PartialEq, Eq, Debug)]
struct PendingRequest {
    client: ClientId,
    user: Requester,
    action: PendingAction,
}

/// Action on the machine once it is found.
#[derive(Clone, PartialEq, Eq, Debug)]
enum PendingAction {
    Tag { group: Option<String> },
    Clear,
}

/// Server of requests.
#[derive(Debug)]
pub(super) struct RequestServer {
    server: Server,
    shared: SharedState,
    resolver: Resolver,
    setup: RequestSetup,
    namespace: Option<u64>,
    buckets: BTreeMap<u32, Bucket>,
    /// What clients have sent, for each user in turn.
    turns: Turns<ClientEvent>,
    machines: VmRegistry<PendingRequest>,
    guests: Guests,
    pinned: Option<Pinned>,
    declared: Declared,
    /// The file of tags by hand.
    kept: KeptTags,
    /// Why that file was not written.
    kept_fault: Option<String>,
    /// Why the files of declared tags were not used when they were last read.
    declared_fault: Option<String>,
    requests: u64,
    refused: u64,
    tended: Option<Instant>,
}

impl RequestServer {
    /// Makes a server at this socket.
    ///
    /// # Errors
    /// A file of declared tags cannot be used.
    pub(super) fn new(
        server: Server,
        shared: SharedState,
        resolver: Resolver,
        reach: Reach,
        setup: RequestSetup,
    ) -> Result<Self> {
        let proc = resolver.proc.clone();
        let declarations = declarations(&setup)?;
        let declared = Declared::new(resolver.clone(), reach, declarations);
        let pinned = setup.pinned.then(|| Pinned::new(proc.clone(), setup.online.clone(), reach));
        let mut server = Self {
            kept: KeptTags::beside(server.path(), &proc),
            kept_fault: None,
            machines: VmRegistry::new(&resolver),
            guests: Guests::new(&setup.guests),
            namespace: namespace(&proc),
            server,
            shared,
            resolver,
            setup,
            buckets: BTreeMap::new(),
            turns: Turns::default(),
            pinned,
            declared,
            declared_fault: None,
            requests: 0,
            refused: 0,
            tended: None,
        };
        server.tag_kept();
        Ok(server)
    }

    /// Tags what was tagged by hand when an earlier service ended.
    fn tag_kept(&mut self) {
        let kept = self.kept.read();
        let (mut again, all) = (0_usize, kept.len());
        for tag in kept {
            let Some((user, what)) = tag.wanted(&self.resolver) else { continue };
            let group = tag.group.clone();
            let tagged = match what {
                What::Vm(name) => self.machines.find(Asker::Kept(user, group), user, name),
                what => self.tag(user, &what, group, self.shared.now()).map(drop),
            };
            again += usize::from(tagged.is_ok());
        }
        if all > 0 {
            let line = format!("kept from the service before: {again} of {} by hand", plural(all, "tag"));
            self.setup.narrator.notice(&line);
        }
    }

    /// Keeps the tags by hand for the next service.
    fn keep_tags(&mut self) {
        let Some(tags) = self.kept.changed(&self.shared.lock().registry) else { return };
        if let Err(error) = self.kept.write(tags) {
            let fault = format!("tags by hand would not survive a restart of the service: {error}");
            if self.kept_fault.as_ref() != Some(&fault) {
                self.setup.narrator.warning(&fault);
            }
            self.kept_fault = Some(fault);
        }
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// Waiting is no longer possible.
    pub(super) fn serve(mut self, stopper: &Stopper) -> Result<()> {
        loop {
            let ports = self.guests.waits();
            let mut fds = vec![stopper.as_fd()];
            fds.extend(ports.iter().map(|(_, fd)| *fd));
            let patience = match (self.turns.is_empty(), self.machines.is_waited_for()) {
                (false, _) => Duration::ZERO,
                (true, true) => LOOKUP_POLL,
                (true, false) => IDLE_POLL,
            };
            let (heard, ready) = self.server.turn(&fds, patience).context("cannot wait at the socket")?;
            if ready.first() == Some(&true) {
                self.keep_tags();
                if self.setup.forget.load(Ordering::Relaxed) {
                    self.kept.remove();
                }
                return Ok(());
            }
            let spoke: Vec<usize> = ports
                .iter()
                .zip(ready.iter().skip(1))
                .filter(|(_, ready)| **ready)
                .map(|((at, _), _)| *at)
                .collect();
            for at in spoke {
                self.guests.hear(at, &self.shared, &*self.setup.narrator);
            }
            self.queue(heard);
            self.machines_found();
            self.answer_some();
            if self.tended.is_none_or(|at| at.elapsed() >= TEND_PERIOD) {
                self.tended = Some(Instant::now());
                self.guests.tend(&mut self.machines, &self.resolver, &self.shared, &*self.setup.narrator);
                self.machines.tend(&self.shared, &self.guests.machines());
                if let Some(pinned) = &mut self.pinned {
                    pinned.tend(&self.shared);
                }
                self.tend_declared();
                self.keep_tags();
                self.offer_metrics();
            }
        }
    }

    /// Updates the metrics, if they are offered.
    fn offer_metrics(&self) {
        let now = self.shared.now();
        let Some(metrics) = self.setup.metrics.as_ref().filter(|metrics| metrics.is_due(now)) else { return };
        let (status, programs) = self.state(OPERATOR, now);
        let proc = self.resolver.proc.as_path();
        // Before the lock is taken: the loop that balances waits for it.
        let machine = MachineFigures::read(proc, &self.resolver.sys, steal(proc));
        let explainer = self.shared.explainer();
        let figures = |program: ProgramId| (program, explainer.figures(program).cloned());
        let figures: Vec<_> = programs.into_iter().map(figures).collect();
        let findings: Vec<&str> = explainer.findings().iter().map(Finding::word).collect();
        metrics.show_service(&status, &figures, &findings, &machine, now);
    }

    /// Reads the files of declared tags again, if that was asked for, and tags their programs and
    /// machines.
    fn tend_declared(&mut self) {
        if self.setup.reload.swap(false, Ordering::Relaxed) {
            // The result is in the log and in the status.
            let _ = self.reload();
        }
        for (declaration, monitor) in self.declared.tend(&self.shared) {
            let asker = Asker::Declaration(declaration, monitor);
            if self.machines.find(asker, OPERATOR, monitor.0.to_string()).is_err() {
                // Too many are looked up: the next scan asks again.
                self.declared.answered(declaration, monitor);
            }
        }
    }

    /// Reads the files of declared tags again: all of them, or none.
    fn reload(&mut self) -> Result<Changes, Refusal> {
        match declarations(&self.setup) {
            Ok(declarations) => {
                let changes = self.declared.replace(declarations, &self.shared);
                let read = plural(changes.declarations, "declaration");
                let new = plural(changes.lines.len(), "change");
                let line = format!("the files of declared tags were read again: {read}, {new}");
                self.setup.narrator.notice(&line);
                self.declared_fault = None;
                Ok(changes)
            }
            Err(error) => {
                let refusal = Refusal::Files(format!("{error:#}"));
                self.setup.narrator.warning(&refusal.to_string());
                self.declared_fault = Some(refusal.to_string());
                Err(refusal)
            }
        }
    }

    /// Reads the files again for a client of an operator: the answer may show their text.
    fn reload_for(&mut self, user: Requester) -> Answer {
        let own = geteuid().as_raw();
        if !user.over_others() && user.uid != own {
            return Answer::Refused(Refusal::NotOperator { own });
        }
        match self.reload() {
            Ok(Changes { declarations, lines }) => Answer::Reloaded {
                declarations: u32::try_from(declarations).unwrap_or(u32::MAX),
                changes: lines,
            },
            Err(refusal) => Answer::Refused(refusal),
        }
    }

    /// Tags a machine that a declaration means.
    fn tag_declared(&mut self, declaration: usize, monitor: MonitorId, vm: VirtualMachine) {
        self.declared.answered(declaration, monitor);
        // The declaration, or the machine, may have gone meanwhile.
        if (vm.pid.0, vm.start.0) != monitor {
            return;
        }
        let Some((by, terms)) = self.declared.tag_of(declaration) else { return };
        let mark = Mark::Vm { name: vm.name.clone(), pid: vm.pid.0, start: vm.start.0 };
        let now = self.shared.now();
        let tagged = self.shared.lock().registry.declare(by, mark, terms, now);
        if let Ok((id, _)) = tagged
            && let Err(refusal) = self.machines.watch(vm, OPERATOR, &self.shared)
        {
            self.shared.lock().registry.end(id);
            self.setup.narrator.detail(&format!("a declared machine is not watched: {refusal}"));
        }
    }

    /// Lets what clients have sent wait for its turn.
    fn queue(&mut self, heard: Vec<ClientEvent>) {
        for one in heard {
            let (ClientEvent::Line(_, peer, _)
            | ClientEvent::TooLong(_, peer)
            | ClientEvent::TooMany(_, peer)) = one;
            self.turns.push(peer.uid, one);
        }
    }

    /// Answers some requests, of each user in turn. The rest waits until new connections were
    /// accepted, so that a new connection does not wait for all of it.
    fn answer_some(&mut self) {
        for _ in 0..ANSWERS_PER_TURN {
            let Some(one) = self.turns.pop() else { return };
            self.requests += 1;
            let mut heard = Vec::new();
            match one {
                ClientEvent::Line(client, peer, line) => {
                    let (answer, close) = self.hear(client, peer, &line);
                    if let Some(answer) = answer {
                        self.answer(client, answer, &mut heard);
                    }
                    if close {
                        self.server.close(client);
                    }
                }
                ClientEvent::TooLong(client, _) => {
                    let most = u32::try_from(LINE_MAX).unwrap_or(u32::MAX);
                    self.answer(client, Answer::Refused(Refusal::TooLong { most }), &mut heard);
                    self.server.close(client);
                }
                ClientEvent::TooMany(client, _) => {
                    self.answer(client, Answer::Refused(Refusal::Busy), &mut heard)
                }
            }
            // A client that has sent more already waits for its next turn.
            self.queue(heard);
        }
    }

    fn answer(&mut self, client: ClientId, answer: Answer, heard: &mut Vec<ClientEvent>) {
        self.refused += u64::from(matches!(answer, Answer::Refused(_)));
        let line = serde_json::to_vec(&Response::of(answer)).unwrap_or_default();
        self.server.answer(client, &line, heard);
    }

    /// Handles a request. Returns the answer, unless the client has to wait for it, and whether to
    /// close the connection.
    fn hear(&mut self, client: ClientId, peer: Peer, line: &[u8]) -> (Option<Answer>, bool) {
        let user = Requester { uid: peer.uid };
        let now = self.shared.now();
        if let Err(wait) = self.bucket(user, now) {
            // Repeated refusals must not cost more.
            self.server.rest(client, Duration::from(wait).max(REFUSED_REST));
            return (Some(Answer::Refused(Refusal::TooOften { ms: 1 + wait.0 / 1_000_000 })), false);
        }
        let request = match Request::parse(line) {
            Ok(request) => request,
            // A client that does not speak the protocol will not do so in its next line.
            Err(refusal) => return (Some(Answer::Refused(refusal)), true),
        };
        let answer = match request.ask {
            Ask::Status => Some(Answer::Status(Box::new(self.status(user, now)))),
            Ask::Reload => Some(self.reload_for(user)),
            Ask::Clear { what: Some(what) } | Ask::Tag { what, .. }
                if what.is_numbered() && self.is_foreign(peer, request.namespace) =>
            {
                Some(Answer::Refused(Refusal::Namespace))
            }
            // A socket does not name a tag: the machine's process, and so its user, are found
            // first.
            Ask::Clear { what: Some(What::Vm(name)) } if name.contains('/') => {
                self.find(PendingRequest { client, user, action: PendingAction::Clear }, name)
            }
            Ask::Clear { what } => Some(self.clear(user, what.as_ref())),
            Ask::Tag { what: What::Vm(name), group } => {
                self.find(PendingRequest { client, user, action: PendingAction::Tag { group } }, name)
            }
            Ask::Tag { what, group } => {
                Some(self.tag(user, &what, group, now).unwrap_or_else(Answer::Refused))
            }
        };
        (answer, false)
    }

    /// Returns whether the client's process ids mean other processes here: the client says so, or
    /// the kernel has no id for the client in this namespace.
    fn is_foreign(&self, peer: Peer, namespace: Option<u64>) -> bool {
        peer.pid.is_none() || (namespace.is_some() && namespace != self.namespace)
    }

    /// Has a virtual machine looked up for a client.
    fn find(&mut self, waiting: PendingRequest, name: String) -> Option<Answer> {
        let user = waiting.user;
        self.machines.find(Asker::Client(waiting), user, name).err().map(Answer::Refused)
    }

    fn clear(&self, user: Requester, what: Option<&What>) -> Answer {
        let now = self.shared.now();
        let cleared = self.shared.lock().registry.clear(user, what, now);
        let tags = u32::try_from(cleared.tags.len()).unwrap_or(u32::MAX);
        Answer::Cleared { tags, others: cleared.others }
    }

    fn bucket(&mut self, user: Requester, now: Moment) -> Result<(), Span> {
        if self.buckets.len() > RATES_KEPT_MAX {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
        }
        let times = if user.over_others() { 10 } else { 1 };
        let new = || Bucket::new(times * REQUESTS_BURST, times * REQUESTS_PER_SECOND);
        self.buckets.entry(user.uid).or_insert_with(new).take(now)
    }

    fn tag(
        &self,
        user: Requester,
        what: &What,
        group: Option<String>,
        now: Moment,
    ) -> Result<Answer, Refusal> {
        let (mark, owner) = self.resolver.mark(what, user)?;
        let name = mark.to_string();
        let (_, new) = self.shared.lock().registry.tag(user, mark, owner, group, now)?;
        Ok(Answer::Tagged { what: name, new })
    }

    /// Tags a machine that was found.
    fn tag_machine(
        &mut self,
        user: Requester,
        vm: VirtualMachine,
        owner: Owner,
        group: Option<String>,
    ) -> Result<Answer, Refusal> {
        let mark = Mark::Vm { name: vm.name.clone(), pid: vm.pid.0, start: vm.start.0 };
        let name = mark.to_string();
        let now = self.shared.now();
        let tagged = self.shared.lock().registry.tag(user, mark, Some(owner), group, now);
        let (id, new) = tagged?;
        if let Err(refusal) = self.machines.watch(vm, user, &self.shared) {
            self.shared.lock().registry.end(id);
            return Err(refusal);
        }
        Ok(Answer::Tagged { what: name, new })
    }

    /// Answers the clients that waited for a virtual machine.
    fn machines_found(&mut self) {
        for LookupResult { wanted, machine } in self.machines.found() {
            match wanted {
                Asker::Guest(at) => {
                    let found = LookupResult { wanted: Asker::Guest(at), machine };
                    let (machines, shared) = (&mut self.machines, &self.shared);
                    self.guests.found(at, found, machines, shared, &*self.setup.narrator);
                }
                Asker::Declaration(declaration, monitor) => match machine {
                    Ok((vm, _)) => self.tag_declared(declaration, monitor, vm),
                    Err(why) => {
                        self.declared.answered(declaration, monitor);
                        self.setup.narrator.detail(&format!("a declared machine is not tagged: {why}"));
                    }
                },
                Asker::Kept(user, group) => {
                    if let Ok((vm, owner)) = machine
                        && let Err(why) = self.tag_machine(user, vm, owner, group)
                    {
                        self.setup.narrator.detail(&format!("a kept machine is not tagged: {why}"));
                    }
                }
                Asker::Client(PendingRequest { client, user, action: PendingAction::Clear }) => {
                    let came = machine.map(|(vm, _)| self.clear(user, Some(&What::Vm(vm.pid.to_string()))));
                    let mut heard = Vec::new();
                    self.answer(client, came.unwrap_or_else(Answer::Refused), &mut heard);
                    self.queue(heard);
                }
                Asker::Client(PendingRequest { client, user, action: PendingAction::Tag { group } }) => {
                    let came = machine.and_then(|(vm, owner)| self.tag_machine(user, vm, owner, group));
                    let mut heard = Vec::new();
                    self.answer(client, came.unwrap_or_else(Answer::Refused), &mut heard);
                    self.queue(heard);
                }
            }
        }
    }

    fn status(&self, user: Requester, now: Moment) -> Status {
        self.state(user, now).0
    }

    /// Returns the status, and the program of each of its tags.
    fn state(&self, user: Requester, now: Moment) -> (Status, Vec<ProgramId>) {
        let own = geteuid().as_raw();
        let all = user.over_others() || user.uid == own;
        let state = self.shared.lock();
        let visible = |by: &trimtab_core::tags::By| all || *by == trimtab_core::tags::By::User(user.uid);
        let (programs, tags) = tags(&state, &self.shared.explainer(), now, &visible);
        let counted = self.server.counted();
        let mut faults = state.faults.clone();
        faults.extend(self.guests.faults());
        faults.extend(self.declared_fault.clone());
        faults.extend(self.kept_fault.clone());
        faults.dedup();
        let status = Status {
            pid: std::process::id(),
            uid: own,
            policy: self.setup.policy.clone(),
            up: now.since(Moment(0)),
            usable: self.setup.usable.clone(),
            threads: state.done.threads,
            moves: state.done.moves,
            refused: state.done.refused,
            observe: self.setup.observe,
            withheld: state.done.withheld,
            looks: state.done.samples,
            cost: Cost {
                total: spent(ClockId::ProcessCPUTime),
                share: state.done.share,
                budget: self.setup.budget,
                slowed: state.done.slowed,
            },
            others: u32::try_from(state.registry.len() - tags.len()).unwrap_or(u32::MAX),
            tags,
            guests: if all { self.guests.status() } else { Vec::new() },
            clients: ClientStatus {
                now: counted.now,
                served: counted.served,
                requests: self.requests,
                refused: self.refused,
                dropped: counted.dropped,
            },
            faults,
            enforcement: state.enforcement.clone(),
        };
        (status, programs)
    }
}

/// Reads the files of declared tags.
fn declarations(setup: &RequestSetup) -> Result<Vec<declared::Declaration>> {
    let Some(folder) = &setup.declared else { return Ok(Vec::new()) };
    let users = Users::read(Path::new("/etc/passwd")).unwrap_or_default();
    Ok(declared::read(folder, &users, geteuid().as_raw())?)
}

/// Returns the time that the machine's hypervisor took from its CPUs, summed over them.
fn steal(proc: &Path) -> Option<Duration> {
    let text = std::fs::read_to_string(proc.join("stat")).ok()?;
    let ticks: u64 = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace().nth(7)?.parse().ok()?;
    Some(Duration::from_millis(ticks.saturating_mul(1_000 / rustix::param::clock_ticks_per_second().max(1))))
}

fn tags(
    state: &ServiceState,
    explainer: &Explainer,
    now: Moment,
    visible: &dyn Fn(&trimtab_core::tags::By) -> bool,
) -> (Vec<ProgramId>, Vec<TagStatus>) {
    let seen = state.registry.tags().filter(|(_, tag)| visible(&tag.by));
    seen.map(|(id, tag)| {
        let program = ProgramId(tag.program);
        let known = state.known.get(&id).cloned().unwrap_or_default();
        let status = TagStatus {
            mark: tag.mark.clone(),
            by: tag.by.clone(),
            group: tag.group.clone(),
            age: now.since(tag.since),
            threads: known.threads,
            moves: known.moves,
            observe: tag.observe,
            fault: known.fault,
            why: explainer.why(program, now),
        };
        (program, status)
    })
    .unzip()
}
