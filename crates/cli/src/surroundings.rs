//! What else runs on the machine, looked at as cheaply as the question allows.
//!
//! Sampling load takes a tenth of a second and scanning all tasks some milliseconds: too long for every start on a quiet
//! machine, well spent on a busy one. So `auto` first reads one number, how many tasks want a CPU this instant, and looks
//! further only when that is more than ourselves.

use crate::args::SurveyMode;
use crate::world::World;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use trimtab_core::ids::OsCpu;
use trimtab_core::place::{Binding, pinned_cpus};
use trimtab_core::set::CpuSet;
use trimtab_core::topology::Machine;
use trimtab_linux::process::{Pid, State};
use trimtab_linux::survey::{Load, LoadSample, Masks, Pin, PinScan, runnable};

/// How long load is sampled: ten timer ticks of the slowest common kernel, so that one tick is at most 10 %.
const SAMPLE: Duration = Duration::from_millis(100);
/// The longest that bound tasks are looked for: on a machine with more tasks than fit, the youngest are looked at.
const SCAN_LONGEST: Duration = Duration::from_millis(250);

/// What was seen.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Surroundings {
    /// Busy share of each CPU, in thousandths; empty when load was not sampled.
    pub busy: BTreeMap<OsCpu, u16>,
    /// CPUs that foreign tasks are bound to.
    pub pinned: CpuSet,
    /// The bound tasks.
    pub pins: Vec<Pin>,
    /// What was not looked at, and why, in words.
    pub notes: Vec<String>,
}

impl Surroundings {
    /// Looks around.
    pub fn look(world: &World, mode: SurveyMode, machine: &Machine, allowed: &CpuSet) -> Self {
        let mut seen = Self::default();
        match mode {
            SurveyMode::None => {
                seen.notes.push("foreign load was not looked at (--survey none)".to_owned());
                return seen;
            }
            SurveyMode::Auto => {
                if runnable(&world.proc()).is_ok_and(|now| now.others() == 0) {
                    seen.notes.push("nothing else is running on this machine".to_owned());
                    return seen;
                }
            }
            SurveyMode::Full => {}
        }
        seen.sample(world, machine, allowed);
        seen
    }

    fn sample(&mut self, world: &World, machine: &Machine, allowed: &CpuSet) {
        let (proc, begin) = (world.proc(), Instant::now());
        let before = LoadSample::read(&proc);
        let scan = PinScan { proc: &proc, cpus: allowed, own: Pid::own(), masks: masks(&proc) };
        match scan.run(|_| begin.elapsed() < SCAN_LONGEST) {
            Ok(found) => {
                if found.cut {
                    self.notes.push(format!("only {} tasks were looked at for bindings", found.seen));
                }
                self.pins = found.pins;
            }
            Err(error) => self.notes.push(format!("bound tasks cannot be seen: {error}")),
        }
        let bindings = self
            .pins
            .iter()
            .map(|pin| Binding { cpus: pin.cpus.clone(), running: pin.state == State::Running });
        self.pinned = pinned_cpus(machine, &bindings.collect::<Vec<_>>());
        std::thread::sleep(SAMPLE.saturating_sub(begin.elapsed()));
        match (before, LoadSample::read(&proc)) {
            (Ok(before), Ok(after)) => {
                let load = Load::between(&before, &after);
                self.busy = load.cpus.iter().map(|(&cpu, load)| (cpu, load.busy_permille)).collect();
            }
            (Err(error), _) | (_, Err(error)) => self.notes.push(format!("load cannot be seen: {error}")),
        }
    }
}

/// Asking the kernel is several times cheaper than reading files, and right where `/proc` numbers processes as we do.
fn masks(proc: &Path) -> Masks {
    let own = std::fs::read_link(proc.join("self"));
    let same = own.is_ok_and(|link| link.to_str() == Some(std::process::id().to_string().as_str()));
    if same { Masks::Kernel } else { Masks::Files }
}
