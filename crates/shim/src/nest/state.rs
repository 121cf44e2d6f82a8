//! What the launcher said of nested teams, and the order in force.
//!
//! Orders are published by one pointer and never freed: a thread may be inside a team of an old one. Equal texts are the
//! same order, so that a program may set the same teams before each phase as often as it likes.

use super::order::Order;
use super::report;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};
use trimtab_core::handoff::{Missed, NEST_VARIABLE, NestHandoff, Report, Roots};
use trimtab_core::place::nesting::{Nest, Tree};

/// The most different texts a program can set. Each is kept; beyond them the last stays in force.
const ORDERS_MAX: usize = 1 << 10;

/// What was handed over.
pub(super) struct State {
    pub(super) tree: Tree,
    /// The cores that the plan was narrowed from, where it was.
    pub(super) wide: Option<Tree>,
    pub(super) roots: Roots,
    pub(super) report: Report,
    orders: Mutex<Vec<&'static Order>>,
}

static STATE: OnceLock<State> = OnceLock::new();
static ORDER: AtomicPtr<Order> = AtomicPtr::new(std::ptr::null_mut());
/// Whether there is a tree to place threads in. One load on the way of every region.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Why teams were not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The text is none.
    Text,
    /// There is nothing to place threads in: no plan, or another process than the planned one.
    NoPlan,
}

/// Reads what the launcher said, in the planned process. Called as the library is loaded.
pub(crate) fn begin() {
    let Some(handoff) =
        crate::plan::variable(NEST_VARIABLE).and_then(|text| text.parse::<NestHandoff>().ok())
    else {
        return;
    };
    let NestHandoff { tree, wide, roots, report, missed, nest } = handoff;
    let reports = report != Report::No;
    if STATE.set(State { tree, wide, roots, report, orders: Mutex::new(Vec::new()) }).is_err() {
        return;
    }
    super::team::note_places();
    ACTIVE.store(true, Release);
    if let Some(nest) = nest {
        publish(&nest);
    }
    if missed != Missed::Ignored {
        report::at_exit_without_threads(missed);
    }
    if reports {
        report::at_exit();
    }
}

/// Whether threads may have to be placed.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Acquire)
}

/// Leaves everything alone from now on: a forked child, or a fault of ours.
pub(crate) fn stand_down() {
    ACTIVE.store(false, Release);
}

pub(super) fn state() -> Option<&'static State> {
    STATE.get()
}

/// The order in force.
pub(super) fn order() -> Option<&'static Order> {
    // SAFETY: null, or an order that was leaked before its address was stored.
    unsafe { ORDER.load(Acquire).as_ref() }
}

/// Every order there was, oldest first.
pub(super) fn orders() -> Vec<&'static Order> {
    state().map_or_else(Vec::new, |state| state.orders.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Sets the teams of regions opened from now on. Teams that are open stay as they are.
pub(crate) fn set(text: &str) -> Result<(), Refusal> {
    let nest: Nest = text.parse().map_err(|_| Refusal::Text)?;
    if !is_active() {
        return Err(Refusal::NoPlan);
    }
    publish(&nest).ok_or(Refusal::NoPlan)
}

fn publish(nest: &Nest) -> Option<()> {
    let state = state()?;
    let mut orders = state.orders.lock().unwrap_or_else(PoisonError::into_inner);
    let order = match orders.iter().find(|order| order.nest() == nest) {
        Some(order) => *order,
        None if orders.len() >= ORDERS_MAX => return None,
        None => {
            let order: &'static Order = Box::leak(Box::new(Order::new(state, nest)));
            orders.push(order);
            order
        }
    };
    ORDER.store(std::ptr::from_ref(order).cast_mut(), Release);
    Some(())
}
