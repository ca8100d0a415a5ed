//! Tests of the limits of objects' values, at each limit and beyond. SECURITY.md has the table.

use arcstr::ArcStr;
use capi::{
    Cluster, Context, InfrastructureTemplate, LONGEST_MESSAGE, LONGEST_VALUE, MOST_KEPT, MOST_LISTED, Machine, Meta,
    ObjectKey, ScalableKind, ScalableResource,
};
use nodegroup::Exclusion;
use rstest::rstest;
use serde_json::{Value, json};

use super::objects::*;
use crate::{Change, Index, Notice};

const UNREAD: &str = "(16385 bytes; no more than 16384 are read)";

/// Returns the notices for a group with an annotation of this length.
fn notices_of(key: &str, bytes: usize) -> Vec<Notice> {
    let index = Index::new(rules());
    let mut more = capacity_annotations("4", "16Gi");
    // The failure domain is set, since the zone annotation is read only together with one.
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
fn an_annotation_that_leaves_a_group_out_does_so_with_a_value_of_any_length(#[case] bytes: usize) {
    let notices = notices_of("cluster.x-k8s.io/paused", bytes);
    assert_eq!(notices[0].excluded, Some(Exclusion::Paused));
    let more = json!({"metadata": {"annotations": {"cluster.x-k8s.io/replicas-managed-by": "x".repeat(bytes)}}});
    let notices = index([]).apply_quietly(scalable(ScalableKind::MachinePool, "pool", 3, ("1", "10"), &more));
    assert_eq!(notices[0].excluded, Some(Exclusion::ReplicasManagedElsewhere));
}

#[rstest]
#[case::at_its_bound(LONGEST_MESSAGE, LONGEST_MESSAGE)]
#[case::beyond(200_000, LONGEST_MESSAGE)]
fn of_messages_the_beginning_is_kept(#[case] bytes: usize, #[case] kept: usize) {
    let message = "m".repeat(bytes);
    let condition = json!({"type": "InfrastructureReady", "status": "False", "reason": message, "message": message});
    let status = json!({"failureReason": message, "failureMessage": message, "conditions": [condition]});
    let Change::Machine(machine) = machine("MachineSet/workers-1", "a", &json!({"status": status})) else { panic!() };
    let (failure, condition) = (machine.failure().unwrap(), machine.infrastructure_not_ready().unwrap());
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
    let labels = [
        json!({"metadata": {"labels": {"team": text}}}),
        json!({"spec": {"template": {"metadata": {"labels": {"team": text}}}}}),
    ];
    let groups = labels.map(|labels| deployment("workers", 3, ("1", "10"), &labels));
    let [Change::Scalable(own), Change::Scalable(of_machines)] = groups else { panic!() };
    assert_eq!((own.labels["team"].len(), of_machines.template_labels["team"].len()), (kept, kept));
}

/// Returns the fields of an object that a MachineDeployment with this name owns.
fn owned_by(name: &str) -> Value {
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment", "name": name});
    json!({"metadata": {"ownerReferences": [owner]}})
}

#[rstest]
#[case::cluster_name(
    |text: &str| json!({"spec": {"clusterName": text}}),
    |set: &ScalableResource| set.cluster_name.len()
)]
#[case::owner(owned_by, |set: &ScalableResource| set.deployment.as_ref().map_or(0, ArcStr::len))]
#[case::failure_domain(
    |text: &str| json!({"spec": {"template": {"spec": {"failureDomain": text}}}}),
    |set: &ScalableResource| set.failure_domain.as_ref().map_or(0, ArcStr::len)
)]
#[case::version(
    |text: &str| json!({"spec": {"template": {"spec": {"version": text}}}}),
    |set: &ScalableResource| set.version.as_ref().map_or(0, ArcStr::len)
)]
#[case::a_provider_id_of_a_list(
    |text: &str| json!({"spec": {"providerIDList": [text]}}),
    |set: &ScalableResource| set.provider_ids[0].len()
)]
#[case::a_node_of_a_list(
    |text: &str| json!({"status": {"nodeRefs": [{"name": text}]}}),
    |set: &ScalableResource| set.node_names[0].len()
)]
fn each_name_of_a_group_is_kept_up_to_its_bound(
    #[case] with: fn(&str) -> Value,
    #[case] length: fn(&ScalableResource) -> usize,
) {
    let kept = |bytes: usize| {
        let (kind, object) = (ScalableKind::MachineSet, with(&"n".repeat(bytes)));
        length(&ScalableResource::decode(kind, meta_of("set"), &object, &Context::new("cluster.x-k8s.io")).unwrap())
    };
    assert_eq!((kept(LONGEST_VALUE), kept(LONGEST_VALUE + 1)), (LONGEST_VALUE, UNREAD.len()));
}

