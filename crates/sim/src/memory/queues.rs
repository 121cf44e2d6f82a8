//! Queues at resources that several threads wait for: controllers, buses, links, cache lines that
//! many write.
//!
//! Unit: the delay that one use of a resource adds, in nanoseconds. Problem: a waiting thread makes
//! fewer requests, so load and delay depend on each other, and a thread uses several resources at
//! once. Idea: a thread that needs T nanoseconds for one nanosecond of work puts load c / T on a
//! resource, and T grows by k for each nanosecond of delay there. For one resource alone, a falling
//! function crosses a rising one once, and Newton's rule finds the crossing from the left without
//! ever passing it. Several resources are solved in turn until the values converge.
//!
//! The rising function is that of a queue that serves `n` customers (Schweitzer's approximation of
//! mean-value analysis): a use finds `(n - 1) / n` of the mean queue before it. It is exact for one
//! customer (no delay) and for customers that do nothing else (n - 1 services), and tends to M/M/1
//! for many.

/// Use of one resource by one thread.
#[derive(Clone, Copy, Debug)]
struct Flow {
    /// Number of the thread.
    slot: usize,
    /// Time that one nanosecond of delay adds to one nanosecond of work.
    wait: f64,
    /// Load that one nanosecond of work puts on the resource.
    load: f64,
}

/// Resource that serves at a limited rate.
#[derive(Clone, Debug)]
struct Resource {
    /// Load that it serves in a nanosecond.
    capacity: f64,
    /// Time of one use, nanoseconds.
    service: f64,
    /// Delay that waiting adds to each use, nanoseconds: the solution, and the first guess of the
    /// next one.
    delay: f64,
    /// Highest number of outstanding uses, over all its threads.
    customers: f64,
    flows: Vec<Flow>,
}

/// All resources and the threads that use them now.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    resources: Vec<Resource>,
    /// By thread: time for a nanosecond of work, including waiting.
    times: Vec<f64>,
}

/// Highest number of sweeps over the resources.
const SWEEPS_MAX: usize = 12;
/// Number of Newton steps for one resource in each sweep.
const NEWTON_STEPS: usize = 8;
/// Relative (and, below a nanosecond, absolute) precision of delays.
const DELAY_PRECISION: f64 = 1e-4;

impl Queues {
    /// Adds a resource that serves `capacity` in a nanosecond, and takes `service` nanoseconds for
    /// each use.
    pub(super) fn add(&mut self, capacity: f64, service: f64) -> usize {
        self.resources.push(Resource { capacity, service, delay: 0.0, customers: 0.0, flows: Vec::new() });
        self.resources.len() - 1
    }

    /// Drops all uses, but keeps the delays.
    pub(super) fn clear(&mut self) {
        self.times.clear();
        for resource in &mut self.resources {
            resource.flows.clear();
            resource.customers = 0.0;
        }
    }

    /// Sets the time of one use.
    pub(super) fn serve(&mut self, resource: usize, service: f64) {
        self.resources[resource].service = service;
    }

    /// Returns the delay at a resource, as last solved.
    pub(super) fn delay(&self, resource: usize) -> f64 {
        self.resources[resource].delay
    }

    /// Returns the busy share of a resource, as last solved.
    pub(super) fn busy(&self, resource: usize) -> f64 {
        let resource = &self.resources[resource];
        let asked: f64 = resource.flows.iter().map(|flow| flow.load / self.times[flow.slot]).sum();
        (asked / resource.capacity).min(1.0)
    }

    /// Adds a thread that needs `alone` nanoseconds for a nanosecond of work without contention.
    pub(super) fn thread(&mut self, alone: f64) -> usize {
        self.times.push(alone);
        self.times.len() - 1
    }

    /// Adds a thread's use of a resource; `customers` is the number of its outstanding uses.
    pub(super) fn uses(&mut self, slot: usize, resource: usize, wait: f64, load: f64, customers: f64) {
        if load > 0.0 {
            let resource = &mut self.resources[resource];
            resource.flows.push(Flow { slot, wait, load });
            resource.customers += customers;
            self.times[slot] += wait * resource.delay;
        }
    }

