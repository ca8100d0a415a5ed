//! Machines that have joined although their nodeRef doesn't show it: Cluster API can't reach the workload cluster, or
//! the watch of Machines lags. Nothing that gives up Machines that never joined may remove them.

use rstest::rstest;
use serde_json::json;

use super::{
    fake::{Fault, World, group, instance, nodes},
    held,
};

/// Their Nodes have another form of the providerID.
#[tokio::test]
async fn machines_whose_nodes_are_there_are_left_by_a_decrease_and_not_deleted_by_their_placeholders() {
    let world = World::new(3, &["a"]);
    for name in ["b", "c"] {
        world.machine(name, &json!({}), &json!({}));
        world.node(name, Some(&format!("cloud:///zone-1/{name}")), &json!({}));
    }
    world.scale.decrease(group(), -2).await.unwrap();
    let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.calls()), (3, vec![]));
}

/// The watch shows neither its nodeRef nor its Node: its version has changed, so that it is read.
#[rstest]
#[case::named(true)]
#[case::chosen(false)]
#[tokio::test]
async fn a_machine_that_has_joined_unseen_stays(#[case] is_named: bool) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    if is_named {
        let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
        assert_eq!(error.code(), "failed_precondition", "{error}");
    } else {
        world.scale.decrease(group(), -1).await.unwrap();
    }
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec![]));
}

/// Another replica has deleted `a`, so that the request passes the minimum by what the watch shows: its Machines are read.
#[tokio::test]
async fn a_machine_that_has_joined_unseen_stays_when_the_others_are_gone_already() {
    let world = World::new(2, &["a"]);
    world.machine("b", &json!({}), &json!({}));
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    world.api.remove("a");
    let named = [nodes(&["a"]), instance("pending-machine-team-a_b")].concat();
    let error = world.scale.delete(group(), named).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec![]));
}

/// Its Node exists, and the API server returns the providerID that makes it the Machine's.
#[tokio::test]
async fn a_machine_that_is_given_up_is_known_by_the_provider_id_that_is_read() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.change("machines", "b", json!({"spec": {"providerID": "cloud:///new"}}));
    world.node("node-b", Some("cloud:///new"), &json!({}));
    let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec![]));
}

/// Its Node comes while the size is tried, and its nodeRef lags, so that its version is still the one that was seen.
#[tokio::test]
async fn a_machine_whose_node_is_shown_before_it_is_deleted_stays() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    let named = instance("pending-machine-team-a_b");
    let command =
        held(&world, "TRY scale", Fault::Hold, |scale| async move { scale.delete(group(), named).await }).await;
    world.node("b", Some("cloud:///b"), &json!({}));
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec![]));
}

#[tokio::test]
async fn a_request_whose_other_machine_goes_is_not_refused_for_good_for_one_that_has_joined() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    let named = [instance("pending-machine-team-a_b"), nodes(&["a"])].concat();
    let error = world.scale.delete(group(), named).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("other Machines that were named with it go"), "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec!["a".to_owned()]));
}

#[tokio::test]
async fn one_that_joins_after_it_was_deleted_is_a_success_when_named_again() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap();
    world.watch();
    world.node("b", Some("cloud:///b"), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap();
    assert_eq!(world.api.replicas(), 2);
}

/// An instance of a MachinePool has a Node that joined since, or whose providerID is written in another form.
#[rstest]
#[case::as_it_is_listed("azure:///vm/a", &[])]
#[case::in_another_form("azure:////vm/a", &[])]
#[case::in_capitals("azure:////vm/A", &["n"])]
#[tokio::test]
async fn an_unregistered_instance_of_a_pool_whose_node_is_there_stays(#[case] of_node: &str, #[case] refs: &[&str]) {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["azure:///vm/a", "azure:///vm/b"]);
    let refs: Vec<_> = refs.iter().map(|name| json!({ "name": name })).collect();
    world.api.status("machinepools", "pool", &json!({ "nodeRefs": refs }));
    world.watch();
    world.node("n", Some(of_node), &json!({}));
    let unregistered = |id| {
        let mut named = instance(id);
        let reason = ("k8s.io/cluster-autoscaler/fake-node-reason".to_owned(), "unregistered".to_owned());
        named[0].annotations = [reason].into();
        named
    };
    let error = world.scale.delete(pool.clone(), unregistered("azure:///vm/a")).await.unwrap_err();
    assert_eq!((error.code(), world.size_of_pool()), ("failed_precondition", 3), "{error}");
    world.scale.delete(pool, unregistered("azure:///vm/b")).await.unwrap();
    assert_eq!(world.size_of_pool(), 2, "that one never came");
}
