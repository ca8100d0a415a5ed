//! The RFC 6902 patch between two snapshots: applied to the filtered old object, it gives the filtered new one. A
//! redacted value that changed appears as the replacement of its mark by the same mark.

use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};

use super::{Snapshot, redact::Redacted};

/// Returns the patch from old to new. A new object is one `add` of the whole.
pub(super) fn between(old: Option<&Snapshot>, new: &Snapshot) -> Patch {
    let Some(old) = old else {
        let whole = AddOperation { path: PointerBuf::new(), value: new.value.clone() };
        return Patch(vec![PatchOperation::Add(whole)]);
    };
    let mut patch = json_patch::diff(&old.value, &new.value);
    for pointer in changed(&old.redacted, &new.redacted) {
        let Some(value) = new.value.pointer(pointer) else { continue };
        let Ok(place) = PointerBuf::parse(pointer.clone()) else { continue };
        let replace = ReplaceOperation { path: place, value: value.clone() };
        patch.0.push(PatchOperation::Replace(replace));
    }
    patch
}

/// Returns the pointers of redacted values that changed. A value that was added or removed isn't among them: its mark
/// was.
pub(super) fn changed<'a>(old: &'a Redacted, new: &'a Redacted) -> impl Iterator<Item = &'a String> {
    new.iter().filter(|(pointer, digest)| old.get(*pointer).is_some_and(|old| old != *digest)).map(|(p, _)| p)
}

/// Returns the pointers at which a patch changes something.
pub(super) fn pointers(patch: &Patch) -> Vec<String> {
    patch.0.iter().map(|operation| operation.path().to_string()).collect()
}
