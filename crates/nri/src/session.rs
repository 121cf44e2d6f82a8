//! Session: the runtime's calls, answered for one connection.
//!
//! Properties: the state is made anew for each connection, from the runtime's list of containers
//! and from the keepers of holds, so that a restart of either side is no special case. Each call is
//! decided in a thread of its own and answered in time: a decision that takes too long is a
//! refusal, and its cores are given back.

use crate::adjustment::adjustment;
use crate::config::Config;
use crate::containers::{Containers, Cores, Known, Own, messages};
use crate::figures::Figures;
use crate::link::{Call, Link, status};
use crate::message::{
    About, Configure, Configured, Container, Created, Empty, NriEvent, PLUGIN_SERVICE, Pod, StateChange,
    Update, Updates,
};
use crate::node::{Subject, ThisNode, label};
use crate::pool::Claims;
use crate::ttrpc::{CallStatus, code};
use crate::wanted::{ContainerNeed, wanted};
use prost::Message;
use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use trimtab_agent::metrics::Metrics;
use trimtab_agent::narrator::Narrator;
use trimtab_core::set::CpuSet;
use trimtab_core::words::plural;
use trimtab_hold::container::ContainerCores;
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::reserve::ReserveError;

/// Longest time for an answer to a call that does not state the runtime's limit: runtimes usually
/// give up after 2 s, and close the connection then.
const ANSWER_MAX: Duration = Duration::from_millis(1_600);
/// Longest time for an answer, whatever limit the runtime states.
const STATED_MAX: Duration = Duration::from_secs(60);
/// Time that an answer needs on its way, of the runtime's own limit.
const ANSWER_MARGIN: Duration = Duration::from_millis(300);
/// Calls that need no answer but an empty one.
const SILENT: [&str; 11] = [
    "Shutdown",
    "RunPodSandbox",
    "UpdatePodSandbox",
    "PostUpdatePodSandbox",
    "StopPodSandbox",
    "RemovePodSandbox",
    "PostCreateContainer",
    "PostUpdateContainer",
    "ValidateContainerAdjustment",
    "PostStopContainer",
    "PostStopPodSandbox",
];

/// A session with a runtime.
#[derive(Debug)]
pub struct Session {
    /// This machine.
    pub node: ThisNode,
    /// The connection.
    pub link: Arc<Link>,
    /// Figures, which outlast the session.
    pub figures: Arc<Figures>,
    /// The page on which they are shown.
    pub page: Option<Arc<Metrics>>,
    /// Receiver of messages.
    pub narrator: Arc<dyn Narrator>,
    state: Mutex<SessionState>,
    news: Condvar,
}

/// What changes during a session.
#[derive(Debug)]
pub struct SessionState {
    /// The configuration.
    pub config: Config,
    /// The containers.
    pub containers: Containers,
    /// Whether the runtime has listed all containers.
    pub synchronized: bool,
    /// Whether the session has ended.
    pub over: bool,
    /// Whether something changed of which the upkeep does not know.
    pub fresh: bool,
    pub(crate) pods: Vec<Pod>,
    pub(crate) listed: Vec<Container>,
}

/// Makes a refusal in trimtab's own sentence, which the pod's events show.
pub(crate) fn refusal(subject: &Subject, error: &ReserveError) -> CallStatus {
    let code = match error {
        ReserveError::NoCores(_) => code::RESOURCE_EXHAUSTED,
        ReserveError::Never(_) => code::FAILED_PRECONDITION,
        ReserveError::Cancelled => code::DEADLINE_EXCEEDED,
    };
    status(code, format!("trimtab: {}: {error}", subject.label))
}

fn read<M: Message + Default>(payload: &[u8]) -> Result<M, CallStatus> {
    M::decode(payload).map_err(|error| status(code::INVALID_ARGUMENT, format!("unreadable: {error}")))
}

/// Returns pod and container of a call.
fn parts(pod: Option<Pod>, container: Option<Container>) -> Result<(Pod, Container), CallStatus> {
    match container {
        Some(container) if !container.id.is_empty() => Ok((pod.unwrap_or_default(), container)),
        _ => Err(status(code::INVALID_ARGUMENT, "the call names no container")),
    }
}

/// Returns the CPUs that the runtime has for a container.
pub(crate) fn cpus_of(container: &Container) -> Option<CpuSet> {
    container.cpu().and_then(|cpu| cpu.cpus.parse().ok()).filter(|cpus: &CpuSet| !cpus.is_empty())
}

