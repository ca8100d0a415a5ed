//! Scenarios with controllers at work: Cluster API's own on real API servers, and the sandbox's.
//!
//! One scenario runs on both and sees API objects and the program's answers only, so that the two are held to the same.

pub mod groups;
pub mod instances;
pub mod machines;
pub mod stage;
pub mod suite;
mod surroundings;
