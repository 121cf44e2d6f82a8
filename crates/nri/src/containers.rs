//! What the plug-in knows of containers, and the changes that follow from it.

use crate::message::Update;
use std::collections::BTreeMap;
use trimtab_core::set::CpuSet;
use trimtab_hold::cores::CoresRequest;

/// A container.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name for people: `pod NAMESPACE/POD/CONTAINER`.
    pub label: String,
    /// Its first process; 0 if it was not started.
    pub pid: u32,
    /// The CPUs that the runtime was told last; `None` if it was told none.
    pub told: Option<CpuSet>,
    /// Whether it got its hold just before its start. A runtime that has made the process already
    /// takes a change for its files only: the container is told its CPUs when it has been started.
    pub late: bool,
    /// Its cores.
    pub cores: Cores,
}

/// Cores of a container.
#[derive(Clone, Debug)]
pub enum Cores {
    /// It is left as it is.
    Alone,
    /// It shares the pool.
    Shared,
    /// It has a hold.
    Own(Own),
    /// It runs, and has no hold although it wants one: it was started while the plug-in was away.
    Without(Box<CoresRequest>),
}

/// Cores that a hold has for a container.
#[derive(Clone, Debug)]
pub struct Own {
    /// CPUs on which it may run.
    pub cpus: CpuSet,
    /// CPUs that are reserved.
    pub reserved: CpuSet,
    /// What it wanted.
    pub wanted: Box<CoresRequest>,
}

/// All containers, by the runtime's number.
#[derive(Clone, Debug, Default)]
pub struct Containers {
    known: BTreeMap<String, Known>,
}

impl Containers {
    /// Adds or replaces a container.
    pub fn insert(&mut self, id: &str, known: Known) {
        self.known.insert(id.to_owned(), known);
    }

    /// Removes a container.
    pub fn remove(&mut self, id: &str) -> Option<Known> {
        self.known.remove(id)
    }

    /// Returns a container.
    pub fn get(&self, id: &str) -> Option<&Known> {
        self.known.get(id)
    }

    /// Returns a container.
    pub fn get_mut(&mut self, id: &str) -> Option<&mut Known> {
        self.known.get_mut(id)
    }

    /// Yields all containers.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.known.iter()
    }

    /// Returns the CPUs that holds of containers have.
    pub fn reserved(&self) -> CpuSet {
        let own = self.known.values().filter_map(|known| match &known.cores {
            Cores::Own(own) => Some(&own.reserved),
            _ => None,
        });
        own.fold(CpuSet::new(), |sum, cpus| sum.union(cpus))
    }

    /// Returns the containers that run and have lost their hold, given the CPUs that holds
    /// have.
    pub fn lost(&self, held: &CpuSet) -> Vec<String> {
        let is_lost = |known: &Known| match &known.cores {
            Cores::Own(own) => !own.reserved.is_subset(held),
            Cores::Without(_) => true,
            Cores::Alone | Cores::Shared => false,
        };
        self.known.iter().filter(|(_, known)| is_lost(known)).map(|(id, _)| id.clone()).collect()
    }

    /// Returns the changes by which all containers have their CPUs: those of their holds, and the
    /// pool for those without. `pool` is `None` if containers share nothing.
    pub fn updates(&self, pool: Option<&CpuSet>) -> Vec<(String, CpuSet)> {
        let wanted = |known: &Known| match &known.cores {
            _ if known.late => None,
            Cores::Alone => None,
            Cores::Own(own) => Some(own.cpus.clone()),
            Cores::Shared | Cores::Without(_) => pool.cloned(),
        };
        let changed = self.known.iter().filter_map(|(id, known)| {
            let cpus = wanted(known).filter(|cpus| !cpus.is_empty())?;
            (known.told.as_ref() != Some(&cpus)).then(|| (id.clone(), cpus))
        });
        changed.collect()
    }

    /// Notes the CPUs that the runtime was told.
    pub fn told(&mut self, updates: &[(String, CpuSet)]) {
        for (id, cpus) in updates {
            if let Some(known) = self.known.get_mut(id) {
                known.told = Some(cpus.clone());
            }
        }
    }
}

/// Makes messages of changes.
pub fn messages(updates: &[(String, CpuSet)]) -> Vec<Update> {
    updates.iter().map(|(id, cpus)| Update::of_cpus(id, cpus.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(cores: Cores, told: Option<&str>) -> Known {
        let told = told.map(|cpus| cpus.parse().unwrap());
        Known { label: String::new(), pid: 0, told, late: false, cores }
    }

    fn own(cpus: &str, reserved: &str) -> Cores {
        let wanted = Box::new(CoresRequest::default());
        Cores::Own(Own { cpus: cpus.parse().unwrap(), reserved: reserved.parse().unwrap(), wanted })
    }

    #[test]
    fn each_container_is_told_its_cpus_once() {
        let mut all = Containers::default();
        all.insert("a", known(own("1", "1,5"), None));
        all.insert("b", known(Cores::Shared, Some("0-3")));
        all.insert("c", known(Cores::Alone, None));
        all.insert("d", known(Cores::Without(Box::default()), Some("2")));
        let pool: CpuSet = "0,2-3".parse().unwrap();
        let said: Vec<(String, String)> =
            all.updates(Some(&pool)).into_iter().map(|(id, cpus)| (id, cpus.to_string())).collect();
        let expected = [("a", "1"), ("b", "0,2-3"), ("d", "0,2-3")];
        assert_eq!(said, expected.map(|(id, cpus)| (id.to_owned(), cpus.to_owned())));
        let updates = all.updates(Some(&pool));
        all.told(&updates);
        assert!(all.updates(Some(&pool)).is_empty());
        assert!(all.updates(Some(&CpuSet::new())).is_empty(), "never an empty list");
        assert_eq!(all.updates(None).len(), 0);
        all.insert("e", Known { late: true, ..known(own("7", "7"), Some("2")) });
        assert!(all.updates(Some(&pool)).is_empty(), "not before its start");
        all.remove("e");
        assert_eq!(all.reserved(), "1,5".parse().unwrap());
    }

    #[test]
    fn a_hold_is_lost_if_one_of_its_cpus_is_free() {
        let mut all = Containers::default();
        all.insert("a", known(own("1", "1,5"), None));
        all.insert("b", known(own("2", "2"), None));
        all.insert("c", known(Cores::Shared, None));
        assert_eq!(all.lost(&"1,2".parse().unwrap()), ["a"]);
        assert!(all.lost(&"1-5".parse().unwrap()).is_empty());
    }
}
