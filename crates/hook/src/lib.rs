//! Free cores for virtual machines: hooks of libvirt, Proxmox VE and Incus.
//!
//! The engine keeps choosing hosts and sizes. On each host, a guest gets a hold of the same ledger
//! as every `trimtab run`, so that guests and programs outside exclude each other, and each vCPU a
//! CPU of its own. A failure of any kind costs a guest its placement only.
//!
//! # Example
//!
//! The cores of a guest are decided from its description and a configuration alone:
//!
//! ```
//! use trimtab_core::topology::parse_synthetic;
//! use trimtab_hook::config::HookConfig;
//! use trimtab_hook::domain::shape;
//! use trimtab_hook::pins::vcpu_pins;
//!
//! let guest = shape("<domain><vcpu>2</vcpu></domain>")?;
//! assert!(!HookConfig::default().rule("web").required);
//! let machine = parse_synthetic("numa:2 core:4").map_err(|error| error.to_string())?;
//! let cpus = "4-5".parse().map_err(|_| "no list")?;
//! assert_eq!(vcpu_pins(&machine, &cpus, &cpus, &guest).vcpus[1].to_string(), "5");
//! # Ok::<(), String>(())
//! ```
//!
//! # Where to begin
//!
//! 1. [`shape`] describes a guest; [`domain`], [`proxmox`] and [`incus`] read it from the input of
//!    an engine, which is hostile until it is parsed.
//! 2. [`config`] has the site's rules, [`wanted`] makes a request for cores of both, and [`pins`]
//!    gives each vCPU its CPUs. All of these are decided from values alone.
//! 3. [`host`] reserves, binds and gives back; [`call`] is one call of a hook, [`follow`] follows
//!    the events of Incus.
//! 4. [`note`] keeps the explanation of a guest, [`install`] the script of a hook,
//!    [`write`](mod@write) writes pins into a domain of libvirt.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod call;
pub mod config;
pub mod domain;
pub mod engine;
pub mod follow;
pub mod host;
pub mod incus;
pub mod install;
pub mod note;
mod outside;
pub mod pins;
pub mod proxmox;
pub mod shape;
pub mod wanted;
pub mod write;
