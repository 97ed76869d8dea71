//! Eviction policies: one file each, on ids and sizes
