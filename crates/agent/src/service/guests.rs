//! Guests: virtual machines that report on which virtual CPUs bound tasks run.

use super::channel::Channel;
use super::guest_link::GuestLink;
use super::resolve::Resolver;
use super::vm_registry::{Asker, LookupResult, VmRegistry, lives};
use super::{MonitorId, SharedState};
use crate::narrator::Narrator;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use trimtab_core::tags::{By, GuestStatus, Mark, Port, PortLine, PortState, Requester};
use trimtab_core::time::{Moment, Span};

/// Time after which a machine that was not found is looked up again. Chosen.
const LOOKUP_RETRY: Duration = Duration::from_secs(5);
/// Time after which a virtual CPU's tag that was not renewed is cleared: `trimtab guest-agent` has
/// ended there. Chosen: six times the period of its repeats.
const TAG_LEASE: Span = Span::from_ms(60_000);
/// Time for which a virtual CPU that a guest clears stays tagged: its next task may be bound too.
/// Chosen.
const CLEAR_DELAY: Span = Span::from_ms(2_000);
/// Least time for which a guest that writes too much is not read.
const FLOOD_REST: Duration = Duration::from_millis(50);

/// User by the rights of which guests are read.
pub(super) const OPERATOR: Requester = Requester { uid: 0 };

/// Guest with its link and its state.
#[derive(Debug)]
struct Guest {
    channel: Channel,
    link: GuestLink,
    port: Port,
    /// The machine, its name and its user, once it was found.
    machine: Option<(MonitorId, String, u32)>,
    asked: bool,
    next: Option<Instant>,
    unknown: u64,
    told: bool,
    /// The last fault that was reported.
    fault: Option<String>,
}

/// All guests that are listened to.
#[derive(Debug, Default)]
pub(crate) struct Guests(Vec<Guest>);

impl Guests {
    pub(crate) fn new(channels: &[Channel]) -> Self {
        let guest = |channel: &Channel| Guest {
            link: GuestLink::new(&channel.address),
            channel: channel.clone(),
            port: Port::closed(),
            machine: None,
            asked: false,
            next: None,
            unknown: 0,
            told: false,
            fault: None,
        };
        Self(channels.iter().map(guest).collect())
    }

    /// Returns the descriptors to poll, each with the guest's index.
    pub(crate) fn waits(&self) -> Vec<(usize, BorrowedFd<'_>)> {
        self.0.iter().enumerate().filter_map(|(at, guest)| Some((at, guest.link.waits()?))).collect()
    }

