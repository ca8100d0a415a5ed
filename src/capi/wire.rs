//! The JSON of the objects, both contract versions in one set of types: a field that one version lacks
//! is absent there. These types borrow from the JSON and live only while an object is decoded.

use std::{borrow::Cow, collections::BTreeMap};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{Keys, Owner, bounded};

/// Text that borrows where JSON allows it.
pub(super) type Text<'a> = Cow<'a, str>;
/// A map of texts.
pub(super) type Texts<'a> = BTreeMap<Text<'a>, Text<'a>>;

/// An object of any kind with the parts that are read.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "Spec: Deserialize<'de>, Status: Deserialize<'de>"))]
pub(super) struct Object<'a, Spec, Status> {
    #[serde(borrow, default)]
    pub(super) metadata: Metadata<'a>,
    pub(super) spec: Option<Spec>,
    pub(super) status: Option<Status>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    #[serde(borrow)]
    pub(super) labels: Option<Texts<'a>>,
    #[serde(borrow)]
    pub(super) annotations: Option<Texts<'a>>,
    #[serde(borrow)]
    owner_references: Option<Vec<OwnerReference<'a>>>,
    #[serde(borrow)]
    pub(super) deletion_timestamp: Option<Text<'a>>,
    #[serde(borrow)]
    creation_timestamp: Option<Text<'a>>,
    pub(super) generation: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(default)]
    controller: bool,
}

impl Metadata<'_> {
    /// The owner of one of these kinds in Cluster API's group, the controlling one before others.
    pub(super) fn owner(&self, keys: &Keys, kinds: &[&str]) -> Option<Owner<'_>> {
        let mut owners: Vec<_> = self
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| kinds.contains(&owner.kind.as_ref()))
            .filter(|owner| group_of(&owner.api_version) == keys.group)
            .collect();
        owners.sort_by_key(|owner| !owner.controller);
        owners.first().map(|owner| Owner { kind: &owner.kind, name: &owner.name })
    }

    /// When the object was made, where that can be read.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.creation_timestamp.as_ref()?.parse().ok()
    }

    /// A label's value.
    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels.as_ref()?.get(key).map(AsRef::as_ref)
    }

    /// An annotation's value.
    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(AsRef::as_ref)
    }
}

/// `group/version` to `group`; the core group has none.
pub(super) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// `infrastructureRef`: `apiVersion` in v1beta1, `apiGroup` in v1beta2.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference<'a> {
    #[serde(borrow)]
    pub(super) api_version: Option<Text<'a>>,
    #[serde(borrow)]
    pub(super) api_group: Option<Text<'a>>,
    #[serde(borrow, default)]
    pub(super) kind: Text<'a>,
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

/// `nodeRef`, of which both versions have the name.
#[derive(Debug, Deserialize)]
pub(super) struct NodeRef<'a> {
    #[serde(borrow, default)]
    pub(super) name: Text<'a>,
}

/// A condition: metav1.Condition in v1beta2, Cluster API's own in v1beta1.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Condition<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow, default)]
    pub(super) reason: Text<'a>,
    #[serde(borrow, default)]
    pub(super) message: Text<'a>,
    #[serde(borrow)]
    last_transition_time: Option<Text<'a>>,
    /// Which version of the object it was made of; Cluster API's own conditions have none.
    pub(super) observed_generation: Option<i64>,
}

impl Condition<'_> {
    /// When it came to have its status, where that can be read.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.last_transition_time.as_ref()?.parse().ok()
    }
}

/// What a v1beta1 object has of v1beta2, since Cluster API 1.9.
#[derive(Debug, Deserialize)]
pub(super) struct V1Beta2<'a> {
    #[serde(borrow)]
    conditions: Option<Vec<Condition<'a>>>,
}

/// The condition of a type. A v1beta1 object may have it twice, with different words: that of v1beta2 goes first, so that
/// both contract versions read alike.
pub(super) fn condition<'a>(
    newer: Option<&'a V1Beta2<'a>>,
    own: Option<&'a Vec<Condition<'a>>>,
    kind: &str,
) -> Option<&'a Condition<'a>> {
    let newer = newer.and_then(|v1beta2| v1beta2.conditions.as_ref());
    [newer, own].into_iter().flatten().find_map(|conditions| conditions.iter().find(|condition| condition.kind == kind))
}

/// A value of `status.capacity`: text or a number. Whatever else stands there is kept as its JSON, so that
/// the rules can name it.
pub(super) fn capacity_text(value: &Value) -> String {
    match value {
        Value::String(text) => bounded::value(text).into_owned(),
        other => bounded::value(&other.to_string()).into_owned(),
    }
}
