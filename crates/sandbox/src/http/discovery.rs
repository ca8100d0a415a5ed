//! Discovery: the groups, versions and resources that are served, in the legacy form and in the aggregated one; and
//! OpenAPI, as far as commands need it: kinds have no schemas, and every write declares `fieldValidation`, so that
//! commands leave the validation to the server.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::{Api, KindSpec, VersionSpec, priority};

const VERBS: [&str; 7] = ["create", "delete", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];
/// The group of access reviews, which are answered but have no objects.
const REVIEWS: &str = "authorization.k8s.io";

/// Returns `/version`.
pub(super) fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0-sandbox", "gitCommit": "", "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "memory",
    })
}

/// Returns `/api`.
pub(super) fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// A group and its versions in order of preference.
struct Group {
    name: String,
    versions: Vec<String>,
}

fn groups(kinds: &[Arc<KindSpec>]) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![Group { name: REVIEWS.to_owned(), versions: vec!["v1".to_owned()] }];
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        let at = groups.iter().position(|group| group.name == kind.group).unwrap_or_else(|| {
            groups.push(Group { name: kind.group.clone(), versions: Vec::new() });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else { continue };
        group.versions.extend(kind.served_versions().map(str::to_owned));
    }
    for group in &mut groups {
        group.versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        group.versions.dedup();
    }
    groups.retain(|group| !group.versions.is_empty());
    groups
}

fn group_value(group: &Group) -> Value {
    let version = |version: &String| json!({"groupVersion": format!("{}/{version}", group.name), "version": version});
    let versions: Vec<Value> = group.versions.iter().map(version).collect();
    json!({"name": group.name, "versions": versions, "preferredVersion": versions.first()})
}

/// Returns `/apis`.
pub(super) fn group_list(api: &Api) -> Value {
    let groups: Vec<Value> = groups(&api.kinds()).iter().map(group_value).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// Returns `/apis/<group>`.
pub(super) fn group(api: &Api, name: &str) -> Option<Value> {
    let groups = groups(&api.kinds());
    let mut value = group_value(groups.iter().find(|group| group.name == name)?);
    value["kind"] = json!("APIGroup");
    value["apiVersion"] = json!("v1");
    Some(value)
}

/// Returns `/api/v1` or `/apis/<group>/<version>`.
pub(super) fn resources(api: &Api, group: &str, version: &str) -> Option<Value> {
    let resources = resources_of(&api.kinds(), group, version);
    if resources.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources,
    }))
}

fn resources_of(kinds: &[Arc<KindSpec>], group: &str, version: &str) -> Vec<Value> {
    let of_group = kinds.iter().filter(|kind| kind.group == group);
    let served = of_group.filter_map(|kind| Some((kind, kind.version(version)?)));
    let mut resources: Vec<Value> = served.flat_map(|(kind, spec)| of_kind(kind, spec)).collect();
    if (group, version) == (REVIEWS, "v1") {
        resources.push(json!({
            "name": "selfsubjectaccessreviews", "singularName": "selfsubjectaccessreview", "namespaced": false,
            "kind": "SelfSubjectAccessReview", "verbs": ["create"],
        }));
    }
    resources
}

fn of_kind(kind: &KindSpec, version: &VersionSpec) -> Vec<Value> {
    let mut main = json!({
        "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
        "verbs": VERBS,
    });
    for (field, names) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !names.is_empty() {
            main[field] = json!(names);
        }
    }
    let mut resources = vec![main];
    if version.status {
        resources.push(json!({
            "name": format!("{}/status", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "kind": kind.kind, "verbs": STATUS_VERBS,
        }));
    }
    if version.scale.is_some() {
        resources.push(json!({
            "name": format!("{}/scale", kind.plural), "singularName": "", "namespaced": kind.namespaced,
            "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": STATUS_VERBS,
        }));
    }
    resources
}

