//! The kinds of Kubernetes itself, as far as the sandbox supports them, with the defaults that the API fills into their
//! objects, and its checks of them besides those of metadata. Those of a workload cluster that Cluster Autoscaler and
//! kube-scheduler list besides are plain storage: no controller acts on them here.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    kind::{Column, EXTENSIONS, KindSpec, Rules, ScalePaths, VersionSpec, fill_definition, is_definition},
    object::text,
    refusal::Refusal,
};

/// A placeholder for a path: readiness, and if Pods can be scheduled.
pub(crate) const NODE_STATUS: &str = "node status";
/// A placeholder for a path: the roles in the labels.
pub(crate) const NODE_ROLES: &str = "node roles";
/// The beginning of a placeholder for a path: the address of the type that follows.
pub(crate) const NODE_ADDRESS: &str = "node address ";
/// A placeholder for a path: kind and name of the object that an Event is about.
pub(crate) const EVENT_OBJECT: &str = "event object";

/// A kind of Kubernetes itself.
struct CoreKind {
    group: &'static str,
    kind: &'static str,
    /// The served versions, the stored one first.
    versions: &'static [&'static str],
    short: &'static [&'static str],
    categories: &'static [&'static str],
    namespaced: bool,
    status: bool,
    scale: bool,
    selectable: &'static [&'static str],
    /// Heading, path and priority of the columns between name and age.
    columns: &'static [(&'static str, &'static str, i64)],
    rules: Rules,
}

const PLAIN: CoreKind = CoreKind {
    group: "",
    kind: "",
    versions: &["v1"],
    short: &[],
    categories: &[],
    namespaced: true,
    status: false,
    scale: false,
    selectable: &[],
    columns: &[],
    rules: Rules::CORE,
};

const CORE_KINDS: [CoreKind; 11] = [
    CoreKind {
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        status: true,
        selectable: &["status.phase"],
        columns: &[("Status", ".status.phase", 0)],
        ..PLAIN
    },
    CoreKind {
        kind: "Node",
        short: &["no"],
        namespaced: false,
        status: true,
        selectable: &["spec.unschedulable"],
        columns: &[
            ("Status", NODE_STATUS, 0),
            ("Roles", NODE_ROLES, 0),
            ("Version", ".status.nodeInfo.kubeletVersion", 0),
            ("Internal-IP", "node address InternalIP", 1),
            ("External-IP", "node address ExternalIP", 1),
            ("OS-Image", ".status.nodeInfo.osImage", 1),
            ("Kernel-Version", ".status.nodeInfo.kernelVersion", 1),
            ("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion", 1),
        ],
        ..PLAIN
    },
    CoreKind {
        kind: "Pod",
        short: &["po"],
        categories: &["all"],
        status: true,
        selectable: &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        columns: &[("Status", ".status.phase", 0), ("IP", ".status.podIP", 1), ("Node", ".spec.nodeName", 1)],
        rules: Rules { generation: true, create_drops_status: true, delete_returns_object: true, ..Rules::CORE },
        ..PLAIN
    },
    CoreKind { kind: "Secret", selectable: &["type"], columns: &[("Type", ".type", 0)], ..PLAIN },
    CoreKind { kind: "ConfigMap", short: &["cm"], ..PLAIN },
    CoreKind {
        selectable: &[
            "involvedObject.apiVersion",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        ],
        columns: &[
            ("Type", ".type", 0),
            ("Reason", ".reason", 0),
            ("Object", EVENT_OBJECT, 0),
            ("Message", ".message", 0),
        ],
        ..EVENT
    },
    CoreKind {
        group: "events.k8s.io",
        selectable: &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "reason", "type"],
        columns: &[
            ("Type", ".type", 0),
            ("Reason", ".reason", 0),
            ("Object", EVENT_OBJECT, 0),
            ("Message", ".note", 0),
        ],
        ..EVENT
    },
    CoreKind { kind: "ServiceAccount", short: &["sa"], rules: RETURNED, ..PLAIN },
    CoreKind {
        kind: "Service",
        short: &["svc"],
        categories: &["all"],
        status: true,
        selectable: &["spec.clusterIP", "spec.type"],
        columns: &[("Type", ".spec.type", 0), ("Cluster-IP", ".spec.clusterIP", 0)],
        rules: RETURNED,
        ..PLAIN
    },
    CoreKind {
        group: "coordination.k8s.io",
        kind: "Lease",
        columns: &[("Holder", ".spec.holderIdentity", 0)],
        rules: Rules { unconditional_update: false, create_on_update: true, ..Rules::CORE },
        ..PLAIN
    },
    CoreKind {
        group: EXTENSIONS,
        kind: "CustomResourceDefinition",
        short: &["crd", "crds"],
        categories: &["api-extensions"],
        namespaced: false,
        status: true,
        columns: &[("Created At", ".metadata.creationTimestamp", 0)],
        rules: Rules { generation: true, create_drops_status: true, unconditional_update: false, ..Rules::CORE },
        ..PLAIN
    },
];

