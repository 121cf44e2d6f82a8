//! Figures of the plug-in for Prometheus.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use trimtab_agent::metrics::Metrics;

/// Counters and states. They outlast a connection.
#[derive(Debug, Default)]
pub struct Figures {
    /// Containers that have a hold.
    pub holds: AtomicU64,
    /// CPUs that these holds have.
    pub held_cpus: AtomicU64,
    /// CPUs of the shared pool.
    pub pool_cpus: AtomicU64,
    /// Containers that share the pool.
    pub shared: AtomicU64,
    /// Containers that want cores and run without a hold.
    pub without: AtomicU64,
    /// Holds that were made.
    pub made: AtomicU64,
    /// Containers that were refused.
    pub refused: AtomicU64,
    /// Decisions that took too long.
    pub late: AtomicU64,
    /// Holds that were made again for a container that runs.
    pub renewed: AtomicU64,
    /// Connections with the runtime.
    pub connections: AtomicU64,
}

impl Figures {
    /// Returns the figures in the text format.
    pub fn text(&self) -> String {
        let rows: [(&str, &str, &str, &AtomicU64); 10] = [
            ("containers_with_cores", "gauge", "Containers that have a hold.", &self.holds),
            ("held_cpus", "gauge", "CPUs that holds of containers have.", &self.held_cpus),
            ("pool_cpus", "gauge", "CPUs of the shared pool.", &self.pool_cpus),
            ("containers_in_pool", "gauge", "Containers that share the pool.", &self.shared),
            (
                "containers_without_hold",
                "gauge",
                "Containers that want cores and have no hold.",
                &self.without,
            ),
            ("holds_total", "counter", "Holds that were made for containers.", &self.made),
            ("refusals_total", "counter", "Containers that were refused.", &self.refused),
            ("late_decisions_total", "counter", "Decisions that took too long.", &self.late),
            ("renewed_holds_total", "counter", "Holds that were made again.", &self.renewed),
            ("connections_total", "counter", "Connections with the runtime.", &self.connections),
        ];
        let mut text = String::new();
        for (name, kind, help, value) in rows {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "# HELP trimtab_nri_{name} {help}\n# TYPE trimtab_nri_{name} {kind}\ntrimtab_nri_{name} {value}"
            );
        }
        text
    }

    /// Counts one.
    pub fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets a state.
    pub fn set(state: &AtomicU64, value: usize) {
        state.store(value as u64, Ordering::Relaxed);
    }

    /// Puts the figures on the page that collectors fetch.
    pub fn show(&self, page: Option<&Metrics>) {
        if let Some(page) = page {
            page.show_text(self.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_help_a_kind_and_a_value() {
        let figures = Figures::default();
        Figures::count(&figures.refused);
        Figures::set(&figures.held_cpus, 7);
        let text = figures.text();
        assert!(
            text.contains("\ntrimtab_nri_refusals_total 1\n") && text.contains("\ntrimtab_nri_held_cpus 7\n")
        );
        for block in text.split("# HELP ").skip(1) {
            let name = block.split(' ').next().unwrap();
            let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
            let expected = [format!("# TYPE {name} {kind}"), name.to_owned()];
            let lines: Vec<&str> = block.lines().collect();
            assert_eq!(lines[1], expected[0]);
            assert_eq!(lines[2].split(' ').next().unwrap(), expected[1]);
        }
    }
}
