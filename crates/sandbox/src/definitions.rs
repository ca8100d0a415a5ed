//! CustomResourceDefinitions of Cluster API's kinds, as far as a client sees them: names, versions, columns, `/status`
//! and `/scale`. Fields aren't checked. Infrastructure and bootstrap kinds are those that the manifests name.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    api::Api,
    controllers::{keys::GROUP, object::Object},
    settings::Contract,
};

struct Kind {
    name: &'static str,
    plural: &'static str,
    short: &'static str,
    scales: bool,
    /// The heading, type and path of each column.
    columns: &'static [(&'static str, &'static str, &'static str)],
}

const KINDS: [Kind; 5] = [
    Kind {
        name: "Cluster",
        plural: "clusters",
        short: "cl",
        scales: false,
        columns: &[("Phase", "string", ".status.phase"), ("Paused", "boolean", ".spec.paused")],
    },
    Kind { name: "MachineDeployment", plural: "machinedeployments", short: "md", scales: true, columns: SIZES },
    Kind { name: "MachineSet", plural: "machinesets", short: "ms", scales: true, columns: SIZES },
    Kind { name: "MachinePool", plural: "machinepools", short: "mp", scales: true, columns: SIZES },
    Kind {
        name: "Machine",
        plural: "machines",
        short: "ma",
        scales: false,
        columns: &[
            ("Cluster", "string", ".spec.clusterName"),
            ("Node", "string", ".status.nodeRef.name"),
            ("ProviderID", "string", ".spec.providerID"),
            ("Phase", "string", ".status.phase"),
        ],
    },
];

const SIZES: &[(&str, &str, &str)] = &[
    ("Cluster", "string", ".spec.clusterName"),
    ("Desired", "integer", ".spec.replicas"),
    ("Current", "integer", ".status.replicas"),
    ("Ready", "integer", ".status.readyReplicas"),
    ("Phase", "string", ".status.phase"),
];

/// Defines Cluster API's own kinds in an API, stored in the version of `contract`.
pub fn define_cluster_api(api: &Api, contract: Contract) -> anyhow::Result<()> {
    let kinds = KINDS.iter().map(|kind| of_kind(kind, contract.version()));
    api.load_values(kinds.collect()).map(drop)
}

fn of_kind(kind: &Kind, storage: &str) -> Value {
    let columns: Vec<_> = kind
        .columns
        .iter()
        .chain(&[("Age", "date", ".metadata.creationTimestamp")])
        .map(|(name, of, path)| json!({ "name": name, "type": of, "jsonPath": path }))
        .collect();
    let mut subresources = json!({ "status": {} });
    if kind.scales {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    let version = |name: &str| {
        json!({
            "name": name,
            "served": true,
            "storage": name == storage,
            "schema": { "openAPIV3Schema": schema() },
            "subresources": subresources,
            "additionalPrinterColumns": columns,
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{}.{GROUP}", kind.plural) },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": format!("{}List", kind.name),
                "plural": kind.plural,
                "singular": kind.name.to_lowercase(),
                "shortNames": [kind.short],
                "categories": ["cluster-api"],
            },
            "versions": [version("v1beta2"), version("v1beta1")],
        },
    })
}

fn schema() -> Value {
    json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the definitions of all provider kinds that objects have or refer to: templates, and the kinds created from
/// them.
pub(crate) fn of_providers(objects: &[Value]) -> Vec<Value> {
    let mut kinds: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for object in objects {
        if let Some((group, version)) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')) {
            kinds.entry((group.to_owned(), object.kind().to_owned())).or_default().insert(version.to_owned());
        }
        for reference in ["/spec/template/spec/infrastructureRef", "/spec/template/spec/bootstrap/configRef"] {
            if let Some(kind) = object.pointer(reference).and_then(group_and_kind) {
                kinds.entry(kind).or_default();
            }
        }
    }
    kinds.retain(|(group, _), _| is_of_provider(group));
    let versions = |known: BTreeSet<String>| {
        if known.is_empty() { vec!["v1beta2".to_owned()] } else { known.into_iter().collect() }
    };
    kinds.into_iter().map(|((group, kind), known)| of_provider(&group, &kind, &versions(known))).collect()
}

/// Returns true if a group belongs to a Cluster API provider: providers have groups below Cluster API's own.
fn is_of_provider(group: &str) -> bool {
    group.ends_with(&format!(".{GROUP}"))
}

/// Returns the group and kind that a reference of either contract version names.
fn group_and_kind(reference: &Value) -> Option<(String, String)> {
    let group = reference["apiGroup"].as_str().or_else(|| Some(reference["apiVersion"].as_str()?.split_once('/')?.0));
    Some((group?.to_owned(), reference["kind"].as_str()?.to_owned()))
}

pub(crate) fn of_provider(group: &str, kind: &str, versions: &[String]) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let versions: Vec<_> = versions
        .iter()
        .enumerate()
        .map(|(index, name)| {
            json!({
                "name": name,
                "served": true,
                "storage": index == 0,
                "schema": { "openAPIV3Schema": schema() },
                "subresources": { "status": {} },
            })
        })
        .collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular, "categories": ["cluster-api"] },
            "versions": versions,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_that_are_only_named_are_defined_too() {
        let reference = json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "XMachineTemplate" });
        let old = json!({ "apiVersion": "bootstrap.cluster.x-k8s.io/v1beta1", "kind": "XConfigTemplate" });
        let objects = [
            json!({ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "spec": { "template": { "spec": {
                "infrastructureRef": reference, "bootstrap": { "configRef": old },
            } } } }),
            json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha7", "kind": "YMachineTemplate" }),
            json!({ "apiVersion": "v1", "kind": "Secret" }),
        ];
        let defined = of_providers(&objects);
        let names: Vec<_> = defined.iter().map(Object::name).collect();
        assert_eq!(
            names,
            [
                "xconfigtemplates.bootstrap.cluster.x-k8s.io",
                "xmachinetemplates.infrastructure.cluster.x-k8s.io",
                "ymachinetemplates.infrastructure.cluster.x-k8s.io"
            ]
        );
        assert_eq!(defined[2]["spec"]["versions"][0]["name"], "v1alpha7");
    }
}
