//! State of nested teams: the launcher's request, and the order in force. An *order* is one setting
//! of nested teams with the places made for it ([`super::order`]).
//!
//! Orders are published by one pointer and never freed: a thread may be inside a team of an old
//! order. Equal texts are the same order, so that a program may set the same teams before each
//! phase as often as it likes.

use super::order::NestOrder;
use super::report;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Mutex, OnceLock, PoisonError};
use trimtab_core::handoff::{Missed, NEST_VARIABLE, NestHandoff, Report, Roots};
use trimtab_core::place::nesting::{Nest, Tree};

/// Bound of the different texts a program can set. Each is kept; beyond them the last stays in
/// force.
const ORDERS_MAX: usize = 1 << 10;

/// The launcher's request.
pub(super) struct NestState {
    pub(super) tree: Tree,
    /// The cores from which the plan was narrowed, if it was.
    pub(super) wide: Option<Tree>,
    pub(super) roots: Roots,
    pub(super) report: Report,
    orders: Mutex<Vec<&'static NestOrder>>,
}

static STATE: OnceLock<NestState> = OnceLock::new();
static ORDER: AtomicPtr<NestOrder> = AtomicPtr::new(std::ptr::null_mut());
/// Whether there is a tree to place threads in. Every region costs one load of it.
static ACTIVE: AtomicBool = AtomicBool::new(false);

/// Reason why teams were not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NestRefusal {
    /// The text is not a valid description of teams.
    Text,
    /// There is nothing to place threads in: no plan, or another process than the planned one.
    NoPlan,
}

/// Reads the launcher's request, in the planned process. Called when the library is loaded.
pub(crate) fn begin() {
    let Some(handoff) =
        crate::plan::variable(NEST_VARIABLE).and_then(|text| text.parse::<NestHandoff>().ok())
    else {
        return;
    };
    let NestHandoff { tree, wide, roots, report, missed, nest } = handoff;
    let reports = report != Report::No;
    if STATE.set(NestState { tree, wide, roots, report, orders: Mutex::new(Vec::new()) }).is_err() {
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

/// Returns whether threads may have to be placed.
pub(crate) fn is_active() -> bool {
    ACTIVE.load(Acquire)
}

/// Places no thread from now on: in a forked child, or after a fault of the shim.
pub(crate) fn stand_down() {
    ACTIVE.store(false, Release);
}

pub(super) fn state() -> Option<&'static NestState> {
    STATE.get()
}

/// Returns the order in force.
pub(super) fn order() -> Option<&'static NestOrder> {
    // SAFETY: null, or an order that was leaked before its address was stored.
    unsafe { ORDER.load(Acquire).as_ref() }
}

/// Returns all orders so far, oldest first.
pub(super) fn orders() -> Vec<&'static NestOrder> {
    state().map_or_else(Vec::new, |state| state.orders.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Sets the teams of regions opened from now on. Teams that are open stay as they are.
pub(crate) fn set(text: &str) -> Result<(), NestRefusal> {
    let nest: Nest = text.parse().map_err(|_| NestRefusal::Text)?;
    if !is_active() {
        return Err(NestRefusal::NoPlan);
    }
    publish(&nest).ok_or(NestRefusal::NoPlan)
}

fn publish(nest: &Nest) -> Option<()> {
    let state = state()?;
    let mut orders = state.orders.lock().unwrap_or_else(PoisonError::into_inner);
    let order = match orders.iter().find(|order| order.nest() == nest) {
        Some(order) => *order,
        None if orders.len() >= ORDERS_MAX => return None,
        None => {
            let order: &'static NestOrder = Box::leak(Box::new(NestOrder::new(state, nest)));
            orders.push(order);
            order
        }
    };
    ORDER.store(std::ptr::from_ref(order).cast_mut(), Release);
    Some(())
}
