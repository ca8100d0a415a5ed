//! Tests of values.yaml as the reference, and of the schema that refuses other values.

use std::fs;

use e2e::helm::{CHART, Values};
use serde_json::{Value, json};

use crate::helm;

fn read(file: &str) -> String {
    fs::read_to_string(format!("{CHART}/{file}")).unwrap()
}

fn schema() -> Value {
    serde_json::from_str(&read("values.schema.json")).unwrap()
}

fn defaults() -> Value {
    serde_yaml::from_str(&read("values.yaml")).unwrap()
}

/// Resolves a reference to a schema.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap(),
        None => schema,
    }
}

/// Calls `visit` for each object among the defaults, with its path, its value and its schema.
fn each_object(root: &Value, path: &str, value: &Value, of: &Value, visit: &mut impl FnMut(&str, &Value, &Value)) {
    let Some(object) = value.as_object() else { return };
    let of = resolved(root, of);
    visit(path, value, of);
    for (key, value) in object {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let below = of["properties"].get(key).unwrap_or(&of["additionalProperties"]);
        each_object(root, &path, value, below, visit);
    }
}

/// Sections that this chart defines, whose values need a comment each. Everything else is a single value.
const SECTIONS: [&str; 18] = [
    "admissionPolicies",
    "admissionPolicies.deletionLog",
    "admissionPolicies.annotations",
    "autoDiscovery",
    "rbac",
    "rbac.serviceAccount",
    "tls",
    "tls.certManager",
    "clusterAutoscaler",
    "image",
    "service",
    "networkPolicy",
    "deployment",
    "preflight",
    "metrics",
    "metrics.serviceMonitor",
    "metrics.prometheusRule",
    "metrics.dashboard",
];

#[test]
fn every_default_is_in_the_schema_and_every_value_of_a_section_has_a_default() {
    let (schema, defaults) = (schema(), defaults());
    each_object(&schema, "", &defaults, &schema, &mut |path, value, of| {
        let closed = of["additionalProperties"] == false;
        for key in value.as_object().unwrap().keys() {
            assert!(!closed || of["properties"].get(key).is_some(), "{path}.{key} isn't in values.schema.json");
        }
        if path.is_empty() || SECTIONS.contains(&path) {
            assert!(closed, "{path} takes any key");
            // Helm passes the values of parent charts to each chart under "global".
            for key in of["properties"].as_object().unwrap().keys().filter(|key| *key != "global") {
                assert!(value.get(key).is_some(), "{path}.{key} isn't in values.yaml");
            }
        }
    });
}

#[test]
fn every_value_has_a_comment() {
    let text = read("values.yaml");
    let mut path: Vec<&str> = Vec::new();
    let mut commented = false;
    let mut seen = 0;
    for line in text.lines() {
        let content = line.trim_start();
        let indent = (line.len() - content.len()) / 2;
        let key = content.split_once(':').map(|(key, _)| key).filter(|key| !key.contains([' ', '#', '-', '{', '/']));
        if let Some(key) = key {
            path.truncate(indent);
            let section = path.join(".");
            let documented = section.is_empty() || SECTIONS.contains(&section.as_str());
            path.push(key);
            if documented && !SECTIONS.contains(&path.join(".").as_str()) {
                assert!(commented, "values.yaml: {} has no comment", path.join("."));
                seen += 1;
            }
        }
        commented = content.starts_with('#');
    }
    assert!(seen > 60, "only {seen} values were looked at");
}

#[test]
fn a_typo_is_refused_in_every_section() {
    let (schema, defaults) = (schema(), defaults());
    let mut closed = Vec::new();
    each_object(&schema, "", &defaults, &schema, &mut |path, _, of| {
        if of["additionalProperties"] == false {
            closed.push(path.to_owned());
        }
    });
    assert!(SECTIONS.iter().all(|section| closed.iter().any(|path| path == section)));
    let helm = helm();
    for path in closed {
        let typo = if path.is_empty() { "typo".to_owned() } else { format!("{path}.typo") };
        let values = Values::new("team-a", json!({ "autoDiscovery": { "clusterName": "prod" } }));
        let said = helm.refuse(&values.set(&typo, json!(1))).unwrap();
        assert!(said.contains("additional properties 'typo' not allowed"), "{typo}: {said}");
    }
}

#[test]
fn a_wrong_value_is_refused_with_its_path() {
    let rows = [
        ("clusterAPIMode", json!("incluster")),
        ("replicaCount", json!("two")),
        ("tls.certificates", json!("certmanager")),
        ("tls.ipAddresses", json!(["here"])),
        ("image.digest", json!("latest")),
        ("autoDiscovery.specs", json!(["namespace=a"])),
        ("clusterAutoscaler.address", json!("https://provider.example.com:8086")),
        ("rbac.infrastructureGroups", json!(["infrastructure.cluster.x-k8s.io"])),
        ("extraVolumeSecrets", json!({ "a": { "secretName": "b", "mountPath": "/c" } })),
        ("tolerations", json!([{ "keys": "a" }])),
        ("networkPolicy.clients", json!([{ "podselector": {} }])),
        ("containerSecurityContext.capabilities", json!({ "Drop": ["ALL"] })),
    ];
    let helm = helm();
    for (path, value) in rows {
        let values = Values::new("team-a", json!({ "autoDiscovery": { "clusterName": "prod" } }));
        let said = helm.refuse(&values.set(path, value)).unwrap();
        let pointer = format!("'/{}", path.replace('.', "/"));
        assert!(said.contains("the schema") && said.contains(&pointer), "{path}: {said}");
    }
}

#[test]
fn flags_that_the_chart_sets_itself_are_refused_among_further_ones() {
    let helm = helm();
    for flag in ["listen", "tls-cert-file", "management-kubeconfig", "cluster", "node-group-auto-discovery_2"] {
        let values = Values::new("team-a", json!({ "autoDiscovery": { "clusterName": "prod" } }));
        let said = helm.refuse(&values.set(&format!("extraArgs.{flag}"), json!("x"))).unwrap();
        assert!(said.contains(&format!("invalid propertyName '{flag}'")), "{said}");
    }
}
