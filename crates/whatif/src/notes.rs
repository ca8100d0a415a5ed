//! Names what isn't simulated of the objects that the manifests have, and what these lack.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::{GroupKey, Object};
use serde_json::Value;

use crate::{
    manifests::{CLUSTER_API, REPLICATED, has_pod_template, is_managed, key_of, namespace_of, owner_of},
    state::{is_ready, node_of, title_of},
};

/// The label of the Nodes of the control plane.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

/// The groups that a Cluster's topology has, with the label of what Cluster API makes of them.
const WORKERS: [(&str, &str); 2] = [
    ("/spec/topology/workers/machineDeployments", "topology.cluster.x-k8s.io/deployment-name"),
    ("/spec/topology/workers/machinePools", "topology.cluster.x-k8s.io/pool-name"),
];

/// Kinds whose controllers change Pods or Nodes, and aren't simulated.
const OTHER_CONTROLLERS: [&str; 7] = [
    "HorizontalPodAutoscaler",
    "VerticalPodAutoscaler",
    "ScaledObject",
    "CronJob",
    "LimitRange",
    "ResourceQuota",
    "MachineHealthCheck",
];

/// Notes the Nodes that the manifests lack, and that Pods need.
pub(crate) fn missing(objects: &[Value], not_simulated: &mut Vec<String>) {
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object.kind() == kind);
    let nodes: BTreeSet<&str> = of_kind("Node").map(Object::name).collect();
    let is_lost = |pod: &&Value| node_of(pod).is_some_and(|node| !nodes.contains(node));
    let lost: Vec<&Value> = of_kind("Pod").filter(is_lost).collect();
    if let [first, ..] = lost.as_slice() {
        not_simulated.push(format!(
            "{} Pods on Nodes that the manifests lack, such as {} on {}: they are gone, and their controllers make \
             others. Add these Nodes (kubectl get nodes -o yaml)",
            lost.len(),
            title_of(first),
            node_of(first).unwrap_or_default()
        ));
    }
}

/// Notes the controllers that don't run here, and what they and others would do.
pub(crate) fn others(objects: &[Value], not_simulated: &mut Vec<String>) {
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for object in objects {
        let is_custom = !matches!(object.group(), "" | "apps" | "batch") && !is_managed(object);
        if OTHER_CONTROLLERS.contains(&object.kind()) || is_custom && has_pod_template(object) {
            *others.entry(object.kind()).or_default() += 1;
        }
    }
    for (kind, count) in others {
        not_simulated.push(format!("{count} × {kind}: its controller doesn't run here"));
    }
    states(objects, not_simulated);
    let custom: BTreeSet<&str> = objects
        .iter()
        .filter(|object| object.kind() == "Pod")
        .filter_map(|pod| pod.controller()?["kind"].as_str())
        .filter(|kind| !REPLICATED.contains(kind) && *kind != "Node")
        .collect();
    for kind in custom {
        not_simulated.push(format!("{kind}: its Pods aren't replaced when they are evicted"));
    }
}

