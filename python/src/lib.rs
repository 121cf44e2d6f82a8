//! `trimtab_team` for Python: teams of processes or threads that share memory.
//!
//! **Idea.** A thin layer: arguments from Python are checked once ([`buffer`]), become a call of
//! the team library, and are carried out without the interpreter's lock. A waiting rank checks
//! every few milliseconds whether a signal came ([`interrupt`]), so Ctrl-C works. Exceptions,
//! pickling and other parts that are easier in Python are in the package beside this module.
//!
//! **Properties.** A rank belongs to its thread: another thread gets an exception ([`pinned`]).
//! Arrays of a started call are kept until it is over, even if its request is dropped. Memory of a
//! team stays mapped as long as any array lies in it.

mod arguments;
mod batch;
mod block;
mod buffer;
mod calls;
mod dlpack;
mod errors;
mod interrupt;
mod layout;
mod meet;
mod operator;
mod pinned;
mod rank;
mod request;
mod team;
mod view;

use pyo3::prelude::*;

/// The compiled part of `trimtab_team`; import that.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::batch::Batch;
    #[pymodule_export]
    use crate::block::Block;
    #[pymodule_export]
    use crate::rank::Rank;
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::team::Team;
    #[pymodule_export]
    use crate::view::View;
}
