//! The deletion log of docs/design/delete-rule.md, parsed by this crate's own code, so that a mistake in the program's
//! parser is detected.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::entropy::Nanos;

/// The annotation of a group that holds the log.
pub(super) const ANNOTATION: &str = "capi-autoscaler-provider.io/deleting";
/// The prefix of a mark of the program.
pub(super) const MARKED_BY: &str = "capi-autoscaler-provider ";

/// An entry, by the uid of its Machine.
#[derive(Clone, Debug, Eq, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a field of the log")]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) ticket: String,
    pub(super) is_lowered: bool,
    pub(super) is_soft: bool,
    pub(super) is_pending: bool,
    /// True if its Machine was already being deleted, and counted, when the deletion was decided.
    pub(super) is_counted: bool,
}

/// A soft entry that a copy has logged.
#[derive(Clone, Debug)]
pub(super) struct SoftEntry {
    pub(super) sent: Nanos,
    pub(super) copy: usize,
    pub(super) group: String,
    pub(super) uid: String,
    pub(super) ticket: String,
}

/// The entries by the uid of their Machine.
pub(super) type Log = BTreeMap<String, Entry>;

/// Parses a log.
pub(super) fn parse(text: Option<&str>) -> Result<Log, String> {
    let Some(text) = text else { return Ok(Log::new()) };
    let written: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let mut log = Log::new();
    for acceptance in written.as_array().ok_or("no list")? {
        let is = |field: &str| acceptance[field] == true;
        for (name, uid) in acceptance["machines"].as_object().ok_or("no machines")? {
            let entry = Entry {
                name: name.clone(),
                ticket: acceptance["ticket"].as_str().ok_or("no ticket")?.to_owned(),
                is_lowered: match acceptance["phase"].as_str() {
                    Some("lowered") => true,
                    Some("wanted") => false,
                    other => return Err(format!("phase {other:?}")),
                },
                is_soft: is("soft"),
                is_pending: is("pending"),
                is_counted: is("counted"),
            };
            if log.insert(uid.as_str().ok_or("no uid")?.to_owned(), entry).is_some() {
                return Err(format!("{uid} twice"));
            }
        }
    }
    Ok(log)
}
