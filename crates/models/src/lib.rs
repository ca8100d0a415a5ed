//! A model check of the rule by which the program deletes Machines. What is decided is decided by [`delete_rule`], which the
//! program acts on as well; the modules here are the copies that make its calls one by one, the world in which it must hold,
//! and the search through all that can happen there within bounds. Nothing else of the program is used.

pub mod explore;
pub mod model;
pub mod variant;
pub mod world;

mod caches;
mod controllers;
mod copies;
mod environment;
mod finisher;
mod held;
mod requests;
mod rollout;
mod small;
mod step;
mod writes;