impl Session {
    /// Begins a session.
    pub fn new(
        node: ThisNode,
        link: Arc<Link>,
        config: Config,
        figures: Arc<Figures>,
        page: Option<Arc<Metrics>>,
        narrator: Arc<dyn Narrator>,
    ) -> Self {
        let state = SessionState {
            config,
            containers: Containers::default(),
            synchronized: false,
            over: false,
            fresh: false,
            pods: Vec::new(),
            listed: Vec::new(),
        };
        Self { node, link, figures, page, narrator, state: Mutex::new(state), news: Condvar::new() }
    }

    /// Returns the state, locked. It is never held during a decision or a call.
    pub fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for news, at most for this time. Returns whether the session goes on.
    pub fn wait(&self, most: Duration) -> bool {
        let state = self.state();
        let is_quiet = |state: &mut SessionState| !state.over && !state.fresh;
        let waited = self.news.wait_timeout_while(state, most, is_quiet);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.fresh = false;
        !state.over
    }

    /// Tells the upkeep that something changed.
    pub(crate) fn tell(&self, change: impl FnOnce(&mut SessionState)) {
        change(&mut self.state());
        self.news.notify_all();
    }

    /// Ends the session.
    pub fn end(&self) {
        self.tell(|state| state.over = true);
    }

    /// Takes a call, and answers it in time from another thread.
    pub fn take(self: &Arc<Self>, call: Call) {
        let session = Arc::clone(self);
        // Without a thread the call is dropped, which answers it.
        let _ = thread::Builder::new().name("nri call".to_owned()).spawn(move || session.work(call));
    }

    fn work(self: Arc<Self>, call: Call) {
        let own = call.patience.map(|patience| patience.saturating_sub(ANSWER_MARGIN));
        let patience = own.map_or(ANSWER_MAX, |own| own.min(STATED_MAX));
        let deadline = Instant::now() + patience;
        if call.service != PLUGIN_SERVICE {
            return call.answer(Err(status(code::UNIMPLEMENTED, "there is no such service")));
        }
        // Without room in it: a result that is not taken is known to be lost.
        let (sender, receiver) = sync_channel(0);
        let (session, method, payload) = (Arc::clone(&self), call.method.clone(), call.payload.clone());
        let decide = move || {
            let result = session.answer(&method, &payload, deadline);
            if sender.send(result).is_err() {
                session.undo(&method, &payload);
            }
        };
        let started = thread::Builder::new().name("nri decision".to_owned()).spawn(decide);
        let result = started.ok().and_then(|_| receiver.recv_timeout(patience).ok());
        drop(receiver);
        let result = result.unwrap_or_else(|| {
            Figures::count(&self.figures.late);
            let text = format!("trimtab: {} took longer than {} ms", call.method, patience.as_millis());
            self.narrator.warning(&text);
            Err(status(code::DEADLINE_EXCEEDED, text))
        });
        call.answer(result);
        self.show();
    }

    /// Gives back the cores that a call reserved, after its answer came too late.
    fn undo(&self, method: &str, payload: &[u8]) {
        let of_event = || {
            let change = StateChange::decode(payload).ok()?;
            (change.event == NriEvent::StartContainer as i32).then_some(change.container)?
        };
        let container = match method {
            "CreateContainer" => {
                let about = About::decode(payload).ok();
                return about.and_then(|about| about.container).iter().for_each(|it| self.forget(&it.id));
            }
            "StartContainer" => About::decode(payload).ok().and_then(|about| about.container),
            "StateChange" => of_event(),
            _ => None,
        };
        if let Some(container) = container {
            self.not_started(&container.id);
        }
    }

