//! Tests of OpenShift's Machine API: its MachineSets, Machines and Nodes, decoded under its group.

use super::*;

fn context() -> Arc<Context> {
    Context::new(OPENSHIFT_GROUP)
}

fn object(file: &str, name: &str) -> Value {
    let objects = fixture("machine-api", file);
    objects.into_iter().find(|object| object["metadata"]["name"] == name).unwrap()
}

fn machine_set(name: &str) -> ScalableResource {
    let object = object("management.yaml", &format!("prod-x7k2p-{name}"));
    ScalableResource::decode(ScalableKind::MachineSet, meta_of(&object), &object, &context()).unwrap()
}

fn machine_of(name: &str) -> Machine {
    let object = object("management.yaml", &format!("prod-x7k2p-{name}"));
    Machine::decode(meta_of(&object), &object, &context()).unwrap()
}

#[test]
fn a_machine_set_says_its_bounds_capacity_and_what_its_nodes_get() {
    let gpu = machine_set("gpu-eu-central-1a");
    assert_eq!(&*gpu.annotations["machine.openshift.io/cluster-api-autoscaler-node-group-max-size"], "4");
    assert_eq!(&*gpu.annotations["capacity.cluster-autoscaler.kubernetes.io/gpu-count"], "1");
    assert_eq!((gpu.deployment, gpu.infrastructure, &*gpu.cluster_name), (None, None, ""));
    assert_eq!((gpu.replicas, gpu.generation), (Some(0), 2));
    let labels: Vec<_> = gpu.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(labels, ["example.com/tier=batch", "node-role.kubernetes.io/gpu="]);
    assert_eq!((&*gpu.taints[0].key, gpu.taints[0].propagation), ("nvidia.com/gpu", Propagation::Always));
    assert!(!gpu.handed_over);
}

#[rstest]
#[case::never_said(json!(null), false)]
#[case::empty(json!(""), false)]
#[case::machine_api(json!("MachineAPI"), false)]
#[case::cluster_api(json!("ClusterAPI"), true)]
#[case::migrating(json!("Migrating"), true)]
fn a_machine_set_says_which_api_has_the_authority(#[case] authority: Value, #[case] handed_over: bool) {
    let mut object = object("management.yaml", "prod-x7k2p-worker-eu-central-1c");
    object["status"]["authoritativeAPI"] = authority;
    let set = ScalableResource::decode(ScalableKind::MachineSet, meta_of(&object), &object, &context()).unwrap();
    assert_eq!(set.handed_over, handed_over);
}

#[test]
fn machines_say_their_owner_node_and_failure() {
    let running = machine_of("worker-eu-central-1a-4hq8z");
    assert_eq!(running.owner, Some((ScalableKind::MachineSet, "prod-x7k2p-worker-eu-central-1a".into())));
    assert_eq!(running.node_name.as_deref(), Some("ip-10-0-1-11.prod-x7k2p.internal"));
    assert_eq!(running.provider_id.as_deref(), Some("aws:///eu-central-1a/i-0aaa0000000000011"));
    assert_eq!((running.phase, running.failure()), (MachinePhase::Other, None));

    let failed = machine_of("worker-eu-central-1b-m8s7q");
    let failure = failed.failure().unwrap();
    assert_eq!((failed.phase, failure.reason.as_deref()), (MachinePhase::Failed, Some("InsufficientResources")));
    assert!(failure.message.as_ref().unwrap().contains("quota"));

    assert_eq!(machine_of("master-0").owner, None, "a ControlPlaneMachineSet is no group");
    let mut marked = object("management.yaml", "prod-x7k2p-worker-eu-central-1a-4hq8z");
    marked["metadata"]["annotations"]["machine.openshift.io/delete-machine"] = json!("yes");
    let marked = Machine::decode(meta_of(&marked), &marked, &context()).unwrap();
    assert_eq!(marked.delete_mark().map(ArcStr::as_str), Some("yes"));
}

#[test]
fn a_node_names_its_machine_with_its_namespace() {
    let object = object("workload-nodes.yaml", "ip-10-0-1-11.prod-x7k2p.internal");
    let node = Node::decode(meta_of(&object), &object, &context()).unwrap();
    let machine = ObjectKey::new("openshift-machine-api", "prod-x7k2p-worker-eu-central-1a-4hq8z");
    assert_eq!(node.machine, Some(machine));
}

#[rstest]
#[case::cluster_api(&[("machine", "m-1"), ("cluster-namespace", "team-a")], Some(("team-a", "m-1")))]
#[case::openshift(&[("machine", "team-a/m-1")], Some(("team-a", "m-1")))]
#[case::what_stands_there_wins(&[("machine", "team-a/m-1"), ("cluster-namespace", "team-b")], Some(("team-a", "m-1")))]
#[case::no_namespace(&[("machine", "m-1")], None)]
#[case::no_machine(&[("cluster-namespace", "team-a")], None)]
fn annotations_lead_to_a_machine(#[case] annotations: &[(&str, &str)], #[case] expected: Option<(&str, &str)>) {
    let keys = Keys::new("example.com");
    let annotation = |key: &str| {
        let name = key.strip_prefix("example.com/")?;
        annotations.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    };
    assert_eq!(keys.machine_of(annotation), expected);
}
