//! Conformance (being written).
