//! Helpers for the tests of all packages. This crate depends on none of them, so that their unit tests can use it
//! without building a package twice. It panics on errors, as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

pub mod attempt;
mod captured_log;
mod certificate;
mod http;
mod process;
mod wait;

pub use self::{
    captured_log::CapturedLog,
    certificate::Certificate,
    http::{free_address, get, receiver, serve, try_get},
    process::{Piped, Process, Program, give_way, memory_of},
    wait::{PATIENCE, Wait, soon, until, until_true},
};
