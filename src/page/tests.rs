//! What the pages say of a state, and what they must not let through.

#![allow(clippy::unwrap_used)]
