//! Tests of the bytes that objects count with in an informer's limit.

use std::fmt::Debug;

use rstest::rstest;
use shared_informer::Settings;

use super::*;

/// Returns the bytes of all texts of a value, by its debug form. A field that is added counts there by itself.
fn texts_in(value: &impl Debug) -> usize {
    format!("{value:?}").replace("\\n", "\n").split('"').skip(1).step_by(2).map(str::len).sum()
}

fn assert_counts(object: &impl Debug, meta: &Meta, bytes: usize) {
    let texts = texts_in(object) - texts_in(meta);
    assert!(texts <= bytes && bytes <= 4 * texts + 200, "{bytes} bytes for texts of {texts}: {object:?}");
}

#[rstest]
fn each_text_of_a_real_object_counts(
    #[values("steady", "scaling", "rollout")] moment: &str,
    #[values("v1beta1", "v1beta2")] version: &str,
) {
    let objects = management(moment, version);
    assert!(objects.len() > 3, "{objects:?}");
    for object in objects.values() {
        match object {
            Read::Cluster(cluster) => assert_counts(cluster, &cluster.meta, cluster.bytes()),
            Read::Scalable(scalable) => assert_counts(&**scalable, &scalable.meta, scalable.bytes()),
            Read::Machine(machine) => assert_counts(&**machine, &machine.meta, machine.bytes()),
        }
    }
}

#[test]
fn each_text_of_a_machine_that_fails_counts() {
    let condition =
        json!({"type": "InfrastructureReady", "status": "False", "reason": "Quota", "message": "c".repeat(3_000)});
    let object = json!({
        "metadata": {"name": "a", "annotations": {"cluster.x-k8s.io/delete-machine": "yes"}, "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers-1", "controller": true},
        ]},
        "spec": {"clusterName": "prod", "providerID": "p".repeat(1_000)},
        "status": {"nodeRef": {"name": "n".repeat(500)}, "failureReason": "r".repeat(100),
            "failureMessage": "m".repeat(2_000), "conditions": [condition]},
    });
    let machine = Machine::decode(meta_of(&object), &object, &Context::new(DEFAULT_GROUP)).unwrap();
    assert!(machine.bytes() > 6_600, "{}", machine.bytes());
    assert_counts(&machine, &machine.meta, machine.bytes());
}

#[test]
fn each_text_of_a_pool_cluster_and_template_counts() {
    let taint = json!({"key": "k".repeat(100), "value": "v".repeat(100), "effect": "NoSchedule"});
    let template = json!({"taints": [taint], "failureDomain": "zone-a", "version": "v1.34.0",
        "infrastructureRef": {"apiGroup": "example.com", "kind": "PoolTemplate", "name": "t".repeat(100)}});
    let pool = json!({"metadata": {"name": "pool", "labels": {"team": "a".repeat(60)}},
        "spec": {"clusterName": "prod", "providerIDList": ["i".repeat(300), "j".repeat(300)],
            "template": {"spec": template, "metadata": {"labels": {"of": "b".repeat(60)}}}},
        "status": {"nodeRefs": [{"name": "n".repeat(200)}], "failureReason": "r".repeat(100),
            "failureMessage": "m".repeat(500), "conditions": [{"type": "InfrastructureReady", "status": "False",
                "reason": "Quota", "message": "c".repeat(500)}]}});
    let context = Context::new(DEFAULT_GROUP);
    let pool = ScalableResource::decode(ScalableKind::MachinePool, meta_of(&pool), &pool, &context).unwrap();
    assert!(pool.bytes() > 2_400, "{}", pool.bytes());
    assert_counts(&pool, &pool.meta, pool.bytes());

    let worker = json!({"name": "w".repeat(200), "version": "v1.34.1", "replicas": 1});
    let cluster = json!({"metadata": {"name": "prod"},
        "spec": {"topology": {"version": "v1.34.0", "workers": {"machineDeployments": [worker]}}}});
    let cluster = Cluster::decode(meta_of(&cluster), &cluster).unwrap();
    assert!(cluster.bytes() > 400, "its name is kept twice: {}", cluster.bytes());
    for projection in [Cluster::projection(), Cluster::projection_selecting(|_| true)] {
        assert_eq!(projection.bytes_of(&cluster), cluster.bytes(), "{}", projection.name());
    }
    assert_counts(&cluster, &cluster.meta, cluster.bytes());

    let template = json!({"metadata": {"name": "t"}, "status": {"capacity": {"cpu": "4", "memory": "m".repeat(500)},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"}}});
    let template = InfrastructureTemplate::decode(meta_of(&template), &template).unwrap();
    assert!(template.bytes() > 500, "{}", template.bytes());
    assert_counts(&template, &template.meta, template.bytes());
}

/// A kind of as many objects as there may be isn't given up for its bytes, with names and identifiers as clouds have.
#[test]
fn a_fleet_of_as_many_machines_and_nodes_as_there_may_be_is_within_the_limit_of_bytes() {
    /// The memory of an object besides its content and texts, and that of its identity.
    const REST: usize = 128 + 80;
    let name = "ip-10-123-123-123.eu-central-1.compute.internal";
    let provider = "aws:///eu-central-1a/i-0123456789abcdef0";
    let condition = json!({"type": "Ready", "status": "True"});
    let amounts = json!({"cpu": "16", "memory": "65198776Ki", "pods": "110", "ephemeral-storage": "104779756Ki"});
    let node = json!({
        "metadata": {"name": name,
            "annotations": {"cluster.x-k8s.io/machine": "workers-x7k2p-4tq8z", "cluster.x-k8s.io/cluster-namespace": "team-a"},
            "labels": {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m7i.4xlarge", "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": "eu-central-1a"}},
        "spec": {"providerID": provider},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    });
    let context = Context::new(DEFAULT_GROUP);
    let node = Node::decode(meta_of(&node), &node, &context).unwrap();
    assert!(node.resources.is_some());
    assert_counts(&node, &node.meta, node.bytes());
    let machine = json!({
        "metadata": {"namespace": "team-a", "name": "workers-x7k2p-4tq8z", "ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "workers-x7k2p", "controller": true},
        ]},
        "spec": {"clusterName": "prod", "providerID": provider}, "status": {"nodeRef": {"name": name}},
    });
    let machine = Machine::decode(meta_of(&machine), &machine, &context).unwrap();
    for Settings { max_objects, max_bytes, .. } in [Settings::default(), Settings::of_many_tenants()] {
        for bytes in [size_of::<Node>() + node.bytes(), size_of::<Machine>() + machine.bytes()] {
            assert!(max_objects * (REST + bytes) <= max_bytes, "{bytes} bytes of an object");
        }
    }
}
