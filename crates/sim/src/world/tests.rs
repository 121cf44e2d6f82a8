//! Exact small cases.