#[rstest]
#[case::at_their_bound(LONGEST_VALUE, LONGEST_VALUE)]
#[case::beyond(LONGEST_VALUE + 1, UNREAD.len())]
fn names_of_machines_templates_and_topologies_are_kept_up_to_their_bound(#[case] bytes: usize, #[case] kept: usize) {
    let text = "n".repeat(bytes);
    let more = json!({"spec": {"clusterName": text}});
    let Change::Machine(machine) = machine(&format!("MachineSet/{text}"), "a", &more) else { panic!() };
    assert_eq!(machine.owner.as_ref().map(|(_, name)| name.len()), Some(kept));
    assert_eq!(machine.cluster_name.len(), kept);
    let info = json!({"status": {"nodeInfo": {"architecture": text, "operatingSystem": text}}});
    let template = InfrastructureTemplate::decode(meta_of("t"), &info).unwrap();
    assert_eq!(template.architecture.as_ref().map(ArcStr::len), Some(kept));
    assert_eq!(template.operating_system.as_ref().map(ArcStr::len), Some(kept));
    let annotations = json!({"topology.cluster.x-k8s.io/defer-upgrade": ""});
    let worker = json!({"name": text, "version": text, "replicas": 1, "metadata": {"annotations": annotations}});
    let topology = json!({"spec": {"topology": {"version": text, "workers": {"machineDeployments": [worker]}}}});
    let topology = Cluster::decode(meta_of("stage"), &topology).unwrap().topology.unwrap();
    let (name, version) = &topology.pinned[0];
    let texts = [name, version, &topology.version, &topology.held_back[0], &topology.sized[0]];
    assert_eq!(texts.map(ArcStr::len), [kept; 5]);
}

#[rstest]
#[case::at_the_bound_of_others(LONGEST_VALUE)]
#[case::beyond(200_000)]
fn of_phases_authorities_and_the_words_of_conditions_no_text_is_kept(#[case] bytes: usize) {
    let status = |text: &str| {
        let of_type = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": text});
        let conditions = [of_type(text, text), of_type("InfrastructureReady", "False"), of_type("RollingOut", "True")];
        json!({"status": {"phase": text, "authoritativeAPI": text, "conditions": conditions}})
    };
    let machine = |text: &str| -> Machine {
        let Change::Machine(machine) = machine("MachineSet/workers-1", "a", &status(text)) else { panic!() };
        (*machine).clone()
    };
    let group = |text: &str| -> ScalableResource {
        let Change::Scalable(group) = deployment("workers", 3, ("1", "10"), &status(text)) else { panic!() };
        (*group).clone()
    };
    let long = "x".repeat(bytes);
    assert_eq!((machine(&long), group(&long)), (machine("x"), group("x")));
    assert!(group(&long).handed_over && group(&long).rolling_out_since.is_none());
}

