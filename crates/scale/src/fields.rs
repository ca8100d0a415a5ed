//! The fields of objects in the answers of the API server that commands read; an answer's other fields, of which most
//! are field managers, are skipped and not kept.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use rules::capi::{ScalableKind, Uid};
use rules::writing::GroupVersion;
use serde::{Deserialize, de::IgnoredAny};
use shared_informer::ResourceVersion;

/// The label of a Machine that names its MachineDeployment.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";

/// A group's object. `M` is what is read of its field managers.
#[derive(Deserialize)]
pub(super) struct GroupObject<M = IgnoredAny> {
    metadata: GroupMetadata<M>,
    spec: Option<GroupSpec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupMetadata<M> {
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    managed_fields: Option<M>,
}

#[derive(Deserialize)]
struct GroupSpec {
    replicas: Option<i64>,
}

impl<M> GroupObject<M> {
    pub(super) fn version(&self) -> GroupVersion {
        let GroupMetadata { uid, resource_version, generation, .. } = &self.metadata;
        let replicas = self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        GroupVersion {
            uid: uid.as_deref().unwrap_or_default().into(),
            resource_version: resource_version.as_deref().unwrap_or_default().into(),
            generation: generation.unwrap_or_default(),
            replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        }
    }
}

impl GroupObject<Vec<ManagedFieldsEntry>> {
    pub(super) fn into_managed_fields(self) -> Vec<ManagedFieldsEntry> {
        self.metadata.managed_fields.unwrap_or_default()
    }
}

/// A Machine, of which the answer has the metadata.
#[derive(Clone, Deserialize)]
pub(super) struct MachineObject {
    metadata: MachineMetadata,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MachineMetadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<String>,
    owner_references: Option<Vec<Owner>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Deserialize, Eq, PartialEq)]
struct Owner {
    kind: String,
    name: String,
}

/// A Machine as the metadata of an answer shows it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct MachineMeta {
    pub(super) name: ArcStr,
    pub(super) uid: Uid,
    pub(super) version: ResourceVersion,
    pub(super) deleting: bool,
    /// The time since when it is being deleted, if it can be read.
    pub(super) deleting_since: Option<Timestamp>,
    owners: Vec<Owner>,
    /// The MachineDeployment that its label names.
    deployment: Option<String>,
}

impl From<MachineObject> for MachineMeta {
    fn from(MachineObject { metadata }: MachineObject) -> Self {
        Self {
            name: metadata.name.unwrap_or_default().into(),
            uid: metadata.uid.unwrap_or_default().into(),
            version: metadata.resource_version.unwrap_or_default().into(),
            deleting: metadata.deletion_timestamp.is_some(),
            deleting_since: metadata.deletion_timestamp.as_deref().and_then(rules::capi::time),
            owners: metadata.owner_references.unwrap_or_default(),
            deployment: metadata.labels.and_then(|mut labels| labels.remove(DEPLOYMENT_NAME)),
        }
    }
}

impl MachineMeta {
    /// Returns true if one of `owners` owns this Machine.
    pub(super) fn is_of(&self, owners: &[(ScalableKind, ArcStr)]) -> bool {
        let is = |of: &Owner| owners.iter().any(|owner| owner.0.as_str() == of.kind && owner.1 == of.name);
        self.owners.iter().any(is)
    }

    /// Returns true if its label names this MachineDeployment. The Machines of a MachineSet that the watch hasn't
    /// delivered yet are found by their label alone.
    pub(super) fn is_labelled(&self, deployment: &str) -> bool {
        self.deployment.as_deref() == Some(deployment)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    #[test]
    fn a_group_with_all_fields_and_one_without_any() {
        let managed = json!([{ "manager": "kubectl", "operation": "Update", "fieldsV1": { "f:spec": {} } }]);
        let object = json!({
            "kind": "MachineDeployment",
            "metadata": {
                "name": "workers",
                "uid": "u1",
                "resourceVersion": "12",
                "generation": 3,
                "managedFields": managed,
            },
            "spec": { "replicas": 5, "template": {} },
        });
        let group: GroupObject = from_value(object.clone()).unwrap();
        let version = GroupVersion { uid: "u1".into(), resource_version: "12".into(), generation: 3, replicas: 5 };
        assert_eq!(group.version(), version);
        let group: GroupObject<Vec<ManagedFieldsEntry>> = from_value(object).unwrap();
        assert_eq!(group.version(), version);
        assert_eq!(serde_json::to_value(group.into_managed_fields()).unwrap(), managed);

        let empty = json!({ "metadata": { "managedFields": null }, "spec": { "replicas": null } });
        for empty in [json!({ "metadata": {} }), empty] {
            let group: GroupObject<Vec<ManagedFieldsEntry>> = from_value(empty).unwrap();
            assert_eq!(group.version().replicas, 0);
            assert_eq!(group.into_managed_fields(), []);
        }
    }

    #[test]
    fn a_machine_s_owners_and_label() {
        let meta = |metadata: Value| {
            let object: MachineObject = from_value(json!({ "metadata": metadata })).unwrap();
            MachineMeta::from(object)
        };
        let machine = meta(json!({
            "name": "m0",
            "uid": "u0",
            "resourceVersion": "7",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": { DEPLOYMENT_NAME: "workers" },
            "ownerReferences": [{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "s0", "uid": "x" }],
            "managedFields": [{ "fieldsV1": { "f:metadata": {} } }],
        }));
        assert_eq!((&*machine.name, machine.uid.clone(), machine.deleting), ("m0", "u0".into(), true));
        assert_eq!(machine.version, "7".into());
        assert!(machine.is_of(&[(ScalableKind::MachineSet, "s0".into())]));
        assert!(
            !machine.is_of(&[(ScalableKind::MachineDeployment, "s0".into()), (ScalableKind::MachineSet, "s1".into())])
        );
        assert!(machine.is_labelled("workers") && !machine.is_labelled("other"));

        let empty = meta(json!({ "deletionTimestamp": null, "labels": null, "ownerReferences": null }));
        assert!(!empty.deleting && !empty.is_labelled("") && !empty.is_of(&[(ScalableKind::MachineSet, "".into())]));
    }
}
