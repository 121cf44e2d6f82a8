//! The machine-wide ledger of held CPUs.
