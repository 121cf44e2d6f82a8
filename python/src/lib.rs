//! `trimtab_team` for Python: teams of processes or threads that share memory.
//!
//! **Idea.** A thin layer: what Python passes is looked at once ([`buffer`]), becomes a call of the team library, and is carried out
//! without the interpreter's lock. What waits is asked every few milliseconds whether a signal came ([`interrupt`]), so Ctrl-C works.
//! Exceptions, pickling and what else Python says better is in the package beside this module.
//!
//! **Properties.** A rank is its thread's: another thread is refused by an exception ([`pinned`]). Arrays of a started call are kept until it
//! is over, whatever becomes of its request. Memory of a team stays mapped as long as any array lies in it.

mod asked;
mod block;
mod buffer;
mod calls;
mod dlpack;
mod errors;
mod interrupt;
mod meet;
mod operator;
mod pinned;
mod rank;
mod request;
mod team;

use pyo3::prelude::*;

/// What `trimtab_team` is made of; import that.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::rank::Rank;
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::team::Team;
}
