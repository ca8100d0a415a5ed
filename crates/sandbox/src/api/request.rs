//! A request to write an object: the part that it reaches, its manager and time, and its preconditions.

use serde_json::Value;

use super::{managed::Writer, object::text, refusal::Refusal, target::Target};

/// The part of an object that a request writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subresource {
    /// The object except for its status.
    Main,
    /// The status.
    Status,
    /// The number of replicas, as a Scale.
    Scale,
}

impl Subresource {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Scale => "scale",
        }
    }
}

/// The manager and time of a write; `dry_run` is true if nothing is stored.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) manager: String,
    pub(crate) time: String,
    pub(crate) dry_run: bool,
}

impl Request {
    pub(crate) fn writer<'w>(&'w self, subresource: &'static str, api_version: &'w str) -> Writer<'w> {
        Writer { manager: &self.manager, subresource, api_version, time: &self.time }
    }
}

/// Refuses a request whose uid or resourceVersion differs from the object's; an empty one matches.
pub(crate) fn check_preconditions(
    target: &Target,
    old: &Value,
    uid: &str,
    resource_version: &str,
) -> Result<(), Refusal> {
    let name = text(old, "name");
    if !uid.is_empty() && uid != text(old, "uid") {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", text(old, "uid"));
        return Err(Refusal::conflict(&target.spec, name, &why));
    }
    // The resource version 0 matches too.
    if !resource_version.is_empty() && resource_version != "0" && resource_version != text(old, "resourceVersion") {
        return Err(Refusal::modified(&target.spec, name));
    }
    Ok(())
}
