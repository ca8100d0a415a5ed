//! Tests of the dispatch, fed by informers of a test's own.
mod any_interleaving;
mod objects;
mod rules;
mod world;
