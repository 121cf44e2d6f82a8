//! Guests: virtual machines whose own side names the virtual CPUs on which bound tasks run.

use super::channel::Channel;
use super::guest_link::GuestLink;
use super::resolve::Resolver;
use super::vm_registry::{Asker, LookupResult, VmRegistry, lives};
use super::{MonitorId, SharedState};
use crate::narrator::Narrator;
use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use trimtab_core::tags::{By, GuestStatus, Mark, Port, PortLine, PortState, Who};
use trimtab_core::time::{Moment, Span};

/// The time after which a machine that was not found is looked up again. Chosen.
const LOOKUP_RETRY: Duration = Duration::from_secs(5);
/// A virtual CPU whose tag was not renewed for this time is cleared: `trimtab guest` has ended
/// there. Chosen: six times the period of its repeats.
const TAG_LEASE: Span = Span::from_ms(60_000);
/// A virtual CPU that a guest clears stays tagged for this time: its next task may be bound too.
/// Chosen.
const CLEAR_DELAY: Span = Span::from_ms(2_000);
/// The least time for which a guest that writes too much is not read.
const FLOOD_REST: Duration = Duration::from_millis(50);

/// The user in whose name guests are listened to.
const OPERATOR: Who = Who { uid: 0 };

/// One guest.
#[derive(Debug)]
struct Guest {
    channel: Channel,
    link: GuestLink,
    port: Port,
    /// The machine and its user, once it was found.
    machine: Option<(MonitorId, String, u32)>,
    asked: bool,
    next: Option<Instant>,
    unknown: u64,
    told: bool,
    /// The last fault that was said.
    fault: Option<String>,
}

/// All that are listened to.
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

    /// What to wait for: which guest, and where.
    pub(crate) fn waits(&self) -> Vec<(usize, BorrowedFd<'_>)> {
        self.0.iter().enumerate().filter_map(|(at, guest)| Some((at, guest.link.waits()?))).collect()
    }

    /// Connects what can be, and has machines found.
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
            // What a guest says means something once its machine is known, and which user's sockets
            // may be its port.
            if let Some((_, _, user)) = guest.machine {
                match guest.link.connect(user) {
                    Ok(true) => guest.port.anew(),
                    Ok(false) => {}
                    Err(other) => guest.complain(
                        format!("at its port is a socket of user {other}, and its machine is user {user}'s"),
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

    /// A machine was found, or not.
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

    /// Hears a guest that is ready.
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
                "guest {}: what it says means nothing ({} lines); it is not listened to any more",
                guest.channel.vm, guest.port.garbage
            ));
        }
    }

    /// The machines of guests, which are watched as long as these are heard.
    pub(crate) fn machines(&self) -> BTreeSet<MonitorId> {
        self.0.iter().filter_map(|guest| guest.machine.as_ref().map(|(id, ..)| *id)).collect()
    }

    /// Why guests cannot be heard.
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
    /// Says what does not work, once.
    fn complain(&mut self, why: String, narrator: &dyn Narrator) {
        if self.fault.as_ref() != Some(&why) {
            narrator.detail(&format!("guest {}: {why}", self.channel.vm));
            self.fault = Some(why);
        }
    }

    fn obey(&mut self, line: PortLine, shared: &SharedState, now: Moment) {
        let Some((id, name, _)) = &self.machine else {
            // It will say so again.
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
            // Where there are too many tags already, this is one that is not there.
            let _ = state.registry.tag_by(by, mark, now);
        } else {
            state.registry.clear_later(&by, &mark, now + CLEAR_DELAY);
        }
    }
}
