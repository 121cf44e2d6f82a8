//! The shared pool: the CPUs of containers without cores of their own.
//!
//! It is what no hold has. It is never empty: a container with an empty list of CPUs would get all
//! of them, or none. If holds have all CPUs, the pool overlaps those of programs outside of
//! Kubernetes before those of containers, and grants of other managers last.

use trimtab_core::set::CpuSet;

/// The claims to the CPUs of a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// CPUs that containers may use at all.
    pub allowed: CpuSet,
    /// CPUs that holds have: of containers and of other programs.
    pub held: CpuSet,
    /// CPUs that holds of containers have.
    pub containers: CpuSet,
    /// CPUs that other managers granted exclusively.
    pub granted: CpuSet,
}

/// The shared pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pool {
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Whether all CPUs are claimed, so that it overlaps claims.
    pub overlaps: bool,
}

impl Claims {
    /// Returns the shared pool. Only without allowed CPUs it has none.
    ///
    /// # Examples
    /// ```
    /// use trimtab_nri::pool::Claims;
    ///
    /// let claims = Claims {
    ///     allowed: "0-3".parse()?,
    ///     held: "1-2".parse()?,
    ///     containers: "1".parse()?,
    ///     ..Claims::default()
    /// };
    /// assert_eq!(claims.pool().cpus, "0,3".parse()?);
    /// # Ok::<(), trimtab_core::set::ListError>(())
    /// ```
    pub fn pool(&self) -> Pool {
        let unclaimed = self.allowed.difference(&self.held).difference(&self.granted);
        if !unclaimed.is_empty() {
            return Pool { cpus: unclaimed, overlaps: false };
        }
        let besides_containers = self.allowed.difference(&self.containers);
        let choices =
            [besides_containers.difference(&self.granted), besides_containers, self.allowed.clone()];
        let cpus = choices.into_iter().find(|cpus| !cpus.is_empty()).unwrap_or_default();
        Pool { cpus, overlaps: true }
    }

    /// Returns whether a pool would be left if these CPUs were taken for a container.
    pub fn leaves_a_pool(&self, taken: &CpuSet) -> bool {
        let left = self.allowed.difference(&self.containers).difference(&self.granted).difference(taken);
        !left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use trimtab_core::ids::OsCpu;

    fn set(cpus: &BTreeSet<u32>) -> CpuSet {
        cpus.iter().copied().map(OsCpu).collect()
    }

    fn some() -> impl Strategy<Value = BTreeSet<u32>> {
        prop::collection::btree_set(0u32..6, 0..6)
    }

    proptest! {
        #[test]
        fn the_pool_is_never_empty_and_avoids_claims(
            allowed in some(), others in some(), containers in some(), granted in some(),
        ) {
            let held: BTreeSet<u32> = others.union(&containers).copied().collect();
            let claims = Claims {
                allowed: set(&allowed), held: set(&held), containers: set(&containers), granted: set(&granted),
            };
            let pool = claims.pool();
            let member = |cpu: u32| pool.cpus.contains(OsCpu(cpu));
            prop_assert_eq!(pool.cpus.is_empty(), allowed.is_empty());
            prop_assert!((0..6).all(|cpu| !member(cpu) || allowed.contains(&cpu)));
            let is_free = |cpu: &u32| !held.contains(cpu) && !granted.contains(cpu);
            let free: BTreeSet<u32> = allowed.iter().copied().filter(is_free).collect();
            prop_assert_eq!(pool.overlaps, free.is_empty());
            if !free.is_empty() {
                prop_assert_eq!(pool.cpus, set(&free));
            } else if allowed.iter().any(|cpu| !containers.contains(cpu)) {
                // Cores of containers are used only if there are no others.
                prop_assert!(containers.iter().all(|cpu| !member(*cpu)));
            }
        }

        #[test]
        fn a_container_leaves_a_pool_exactly_if_the_pool_then_avoids_it(
            allowed in some(), containers in some(), granted in some(), taken in some(),
        ) {
            let claims = Claims {
                allowed: set(&allowed), held: set(&containers), containers: set(&containers), granted: set(&granted),
            };
            let all: BTreeSet<u32> = containers.union(&taken).copied().collect();
            let after = Claims { held: set(&all), containers: set(&all), ..claims.clone() };
            let kept = !after.pool().overlaps;
            prop_assert_eq!(claims.leaves_a_pool(&set(&taken)), kept);
        }
    }
}
