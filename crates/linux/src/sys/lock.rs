//! Open-file-description byte-range locks.
