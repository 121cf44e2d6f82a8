//! Metrics for Prometheus: the account as text, served over HTTP on a loopback address or a Unix
//! socket.
//!
//! [`Offer::bind`] takes the address before a program is started, so that an address in use is
//! an error in time. [`Metrics`] then serve the account, which is updated after each step. That is
//! cheap except once a second.
//!
//! Readers: on a Unix socket its owner; on a loopback address every user of the machine,
//! so the page contains nothing that `ps` does not show. Any other address has to be requested by
//! `public:`.

mod address;
mod page;
mod server;
mod service_page;

pub use address::{Address, BadAddress};
pub use server::Offer;
pub(crate) use service_page::MachineFigures;

use crate::narrator::Narrator;
use anyhow::Result;
use server::Server;
use std::sync::{Arc, Mutex, PoisonError};
use trimtab_core::balance::Settings;
use trimtab_core::drive::Step;
use trimtab_core::ids::ProgramId;
use trimtab_core::tags::{ProgramFigures, Status};
use trimtab_core::telemetry::account::{Account, Keep};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;

/// Least time between two pages, except in the first seconds: collectors do not request it more
/// often, and a page has a cost.
const PAGE_PERIOD: Span = Span::from_ms(1_000);

/// Page of metrics that collectors may fetch, until dropped.
#[derive(Debug)]
pub struct Metrics {
    page: Arc<Mutex<Arc<str>>>,
    made: Mutex<Option<Moment>>,
    server: Server,
}

impl Metrics {
    /// Starts the server.
    ///
    /// # Errors
    /// The address is in use or not available; the message names it.
    pub fn serve(address: &Address) -> Result<Self> {
        Self::begin(Offer::bind(address)?)
    }

    /// Starts the server on an address that was taken before.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn begin(offer: Offer) -> Result<Self> {
        let page: Arc<Mutex<Arc<str>>> = Arc::new(Mutex::new("".into()));
        let server = Server::start(offer, Arc::clone(&page))?;
        Ok(Self { page, made: Mutex::new(None), server })
    }

    /// Returns the server's address; the real port if 0 was requested.
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Stores the latest account.
    pub fn update(&self, account: &Account) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // More often at first, so that the page's age is at most half of the time it reports.
        let period = PAGE_PERIOD.min(account.watched().times(0.5));
        if made.is_some_and(|made| account.at().since(made) < period && account.at() >= made) {
            return;
        }
        *made = Some(account.at());
        self.show(account);
    }

    /// Returns whether a page of a service is due.
    pub(crate) fn is_due(&self, now: Moment) -> bool {
        let made = *self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.is_none_or(|made| now.since(made) >= PAGE_PERIOD)
    }

    /// Shows the state of a service. `figures` are those of each tag of `status`, with its program;
    /// `machine` has the machine's own figures.
    pub(crate) fn show_service(
        &self,
        status: &Status,
        figures: &[(ProgramId, Option<ProgramFigures>)],
        findings: &[&str],
        machine: &MachineFigures,
        now: Moment,
    ) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        self.offer(service_page::text(status, figures, findings, machine));
    }

    /// Stores another page: figures that are no account of a run.
    pub fn show_text(&self, text: String) {
        self.offer(text);
    }

    fn show(&self, account: &Account) {
        self.offer(page::text(account));
    }

    fn offer(&self, text: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }
}

/// Account of a run, offered while it continues.
#[derive(Debug)]
pub struct Figures {
    metrics: Metrics,
    account: Account,
}

impl Figures {
    /// Starts the server, and reports its address.
    ///
    /// # Errors
    /// As [`Metrics::serve`].
    pub fn offer(
        address: &Address,
        machine: &Machine,
        settings: &Settings,
        narrator: &dyn Narrator,
    ) -> Result<Self> {
        Self::on(Offer::bind(address)?, machine, settings, narrator)
    }

    /// Starts the server on an address that was taken before.
    ///
    /// # Errors
    /// As [`Metrics::begin`].
    pub fn on(offer: Offer, machine: &Machine, settings: &Settings, narrator: &dyn Narrator) -> Result<Self> {
        let metrics = Metrics::begin(offer)?;
        narrator.detail(&format!("metrics: {}", metrics.address()));
        let keep = Keep { history: 0, moves: 64 };
        let account = Account::new(machine, settings.metric, keep);
        // Before the first sample there is an empty page too.
        metrics.show(&account);
        Ok(Self { metrics, account })
    }

    /// Processes a step of the loop.
    pub fn take(&mut self, step: &Step<'_>) {
        self.account.take(step);
        self.metrics.update(&self.account);
    }
}

#[cfg(test)]
mod tests;
