//! The difference between two states of an object: noise removed, secrets redacted, the rest as an RFC 6902 patch and
//! as lines by path, with the field managers that changed it. Everything here is a pure function of JSON. This module
//! must never know of clusters, nor emit a value of a Secret: the result of [`Filter::snapshot`] holds none.

mod change;
mod filter;
mod kind;
mod managers;
mod object_json;
mod patch;
mod pattern;
mod readable;
mod redact;
mod selector;

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod tests;

pub use self::{
    change::{Action, Change, Identity, SCHEMA_VERSION},
    filter::{Filter, Snapshot},
    kind::Kind,
    managers::ChangedBy,
    object_json::ObjectJson,
    pattern::{Pattern, PatternError},
    readable::{Difference, Line},
    selector::{FieldSelector, FieldSelectorError},
};
