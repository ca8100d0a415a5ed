//! Runs the whole program under one seed. docs/design/simulation.md describes worlds, faults and rules.

mod actor;
mod autoscaler;
mod chance;
mod controllers;
mod copy;
mod denials;
mod entropy;
mod faults;
mod habits;
mod host;
mod kinds;
mod ledger;
mod memory;
mod network;
mod operator;
mod outages;
mod outcome;
mod overloads;
mod owners;
mod panics;
mod people;
mod plan;
mod rights;
mod setup;
mod shortage;
mod tasks;
mod tenant;
mod workloads;
mod world;

pub use faults::Decision;
pub use habits::Habits;
pub use ledger::{Check, Finding};
pub use outcome::{Outcome, shrink};
pub use plan::{Plan, Report};
pub use world::run;