    /// Returns the time that a thread takes for a nanosecond of work.
    pub(super) fn time(&self, slot: usize) -> f64 {
        self.times[slot]
    }

    /// Finds delays with which all load is served.
    pub(super) fn solve(&mut self) {
        for _ in 0..SWEEPS_MAX {
            let mut moved = 0.0_f64;
            for resource in &mut self.resources {
                let old = resource.delay;
                resource.delay = if resource.flows.is_empty() { 0.0 } else { resource.solve(&self.times) };
                let by = resource.delay - old;
                if by != 0.0 {
                    for flow in &resource.flows {
                        self.times[flow.slot] += flow.wait * by;
                    }
                    moved = moved.max(by.abs() / (1.0 + resource.delay));
                }
            }
            if moved < DELAY_PRECISION {
                return;
            }
        }
    }
}

impl Resource {
    /// Returns the delay at which load and service are equal, with the other resources' delays
    /// given.
    fn solve(&self, times: &[f64]) -> f64 {
        if self.customers <= 1.0 || self.service <= 0.0 {
            return 0.0;
        }
        let capacity = self.capacity * self.customers / (self.customers - 1.0);
        let mut delay = self.delay;
        for _ in 0..NEWTON_STEPS {
            let (mut excess, mut slope) = (0.0, 0.0);
            for flow in &self.flows {
                let time = times[flow.slot] + flow.wait * (delay - self.delay);
                let load = flow.load / time;
                excess += load;
                slope -= load * flow.wait / time;
            }
            let queue = delay + self.service;
            excess -= capacity * delay / queue;
            slope -= capacity * self.service / (queue * queue);
            let next = (delay - excess / slope).max(0.0);
            let by = (next - delay).abs();
            delay = next;
            if by < DELAY_PRECISION * (1.0 + delay) {
                break;
            }
        }
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n` threads that only use one server, one use at a time.
    fn closed(n: usize, think: f64) -> (f64, f64) {
        let mut queues = Queues::default();
        let server = queues.add(1.0, 10.0);
        for _ in 0..n {
            let slot = queues.thread(think + 10.0);
            queues.uses(slot, server, 1.0, 10.0, 1.0);
        }
        queues.solve();
        (queues.delay(server), queues.busy(server))
    }

    #[test]
    fn one_never_waits_and_n_wait_for_n_minus_one() {
        assert_eq!(closed(1, 0.0).0, 0.0);
        for n in 2..40 {
            let (delay, busy) = closed(n, 0.0);
            assert!((delay - 10.0 * (n - 1) as f64).abs() < 0.05 * n as f64, "{n}: {delay}");
            assert!((busy - 1.0).abs() < 0.01, "{n}: {busy}");
        }
    }

    #[test]
    fn nothing_serves_more_than_it_can_and_light_load_waits_little() {
        for think in [0.0, 5.0, 50.0, 500.0] {
            for n in [2, 3, 10, 100, 1000] {
                let (delay, busy) = closed(n, think);
                let asked = n as f64 * 10.0 / (think + 10.0 + delay);
                assert!(asked <= 1.001, "{n} x {think}: {asked}");
                assert!(busy <= 1.0);
            }
        }
        assert!(closed(2, 5000.0).0 < 0.05);
    }

    #[test]
    fn resources_in_a_row_settle_together() {
        let mut queues = Queues::default();
        let (wide, narrow) = (queues.add(4.0, 1.0), queues.add(1.0, 1.0));
        for _ in 0..8 {
            let slot = queues.thread(2.0);
            queues.uses(slot, wide, 1.0, 1.0, 1.0);
            queues.uses(slot, narrow, 1.0, 1.0, 1.0);
        }
        queues.solve();
        let served: f64 = (0..8).map(|slot| 1.0 / queues.time(slot)).sum();
        assert!(served <= 1.001 && served > 0.85, "{served}");
        assert!(queues.delay(narrow) > 10.0 * queues.delay(wide));
    }
}