    /// Decides about a call.
    ///
    /// # Errors
    /// The call cannot be read, or a container is refused.
    pub fn answer(&self, method: &str, payload: &[u8], deadline: Instant) -> Result<Vec<u8>, CallStatus> {
        let about = || read::<About>(payload).and_then(|about| parts(about.pod, about.container));
        match method {
            "Configure" => self.configure(&read(payload)?).map(|answer| answer.encode_to_vec()),
            "Synchronize" => Ok(self.synchronize(read(payload)?).encode_to_vec()),
            "CreateContainer" => {
                let (pod, container) = about()?;
                let created = self.create(&pod, &container, deadline);
                self.say_refused(created).map(|answer| answer.encode_to_vec())
            }
            "UpdateContainer" => Ok(self.update(&about()?.1).encode_to_vec()),
            "StopContainer" | "RemoveContainer" => {
                self.forget(&about()?.1.id);
                Ok(Updates::default().encode_to_vec())
            }
            "StartContainer" => {
                let (pod, container) = about()?;
                self.say_refused(self.starting(&pod, &container, deadline)).map(|()| Empty {}.encode_to_vec())
            }
            "PostStartContainer" => {
                self.started(&about()?.1);
                Ok(Empty {}.encode_to_vec())
            }
            "StateChange" => {
                let change: StateChange = read(payload)?;
                match NriEvent::try_from(change.event) {
                    Ok(NriEvent::StartContainer) => {
                        let (pod, container) = parts(change.pod, change.container)?;
                        self.say_refused(self.starting(&pod, &container, deadline))?;
                    }
                    Ok(NriEvent::PostStartContainer) => self.started(&parts(change.pod, change.container)?.1),
                    Ok(NriEvent::RemoveContainer) => self.forget(&parts(change.pod, change.container)?.1.id),
                    _ => {}
                }
                Ok(Empty {}.encode_to_vec())
            }
            silent if SILENT.contains(&silent) => Ok(Empty {}.encode_to_vec()),
            _ => Err(status(code::UNIMPLEMENTED, "there is no such method")),
        }
    }

    /// Counts and says a refusal.
    fn say_refused<T>(&self, result: Result<T, CallStatus>) -> Result<T, CallStatus> {
        if let Err(refused) = &result {
            Figures::count(&self.figures.refused);
            let text = refused.message.strip_prefix("trimtab: ").unwrap_or(&refused.message);
            self.narrator.notice(&format!("refused: {text}"));
        }
        result
    }

    fn configure(&self, asked: &Configure) -> Result<Configured, CallStatus> {
        if !asked.config.trim().is_empty() {
            let config = asked.config.parse().map_err(|cause| {
                status(code::INVALID_ARGUMENT, format!("trimtab: the runtime's configuration: {cause}"))
            })?;
            self.state().config = config;
        }
        let events = [
            NriEvent::CreateContainer,
            NriEvent::StartContainer,
            NriEvent::PostStartContainer,
            NriEvent::UpdateContainer,
            NriEvent::StopContainer,
            NriEvent::RemoveContainer,
        ];
        Ok(Configured { events: events.map(NriEvent::bit).iter().sum() })
    }

