//! Runs the whole program under one seed. docs/design/simulation.md describes worlds, faults and rules.

mod actor;
mod autoscaler;
mod controllers;
mod copy;
mod entropy;
mod faults;
mod host;
mod kinds;
mod ledger;
mod memory;
mod network;
mod operator;
mod outages;
mod outcome;
mod owners;
mod people;
mod plan;
mod setup;
mod tasks;
mod tenant;
mod workloads;
mod world;

pub use faults::Decision;
pub use ledger::{Check, Finding};
pub use outcome::{Outcome, shrink};
pub use plan::{Habits, Plan, Report};
pub use world::run;