#[rstest]
#[case::of_its_size(|number: u64| json!({"spec": {"replicas": number}}), 2_147_483_647)]
#[case::of_its_reported_size(|number: u64| json!({"status": {"replicas": number}}), 2_147_483_647)]
fn a_number_of_a_group_is_read_up_to_its_bound(#[case] with: fn(u64) -> Value, #[case] at_bound: u64) {
    let decoded = |number: u64| {
        let kind = ScalableKind::MachineDeployment;
        ScalableResource::decode(kind, meta_of("workers"), &with(number), &Context::new("cluster.x-k8s.io"))
    };
    assert!(decoded(at_bound).is_ok() && decoded(at_bound + 1).is_err());
}

#[rstest]
#[case::at_its_bound(LONGEST_MESSAGE)]
#[case::beyond(LONGEST_MESSAGE + 1)]
fn of_the_reasons_that_hold_a_set_back_the_beginning_is_kept(#[case] bytes: usize) {
    let message = format!("Scaling up from 1 to 2 replicas is blocked because:\n* {}", "m".repeat(bytes));
    let condition = json!({"type": "ScalingUp", "status": "True", "message": message});
    let more = json!({"status": {"conditions": [condition]}});
    let Change::Scalable(set) = set_of_with("workers", "workers-1", &more) else { panic!() };
    assert_eq!(set.held_back.as_ref().map(ArcStr::len), Some(LONGEST_MESSAGE));
}

fn meta_of(name: &str) -> Meta {
    Meta { key: ObjectKey::new(NAMESPACE, name), uid: "uid".into(), resource_version: "1".into() }
}

/// Returns this many texts of 100 bytes, each with its own name.
fn texts(count: usize) -> impl Iterator<Item = (String, String)> {
    (0..count).map(|number| (format!("example.com/{number:03}"), "v".repeat(100)))
}

fn map(count: usize) -> Value {
    texts(count).map(|(name, text)| (name, Value::from(text))).collect()
}

/// Each entry counts some 250 bytes, and all of them together have a limit.
#[rstest]
#[case::labels(|count| json!({"metadata": {"labels": map(count)}}))]
#[case::labels_of_machines(|count| json!({"spec": {"template": {"metadata": {"labels": map(count)}}}}))]
#[case::labels_of_nodes(|count| json!({"spec": {"template": {"spec": {"metadata": {"labels": map(count)}}}}}))]
#[case::annotations(|count| {
    let annotation = |(name, text): (String, String)| (format!("capacity.cluster-autoscaler.kubernetes.io/{}", &name[8..]), text);
    json!({"metadata": {"annotations": texts(count).map(annotation).collect::<std::collections::BTreeMap<_, _>>()}})
})]
#[case::taints(|count| {
    let taints = texts(count).map(|(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"}));
    json!({"spec": {"template": {"spec": {"taints": taints.collect::<Vec<_>>()}}}})
})]
fn of_a_groups_texts_as_many_are_kept_as_it_may_have(#[case] with: fn(usize) -> Value) {
    let decoded = |count| {
        let kind = ScalableKind::MachineDeployment;
        ScalableResource::decode(kind, meta_of("workers"), &with(count), &Context::new("cluster.x-k8s.io"))
    };
    assert!(decoded(110).is_ok());
    let error = decoded(140).unwrap_err();
    assert!(error.contains(&format!("no more than {MOST_KEPT} are kept")), "{error}");
}

#[test]
fn references_count_among_a_groups_texts() {
    let decoded = |bytes: usize| {
        let template = json!({"apiGroup": "example.com", "kind": "k".repeat(bytes), "name": "n".repeat(bytes)});
        let spec =
            json!({"spec": {"clusterName": "c".repeat(bytes), "template": {"spec": {"infrastructureRef": template}}}});
        let kind = ScalableKind::MachineDeployment;
        ScalableResource::decode(kind, meta_of("workers"), &spec, &Context::new("cluster.x-k8s.io"))
    };
    assert!(decoded(10_000).is_ok() && decoded(11_000).is_err());
}

#[test]
fn a_group_of_more_texts_than_are_kept_is_left_out_with_its_reason_and_the_others_go_on() {
    let index = index(workers());
    let error = "its labels have too many bytes";
    let notices = index.apply_quietly(Change::ScalableUndecodable(id(WORKERS), error.into()));
    let said = problems(&notices);
    assert!(said.iter().any(|problem| problem.contains(error)), "{said:?}");
}

