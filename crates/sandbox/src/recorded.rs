//! Nodes of real kubelets, as they were recorded, and their parts that the program and an autoscaler read. A simulated
//! Node and each real one must agree with it there.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// A Node of kubelet 1.36 as it has registered, when it is ready, and when its container runtime is down; and one of a
/// Machine, by kubeadm, as it has its providerID, when Cluster API has linked it, and when it is ready.
const RECORDED: &str = include_str!("../fixtures/node.json");

/// Returns the recorded Node in one of its states: `registered`, `ready` or `unready`, or that of a Machine: `joining`,
/// `claimed` or `joined`.
///
/// # Panics
/// Panics if there is no such state.
pub fn recorded(state: &str) -> Value {
    let states: BTreeMap<String, Value> = serde_json::from_str(RECORDED).unwrap_or_default();
    states[state].clone()
}

/// Returns the parts that every Node must agree on: a kubelet's own labels, taints and conditions, and the names of the
/// resources. Those of one architecture have huge pages of other sizes than those of another.
pub fn shape(node: &Value) -> Value {
    let texts = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let label = |key: &str| &node["metadata"]["labels"][key];
    let info = &node["status"]["nodeInfo"];
    let of_kubelet = [
        ("kubernetes.io/arch", &info["architecture"]),
        ("kubernetes.io/os", &info["operatingSystem"]),
        ("beta.kubernetes.io/arch", &info["architecture"]),
        ("beta.kubernetes.io/os", &info["operatingSystem"]),
        ("kubernetes.io/hostname", &node["metadata"]["name"]),
    ];
    let labels: BTreeMap<_, _> =
        of_kubelet.map(|(key, value)| (key, label(key).is_string() && label(key) == value)).into();
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let mut taints: Vec<_> = taints
        .filter(|taint| {
            ["node.kubernetes.io/", "node.cluster.x-k8s.io/"].iter().any(|of| texts(&taint["key"]).starts_with(of))
        })
        .map(|taint| [texts(&taint["key"]), texts(&taint["effect"])])
        .collect();
    taints.sort();
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let conditions: BTreeMap<_, _> = conditions
        .map(|condition| {
            let has_times = ["lastHeartbeatTime", "lastTransitionTime"].iter().all(|time| condition[time].is_string());
            (texts(&condition["type"]), json!([condition["status"], condition["reason"], { "times": has_times }]))
        })
        .collect();
    let names = |place: &str| -> Vec<String> {
        let all = node["status"][place].as_object();
        let mut names: Vec<_> = all.into_iter().flat_map(|all| all.keys()).cloned().collect();
        names.retain(|name| !name.starts_with("hugepages-") && !name.contains('/'));
        names
    };
    let of_machine = ["cluster-name", "cluster-namespace", "machine", "owner-kind", "owner-name"];
    let annotations = &node["metadata"]["annotations"];
    let of_machine = of_machine.map(|name| annotations[format!("cluster.x-k8s.io/{name}")].is_string());
    json!({
        "labels": labels,
        "annotations": of_machine,
        "taints": taints,
        "conditions": conditions,
        "capacity": names("capacity"),
        "allocatable": names("allocatable"),
        "providerID": node["spec"]["providerID"].as_str().is_some_and(|id| id.contains("://")),
        "kubeletVersion": texts(&info["kubeletVersion"]).starts_with('v'),
    })
}
