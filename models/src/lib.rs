//! A model check of the rule by which the program deletes Machines. [`rule`] is the rule as pure functions; the other
//! modules are the world in which it must hold, and the search through all that can happen there within bounds. It
//! uses nothing of the program, and the program nothing of it but to compare the two rules in a test.

pub mod explore;
pub mod model;
pub mod rule;
pub mod world;

mod controllers;
mod finisher;
mod places;
mod program;
