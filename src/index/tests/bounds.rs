//! The bounds of what an object says, at each bound and beyond. SECURITY.md has the table.

use arcstr::ArcStr;
use rstest::rstest;
use serde_json::json;

use super::objects::*;
use crate::{
    capi::{Cluster, LONGEST_MESSAGE, LONGEST_VALUE, Meta, ObjectKey},
    index::{Change, Index, Notice},
};

const UNREAD: &str = "(16385 bytes; no more than 16384 are read)";

/// A group with an annotation of so many letters, and what is said of it.
fn notices_of(key: &str, bytes: usize) -> Vec<Notice> {
    let index = Index::new(rules());
    let mut more = capacity_annotations("4", "16Gi");
    // Without a failure domain nobody asks if it is a zone.
    merge(&mut more, &json!({"spec": {"template": {"spec": {"failureDomain": "a"}}}}));
    merge(&mut more, &json!({"metadata": {"annotations": {key: "x".repeat(bytes)}}}));
    index.apply_quietly(deployment("workers", 3, ("1", "10"), &more))
}

fn problems(notices: &[Notice]) -> Vec<&str> {
    notices.iter().flat_map(|notice| &notice.problems).map(|problem| problem.message.as_str()).collect()
}

#[rstest]
#[case("cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size")]
#[case("cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size")]
#[case("cluster.x-k8s.io/autoscaling-options-scaledownutilizationthreshold")]
#[case("cluster.x-k8s.io/autoscaling-options-scaledowngpuutilizationthreshold")]
#[case("cluster.x-k8s.io/autoscaling-options-scaledownunneededtime")]
#[case("cluster.x-k8s.io/autoscaling-options-scaledownunreadytime")]
#[case("cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime")]
#[case("cluster.x-k8s.io/autoscaling-options-maxnodestartuptime")]
#[case("cluster.x-k8s.io/autoscaling-options-zeroormaxnodescaling")]
#[case("cluster.x-k8s.io/autoscaling-options-ignoredaemonsetsutilization")]
#[case("capacity.cluster-autoscaler.kubernetes.io/cpu")]
#[case("capacity.cluster-autoscaler.kubernetes.io/memory")]
#[case("capacity.cluster-autoscaler.kubernetes.io/ephemeral-disk")]
#[case("capacity.cluster-autoscaler.kubernetes.io/maxPods")]
#[case("capacity.cluster-autoscaler.kubernetes.io/gpu-type")]
#[case("capacity.cluster-autoscaler.kubernetes.io/gpu-count")]
#[case("capacity.cluster-autoscaler.kubernetes.io/labels")]
#[case("capacity.cluster-autoscaler.kubernetes.io/taints")]
#[case("capacity.cluster-autoscaler.kubernetes.io/dra-driver")]
#[case("capacity.cluster-autoscaler.kubernetes.io/csi-driver")]
#[case("capacity.capi-autoscaler-provider.io/price-per-hour")]
#[case("capacity.capi-autoscaler-provider.io/resources")]
#[case("capacity.capi-autoscaler-provider.io/overhead")]
#[case("capacity.capi-autoscaler-provider.io/zone-from-failure-domain")]
#[case("capi-autoscaler-provider.io/capacity-error-grace")]
#[case("capi-autoscaler-provider.io/scale-down-while-rolling-out")]
fn an_annotation_is_read_up_to_its_bound_and_is_a_problem_beyond(#[case] key: &str) {
    let at_bound = notices_of(key, LONGEST_VALUE);
    let said = problems(&at_bound);
    assert!(said.iter().any(|problem| problem.contains("(cut)")), "its own rule refuses it: {said:?}");
    let beyond = notices_of(key, LONGEST_VALUE + 1);
    let said = problems(&beyond);
    assert!(said.iter().any(|problem| problem.contains(UNREAD) && problem.contains(key)), "{said:?}");
}

#[rstest]
#[case::at_its_bound(LONGEST_VALUE)]
#[case::beyond(LONGEST_VALUE + 1)]
fn what_pauses_by_being_there_pauses_whatever_its_value_is(#[case] bytes: usize) {
    let notices = notices_of("cluster.x-k8s.io/paused", bytes);
    assert!(format!("{:?}", notices[0].state).contains("Paused"), "{notices:?}");
}

#[rstest]
#[case::at_its_bound(LONGEST_MESSAGE, LONGEST_MESSAGE)]
#[case::beyond(200_000, LONGEST_MESSAGE)]
fn of_messages_the_beginning_is_kept(#[case] bytes: usize, #[case] kept: usize) {
    let message = "m".repeat(bytes);
    let condition = json!({"type": "InfrastructureReady", "status": "False", "reason": message, "message": message});
    let status = json!({"failureReason": message, "failureMessage": message, "conditions": [condition]});
    let Change::Machine(machine) = machine("MachineSet/workers-1", "a", &json!({"status": status})) else { panic!() };
    let (failure, condition) = (machine.failure.as_ref().unwrap(), machine.infrastructure_not_ready.as_ref().unwrap());
    let lengths = [
        failure.reason.as_ref().map_or(0, ArcStr::len),
        failure.message.as_ref().map_or(0, ArcStr::len),
        condition.reason.len(),
        condition.message.len(),
    ];
    assert_eq!(lengths, [kept; 4]);
}

