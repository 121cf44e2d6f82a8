//! Free cores for containers of Kubernetes: a plug-in for NRI, the Node Resource Interface of
//! containerd and CRI-O.
//!
//! The engine keeps choosing nodes and sizes. On each node, a container that asks for cores gets a
//! hold of the same ledger as every `trimtab run`, so that containers and programs outside exclude
//! each other.
//!
//! # Example
//!
//! What a container gets is decided from annotations and a configuration alone:
//!
//! ```
//! use trimtab_nri::config::Config;
//! use trimtab_nri::message::{Container, Pod};
//! use trimtab_nri::wanted::{ContainerNeed, wanted};
//!
//! let config: Config = "shared = true".parse()?;
//! let found = wanted(&config, &Pod::default(), &Container::default())?;
//! assert!(matches!(found, ContainerNeed::Shared));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`config`] and [`wanted`] say what a container gets, [`pool`] which CPUs all others share.
//! 2. [`session`] answers the runtime's calls; [`containers`] is what it knows of containers;
//!    [`upkeep`] follows the ledger meanwhile; [`node`] is this machine.
//! 3. [`mux`], [`ttrpc`] and [`message`] are the protocol, [`link`] a connection.
//! 4. [`serve`](mod@serve) connects, and connects again.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod adjustment;
pub mod config;
pub mod containers;
pub mod figures;
mod known_holds;
pub mod link;
pub mod message;
pub mod mux;
pub mod node;
pub mod pool;
pub mod serve;
pub mod session;
pub mod ttrpc;
pub mod upkeep;
pub mod wanted;
