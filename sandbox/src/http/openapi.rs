//! The part of OpenAPI that kubectl looks at before it writes: that kinds are patched, and that unknown fields are the
//! server's business. It describes no fields, and none is checked: `fieldValidation` has no effect here.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use crate::api::{Api, KindSpec};

/// The type that kubectl takes the second version of OpenAPI in, and no other.
pub(crate) const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`: that nothing is described, as protobuf. kubectl asks for it before it writes a List.
pub(crate) fn of_nothing() -> Bytes {
    const SWAGGER: &[u8] = b"\x0a\x032.0";
    const INFO: &[u8] = b"\x12\x0d\x0a\x07sandbox\x12\x02v1";
    const PATHS: &[u8] = b"\x42\x00";
    [SWAGGER, INFO, PATHS].concat().into()
}

/// `/openapi/v3`: where each version of a group is described.
pub(crate) fn index(api: &Api) -> Value {
    let mut paths = Map::new();
    for kind in api.kinds() {
        for version in kind.versions.iter().filter(|version| version.served) {
            let path = version_path(&kind.group, &version.name);
            let place = json!({"serverRelativeURL": format!("/openapi/v3/{path}")});
            paths.insert(path, place);
        }
    }
    json!({"paths": paths})
}

/// One version of a group, if any kind is served in it.
pub(crate) fn of_version(api: &Api, group: &str, version: &str) -> Option<Value> {
    let served = |kind: &KindSpec| kind.versions.iter().any(|one| one.served && one.name == version);
    let kinds = api.kinds();
    let paths: Map<String, Value> = kinds
        .iter()
        .filter(|kind| kind.group == group && served(kind))
        .map(|kind| (object_path(kind, version), json!({"patch": patch(kind, version)})))
        .collect();
    (!paths.is_empty()).then(|| {
        json!({
            "openapi": "3.0.0",
            "info": {"title": "sandbox", "version": "v1"},
            "paths": paths,
            "components": {"schemas": {}},
        })
    })
}

fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn object_path(kind: &KindSpec, version: &str) -> String {
    let namespace = if kind.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{namespace}{}/{{name}}", version_path(&kind.group, version), kind.plural)
}

fn patch(kind: &KindSpec, version: &str) -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    // Strategic patches are left out, though core kinds take them: kubectl would look for the fields to make one from,
    // where it has its own description of core kinds otherwise.
    let types = ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"];
    let content: Map<String, Value> = types.iter().map(|name| ((*name).to_owned(), json!({}))).collect();
    json!({
        "operationId": format!("patch{version}{}", kind.kind),
        "parameters": [parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")],
        "requestBody": {"required": true, "content": content},
        "responses": {},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": {"group": kind.group, "kind": kind.kind, "version": version},
    })
}
