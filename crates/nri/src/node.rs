//! This machine, as the plug-in sees it: the ledger, the claims to its CPUs, and the holds that it
//! makes.

use crate::message::{Container, Pod};
use crate::pool::Claims;
use crate::wanted::quota;
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::time::Instant;
use trimtab_core::set::CpuSet;
use trimtab_front::args::SurveyMode;
use trimtab_front::process_env::World;
use trimtab_hold::container::{ContainerCores, ContainerRequest, EngineTask, Pid};
use trimtab_hold::cores::CoresRequest;
use trimtab_hold::facts::granted;
use trimtab_hold::reserve::ReserveError;
use trimtab_hold::site_facts::{Situation, location};
use trimtab_launch::Environment;
use trimtab_linux::ledger::{LedgerView, Level};

/// Longest part of a name in a label.
const NAME_MAX: usize = 60;

/// This machine.
#[derive(Debug)]
pub struct ThisNode {
    /// The process environment of the plug-in.
    pub world: World,
    /// The program that keeps holds.
    pub keeper: PathBuf,
    /// The runtime's process.
    pub engine: Pid,
}

/// A container as a request for cores.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The runtime's number of the container.
    pub id: String,
    /// Its name for people.
    pub label: String,
    /// Its environment.
    pub environment: Environment,
    /// Its limit of CPU time in thousandths of a CPU.
    pub quota: Option<u32>,
}

impl Subject {
    /// Describes a container.
    pub fn of(pod: &Pod, container: &Container) -> Self {
        let variable = |text: &String| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned().into(), value.to_owned().into()))
        };
        Self {
            id: container.id.clone(),
            label: label(pod, container),
            environment: container.env.iter().filter_map(variable).collect(),
            quota: quota(container),
        }
    }
}

/// Returns a container's name for people. Names of Kubernetes are letters, digits, `-` and `.`;
/// others are not trusted.
pub fn label(pod: &Pod, container: &Container) -> String {
    let plain = |text: &str| -> String {
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-._".contains(*letter);
        text.chars().filter(is_plain).take(NAME_MAX).collect()
    };
    format!("pod {}/{}/{}", plain(&pod.namespace), plain(&pod.name), plain(&container.name))
}

impl ThisNode {
    /// Returns the claims to the CPUs, without the holds of containers.
    ///
    /// # Errors
    /// The machine or the ledger cannot be read.
    pub fn claims(&self) -> Result<Claims> {
        let situation = Situation::live(&self.world, true)?;
        let machine = situation.machine.cpus();
        let reserved = situation.policy.site.reserved_cpus.clone().unwrap_or_default();
        // The site keeps these CPUs from runs, and for all that is no run.
        let allowed = situation.taken.allowed.union(&reserved.intersection(&machine));
        let view = LedgerView::open(&location(&self.world)?)?;
        let held = match &view {
            Some(view) => view.map(Level::MACHINE, &machine).context("cannot read the ledger")?.held(),
            None => CpuSet::new(),
        };
        let grants = granted(&self.world, &situation.machine, &machine).grants;
        let granted = grants.iter().fold(CpuSet::new(), |sum, grant| sum.union(&grant.cpus));
        Ok(Claims { allowed, held, containers: CpuSet::new(), granted })
    }

    /// Returns the CPUs that the kubelet granted this container exclusively.
    ///
    /// # Errors
    /// The machine cannot be read.
    pub fn granted_to(&self, pod: &Pod, container: &Container) -> Result<Option<CpuSet>> {
        let situation = Situation::live(&self.world, false)?;
        let own = format!("container {} of pod {}", container.name, pod.uid);
        let grants = granted(&self.world, &situation.machine, &situation.machine.cpus()).grants;
        Ok(grants.into_iter().find(|grant| grant.to == own).map(|grant| grant.cpus))
    }

    /// Reserves cores for a container, until `deadline`. `shared` are the claims of containers if
    /// a shared pool must be left.
    ///
    /// # Errors
    /// As [`ContainerRequest::reserve`].
    pub fn reserve(
        &self,
        subject: &Subject,
        wanted: &CoresRequest,
        shared: Option<&Claims>,
        deadline: Option<Instant>,
    ) -> Result<ContainerCores, ReserveError> {
        let accept = |cpus: &CpuSet| match shared {
            Some(claims) if !claims.leaves_a_pool(cpus) => Err(format!(
                "CPUs {cpus} are the last ones of the shared pool, which must not become empty; request fewer cores, or set shared = false in nri.toml"
            )),
            _ => Ok(()),
        };
        let request = ContainerRequest {
            cores: CoresRequest { label: subject.label.clone(), wait: None, ..wanted.clone() },
            kind: EngineTask::Container,
            id: &subject.id,
            environment: subject.environment.clone(),
            quota: subject.quota,
            accept: &accept,
            goes_on: &|| deadline.is_none_or(|deadline| Instant::now() < deadline),
        };
        request.reserve(&self.world, self.engine, &self.keeper)
    }

    /// Reserves cores for a container that exists already: those on which it runs, if they are
    /// free, else others. `shared` and the deadline are those of [`Self::reserve`].
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_again(
        &self,
        subject: &Subject,
        wanted: &CoresRequest,
        cpus: Option<&CpuSet>,
        (shared, deadline): (Option<&Claims>, Option<Instant>),
    ) -> Result<ContainerCores, ReserveError> {
        // The container itself would be found as bound to its CPUs.
        let wanted = CoresRequest { survey: SurveyMode::None, ..wanted.clone() };
        if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
            let mut same = CoresRequest { cpus: None, near: None, ..wanted.clone() };
            same.options.cpus = Some(cpus.clone());
            if let Ok(cores) = self.reserve(subject, &same, shared, deadline)
                && cores.cpus == *cpus
            {
                return Ok(cores);
            }
        }
        self.reserve(subject, &wanted, shared, deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_plain_letters_only() {
        let pod = Pod { namespace: "a b\u{1b}[31m".into(), name: "x".repeat(100), ..Pod::default() };
        let container = Container { name: "web-1".into(), ..Container::default() };
        assert_eq!(label(&pod, &container), format!("pod ab31m/{}/web-1", "x".repeat(NAME_MAX)));
    }

    #[test]
    fn a_container_is_described_by_its_variables_and_its_limit() {
        let env = vec!["A=1=2".to_owned(), "bad".to_owned(), "B=".to_owned()];
        let subject = Subject::of(&Pod::default(), &Container { env, ..Container::default() });
        assert_eq!(subject.environment.text("A").as_deref(), Some("1=2"));
        assert_eq!(subject.environment.names().collect::<Vec<_>>(), ["A", "B"]);
        assert_eq!(subject.quota, None);
    }
}
