//! Holds of containers that exist already: taken over after a restart, handed over to the
//! container's first process, made again after their keeper was killed or before a late start, and
//! given back.

use crate::containers::{Containers, Cores, Known, Own};
use crate::figures::Figures;
use crate::message::{Container, ContainerState, Pod, Synchronize, Synchronized};
use crate::node::{Subject, label};
use crate::session::{Session, cpus_of, own, refusal};
use crate::ttrpc::CallStatus;
use crate::wanted::ContainerNeed;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use trimtab_core::set::CpuSet;
use trimtab_hold::container::{ContainerCores, HandOverError, KeptContainer, Pid, kept};
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::reserve::ReserveError;

/// Longest time in which holds are made again during `Synchronize`.
const RENEWAL_MAX: Duration = Duration::from_millis(1_000);

impl Session {
    /// Takes the runtime's list of containers; of several parts, the last one answers.
    pub(crate) fn synchronize(&self, part: Synchronize) -> Synchronized {
        let (pods, listed) = {
            let mut state = self.state();
            state.pods.extend(part.pods);
            state.listed.extend(part.containers);
            if part.more {
                return Synchronized { update: Vec::new(), more: true };
            }
            state.containers = Containers::default();
            (std::mem::take(&mut state.pods), std::mem::take(&mut state.listed))
        };
        let pods: BTreeMap<String, Pod> = pods.into_iter().map(|pod| (pod.id.clone(), pod)).collect();
        let all = kept(&self.node.world).unwrap_or_else(|error| {
            self.narrator.warning(&format!("the holds of containers cannot be read: {error:#}"));
            Vec::new()
        });
        let is_live = |container: &&Container| {
            !container.id.is_empty() && container.state != ContainerState::Stopped as i32
        };
        let live: BTreeMap<&str, &Container> =
            listed.iter().filter(is_live).map(|container| (container.id.as_str(), container)).collect();
        let ended = all.iter().filter(|kept| !live.contains_key(kept.id.as_str()));
        ended.for_each(|kept| self.give_back(kept));
        let until = Instant::now() + RENEWAL_MAX;
        // Holds that exist come first: those that are made again must not take their cores.
        let has_hold = |id: &str| all.iter().any(|kept| kept.id == id);
        let (with, without): (Vec<&Container>, Vec<&Container>) =
            live.values().copied().partition(|container| has_hold(&container.id));
        for container in with.into_iter().chain(without) {
            let pod = pods.get(&container.pod_sandbox_id).cloned().unwrap_or_default();
            let own: Vec<KeptContainer> =
                all.iter().filter(|kept| kept.id == container.id).cloned().collect();
            self.adopt(&pod, container, &own, until);
        }
        let update = self.due_updates();
        self.tell(|state| (state.synchronized, state.fresh) = (true, true));
        let count = live.len();
        self.narrator.notice(&format!("synchronized: {count} containers, {} holds before", all.len()));
        Synchronized { update, more: false }
    }

    /// Takes over a container that exists already.
    fn adopt(&self, pod: &Pod, container: &Container, keepers: &[KeptContainer], until: Instant) {
        let first = Some(container.pid).filter(|&pid| pid != 0).map(Pid);
        let started = container.state != ContainerState::Created as i32;
        let found = match self.wanted(pod, container) {
            Ok((found, _)) => found,
            Err(error) => {
                self.narrator.warning(&error.message);
                ContainerNeed::Shared
            }
        };
        let told = cpus_of(container);
        let cores = match (keepers.first(), found) {
            (Some(kept), found) => {
                self.settle(keepers, first);
                let wanted = match found {
                    ContainerNeed::Cores(wanted) => wanted,
                    _ => Box::default(),
                };
                let (cpus, reserved) = (kept.cpus.clone(), kept.reserved.clone());
                Cores::Own(Own { cpus, reserved, wanted })
            }
            // A container that was never started may stay so: the runtime ended before its start.
            // It gets its cores when it is started.
            (None, ContainerNeed::Cores(wanted)) if started && Instant::now() < until => {
                self.renewed(&Subject::of(pod, container), wanted, container.pid, told.as_ref())
            }
            (None, ContainerNeed::Cores(wanted)) => Cores::Without(wanted),
            (None, ContainerNeed::Shared) => Cores::Shared,
            (None, ContainerNeed::Alone) => Cores::Alone,
        };
        let (label, pid) = (label(pod, container), container.pid);
        let known = Known { label, pid, told, late: false, cores };
        self.state().containers.insert(&container.id, known);
    }

    /// Makes a hold again for a container that runs without one.
    pub fn renewed(
        &self,
        subject: &Subject,
        wanted: Box<CoresRequest>,
        pid: u32,
        cpus: Option<&CpuSet>,
    ) -> Cores {
        match self.reserved_again(subject, &wanted, cpus, None) {
            Ok(cores) => {
                if pid != 0 {
                    self.hand_over(&subject.id, pid);
                }
                own(cores, wanted)
            }
            Err(error) => {
                self.narrator.detail(&format!("{} runs without a hold: {error}", subject.label));
                Cores::Without(wanted)
            }
        }
    }

