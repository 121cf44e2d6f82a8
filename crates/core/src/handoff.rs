//! What the launcher tells the guest library.