#[rstest]
#[case::at_their_bound(LONGEST_VALUE, LONGEST_VALUE)]
#[case::beyond(LONGEST_VALUE + 1, UNREAD.len())]
fn names_and_amounts_are_kept_up_to_their_bound(#[case] bytes: usize, #[case] kept: usize) {
    let text = "n".repeat(bytes);
    let more = json!({"spec": {"providerID": text}, "status": {"nodeRef": {"name": text}}});
    let Change::Machine(machine) = machine("MachineSet/workers-1", "a", &more) else { panic!() };
    assert_eq!(machine.provider_id.as_ref().map(ArcStr::len), Some(kept));
    assert_eq!(machine.node_name.as_ref().map(ArcStr::len), Some(kept));
    let annotations = json!({"cluster.x-k8s.io/machine": text, "cluster.x-k8s.io/cluster-namespace": text});
    let labels = json!({"kubernetes.io/arch": text});
    let more = json!({"metadata": {"annotations": annotations, "labels": labels}, "spec": {"providerID": text}});
    let Change::Node(node) = node("a", &more) else { panic!() };
    let key = node.machine.as_ref().unwrap();
    assert_eq!((key.namespace.len(), key.name.len()), (kept, kept));
    assert_eq!(node.template_label("kubernetes.io/arch").map(str::len), Some(kept));
    assert_eq!(node.provider_id.as_ref().map(ArcStr::len), Some(kept));
    let Change::Template(_, template) = template("t", &json!({"cpu": text})) else { panic!() };
    assert_eq!(template.capacity.values().map(String::len).collect::<Vec<_>>(), [kept]);
    let labels =
        json!({"metadata": {"labels": {"team": text}}, "spec": {"template": {"metadata": {"labels": {"team": text}}}}});
    let Change::Scalable(group) = deployment("workers", 3, ("1", "10"), &labels) else { panic!() };
    assert_eq!((group.labels["team"].len(), group.template_labels["team"].len()), (kept, kept));
}

#[rstest]
#[case::of_a_revision("machinedeployment.clusters.x-k8s.io/revision", "9223372036854775807", "9223372036854775808")]
#[case::of_a_size("machinedeployment.clusters.x-k8s.io/desired-replicas", "2147483647", "2147483648")]
fn a_number_of_a_machine_set_is_read_up_to_its_bound(#[case] key: &str, #[case] at_bound: &str, #[case] beyond: &str) {
    let read = |text: &str| {
        let more = json!({"metadata": {"annotations": {key: text}}});
        let Change::Scalable(set) = set_of_with("workers", "workers-1", &more) else { panic!() };
        set.revision.is_some() || set.desired_replicas.is_some()
    };
    assert_eq!((read(at_bound), read(beyond)), (true, false));
}

#[rstest]
#[case::at_the_bound_of_others(LONGEST_VALUE)]
#[case::beyond(LONGEST_VALUE + 1)]
fn of_annotations_in_a_topology_only_the_presence_is_kept(#[case] bytes: usize) {
    let of_value = |value: &str| {
        let annotations = json!({"topology.cluster.x-k8s.io/defer-upgrade": value});
        let worker = json!({"name": "workers", "metadata": {"annotations": annotations}});
        let value = json!({"spec": {"topology": {"version": "v1.34.0", "workers": {"machineDeployments": [worker]}}}});
        let meta = Meta { key: ObjectKey::new(NAMESPACE, "stage"), uid: "uid".into(), resource_version: "1".into() };
        Cluster::decode(meta, &value).unwrap()
    };
    assert_eq!(of_value(&"1".repeat(bytes)), of_value(""));
    assert_eq!(of_value("").topology.unwrap().held_back.len(), 1);
}

#[rstest]
#[case::as_long_as_a_name(253)]
#[case::longer(100_000)]
fn an_owner_of_any_length_names_no_group(#[case] bytes: usize) {
    let index = index(workers());
    let name = "n".repeat(bytes);
    let prefix = "cluster.x-k8s.io";
    let (kind, owner, namespace) =
        (format!("{prefix}/owner-kind"), format!("{prefix}/owner-name"), format!("{prefix}/cluster-namespace"));
    let annotations = [(kind.as_str(), "MachinePool"), (owner.as_str(), &name), (namespace.as_str(), NAMESPACE)];
    assert_eq!(group_with(&index, "", "unknown", &annotations), None);
}
