//! OpenAPI, as far as commands need it: kinds have no schemas. Every write declares `fieldValidation`, so that commands leave the validation to the server.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::{Api, KindSpec, VersionSpec};

/// The only content type that kubectl accepts for `/openapi/v2`.
pub(crate) const OLD_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Returns an empty `/openapi/v2` as protobuf. kubectl reads it before it applies a List, for which it finds no
/// `fieldValidation` in `/openapi/v3`.
pub(crate) fn old() -> Bytes {
    const SWAGGER: &[u8] = b"\x0a\x032.0";
    const INFO: &[u8] = b"\x12\x0d\x0a\x07sandbox\x12\x02v1";
    const PATHS: &[u8] = b"\x42\x00";
    [SWAGGER, INFO, PATHS].concat().into()
}

/// Returns all versions of all groups, with the paths of their schemas.
pub(crate) fn index(api: &Api) -> Value {
    let versions: BTreeSet<String> = api
        .kinds()
        .iter()
        .flat_map(|kind| {
            let served = kind.versions.iter().filter(|version| version.served);
            served.map(|version| root(&kind.group, &version.name)).collect::<Vec<_>>()
        })
        .collect();
    let paths: Map<String, Value> = versions
        .into_iter()
        .map(|path| {
            let url = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
            (path, url)
        })
        .collect();
    json!({"paths": paths})
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// Returns the schemas of one version of one group.
pub(crate) fn of_version(api: &Api, group: &str, version: &str) -> Option<Value> {
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
