//! The core kinds that every API server has, as far as the sandbox supports them; the defaults that the API fills into
//! their objects, and its checks of them besides those of metadata.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::{
    kind::{self, Column, KindSpec, Rules, VersionSpec},
    object::text,
    refusal::Refusal,
};

/// The group of CustomResourceDefinitions.
pub(crate) const EXTENSIONS: &str = "apiextensions.k8s.io";

/// Returns the core kinds.
pub(crate) fn core_kinds() -> Vec<KindSpec> {
    vec![
        namespaces(),
        nodes(),
        pods(),
        plain("Secret", &[], &["type"], vec![Column::text("Type", ".type")]),
        plain("ConfigMap", &["cm"], &[], Vec::new()),
        events("", "v1", "involvedObject"),
        events("events.k8s.io", "v1", "regarding"),
        returning(plain("ServiceAccount", &["sa"], &[], Vec::new())),
        services(),
        leases(),
        definitions(),
    ]
}

fn core(group: &str, version: &str, kind: &str) -> KindSpec {
    let spec = KindSpec::new(group, version, kind);
    KindSpec {
        rules: Rules::core(),
        versions: vec![VersionSpec { status: false, ..VersionSpec::new(version) }],
        ..spec
    }
}

fn plain(kind: &str, short_names: &[&str], selectable: &[&str], columns: Vec<Column>) -> KindSpec {
    let mut spec = core("", "v1", kind);
    spec.short_names = owned(short_names);
    spec.selectable_fields = owned(selectable);
    with_columns(spec, columns)
}

fn with_columns(mut spec: KindSpec, columns: Vec<Column>) -> KindSpec {
    if let Some(version) = spec.versions.first_mut() {
        version.columns = columns;
    }
    spec
}

fn with_status(mut spec: KindSpec) -> KindSpec {
    for version in &mut spec.versions {
        version.status = true;
    }
    spec
}

fn returning(mut spec: KindSpec) -> KindSpec {
    spec.rules.delete_returns_object = true;
    spec
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn wide(name: &str, path: &str) -> Column {
    Column { priority: 1, ..Column::text(name, path) }
}

fn namespaces() -> KindSpec {
    with_status(
        plain("Namespace", &["ns"], &["status.phase"], vec![Column::text("Status", ".status.phase")]).cluster_scoped(),
    )
}

fn nodes() -> KindSpec {
    // The tables compute columns from conditions, labels and addresses.
    let columns = vec![
        Column::text("Status", NODE_STATUS),
        Column::text("Roles", NODE_ROLES),
        Column::text("Version", ".status.nodeInfo.kubeletVersion"),
        wide("Internal-IP", &format!("{NODE_ADDRESS}InternalIP")),
        wide("External-IP", &format!("{NODE_ADDRESS}ExternalIP")),
        wide("OS-Image", ".status.nodeInfo.osImage"),
        wide("Kernel-Version", ".status.nodeInfo.kernelVersion"),
        wide("Container-Runtime", ".status.nodeInfo.containerRuntimeVersion"),
    ];
    with_status(plain("Node", &["no"], &["spec.unschedulable"], columns).cluster_scoped())
}

/// A placeholder for a path: readiness, and if Pods can be scheduled.
pub(crate) const NODE_STATUS: &str = "node status";
/// A placeholder for a path: the roles in the labels.
pub(crate) const NODE_ROLES: &str = "node roles";
/// The beginning of a placeholder for a path: the address of the type that follows.
pub(crate) const NODE_ADDRESS: &str = "node address ";

fn pods() -> KindSpec {
    let columns =
        vec![Column::text("Status", ".status.phase"), wide("IP", ".status.podIP"), wide("Node", ".spec.nodeName")];
    let selectable = [
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ];
    let mut spec = returning(with_status(plain("Pod", &["po"], &selectable, columns)));
    spec.categories = owned(&["all"]);
    spec.rules.generation = true;
    spec.rules.create_drops_status = true;
    spec
}

/// A placeholder for a path: kind and name of the object that an Event is about.
pub(crate) const EVENT_OBJECT: &str = "event object";

fn events(group: &str, version: &str, about: &str) -> KindSpec {
    let mut spec = core(group, version, "Event");
    spec.short_names = owned(&["ev"]);
    spec.rules.create_on_update = true;
    let fields = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
    spec.selectable_fields = fields.iter().map(|field| format!("{about}.{field}")).collect();
    spec.selectable_fields.extend(owned(&["reason", "reportingComponent", "source", "type"]));
    let message = if group.is_empty() { ".message" } else { ".note" };
    let columns = vec![
        Column::text("Type", ".type"),
        Column::text("Reason", ".reason"),
        Column::text("Object", EVENT_OBJECT),
        Column::text("Message", message),
    ];
    with_columns(spec, columns)
}

fn services() -> KindSpec {
    let columns = vec![Column::text("Type", ".spec.type"), Column::text("Cluster-IP", ".spec.clusterIP")];
    let mut spec = returning(with_status(plain("Service", &["svc"], &["spec.clusterIP", "spec.type"], columns)));
    spec.categories = owned(&["all"]);
    spec
}

fn leases() -> KindSpec {
    let mut spec = core("coordination.k8s.io", "v1", "Lease");
    spec.rules.unconditional_update = false;
    spec.rules.create_on_update = true;
    with_columns(spec, vec![Column::text("Holder", ".spec.holderIdentity")])
}

fn definitions() -> KindSpec {
    let mut spec = with_status(core(EXTENSIONS, "v1", "CustomResourceDefinition").cluster_scoped());
    spec.short_names = owned(&["crd", "crds"]);
    spec.categories = owned(&["api-extensions"]);
    spec.rules.generation = true;
    spec.rules.create_drops_status = true;
    spec.rules.unconditional_update = false;
    with_columns(spec, vec![Column::text("Created At", ".metadata.creationTimestamp")])
}

/// Fills in the defaults of a kind.
pub(crate) fn fill(kind: &KindSpec, value: &mut Value, time: &str) {
    if kind::is_definition(kind) {
        kind::fill_definition(value, time);
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
pub(crate) fn check_types(kind: &KindSpec, value: &Value) -> Result<(), Refusal> {
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
