//! Writes through the whole program on a sandbox, under faults: the invariants are read from the cluster afterwards,
//! not from the calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod faults;
mod proxied;
mod random;
mod read_only;
mod requests;
mod world;