#[test]
fn of_a_pools_instances_as_many_are_kept_as_it_may_have() {
    let decoded = |instances: usize| {
        let ids: Vec<_> = (0..instances).map(|number| format!("aws:///eu-central-1a/i-{number:017x}")).collect();
        let nodes: Vec<_> = (0..instances).map(|number| json!({"name": format!("ip-10-0-{number}")})).collect();
        let pool = json!({"spec": {"providerIDList": ids}, "status": {"nodeRefs": nodes}});
        ScalableResource::decode(ScalableKind::MachinePool, meta_of("pool"), &pool, &Context::new("cluster.x-k8s.io"))
    };
    assert_eq!(decoded(1_600).unwrap().provider_ids.len(), 1_600);
    let error = decoded(2_000).unwrap_err();
    assert!(error.contains("providerIDs") && error.contains(&MOST_LISTED.to_string()), "{error}");
}

#[test]
fn of_a_topologys_workers_as_many_are_kept_as_it_may_have() {
    let decoded = |workers: usize| {
        let worker = |number: usize| json!({"name": format!("workers-{number:05}"), "replicas": 1});
        let workers: Vec<_> = (0..workers).map(worker).collect();
        let topology = json!({"version": "v1.34.0", "workers": {"machineDeployments": workers}});
        Cluster::decode(meta_of("stage"), &json!({"spec": {"topology": topology}}))
    };
    assert_eq!(decoded(3_000).unwrap().topology.unwrap().sized.len(), 3_000);
    assert!(decoded(4_000).unwrap_err().contains(&MOST_LISTED.to_string()));
}

#[test]
fn of_a_templates_amounts_as_many_are_kept_as_it_may_have() {
    let decoded = |count| InfrastructureTemplate::decode(meta_of("t"), &json!({"status": {"capacity": map(count)}}));
    assert_eq!(decoded(110).unwrap().capacity.len(), 110);
    assert!(decoded(140).unwrap_err().contains(&MOST_KEPT.to_string()));
}

#[test]
fn of_a_node_that_shows_more_resources_than_any_none_is_taken() {
    let resources = |count: usize| {
        let mut amounts = json!({"cpu": "4", "memory": "16Gi"});
        merge(&mut amounts, &(0..count).map(|n| (format!("example.com/{n:04}"), Value::from("1"))).collect());
        let conditions = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"status": {"capacity": amounts, "allocatable": amounts, "conditions": conditions}});
        let Change::Node(node) = node("a", &status) else { panic!() };
        node.resources.as_ref().map(|resources| resources.iter().count())
    };
    // All of them are a text of as many bytes as are kept.
    assert_eq!((resources(779), resources(780)), (Some(781), None));
}

#[test]
fn the_revision_of_a_machine_set_is_read_up_to_its_bound() {
    let read = |text: &str| {
        let more = json!({"metadata": {"annotations": {"machinedeployment.clusters.x-k8s.io/revision": text}}});
        let Change::Scalable(set) = set_of_with("workers", "workers-1", &more) else { panic!() };
        set.revision.is_some()
    };
    assert_eq!((read("9223372036854775807"), read("9223372036854775808")), (true, false));
}

#[rstest]
#[case::at_the_bound_of_others(LONGEST_VALUE)]
#[case::beyond(LONGEST_VALUE + 1)]
fn of_annotations_in_a_topology_only_the_presence_is_kept(#[case] bytes: usize) {
    let of_value = |value: &str| {
        let annotations = json!({"topology.cluster.x-k8s.io/defer-upgrade": value});
        let worker = json!({"name": "workers", "metadata": {"annotations": annotations}});
        let value = json!({"spec": {"topology": {"version": "v1.34.0", "workers": {"machineDeployments": [worker]}}}});
        Cluster::decode(meta_of("stage"), &value).unwrap()
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