/// Returns `/api` or `/apis` in the aggregated form.
pub(super) fn aggregated(api: &Api, core: bool) -> Value {
    let kinds = api.kinds();
    let groups =
        if core { vec![Group { name: String::new(), versions: vec!["v1".to_owned()] }] } else { groups(&kinds) };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let versions: Vec<Value> =
                group.versions.iter().map(|version| aggregated_version(&kinds, &group.name, version)).collect();
            let metadata = if group.name.is_empty() { json!({}) } else { json!({"name": group.name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated_version(kinds: &[Arc<KindSpec>], group: &str, version: &str) -> Value {
    let mut resources: Vec<Value> = Vec::new();
    for mut one in resources_of(kinds, group, version) {
        let of = |field: &str, usual: &str| one.get(field).cloned().unwrap_or_else(|| json!(usual));
        let kind = json!({"group": of("group", group), "version": of("version", version), "kind": one["kind"]});
        let name = one["name"].take();
        if let Some((_, part)) = name.as_str().and_then(|name| name.split_once('/')) {
            let part = json!({"subresource": part, "responseKind": kind, "verbs": one["verbs"]});
            match resources.last_mut().map(|resource| &mut resource["subresources"]) {
                Some(Value::Array(parts)) => parts.push(part),
                Some(parts) => *parts = json!([part]),
                None => {}
            }
            continue;
        }
        let mut resource = json!({
            "resource": name, "singularResource": one["singularName"],
            "scope": if one["namespaced"] == true { "Namespaced" } else { "Cluster" },
            "responseKind": kind, "verbs": one["verbs"],
        });
        for field in ["shortNames", "categories"] {
            if let Some(names) = one.get(field) {
                resource[field] = names.clone();
            }
        }
        resources.push(resource);
    }
    json!({"version": version, "freshness": "Current", "resources": resources})
}

/// The only content type that kubectl accepts for `/openapi/v2`.
pub(super) const OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns an empty `/openapi/v2` as protobuf. kubectl reads it before it applies a List, for which it finds no
/// `fieldValidation` in `/openapi/v3`.
pub(super) fn old_schemas() -> Bytes {
    const SWAGGER: &[u8] = b"\x0a\x032.0";
    const INFO: &[u8] = b"\x12\x0d\x0a\x07sandbox\x12\x02v1";
    const PATHS: &[u8] = b"\x42\x00";
    [SWAGGER, INFO, PATHS].concat().into()
}

/// Returns all versions of all groups, with the paths of their schemas.
pub(super) fn schema_index(api: &Api) -> Value {
    let mut paths = Map::new();
    for kind in api.kinds() {
        for version in kind.served_versions() {
            let path = root(&kind.group, version);
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
            paths.insert(path, url);
        }
    }
    json!({"paths": paths})
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

pub(super) fn schemas_of(api: &Api, group: &str, version: &str) -> Option<Value> {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
    for kind in api.kinds().iter().filter(|kind| kind.group == group) {
        let Some(spec) = kind.version(version) else { continue };
        let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{namespace}{}/{{name}}", root(group, version), kind.plural);
        paths.insert(path, operations(kind, spec));
        let schema = json!({"type": "object", "x-kubernetes-group-version-kind": [kind_of(kind, spec)]});
        schemas.insert(schema_name(kind, spec), schema);
    }
    if paths.is_empty() {
        return None;
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "sandbox", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

fn kind_of(kind: &KindSpec, version: &VersionSpec) -> Value {
    json!({"group": kind.group, "version": version.name, "kind": kind.kind})
}

fn schema_name(kind: &KindSpec, version: &VersionSpec) -> String {
    let group: Vec<&str> = kind.group.rsplit('.').collect();
    format!("{}.{}.{}", group.join("."), version.name, kind.kind)
}

fn operations(kind: &KindSpec, version: &VersionSpec) -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    let operation = |action: &str| {
        let schema = json!({"$ref": format!("#/components/schemas/{}", schema_name(kind, version))});
        json!({
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": kind_of(kind, version),
            "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
            "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}},
        })
    };
    json!({"get": operation("get"), "put": operation("put"), "patch": operation("patch")})
}