    /// Connects guests that are not connected, and has machines looked up.
    pub(crate) fn tend<T: Send + 'static>(
        &mut self,
        machines: &mut VmRegistry<T>,
        resolver: &Resolver,
        shared: &SharedState,
        narrator: &dyn Narrator,
    ) {
        for (at, guest) in self.0.iter_mut().enumerate() {
            if guest.machine.as_ref().is_some_and(|(id, ..)| !lives(&resolver.proc, *id)) {
                guest.machine = None;
                guest.link.close();
            }
            if guest.port.state == PortState::Ignored {
                guest.link.close();
                continue;
            }
            // A guest's lines can be resolved only when its machine is known, and with it the user
            // whose sockets may be its port.
            if let Some((_, _, user)) = guest.machine {
                match guest.link.connect(user) {
                    Ok(true) => guest.port.anew(),
                    Ok(false) => {}
                    Err(other) => guest.complain(
                        format!(
                            "the socket at its port belongs to user {other}, but its machine to user {user}"
                        ),
                        narrator,
                    ),
                }
            }
            if !guest.link.is_open() {
                guest.port.state = PortState::Closed;
            }
            let now = Instant::now();
            if guest.machine.is_none() && !guest.asked && guest.next.is_none_or(|next| next <= now) {
                // The operator named it, and it is looked up with the operator's rights.
                let name = guest.channel.vm.clone();
                guest.asked = machines.find(Asker::Guest(at), OPERATOR, name).is_ok();
                guest.next = Some(now + LOOKUP_RETRY);
            }
        }
        let now = shared.now();
        shared.lock().registry.end_due(now, TAG_LEASE);
    }

    /// Takes the result of a machine's look-up.
    pub(crate) fn found<T: Send + 'static>(
        &mut self,
        at: usize,
        found: LookupResult<T>,
        machines: &mut VmRegistry<T>,
        shared: &SharedState,
        narrator: &dyn Narrator,
    ) {
        let Some(guest) = self.0.get_mut(at) else { return };
        guest.asked = false;
        match found.machine {
            Ok((vm, owner)) => {
                let machine = ((vm.pid.0, vm.start.0), vm.name.clone(), owner.effective);
                match machines.watch(vm, OPERATOR, shared) {
                    Ok(()) => (guest.machine, guest.fault) = (Some(machine), None),
                    Err(why) => guest.complain(format!("it is not watched: {why}"), narrator),
                }
            }
            Err(why) => guest.complain(why.to_string(), narrator),
        }
    }

    /// Reads from a guest that is ready.
    pub(crate) fn hear(&mut self, at: usize, shared: &SharedState, narrator: &dyn Narrator) {
        let Some(guest) = self.0.get_mut(at) else { return };
        let Some(bytes) = guest.link.read() else {
            guest.port.state = PortState::Closed;
            return;
        };
        let now = shared.now();
        let (lines, rest) = guest.port.take(&bytes, now);
        if let Some(rest) = rest {
            guest.link.rest(Duration::from(rest).max(FLOOD_REST));
        }
        for line in lines {
            guest.obey(line, shared, now);
        }
        if guest.port.state == PortState::Ignored && !guest.told {
            guest.told = true;
            narrator.warning(&format!(
                "guest {}: its lines are not understood ({} lines); it is not listened to any more",
                guest.channel.vm, guest.port.garbage
            ));
        }
    }

    /// Returns the machines of guests, which are watched as long as their guests send messages.
    pub(crate) fn machines(&self) -> BTreeSet<MonitorId> {
        self.0.iter().filter_map(|guest| guest.machine.as_ref().map(|(id, ..)| *id)).collect()
    }

    /// Returns the reasons why guests cannot be reached.
    pub(crate) fn faults(&self) -> impl Iterator<Item = String> {
        let fault = |guest: &Guest| {
            let why = guest.link.fault()?;
            Some(format!("guest {}: cannot listen at {}: {why}", guest.channel.vm, guest.channel.address))
        };
        self.0.iter().filter_map(fault)
    }

    pub(crate) fn status(&self) -> Vec<GuestStatus> {
        let status = |guest: &Guest| GuestStatus {
            vm: guest.channel.vm.clone(),
            channel: guest.channel.address.to_string(),
            state: guest.port.state,
            lines: guest.port.lines,
            garbage: guest.port.garbage,
            dropped: guest.port.dropped,
            unknown: guest.unknown,
        };
        self.0.iter().map(status).collect()
    }
}

impl Guest {
    /// Reports a fault, once.
    fn complain(&mut self, why: String, narrator: &dyn Narrator) {
        if self.fault.as_ref() != Some(&why) {
            narrator.detail(&format!("guest {}: {why}", self.channel.vm));
            self.fault = Some(why);
        }
    }

    fn obey(&mut self, line: PortLine, shared: &SharedState, now: Moment) {
        let Some((id, name, _)) = &self.machine else {
            // The guest repeats its lines.
            self.unknown += 1;
            return;
        };
        let by = By::Guest(self.channel.vm.clone());
        let mut state = shared.lock();
        let (index, tags) = match line {
            PortLine::Tag(index) => (index, true),
            PortLine::Clear(index) => (index, false),
        };
        let known =
            state.vcpus.get(id).is_some_and(|vcpus| vcpus.iter().any(|vcpu| vcpu.index == Some(index)));
        let mark = Mark::Vcpu { vm: name.clone(), pid: id.0, start: id.1, index };
        if !known {
            self.unknown += 1;
        } else if tags {
            // If there are too many tags already, this one is dropped.
            let _ = state.registry.tag_by(by, mark, now);
        } else {
            state.registry.clear_later(&by, &mark, now + CLEAR_DELAY);
        }
    }
}
