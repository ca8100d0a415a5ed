//! The RFC 6902 patch that leads from one snapshot to the next. Applied to the filtered old object it gives the filtered
//! new one; that a withheld value changed is told by replacing its mark with itself.

use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation, jsonptr::PointerBuf};

use super::{Snapshot, redact::Redacted};

/// From old to new; an object that is new is added as a whole.
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

/// Where a withheld value changed. One that came or went is told by its mark.
pub(super) fn changed<'a>(old: &'a Redacted, new: &'a Redacted) -> impl Iterator<Item = &'a String> {
    new.iter().filter(|(pointer, digest)| old.get(*pointer).is_some_and(|old| old != *digest)).map(|(p, _)| p)
}

/// Where a patch changes something.
pub(super) fn pointers(patch: &Patch) -> Vec<String> {
    patch.0.iter().map(|operation| operation.path().to_string()).collect()
}
