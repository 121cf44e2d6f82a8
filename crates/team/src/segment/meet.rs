//! How ranks meet.
