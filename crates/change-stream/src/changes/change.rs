//! One change of one object, as it is reported: to programs as a line of JSON whose form is stable
//! (`docs/reference/watch.md`), to people as lines by path.

use std::sync::Arc;

use jiff::Timestamp;
use json_patch::Patch;
use serde::{Serialize, Serializer, ser::SerializeStruct as _};
use serde_json::Value;

use nodegroup::text::visible_json;

use super::{
    ChangedBy, Kind, Line, Snapshot,
    managers::{self, Evidence},
    patch, readable,
};

/// The version of the form of the JSON lines. A version may gain fields; none changes its meaning or disappears.
pub const SCHEMA_VERSION: u32 = 1;

/// The changed object, and the time at which the change was observed.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The time at which the change was observed here.
    pub time: Timestamp,
    /// The cluster: `management` or `workload`.
    pub cluster: &'static str,
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// The namespace, empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid.
    pub uid: String,
    /// The resource version after the change.
    pub resource_version: String,
}

/// The action that changed an object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// The object is new to this watch.
    Added {
        /// True if the object existed before the watch began.
        initial: bool,
    },
    /// The object changed.
    Modified,
    /// The object is gone.
    Deleted {
        /// True if a relist found the object missing, so that the time of its deletion is unknown.
        found_by_relist: bool,
    },
}

impl Action {
    /// Returns the event type in Kubernetes' own words, such as `ADDED`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Added { .. } => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted { .. } => "DELETED",
        }
    }
}

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The changed object.
    pub identity: Identity,
    /// The action: added, modified or deleted.
    pub action: Action,
    /// The patch from the filtered old object to the filtered new one; empty for a delete.
    pub patch: Patch,
    /// The field managers that made the change, as far as they can be known.
    pub changed_by: Vec<ChangedBy>,
    /// The reason why the difference can't be shown.
    pub problem: Option<String>,
    old: Option<Arc<Snapshot>>,
    new: Option<Arc<Snapshot>>,
}

impl Change {
    /// Returns the change of an object that is new.
    #[must_use]
    pub fn added(identity: Identity, new: Arc<Snapshot>, initial: bool) -> Self {
        let changed_by = managers::all(&new.managers);
        let patch = patch::between(None, &new);
        Self {
            identity,
            action: Action::Added { initial },
            patch,
            changed_by,
            problem: None,
            old: None,
            new: Some(new),
        }
    }

    /// Returns the change of an object, or `None` if only ignored fields differ.
    #[must_use]
    pub fn modified(identity: Identity, old: Arc<Snapshot>, new: Arc<Snapshot>) -> Option<Self> {
        let patch = patch::between(Some(&old), &new);
        if patch.0.is_empty() {
            return None;
        }
        let pointers = patch::pointers(&patch);
        let evidence = Evidence { old: &old.managers, new: &new.managers, object: &new.value, pointers: &pointers };
        let changed_by = evidence.changed_by();
        let (old, new) = (Some(old), Some(new));
        Some(Self { identity, action: Action::Modified, patch, changed_by, problem: None, old, new })
    }

    /// Returns the change of an object that is gone.
    #[must_use]
    pub fn deleted(identity: Identity, last: Option<Arc<Snapshot>>, found_by_relist: bool) -> Self {
        let action = Action::Deleted { found_by_relist };
        Self { identity, action, patch: Patch::default(), changed_by: vec![], problem: None, old: last, new: None }
    }

    /// Returns the change of an object whose JSON can't be read.
    #[must_use]
    pub fn unreadable(identity: Identity, action: Action, problem: String) -> Self {
        let (patch, changed_by) = (Patch::default(), Vec::new());
        Self { identity, action, patch, changed_by, problem: Some(problem), old: None, new: None }
    }

    /// Returns the differences by path, for people.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        match (&self.old, &self.new) {
            (Some(old), Some(new)) => readable::lines(old, new),
            (None, Some(new)) => readable::whole(new),
            (Some(_) | None, None) => Vec::new(),
        }
    }

    /// Returns the JSON pointers at which the object changed; empty for a delete.
    #[must_use]
    pub fn pointers(&self) -> Vec<String> {
        patch::pointers(&self.patch)
    }

    /// Iterates over the states of the object, the newest first.
    pub fn states(&self) -> impl Iterator<Item = &Value> {
        [&self.new, &self.old].into_iter().flatten().map(|snapshot| &snapshot.value)
    }

    /// Returns the object's name for people: `Machine team-a/one`.
    #[must_use]
    pub fn object(&self) -> String {
        let Identity { kind, namespace, name, .. } = &self.identity;
        let separator = if namespace.is_empty() { "" } else { "/" };
        format!("{} {namespace}{separator}{name}", kind.kind)
    }

    /// Returns the change as a line of JSON, without the newline.
    #[must_use]
    pub fn to_json(&self) -> String {
        // This can't fail, since all keys of maps are strings.
        visible_json(serde_json::to_string(self).unwrap_or_default())
    }

    /// Returns [`Change::to_json`], without the patch if the line would be longer than `limit` bytes.
    #[must_use]
    pub(crate) fn to_json_within(&self, limit: usize) -> String {
        let whole = self.to_json();
        if whole.len() <= limit {
            return whole;
        }
        let patch = Patch::default();
        let problem = Some(format!("the change has {} bytes and is left out", whole.len()));
        Self { patch, problem, ..self.clone() }.to_json()
    }
}

impl Serialize for Change {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Identity { time, cluster, kind, namespace, name, uid, resource_version } = &self.identity;
        let mut line = serializer.serialize_struct("Change", 16)?;
        line.serialize_field("schemaVersion", &SCHEMA_VERSION)?;
        line.serialize_field("time", &format!("{time:.3}"))?;
        line.serialize_field("type", self.action.name())?;
        match self.action {
            Action::Added { initial: true } => line.serialize_field("initial", &true)?,
            Action::Deleted { found_by_relist: true } => line.serialize_field("foundByRelist", &true)?,
            Action::Added { initial: false } | Action::Modified | Action::Deleted { found_by_relist: false } => {}
        }
        line.serialize_field("cluster", cluster)?;
        line.serialize_field("apiVersion", &kind.api_version())?;
        line.serialize_field("kind", &kind.kind)?;
        line.serialize_field("resource", &kind.plural)?;
        if !namespace.is_empty() {
            line.serialize_field("namespace", namespace)?;
        }
        line.serialize_field("name", name)?;
        line.serialize_field("uid", uid)?;
        line.serialize_field("resourceVersion", resource_version)?;
        line.serialize_field("changedBy", &self.changed_by)?;
        line.serialize_field("patch", &self.patch)?;
        if let Some(problem) = &self.problem {
            line.serialize_field("problem", problem)?;
        }
        line.end()
    }
}