/// Notes what Kubernetes, Cluster API and clouds would do with objects as they are, and what these lack for it.
fn states(objects: &[Value], not_simulated: &mut Vec<String>) {
    let mut note = |found: Vec<&Value>, which: &str, what: &str| {
        if let [first, ..] = found.as_slice() {
            not_simulated.push(format!("{} {which}, such as {}: {what}", found.len(), title_of(first)));
        }
    };
    let of_kind = |kind: &'static str| objects.iter().filter(move |object| object.kind() == kind);
    machines(objects, &mut note);
    note(
        of_kind("Node").filter(|node| !is_ready(node)).collect(),
        "Nodes that aren't Ready",
        "they stay so, and their Pods stay on them: nothing evicts them",
    );
    // New Nodes are never of the control plane.
    let control_plane: BTreeSet<&str> =
        of_kind("Node").filter(|node| node.label(CONTROL_PLANE).is_some()).map(Object::name).collect();
    let is_static = |pod: &&Value| {
        let is_of_node = pod.controller().is_some_and(|owner| owner["kind"] == "Node");
        is_of_node && node_of(pod).is_none_or(|node| !control_plane.contains(node))
    };
    note(of_kind("Pod").filter(is_static).collect(), "static Pods", "new Nodes have none");
    let is_starting = |pod: &&Value| node_of(pod).is_some() && pod["status"]["phase"] == "Pending";
    note(
        of_kind("Pod").filter(is_starting).collect(),
        "Pods that are Pending on their Node",
        "they run from the beginning, and count for PodDisruptionBudgets",
    );
    let is_resized = |pod: &&Value| {
        let mut conditions = pod.list("/status/conditions").iter().filter_map(|condition| condition["type"].as_str());
        conditions.any(|kind| kind.starts_with("PodResize"))
    };
    note(
        of_kind("Pod").filter(is_resized).collect(),
        "Pods that are being resized",
        "they take what their spec says, even if the kubelet hasn't agreed",
    );
    let claims: BTreeSet<(&str, &str)> =
        of_kind("PersistentVolumeClaim").map(|claim| (namespace_of(claim), claim.name())).collect();
    let lacks_claim = |pod: &&Value| {
        let mut named = pod.list("/spec/volumes").iter().filter_map(|it| it.text("/persistentVolumeClaim/claimName"));
        named.any(|claim| !claims.contains(&(namespace_of(pod), claim)))
    };
    note(
        of_kind("Pod").filter(lacks_claim).collect(),
        "Pods whose claims the manifests lack",
        "Cluster Autoscaler finds no other Node for them. Dump persistentvolumeclaims, persistentvolumes, \
         storageclasses and csinodes, too",
    );
    let classes: BTreeSet<&str> = of_kind("PriorityClass").map(Object::name).collect();
    let lacks_class = |object: &&Value| {
        let spec = if object.kind() == "Pod" { &object["spec"] } else { &object["spec"]["template"]["spec"] };
        let is_known = |class: &str| class.starts_with("system-") || classes.contains(class);
        spec["priority"].is_null() && spec.text("/priorityClassName").is_some_and(|class| !is_known(class))
    };
    note(
        objects.iter().filter(lacks_class).collect(),
        "objects whose PriorityClass the manifests lack",
        "their Pods have the default priority. Dump priorityclasses, too",
    );
}

fn machines<'a>(objects: &'a [Value], note: &mut impl FnMut(Vec<&'a Value>, &str, &str)) {
    let of_cluster_api = |kind: &'static str| {
        objects.iter().filter(move |object| object.kind() == kind && object.group() == CLUSTER_API)
    };
    let comes = |machine: &&Value| {
        let has_node = machine.text("/status/nodeRef/name").is_some();
        !has_node && !machine.deleting() && owner_of(machine).is_some()
    };
    note(
        of_cluster_api("Machine").filter(comes).collect(),
        "Machines without a Node",
        "they get one at once, even if they have failed",
    );
    note(
        of_cluster_api("Machine").filter(|machine| machine.deleting()).collect(),
        "Machines in deletion",
        "they and their Nodes go at once, unless a hook holds them",
    );
    note(
        of_cluster_api("MachinePool").collect(),
        "MachinePools",
        "their infrastructure is simulated by size alone. In a smaller one the last of spec.providerIDList goes, \
         whichever Node was drained, and its Node only if its name ends the providerID",
    );
}

/// Notes what Cluster API would make of the Cluster's topology.
pub(crate) fn topology(
    objects: &[Value],
    chosen: Option<&(String, String)>,
    changed: &BTreeSet<GroupKey>,
    not_simulated: &mut Vec<String>,
) {
    let is_chosen = |cluster: &&Value| {
        cluster.kind() == "Cluster"
            && cluster.group() == CLUSTER_API
            && chosen.is_none_or(|(namespace, name)| namespace_of(cluster) == namespace && cluster.name() == name)
    };
    for cluster in objects.iter().filter(is_chosen) {
        let lacking = lacking_workers(cluster, objects);
        if !lacking.is_empty() {
            not_simulated.push(format!(
                "the topology of {}: what Cluster API would make of its workers {} has to be in the manifests",
                title_of(cluster),
                lacking.join(", ")
            ));
        }
        if changed.contains(&key_of(cluster)) {
            not_simulated.push(format!(
                "the change of the topology of {}: change its MachineDeployments and MachinePools, too",
                title_of(cluster)
            ));
        }
    }
}

/// Returns the groups of a Cluster's topology that aren't in the manifests.
fn lacking_workers<'a>(cluster: &'a Value, objects: &[Value]) -> Vec<&'a str> {
    let is_of = |object: &&Value| {
        namespace_of(object) == namespace_of(cluster) && object.text("/spec/clusterName") == Some(cluster.name())
    };
    let mut lacking = Vec::new();
    for (list, label) in WORKERS {
        let made: BTreeSet<&str> = objects.iter().filter(is_of).filter_map(|object| object.label(label)).collect();
        let workers = cluster.list(list).iter().filter_map(|worker| worker["name"].as_str());
        lacking.extend(workers.filter(|worker| !made.contains(worker)));
    }
    lacking
}
