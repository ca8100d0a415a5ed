//! What a write is decided on: the version of a group's object, why it may not be written, and how a call fails.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use shared_informer::ResourceVersion;
use thiserror::Error;

use crate::{
    Excluded, RolloutCause,
    capi::{ScalableResource, Uid},
};

/// The reason for which a group can't be written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NotScalable {
    /// The group doesn't exist.
    Unknown,
    /// It was a group at the last Refresh and isn't one now.
    Excluded(Excluded),
}

/// The rollout of a group, in progress or about to begin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ongoing {
    /// The evidence for it.
    pub cause: RolloutCause,
    /// The time of its beginning: from the objects, or else the time at which this process first saw it.
    pub since: Timestamp,
}

// Failed API calls by class. A class shows if the call may have been applied, and if a retry may help.

/// A failed API call.
#[derive(Clone, Debug, Error)]
pub enum CallError {
    /// 422: the object isn't as the call expected, or validation refuses the result.
    #[error("{0}")]
    Rejected(String),
    /// 409: another write came first, or the object was recreated. Or 410: a list has expired. Nothing was done.
    #[error("{0}")]
    Conflict(String),
    /// 429: the server is busy. Nothing was done. Holds the pause that the server asks for, if any.
    #[error("{0}")]
    Busy(String, Option<Duration>),
    /// No answer, or one that doesn't show if the call was applied: a 503 may come from a load balancer that lost the
    /// API server's answer. Holds the pause that the server asks for, if any.
    #[error("{0}")]
    Unknown(String, Option<Duration>),
    /// 404 about the object itself: there is none with that name.
    #[error("{0}")]
    Missing(String),
    /// 401: the server doesn't accept the credentials. Nothing was done; the client uses new ones as they arrive.
    #[error("{0}")]
    Unauthorized(String),
    /// 403: a permission is missing.
    #[error("{0}")]
    Forbidden(String),
    /// Refused for good, by an admission webhook or policy for example.
    #[error("{0}")]
    Refused(String),
    /// Discovery hasn't found the kind's path yet, or the path that it found isn't served any more.
    #[error("the API server doesn't serve this kind yet")]
    NotDiscovered,
    /// Not made, since the Cluster isn't served any more.
    #[error("{0}")]
    NotServed(String),
    /// Not made, since nobody waits for the command any more.
    #[error("nobody waits for it any more")]
    Abandoned,
}

impl CallError {
    /// All classes, as metric labels.
    pub const LABELS: [&str; 11] = [
        "rejected",
        "conflict",
        "busy",
        "unknown",
        "missing",
        "unauthorized",
        "forbidden",
        "refused",
        "not_discovered",
        "not_served",
        "abandoned",
    ];

    /// Returns true if nothing was done, and the object isn't known to have changed: the same call may succeed later.
    #[must_use]
    pub fn is_not_now(&self) -> bool {
        matches!(self, Self::Busy(..) | Self::Unauthorized(_) | Self::NotDiscovered)
    }

    /// Returns true if the call was made.
    #[must_use]
    pub fn was_sent(&self) -> bool {
        !matches!(self, Self::NotServed(_) | Self::Abandoned | Self::NotDiscovered)
    }

    /// Returns the class as a metric label.
    #[must_use]
    pub fn label(&self) -> &'static str {
        let [
            rejected,
            conflict,
            busy,
            unknown,
            missing,
            unauthorized,
            forbidden,
            refused,
            not_discovered,
            not_served,
            abandoned,
        ] = Self::LABELS;
        match self {
            Self::Rejected(_) => rejected,
            Self::Conflict(_) => conflict,
            Self::Busy(..) => busy,
            Self::Unknown(..) => unknown,
            Self::Missing(_) => missing,
            Self::Unauthorized(_) => unauthorized,
            Self::Forbidden(_) => forbidden,
            Self::Refused(_) => refused,
            Self::NotDiscovered => not_discovered,
            Self::NotServed(_) => not_served,
            Self::Abandoned => abandoned,
        }
    }
}

// The field manager under which a command writes a size, and the last writer of a size according to an object's
// `managedFields`. Each command has its own name, which distinguishes a write whose answer was lost from another
// copy's write of the same size. It must make no call.

/// The prefix of all names. Writes of anything but a size have this name alone, which API servers take from the user
/// agent.
const PROGRAM: &str = "capi-autoscaler-provider";
/// The name under which an API server merges the oldest entries, when there are many.
const OLDEST: &str = "ancient-changes";

