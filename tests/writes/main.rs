//! Writes through the whole program on a sandbox: the number of their requests, and the way through a proxy.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod proxied;
mod requests;
mod world;
