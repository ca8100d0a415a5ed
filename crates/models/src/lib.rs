//! A model check of the rule by which the program deletes Machines. All decisions are made by [`delete_rule`], which
//! the program runs as well. The modules here are the copies that make its calls one by one, the world in which the
//! rule must hold, and the search through everything that can happen there within bounds. It must use nothing else of
//! the program. [`simple`] is another rule in the same world, which [`compare`] sets beside it.

pub mod bounds;
pub mod compare;
pub mod explore;
pub mod model;
pub mod simple;
pub mod variant;
pub mod world;

mod caches;
mod controllers;
mod copies;
mod environment;
mod finisher;
mod followed;
mod program;
mod requests;
mod rollout;
mod saved;
mod small;
mod step;
mod writes;
