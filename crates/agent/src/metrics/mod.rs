//! Figures for Prometheus: the account as text, answered over HTTP on a loopback address or a Unix
//! socket.
//!
//! [`Offer::bind`] takes the address before a program is started, so that one that cannot be had is
//! an error in time; [`Metrics`] then serve what they are told after each step, which is cheap but
//! once a second.
//!
//! Readers: on a Unix socket its owner; on a loopback address every user of the machine,
//! so nothing is in them that `ps` does not show. Any other address has to be asked for by
//! `public:`.

mod address;
mod page;
mod server;

pub use address::{Address, BadAddress};
pub use server::Offer;

use crate::narrator::Narrator;
use anyhow::Result;
use server::Server;
use std::sync::{Arc, Mutex, PoisonError};
use trimtab_core::balance::Settings;
use trimtab_core::drive::Step;
use trimtab_core::telemetry::account::{Account, Keep};
use trimtab_core::time::{Moment, Span};
use trimtab_core::topology::Machine;

/// The least time between two pages, but for the first seconds: collectors ask no more often, and a
/// page costs.
const PAGE_PERIOD: Span = Span::from_ms(1_000);

/// A page of figures that others may fetch, until dropped.
#[derive(Debug)]
pub struct Metrics {
    page: Arc<Mutex<Arc<str>>>,
    made: Mutex<Option<Moment>>,
    server: Server,
}

impl Metrics {
    /// Begins to answer.
    ///
    /// # Errors
    /// The address is taken or cannot be had; the message names it.
    pub fn serve(address: &Address) -> Result<Self> {
        Self::begin(Offer::bind(address)?)
    }

    /// Begins to answer on an address that was taken before.
    ///
    /// # Errors
    /// No thread can be had.
    pub fn begin(offer: Offer) -> Result<Self> {
        let page: Arc<Mutex<Arc<str>>> = Arc::new(Mutex::new("".into()));
        let server = Server::start(offer, Arc::clone(&page))?;
        Ok(Self { page, made: Mutex::new(None), server })
    }

    /// Where it answers; the port is a real one where 0 was asked for.
    pub fn address(&self) -> &Address {
        self.server.address()
    }

    /// Takes the latest account in.
    pub fn update(&self, account: &Account) {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        // At first more often, so that a page is never older than half of what it could tell of.
        let anew = PAGE_PERIOD.min(account.watched().times(0.5));
        if made.is_some_and(|made| account.at().since(made) < anew && account.at() >= made) {
            return;
        }
        *made = Some(account.at());
        self.show(account);
    }

    fn show(&self, account: &Account) {
        let text = page::text(account);
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text.into();
    }
}

/// The account of a run, offered as it goes on.
#[derive(Debug)]
pub struct Figures {
    metrics: Metrics,
    account: Account,
}

impl Figures {
    /// Begins to answer, and says where.
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

    /// Begins to answer on an address that was taken before.
    ///
    /// # Errors
    /// As [`Metrics::begin`].
    pub fn on(offer: Offer, machine: &Machine, settings: &Settings, narrator: &dyn Narrator) -> Result<Self> {
        let metrics = Metrics::begin(offer)?;
        narrator.detail(&format!("metrics: {}", metrics.address()));
        let keep = Keep { history: 0, moves: 64 };
        let account = Account::new(machine, settings.metric, keep);
        // Before the first look there is a page too: of nothing yet.
        metrics.show(&account);
        Ok(Self { metrics, account })
    }

    /// Takes a step of the loop in.
    pub fn take(&mut self, step: &Step<'_>) {
        self.account.take(step);
        self.metrics.update(&self.account);
    }
}

#[cfg(test)]
mod tests;
