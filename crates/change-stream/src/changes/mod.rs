//! The difference between two states of an object: noise removed, secrets redacted, the rest as an RFC 6902 patch and
//! as lines by path, with the field managers that changed it. Everything here is a pure function of JSON. This module
//! must never know of clusters, nor emit a value of a Secret: the result of [`Filter::snapshot`] holds none.

mod change;
mod filter;
mod managers;
mod pattern;
mod redact;

#[cfg(test)]
mod tests;

pub use self::{
    change::{Action, Change, Difference, Identity, Kind, Line, SCHEMA_VERSION},
    filter::{Filter, Snapshot},
    managers::ChangedBy,
    pattern::{FieldSelector, FieldSelectorError, Pattern, PatternError},
};