/// The last writer of a size.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum SizedBy {
    /// This command.
    This,
    /// Another writer.
    Another,
    /// The object doesn't say: a size of 0 that was written through the scale subresource has no field manager.
    Nobody,
}

/// The field manager under which one command writes sizes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SizeWriter(String);

impl SizeWriter {
    /// Creates a random name that no other command has.
    #[must_use]
    pub fn draw() -> Self {
        // Each `RandomState` has keys of its own, the first of which the operating system drew.
        Self(format!("{PROGRAM}-{:016x}", RandomState::new().hash_one(0_u8)))
    }

    /// Returns the last writer of the size: this command, another writer, or nobody known.
    #[must_use]
    pub fn of(&self, entries: &[ManagedFieldsEntry]) -> SizedBy {
        let mut sized_by = SizedBy::Nobody;
        for entry in entries.iter().filter(|entry| has_size(entry)) {
            match entry.manager.as_deref() {
                // A later manager that sets the same value only becomes another owner of it.
                Some(manager) if manager == self.0 => return SizedBy::This,
                None | Some("" | OLDEST) => return SizedBy::Nobody,
                Some(_) => sized_by = SizedBy::Another,
            }
        }
        sized_by
    }
}

impl fmt::Display for SizeWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the field manager that has written the size last, if the object names it. Of several owners of the value,
/// the one with the latest entry counts.
#[must_use]
pub fn manager(entries: &[ManagedFieldsEntry]) -> Option<ArcStr> {
    let last =
        entries.iter().filter(|entry| has_size(entry)).max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.as_deref().filter(|manager| !matches!(*manager, "" | OLDEST)).map(ArcStr::from)
}

/// Returns true if a field manager is a copy of this program.
#[must_use]
pub fn is_own(manager: &str) -> bool {
    manager.strip_prefix(PROGRAM).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn has_size(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
}

// One version of a group's object, on which a write is decided and against which it is tested.

/// One version of a group's object, with the fields that decisions and tests of writes need.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupVersion {
    /// The uid of the object, which changes if the object is recreated under the same name.
    pub uid: Uid,
    /// The resource version.
    pub resource_version: ResourceVersion,
    /// The generation of the spec, which includes the size.
    pub generation: i64,
    /// The desired size.
    pub replicas: i32,
}

impl GroupVersion {
    /// Creates the version of an object.
    #[must_use]
    pub fn of(object: &ScalableResource) -> Self {
        Self {
            uid: object.meta.uid.clone(),
            resource_version: object.meta.resource_version.clone(),
            generation: object.generation,
            replicas: object.replicas.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn entries(managers: &[(&str, &str)]) -> Vec<ManagedFieldsEntry> {
        let entry = |(manager, field): &(&str, &str)| {
            let fields = json!({"f:spec": {(*field): {}}});
            let entry: Value = json!({"manager": manager, "operation": "Update", "fieldsV1": fields});
            serde_json::from_value(entry).unwrap()
        };
        managers.iter().map(entry).collect()
    }

    #[rstest]
    #[case::nobody(&[], SizedBy::Nobody)]
    #[case::this_command(&[("us", "f:replicas")], SizedBy::This)]
    #[case::another(&[("them", "f:replicas")], SizedBy::Another)]
    #[case::another_field(&[("us", "f:paused"), ("them", "f:replicas")], SizedBy::Another)]
    #[case::another_has_applied_the_same_since(&[("them", "f:replicas"), ("us", "f:replicas")], SizedBy::This)]
    #[case::only_another_field(&[("us", "f:paused")], SizedBy::Nobody)]
    #[case::too_long_ago(&[("ancient-changes", "f:replicas")], SizedBy::Nobody)]
    #[case::without_a_name(&[("", "f:replicas")], SizedBy::Nobody)]
    fn managed_fields_show_who_changed_the_size_last(#[case] managers: &[(&str, &str)], #[case] expected: SizedBy) {
        assert_eq!(SizeWriter("us".to_owned()).of(&entries(managers)), expected);
    }

    #[test]
    fn each_command_has_a_name_of_its_own_that_begins_with_the_programs() {
        let (one, other) = (SizeWriter::draw(), SizeWriter::draw());
        assert_ne!(one, other);
        assert!(one.to_string().starts_with("capi-autoscaler-provider-"), "{one}");
    }
}
