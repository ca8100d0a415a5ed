//! The whole program under one seed.

mod chance;
mod copy;
mod entropy;
mod host;
mod network;
mod operator;
mod world;

pub use world::{Plan, Report, run};
