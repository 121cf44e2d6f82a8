//! Proof that a list of processes is complete, by the kernel's count of all tasks.
//!
//! Problem: to list the processes, the kernel walks over the numbers of all threads, which takes a
//! millisecond where thousands of threads sleep. An earlier list is soon out of date. Idea: the
//! processes of an earlier list, and those that were made since, are examined one by one, and the
//! threads of each are counted. If these are as many as the kernel has tasks, no process is missing.
//!
//! The tasks are counted before and after. Between two equal counts no task was made, since each new
//! one changes the newest number, and so none ended either, since there are as many as before.
//! Then all threads were counted at one state of the machine. Properties: a process that is listed
//! wrongly, or has ended, has no threads; each process is to be given once. A task that is made with
//! a chosen number (a restored checkpoint) leaves the newest number as it is: it is missed only if as
//! many tasks end within the same fraction of a millisecond. A list of the kernel has that gap for
//! each process that is made behind its walk.

/// The kernel's counts at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TaskCount {
    /// Tasks of the whole machine, threads of the kernel included.
    pub tasks: u32,
    /// Number that was given to a task last.
    pub newest: u32,
}

/// Returns whether processes with these numbers of threads, counted between the two moments, are all
/// of the machine.
pub fn are_all(before: TaskCount, after: TaskCount, threads: impl IntoIterator<Item = u32>) -> bool {
    let counted: u64 = threads.into_iter().map(u64::from).sum();
    before == after && counted == u64::from(before.tasks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// A machine: the number of threads of each process.
    #[derive(Clone, Debug)]
    struct Machine {
        processes: BTreeMap<u32, u32>,
        newest: u32,
    }

    impl Machine {
        fn new(threads: &[u32]) -> Self {
            let mut this = Self { processes: BTreeMap::new(), newest: 0 };
            for &threads in threads {
                this.newest += 1;
                this.processes.insert(this.newest, threads);
                this.newest += threads - 1;
            }
            this
        }

        fn count(&self) -> TaskCount {
            TaskCount { tasks: self.processes.values().sum(), newest: self.newest }
        }

        fn happens(&mut self, event: Event) {
            let some = |at: usize| self.processes.keys().nth(at % self.processes.len().max(1)).copied();
            match event {
                Event::Fork => {
                    self.newest += 1;
                    self.processes.insert(self.newest, 1);
                }
                Event::Thread(at) => {
                    if let Some(process) = some(at) {
                        self.newest += 1;
                        *self.processes.get_mut(&process).unwrap() += 1;
                    }
                }
                Event::ThreadEnds(at) => {
                    if let Some(process) = some(at) {
                        let threads = self.processes.get_mut(&process).unwrap();
                        *threads -= 1;
                        if *threads == 0 {
                            self.processes.remove(&process);
                        }
                    }
                }
                Event::ProcessEnds(at) => {
                    if let Some(process) = some(at) {
                        self.processes.remove(&process);
                    }
                }
            }
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Fork,
        Thread(usize),
        ThreadEnds(usize),
        ProcessEnds(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            Just(Event::Fork),
            (0usize..8).prop_map(Event::Thread),
            (0usize..8).prop_map(Event::ThreadEnds),
            (0usize..8).prop_map(Event::ProcessEnds),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// The full list of the drawn machine is the oracle.
        #[test]
        fn a_list_that_counts_as_complete_lacks_no_process(
            threads in prop::collection::vec(1u32..4, 1..6),
            missing in prop::collection::btree_set(0usize..6, 0..3),
            false_ones in prop::collection::btree_set(20u32..30, 0..3),
            events in prop::collection::vec((0usize..8, event()), 0..3),
        ) {
            let mut machine = Machine::new(&threads);
            let listed = machine.processes.keys().enumerate();
            let mut known: BTreeSet<u32> =
                listed.filter(|(at, _)| !missing.contains(at)).map(|(_, process)| *process).collect();
            known.extend(false_ones);
            let before = machine.count();
            let mut counted = Vec::new();
            for (at, process) in known.iter().enumerate() {
                for (_, event) in events.iter().filter(|(when, _)| *when == at) {
                    machine.happens(*event);
                }
                counted.extend(machine.processes.get(process));
            }
            if are_all(before, machine.count(), counted) {
                prop_assert!(machine.processes.keys().all(|process| known.contains(process)));
            } else {
                // A quiet machine of which all is known is never refused.
                prop_assert!(!events.is_empty() || missing.iter().any(|at| *at < threads.len()));
            }
        }
    }
}