const EVENT: CoreKind =
    CoreKind { kind: "Event", short: &["ev"], rules: Rules { create_on_update: true, ..Rules::CORE }, ..PLAIN };

const RETURNED: Rules = Rules { delete_returns_object: true, ..Rules::CORE };

pub(super) fn core_kinds() -> impl Iterator<Item = KindSpec> {
    CORE_KINDS.into_iter().map(KindSpec::from)
}

/// The rules of kinds whose status is written by their controllers.
const CONTROLLED: Rules = Rules { generation: true, create_drops_status: true, ..Rules::CORE };

const WORKLOAD: CoreKind = CoreKind { status: true, categories: &["all"], rules: CONTROLLED, ..PLAIN };

const APPS: CoreKind = CoreKind { group: "apps", scale: true, ..WORKLOAD };

const STORAGE: CoreKind = CoreKind { group: "storage.k8s.io", namespaced: false, ..PLAIN };

/// Cluster Autoscaler 1.33 lists the beta versions.
const RESOURCE: CoreKind =
    CoreKind { group: "resource.k8s.io", versions: &["v1", "v1beta2", "v1beta1"], rules: CONTROLLED, ..PLAIN };

const WORKLOAD_KINDS: [CoreKind; 26] = [
    CoreKind { kind: "DaemonSet", short: &["ds"], scale: false, ..APPS },
    CoreKind { kind: "Deployment", short: &["deploy"], ..APPS },
    CoreKind { kind: "ReplicaSet", short: &["rs"], ..APPS },
    CoreKind { kind: "StatefulSet", short: &["sts"], ..APPS },
    CoreKind { group: "apps", kind: "ControllerRevision", ..PLAIN },
    CoreKind { kind: "ReplicationController", short: &["rc"], scale: true, ..WORKLOAD },
    CoreKind { group: "batch", kind: "Job", ..WORKLOAD },
    CoreKind { group: "batch", kind: "CronJob", short: &["cj"], ..WORKLOAD },
    CoreKind {
        group: "policy",
        kind: "PodDisruptionBudget",
        short: &["pdb"],
        status: true,
        columns: &[("Allowed disruptions", ".status.disruptionsAllowed", 0)],
        rules: CONTROLLED,
        ..PLAIN
    },
    CoreKind { group: "scheduling.k8s.io", kind: "PriorityClass", short: &["pc"], namespaced: false, ..PLAIN },
    CoreKind { kind: "PersistentVolume", short: &["pv"], namespaced: false, status: true, ..PLAIN },
    CoreKind { kind: "PersistentVolumeClaim", short: &["pvc"], status: true, ..PLAIN },
    CoreKind { kind: "PodTemplate", ..PLAIN },
    CoreKind { kind: "ResourceQuota", short: &["quota"], status: true, ..PLAIN },
    CoreKind { kind: "LimitRange", short: &["limits"], ..PLAIN },
    CoreKind { kind: "StorageClass", short: &["sc"], ..STORAGE },
    CoreKind { kind: "CSINode", ..STORAGE },
    CoreKind { kind: "CSIDriver", ..STORAGE },
    CoreKind { kind: "CSIStorageCapacity", namespaced: true, ..STORAGE },
    CoreKind { kind: "VolumeAttachment", status: true, ..STORAGE },
    CoreKind { kind: "VolumeAttributesClass", short: &["vac"], ..STORAGE },
    CoreKind { kind: "ResourceClaim", status: true, ..RESOURCE },
    CoreKind { kind: "ResourceClaimTemplate", ..RESOURCE },
    CoreKind { kind: "ResourceSlice", namespaced: false, selectable: &["spec.nodeName", "spec.driver"], ..RESOURCE },
    CoreKind { kind: "DeviceClass", namespaced: false, ..RESOURCE },
    CoreKind { kind: "DeviceTaintRule", versions: &["v1beta2", "v1alpha3"], namespaced: false, ..RESOURCE },
];