    /// Returns what a container gets. Cores that the kubelet granted it exclusively are its own.
    pub(crate) fn wanted(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<(ContainerNeed, Option<CpuSet>), CallStatus> {
        let found = wanted(&self.state().config, pod, container).map_err(|error| {
            status(code::FAILED_PRECONDITION, format!("trimtab: {}: {error}", label(pod, container)))
        })?;
        let granted = self.node.granted_to(pod, container).unwrap_or_else(|error| {
            self.narrator.warning(&format!("grants of the kubelet are not known: {error:#}"));
            None
        });
        match granted {
            Some(cpus) => Ok((ContainerNeed::Alone, Some(cpus))),
            None => Ok((found, None)),
        }
    }

    fn create(&self, pod: &Pod, container: &Container, deadline: Instant) -> Result<Created, CallStatus> {
        let (found, granted) = self.wanted(pod, container)?;
        let subject = Subject::of(pod, container);
        let label = subject.label.clone();
        let mut known = Known { label, pid: 0, told: None, late: false, cores: Cores::Alone };
        let mut created = Created::default();
        match found {
            ContainerNeed::Alone => self.refuse_overlap(&subject, granted.as_ref())?,
            ContainerNeed::Shared => {
                known.cores = Cores::Shared;
                known.told = self.pool();
                created.adjust = known.told.as_ref().map(|pool| adjustment(pool, None, &BTreeMap::new()));
            }
            ContainerNeed::Cores(wanted) => {
                let claims = self.claims_of_containers();
                let reserved = self.node.reserve(&subject, &wanted, claims.as_ref(), Some(deadline));
                let cores = reserved.map_err(|error| refusal(&subject, &error))?;
                Figures::count(&self.figures.made);
                self.say_reserved(&subject.label, &cores);
                created.adjust = Some(adjustment(&cores.cpus, Some(&cores.memory), &cores.environment));
                known.told = Some(cores.cpus.clone());
                known.cores = own(cores, wanted);
            }
        }
        self.state().containers.insert(&subject.id, known);
        // The answer comes first: the upkeep, which is woken then, finds nothing due.
        created.update = self.due_updates();
        self.tell(|state| state.fresh = true);
        Ok(created)
    }

    /// Refuses a container to which the kubelet granted CPUs that a hold has.
    fn refuse_overlap(&self, subject: &Subject, granted: Option<&CpuSet>) -> Result<(), CallStatus> {
        let Some(granted) = granted else { return Ok(()) };
        let held = self.node.claims().map(|claims| claims.held).unwrap_or_default();
        let overlap = held.intersection(granted);
        if overlap.is_empty() {
            return Ok(());
        }
        let text = format!(
            "trimtab: {}: the kubelet granted it CPUs {granted} exclusively, and CPUs {overlap} are held by other trimtab runs; it can start when they have ended (trimtab ps lists them)",
            subject.label
        );
        Err(status(code::RESOURCE_EXHAUSTED, text))
    }

    pub(crate) fn say_reserved(&self, label: &str, cores: &ContainerCores) {
        for warning in &cores.warnings {
            self.narrator.warning(warning);
        }
        let (cpus, threads) = (&cores.cpus, cores.threads);
        self.narrator.notice(&format!("{label}: CPUs {cpus}, {}", plural(threads as usize, "thread")));
    }

    /// Returns the claims of containers, if a shared pool must be left.
    pub fn claims_of_containers(&self) -> Option<Claims> {
        if !self.state().config.shared {
            return None;
        }
        let mut claims = self.node.claims().ok()?;
        claims.containers = self.state().containers.reserved();
        Some(claims)
    }

    /// Returns the shared pool now; `None` if containers share nothing, or the claims cannot be
    /// read.
    pub fn pool(&self) -> Option<CpuSet> {
        let pool = self.claims_of_containers()?.pool();
        Figures::set(&self.figures.pool_cpus, pool.cpus.len());
        Some(pool.cpus).filter(|cpus| !cpus.is_empty())
    }

    /// Returns the changes of containers that are due, and takes them as done: for an answer to a
    /// call.
    pub(crate) fn due_updates(&self) -> Vec<Update> {
        let pool = self.pool();
        let mut state = self.state();
        let updates = state.containers.updates(pool.as_ref());
        state.containers.told(&updates);
        messages(&updates)
    }

    /// Answers a change of resources by another: the container keeps its CPUs.
    fn update(&self, container: &Container) -> Updates {
        let state = self.state();
        let cpus = state.containers.get(&container.id).and_then(|known| match &known.cores {
            Cores::Own(own) => Some(own.cpus.clone()),
            Cores::Shared | Cores::Without(_) if state.config.shared => known.told.clone(),
            _ => None,
        });
        let updates = cpus.map(|cpus| Update::of_cpus(&container.id, cpus.to_string()));
        Updates { update: updates.into_iter().collect() }
    }

    /// Hands the hold of a container over to its first process.
    fn started(&self, container: &Container) {
        let is_own = {
            let mut state = self.state();
            let Some(known) = state.containers.get_mut(&container.id) else { return };
            known.pid = container.pid;
            if std::mem::take(&mut known.late) {
                known.told = None;
            } else if matches!(known.cores, Cores::Shared) {
                // It may have been made while the pool changed.
                known.told = cpus_of(container);
            }
            matches!(known.cores, Cores::Own(_))
        };
        if is_own {
            self.hand_over(&container.id, container.pid);
        }
        self.tell(|state| state.fresh = true);
    }

    /// Updates the figures.
    pub fn show(&self) {
        {
            let state = self.state();
            let count =
                |of: fn(&Cores) -> bool| state.containers.iter().filter(|(_, it)| of(&it.cores)).count();
            Figures::set(&self.figures.holds, count(|cores| matches!(cores, Cores::Own(_))));
            Figures::set(&self.figures.shared, count(|cores| matches!(cores, Cores::Shared)));
            Figures::set(&self.figures.without, count(|cores| matches!(cores, Cores::Without(_))));
            Figures::set(&self.figures.held_cpus, state.containers.reserved().len());
        }
        self.figures.show(self.page.as_deref());
    }
}

/// Notes the cores of a container.
pub(crate) fn own(cores: ContainerCores, wanted: Box<CoresRequest>) -> Cores {
    Cores::Own(Own { cpus: cores.cpus, reserved: cores.reserved, wanted })
}
