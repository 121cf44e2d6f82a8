//! Seats.
