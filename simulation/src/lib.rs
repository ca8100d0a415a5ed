//! The whole program under one seed.

mod chance;
mod copy;
mod entropy;
mod faults;
mod host;
mod ledger;
mod network;
mod operator;
mod panics;
mod world;

pub use faults::Decision;
pub use ledger::{Check, Finding};
pub use world::{Plan, Report, run};
