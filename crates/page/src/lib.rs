//! The status page for a person on call. Pages are pure functions of the state that `/debug/state` and
//! `/debug/clusters` show and of the report of `explain`; every text of a cluster is escaped, and there is no script.
//! This crate must implement no rule, query no API server, and change nothing.

mod clusters;
mod group;
mod listing;
mod overview;
mod parts;
mod routes;
mod shell;
pub mod state;
#[cfg(test)]
mod tests;
mod view;
