//! The field manager under which a command writes a size, and the last writer of a size according to an object's
//! `managedFields`. Each command has its own name, which distinguishes a write whose answer was lost from another
//! copy's write of the same size. It must make no call.

use std::{
    fmt,
    hash::{BuildHasher as _, RandomState},
};

use arcstr::ArcStr;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

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
    pub fn draw() -> Self {
        // Each `RandomState` has keys of its own, the first of which the operating system drew.
        Self(format!("{PROGRAM}-{:016x}", RandomState::new().hash_one(0_u8)))
    }

    /// Returns the last writer of the size: this command, another writer, or nobody known.
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
pub fn manager(entries: &[ManagedFieldsEntry]) -> Option<ArcStr> {
    let last =
        entries.iter().filter(|entry| has_size(entry)).max_by_key(|entry| entry.time.as_ref().map(|time| time.0))?;
    last.manager.as_deref().filter(|manager| !matches!(*manager, "" | OLDEST)).map(ArcStr::from)
}

/// Returns true if a field manager is a copy of this program.
pub fn is_own(manager: &str) -> bool {
    manager.strip_prefix(PROGRAM).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn has_size(entry: &ManagedFieldsEntry) -> bool {
    entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
}

#[cfg(test)]
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
