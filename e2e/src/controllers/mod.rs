//! Scenarios with running controllers: Cluster API's own on real API servers, and the sandbox's.
//!
//! Each scenario runs on both and sees only API objects and the program's answers, so that both must behave the same.

pub mod groups;
pub mod instances;
pub mod machines;
pub mod running;
pub mod suite;
pub mod testbed;
