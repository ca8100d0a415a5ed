//! Changes as a watch with a selection sees them: an object that becomes selected is added, and one that is no longer
//! selected is deleted.

use std::sync::Arc;

use serde_json::Value;

use super::{Api, Change, ChangeKind, Forgotten, History, Object, Refusal, Resource, Selection, Target};

/// A change of an object, as controllers read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The kind of the change.
    pub kind: ChangeKind,
    /// The object, in the requested version.
    pub object: Arc<Value>,
    /// The revision of the change.
    pub revision: u64,
}

/// Returns a change as a selection sees it; `None` if it doesn't.
pub(crate) fn seen(change: &Change, selection: &Selection) -> Option<(ChangeKind, Arc<Object>)> {
    let inside = selection.namespace.is_empty() || change.object.key().namespace == selection.namespace;
    if !inside {
        return None;
    }
    let before = change.previous.as_ref().is_some_and(|previous| previous.is_in(selection));
    let after = change.kind != ChangeKind::Deleted && change.object.is_in(selection);
    match (before, after) {
        (false, false) => None,
        (false, true) => Some((ChangeKind::Added, Arc::clone(&change.object))),
        (true, true) => Some((ChangeKind::Modified, Arc::clone(&change.object))),
        (true, false) => {
            // An object that left the selection is shown as it was selected, under the revision of the change.
            let last = change.previous.as_ref().map(|previous| Arc::new(previous.at(change.revision)));
            Some((ChangeKind::Deleted, last.unwrap_or_else(|| Arc::clone(&change.object))))
        }
    }
}

/// Returns the refusal of a watch from a revision that the history has dropped.
pub(crate) fn too_old(wanted: u64, forgotten: Forgotten) -> Refusal {
    Refusal::expired(format!("too old resource version: {wanted} ({})", forgotten.oldest))
}

impl Api {
    /// Returns the changes after `revision`, in order, for controllers that follow a kind.
    pub fn changes(&self, resource: &Resource, selection: &Selection, revision: u64) -> Result<Vec<Event>, Refusal> {
        let (target, history) = self.history(resource)?;
        selection.fields.check(&target.spec)?;
        let changes = history.after(revision).map_err(|forgotten| too_old(revision, forgotten))?;
        let api_version = target.api_version();
        Ok(changes
            .list
            .iter()
            .filter_map(|change| {
                let (kind, object) = seen(change, selection)?;
                Some(Event { kind, object: object.under(&api_version), revision: change.revision })
            })
            .collect())
    }

    /// Returns the history of a kind.
    pub(crate) fn history(&self, resource: &Resource) -> Result<(Target, Arc<History>), Refusal> {
        let store = self.shared.store.read();
        let target = self.find(&store, resource)?;
        let table = store.table(target.id).ok_or_else(Refusal::no_such_resource)?;
        Ok((target, Arc::clone(&table.history)))
    }
}
