//! Calls that a rank starts, advances and waits for later.

use super::Rank;
use crate::call::{CollectiveCall, check};
use crate::{Error, Result};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

type CallFuture = Pin<Box<dyn Future<Output = Result<()>>>>;

/// A call under way.
pub(super) struct Started {
    work: CallFuture,
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

/// Started call, to be handed to [`Rank::test`] and [`Rank::wait`]. Its copies are of the same
/// call. [`Rank::start`] has an example.
#[derive(Debug, Clone)]
pub struct PendingCall {
    outcome: Rc<RefCell<Option<Result<()>>>>,
}

impl Rank {
    /// Starts a call, which advances while this rank tests it, waits for it or makes other calls.
    ///
    /// # Safety
    /// As [`Self::call`], until it is over or the rank is dropped.
    ///
    /// # Examples
    /// ```
    /// # mod ranks { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/help/ranks.rs")); }
    /// use trimtab_team::{CollectiveCall, Kind, Type};
    ///
    /// # ranks::run(2, |rank| {
    /// // In each of two threads.
    /// let mut value = [if rank.rank() == 0 { 7 } else { 0_u32 }];
    /// let call = CollectiveCall {
    ///     kind: Kind::Broadcast,
    ///     elements: Type::U32,
    ///     count: value.len(),
    ///     input: value.as_ptr().cast(),
    ///     output: value.as_mut_ptr().cast(),
    ///     ..CollectiveCall::BARRIER
    /// };
    /// // SAFETY: nothing else uses `value` before the call is over.
    /// let pending = unsafe { rank.start(call)? };
    /// while !rank.test(&pending)? {
    ///     // Other work has its place here; `rank.wait(&pending)` waits.
    /// }
    /// assert_eq!(value, [7]);
    /// # Ok(())
    /// # });
    /// ```
    ///
    /// # Errors
    /// `Argument` or `Forked`; [`Self::test`] and [`Self::wait`] return later errors.
    pub unsafe fn start(&self, call: CollectiveCall) -> Result<PendingCall> {
        // SAFETY: the caller's promise.
        unsafe { self.start_with(call, ()) }
    }

    unsafe fn start_with<B: 'static>(&self, call: CollectiveCall, buffers: B) -> Result<PendingCall> {
        self.ours()?;
        self.between_calls()?;
        check(&call, self.ranks())?;
        // Accesses of the call itself are not ordered for the detector before it is over.
        let _observed = self.detector().map(|detector| detector.call(self.address()));
        let (endpoint, lazy) = (Rc::clone(&self.endpoint), self.lazy.clone());
        let outcome = Rc::new(RefCell::new(None));
        // Read now and not when the call's turn comes: blocks are allocated in the order of calls.
        let blocks = endpoint.blocks_view();
        let work = Box::pin(async move {
            // The buffers live as long as the work that uses them.
            let _buffers = buffers;
            match lazy {
                // SAFETY: the caller's promise.
                Some(lazy) => unsafe { lazy.carry_out(&endpoint, &call, blocks, false) }.await,
                // SAFETY: as above.
                None => unsafe { endpoint.carry_out(&call, blocks) }.await,
            }
        });
        self.queue.borrow_mut().push_back(Started { work, outcome: Rc::clone(&outcome) });
        self.advance(false);
        Ok(PendingCall { outcome })
    }

    /// Returns whether a started call is over, without waiting. All started calls make some
    /// progress. [`Self::start`] has an example.
    ///
    /// # Errors
    /// The call's own: as [every call](super::calls::Calls#errors).
    pub fn test(&self, request: &PendingCall) -> Result<bool> {
        self.ours()?;
        let _observed = self.detector().map(|detector| detector.call(self.address()));
        self.advance(false);
        match &*request.outcome.borrow() {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// Waits for a started call. [`Self::start`] has an example.
    ///
    /// # Errors
    /// The call's own: as [every call](super::calls::Calls#errors); `Argument` for the request of
    /// another rank.
    pub fn wait(&self, request: &PendingCall) -> Result<()> {
        self.ours()?;
        self.counted(|| {
            while request.outcome.borrow().is_none() {
                if self.queue.borrow().is_empty() {
                    return Err(Error::Argument("the request is of another rank's handle".to_owned()));
                }
                self.advance(true);
            }
            request.outcome.borrow().clone().unwrap_or(Ok(()))
        })
    }

    #[cold]
    pub(super) fn drain(&self) -> Result<()> {
        self.advance(true);
        Ok(())
    }

    /// Advances the started calls; to their end, if it may wait.
    pub(super) fn advance(&self, wait: bool) {
        let before = self.endpoint.block(wait);
        let mut context = Context::from_waker(Waker::noop());
        let mut queue = self.queue.borrow_mut();
        while let Some(first) = queue.front_mut() {
            match first.work.as_mut().poll(&mut context) {
                Poll::Pending if wait => {}
                Poll::Pending => break,
                Poll::Ready(result) => {
                    *first.outcome.borrow_mut() = Some(result);
                    queue.pop_front();
                }
            }
        }
        self.endpoint.block(before);
    }

    /// Ends all started calls without carrying them out.
    pub(crate) fn give_up_started(&self) {
        for started in self.queue.borrow_mut().drain(..) {
            *started.outcome.borrow_mut() = Some(Err(Error::Revoked(self.rank())));
        }
    }
}
