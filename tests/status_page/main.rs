//! The status page of the whole program on a sandbox: as a browser shows it, and whether all that a person looks at says
//! the same.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agreement;
mod browser;
mod fleet;
mod readable;
mod world;
