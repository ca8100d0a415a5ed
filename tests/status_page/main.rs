//! Tests of the whole program's status page on a sandbox: in a real browser, and compared with the other views.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod agreement;
mod browser;
mod fleet;
mod readable;
mod world;