    fn reserved_again(
        &self,
        subject: &Subject,
        wanted: &CoresRequest,
        cpus: Option<&CpuSet>,
        deadline: Option<Instant>,
    ) -> Result<ContainerCores, ReserveError> {
        let claims = self.claims_of_containers();
        let cores = self.node.reserve_again(subject, wanted, cpus, (claims.as_ref(), deadline))?;
        Figures::count(&self.figures.renewed);
        self.say_reserved(&format!("{} (again)", subject.label), &cores);
        Ok(cores)
    }

    /// Makes a hold again for a container that lost it between its making and its start: the
    /// runtime was started again, or its keeper was killed. Others may have its CPUs; the container
    /// is told those of the hold when it has been started.
    ///
    /// # Errors
    /// There are not enough free cores: the container must not start on those of others.
    pub(crate) fn starting(
        &self,
        pod: &Pod,
        container: &Container,
        deadline: Instant,
    ) -> Result<(), CallStatus> {
        let id = &container.id;
        let is_kept = || kept(&self.node.world).is_ok_and(|all| all.iter().any(|kept| kept.id == *id));
        let known = self.state().containers.get(id).cloned();
        let (wanted, cpus) = match known {
            Some(Known { cores: Cores::Without(wanted), told, .. }) => (wanted, cpus_of(container).or(told)),
            Some(Known { cores: Cores::Own(own), .. }) if !is_kept() => (own.wanted, Some(own.cpus)),
            _ => return Ok(()),
        };
        let subject = Subject::of(pod, container);
        let cores = self
            .reserved_again(&subject, &wanted, cpus.as_ref(), Some(deadline))
            .map_err(|error| refusal(&subject, &error))?;
        let is_known = {
            let mut state = self.state();
            let known = state.containers.get_mut(id);
            known.map(|known| (known.cores, known.late) = (own(cores, wanted), true)).is_some()
        };
        if !is_known {
            self.forget(id); // it was removed meanwhile
        }
        Ok(())
    }

    /// Takes the hold back that [`Self::starting`] made for a container whose start was refused,
    /// since the answer came too late.
    pub(crate) fn not_started(&self, id: &str) {
        let made = {
            let mut state = self.state();
            state.containers.get_mut(id).is_some_and(|known| {
                let late = std::mem::take(&mut known.late);
                if let Cores::Own(own) = &known.cores
                    && late
                {
                    known.cores = Cores::Without(own.wanted.clone());
                }
                late
            })
        };
        if made {
            self.end_holds(id);
        }
    }

    /// Hands the hold of a container over to a process. A container that has ended meanwhile loses
    /// it.
    pub fn hand_over(&self, id: &str, pid: u32) {
        if pid == 0 {
            self.narrator.warning(&format!(
                "the runtime does not say which process container {id} has: its hold lasts until the plug-in hears of its end"
            ));
            return;
        }
        let all = kept(&self.node.world).unwrap_or_default();
        let of_it: Vec<KeptContainer> = all.into_iter().filter(|kept| kept.id == id).collect();
        self.settle(&of_it, Some(Pid(pid)));
    }

    /// Makes one keeper of all that a container has: that of its first process, if it has one.
    fn settle(&self, keepers: &[KeptContainer], first: Option<Pid>) {
        let Some(first) = first else { return };
        let (right, wrong): (Vec<_>, Vec<_>) = keepers.iter().partition(|kept| kept.is_of(first));
        if right.is_empty()
            && let Some(kept) = wrong.first()
            && let Err(error) = kept.hand_over(&self.node.world, first, &self.node.keeper)
        {
            match error {
                HandOverError::Stranger { .. } => self.narrator.warning(&format!(
                    "{error}, though the runtime says so: its hold lasts until the plug-in hears of its end"
                )),
                // Its process has ended, and the end of the container is on its way.
                HandOverError::Failed(error) => {
                    self.narrator.detail(&format!("container {}: {error:#}", kept.id));
                }
            }
        } else {
            for kept in wrong.iter().skip(usize::from(right.is_empty())) {
                self.end_hold(kept);
            }
        }
    }

    /// Gives back the hold of a container that the runtime does not list. A hold that is of the
    /// container's process ends with that process: a runtime that was restarted may not list the
    /// container of a process that still runs.
    fn give_back(&self, kept: &KeptContainer) {
        if kept.is_of(self.node.engine) {
            self.end_hold(kept);
        } else {
            self.narrator.detail(&format!("container {} has ended: its hold ends with its process", kept.id));
        }
    }

    fn end_hold(&self, kept: &KeptContainer) {
        if let Err(error) = kept.end(&self.node.world) {
            self.narrator.warning(&format!("{error:#}"));
        }
    }

    fn end_holds(&self, id: &str) {
        let all = kept(&self.node.world).unwrap_or_default();
        all.iter().filter(|kept| kept.id == id).for_each(|kept| self.end_hold(kept));
    }

    /// Forgets a container that has ended, and gives back its cores.
    pub fn forget(&self, id: &str) {
        let had = self.state().containers.remove(id);
        if had.is_none_or(|known| matches!(known.cores, Cores::Own(_) | Cores::Without(_))) {
            self.end_holds(id);
        }
        self.tell(|state| state.fresh = true);
    }
}