pub(super) fn workload_kinds() -> impl Iterator<Item = KindSpec> {
    WORKLOAD_KINDS.into_iter().map(KindSpec::from)
}

impl From<CoreKind> for KindSpec {
    fn from(core: CoreKind) -> Self {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        let columns: Vec<_> = core
            .columns
            .iter()
            .map(|(name, path, priority)| Column { priority: *priority, ..Column::text(name, path) })
            .collect();
        let version = |name: &&str| VersionSpec {
            status: core.status,
            scale: core.scale.then(ScalePaths::default),
            columns: columns.clone(),
            ..VersionSpec::new(name)
        };
        Self {
            short_names: owned(core.short),
            categories: owned(core.categories),
            namespaced: core.namespaced,
            versions: core.versions.iter().map(version).collect(),
            selectable_fields: owned(core.selectable),
            rules: core.rules,
            ..Self::new(core.group, "v1", core.kind)
        }
    }
}

pub(super) fn fill(kind: &KindSpec, value: &mut Value, time: &str) {
    if is_definition(kind) {
        fill_definition(value, time);
        return;
    }
    if !kind.group.is_empty() || !kind.rules.strategic {
        return;
    }
    match kind.kind.as_str() {
        "Namespace" => namespace(value),
        "Pod" => or_insert(value, "status", json!({"phase": "Pending"})),
        "Secret" => secret(value),
        "Service" => {
            or_insert(value, "spec", json!({}));
            or_insert(&mut value["spec"], "type", json!("ClusterIP"));
            or_insert(&mut value["spec"], "sessionAffinity", json!("None"));
        }
        // Objects of other kinds are stored unchanged.
        _ => {}
    }
}

fn or_insert(value: &mut Value, field: &str, default: Value) {
    if value.get(field).is_none_or(Value::is_null) {
        value[field] = default;
    }
}

fn namespace(value: &mut Value) {
    let name = text(value, "name").to_owned();
    or_insert(&mut value["metadata"], "labels", json!({}));
    or_insert(&mut value["metadata"]["labels"], "kubernetes.io/metadata.name", json!(name));
    or_insert(value, "spec", json!({}));
    or_insert(&mut value["spec"], "finalizers", json!(["kubernetes"]));
    or_insert(value, "status", json!({"phase": "Active"}));
}

/// Moves `stringData` into `data`.
fn secret(value: &mut Value) {
    or_insert(value, "type", json!("Opaque"));
    let Some(object) = value.as_object_mut() else { return };
    let Some(Value::Object(texts)) = object.remove("stringData") else { return };
    let data = object.entry("data").or_insert_with(|| json!({}));
    for (key, text) in texts {
        if let (Some(data), Some(text)) = (data.as_object_mut(), text.as_str()) {
            data.insert(key, json!(BASE64_STANDARD.encode(text)));
        }
    }
}

/// Refuses objects of core kinds whose parts have the wrong types.
pub(super) fn check_types(kind: &KindSpec, value: &Value) -> Result<(), Refusal> {
    if !kind.rules.strategic {
        return Ok(());
    }
    let is_map = |value: &Value| value.is_null() || value.is_object();
    let holds_texts =
        |value: &Value| value.is_null() || value.as_object().is_some_and(|map| map.values().all(Value::is_string));
    let parts = ["spec", "status"].into_iter().filter(|&part| !is_map(&value[part]));
    let maps = ["data", "binaryData", "stringData"].into_iter().filter(|&map| !holds_texts(&value[map]));
    match parts.chain(maps).next() {
        None => Ok(()),
        Some(field) => Err(Refusal::bad_request(format!(
            "{} in version {:?} cannot be handled as a {}: {field} has the wrong type: {}",
            kind.kind,
            value["apiVersion"].as_str().unwrap_or_default(),
            kind.kind,
            value[field]
        ))),
    }
}
