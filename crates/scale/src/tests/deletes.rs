//! Deletes: the Machines that go and are subtracted from the size, and the number of API calls.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use super::{
    ABCD, begin,
    fake::{Fault, LONG, World, group, instance, nodes, nodes_of_pool, status},
    held,
};
use crate::{MachinePoolDeletes, NamedNode, ScaleError, ScaleOptions};

#[tokio::test]
async fn a_delete_tries_the_size_deletes_and_lowers_without_a_read() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b", "d"])).await.unwrap();
    assert_eq!(world.api.deleting(), ["b", "d"]);
    assert_eq!((world.api.replicas(), world.target_size()), (2, 2));
    let mut calls = world.api.calls();
    calls[1..3].sort();
    assert_eq!(calls, ["TRY scale", "DELETE machine b", "DELETE machine d", "PATCH scale"]);
}

#[tokio::test]
async fn one_that_is_named_twice_or_again_is_deleted_once() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b", "b"])).await.unwrap();
    let before = world.api.calls().len();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.calls().len()), (3, before));
}

/// The other replica's watch shows the objects from before.
#[rstest]
#[case::while_it_is_being_deleted(4, false)]
#[case::when_it_is_gone(4, true)]
#[case::at_the_minimum_by_now(2, false)]
#[tokio::test]
async fn one_that_is_named_again_to_another_replica_lowers_nothing_more(#[case] size: i32, #[case] is_gone: bool) {
    let world = World::new(size, &ABCD[..usize::try_from(size).unwrap()]);
    let other = world.another_copy();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    if is_gone {
        world.api.remove("b");
    }
    other.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.replicas(), size - 1);
}

#[tokio::test]
async fn each_caller_of_a_batch_is_answered_for_its_own_nodes() {
    let world = World::new(3, &["a", "b", "c"]);
    let scale = &world.scale;
    let (unknown, first, two, second) = tokio::join!(
        scale.delete(group(), nodes(&["z"])),
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), nodes(&["b", "c"])),
        scale.delete(group(), nodes(&["b"])),
    );
    assert_eq!(unknown.unwrap_err().code(), "not_found");
    assert_eq!((first, second), (Ok(()), Ok(())));
    assert_eq!(two.unwrap_err().code(), "failed_precondition", "the minimum is 1, and a was there first");
    assert_eq!((world.api.replicas(), world.api.deleting()), (1, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_hangs_keeps_no_size_from_the_others() {
    let world = World::new(4, &ABCD);
    world.api.fault("DELETE machine b", Fault::Hold);
    let scale = world.scale.clone();
    let (hanging, others) = (scale.delete(group(), nodes(&["a", "b"])), scale.delete(group(), nodes(&["c"])));
    let lowered = async {
        world.api.held().await;
        while world.api.replicas() == 4 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!((world.api.replicas(), world.api.deleting()), (2, vec!["a".to_owned(), "c".to_owned()]));
        world.api.release();
    };
    let (hanging, others, ()) = tokio::join!(hanging, others, lowered);
    assert_eq!((hanging, others), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.api.deleting().len()), (1, 3));
}

#[rstest]
#[case::below_min(nodes(&["a", "b"]), "failed_precondition")]
#[case::unknown_node(nodes(&["a", "z"]), "not_found")]
#[case::replicas_that_are_none(instance("replica-MachineDeployment-team-a_workers-0"), "failed_precondition")]
#[case::a_pending_one_that_has_joined(instance("pending-machine-team-a_a"), "failed_precondition")]
#[tokio::test]
async fn a_wrong_delete_writes_nothing(#[case] named: Vec<NamedNode>, #[case] code: &str) {
    let world = World::new(2, &["a", "b"]);
    let error = world.scale.delete(group(), named).await.unwrap_err();
    assert_eq!(error.code(), code, "{error}");
    let is_write = |call: &String| call.contains("PATCH") || call.contains("DELETE");
    assert!(!world.api.calls().iter().any(is_write), "{:?}", world.api.calls());
}

#[tokio::test]
async fn a_machine_without_a_node_is_deleted_by_its_placeholder() {
    let world = World::new(3, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_c")).await.unwrap();
    assert_eq!(world.api.deleting(), ["c"]);
    assert_eq!(world.api.replicas(), 2);
}

/// Whoever deletes it lowers the size, or it is replaced.
#[tokio::test]
async fn a_machine_that_somebody_else_deletes_lowers_nothing() {
    let world = World::new(4, &ABCD);
    world.api.begin_to_delete("b");
    world.watch();
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.calls()), (4, vec![]));
}

/// The watch doesn't show yet that somebody else, or another replica of this program, is deleting it.
#[tokio::test]
async fn a_machine_that_is_being_deleted_unseen_lowers_nothing() {
    let world = World::new(4, &ABCD);
    world.api.begin_to_delete("b");
    world.scale.delete(group(), nodes(&["b", "c"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec!["b".to_owned(), "c".to_owned()]));
}

/// Its status was written since.
#[tokio::test]
async fn a_machine_that_has_changed_is_read_and_deleted_in_its_new_version() {
    let world = World::new(4, &ABCD);
    world.api.change("machines", "b", json!({"metadata": {"labels": {"x": "y"}}}));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (3, vec!["b".to_owned()]));
    let calls = world.api.calls();
    assert_eq!(calls, ["TRY scale", "DELETE machine b", "GET machine b", "DELETE machine b", "PATCH scale"]);
}

#[tokio::test]
async fn a_machine_that_was_made_anew_under_its_name_stays() {
    let world = World::new(4, &ABCD);
    world.api.remove("b");
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({"uid": "uid-of-another"}));
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec![]));
}

/// Its Machines were those of the former object.
#[tokio::test]
async fn the_size_of_a_group_that_was_made_anew_is_not_lowered() {
    let world = World::new(4, &ABCD);
    world.api.fault("PATCH scale", Fault::CutBefore);
    let delete =
        held(&world, "GET group", Fault::Hold, |scale| async move { scale.delete(group(), nodes(&["b"])).await }).await;
    world.api.make_group_anew(4);
    world.api.release();
    let error = delete.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the object is gone"), "{error}");
    assert_eq!((world.api.replicas(), world.api.deleting()), (4, vec!["b".to_owned()]));
}

#[tokio::test]
async fn fifty_deletes_at_once_are_fifty_calls_and_one_size() {
    let names: Vec<String> = (0..60).map(|number| format!("m{number:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(60, &names);
    let deletes = names[..50].iter().map(|name| world.scale.delete(group(), nodes(&[name])));
    for result in futures::future::join_all(deletes).await {
        result.unwrap();
    }
    assert_eq!((world.api.replicas(), world.api.deleting().len()), (10, 50));
    let calls = world.api.calls();
    assert!(calls.len() <= 53 && !calls.contains(&"LIST machines".to_owned()), "{} calls: {calls:?}", calls.len());
}

/// A Node stays for a while after its instance.
#[rstest]
#[case::with_the_owners_annotations(nodes_of_pool)]
#[case::by_its_provider_id_alone(nodes)]
#[tokio::test]
async fn an_accepted_instance_of_a_machine_pool_named_again_lowers_nothing(
    #[case] named: fn(&[&str]) -> Vec<NamedNode>,
) {
    let world = World::new(1, &[]);
    let pool = world.pool(4, &["cloud:///a", "cloud:///b", "cloud:///c", "cloud:///d"]);
    for names in [["a"], ["a"], ["b"]] {
        world.scale.delete(pool.clone(), named(&names)).await.unwrap();
    }
    assert_eq!(world.size_of_pool(), 2);
    for listed in [["cloud:///b", "cloud:///c", "cloud:///d"].as_slice(), &["cloud:///c", "cloud:///d"]] {
        world.pool(2, listed);
        for name in ["a", "b", "a"] {
            world.scale.delete(pool.clone(), named(&[name])).await.unwrap();
            assert_eq!(world.size_of_pool(), 2, "{name} was named, and {listed:?} are there");
        }
    }
    world.pool(3, &["cloud:///a", "cloud:///c", "cloud:///d"]);
    world.scale.delete(pool, named(&["a"])).await.unwrap();
    assert_eq!(world.size_of_pool(), 2, "it came anew");
}

/// Its instance has been replaced, or another copy has deleted it. A smaller size would take a running one.
#[tokio::test]
async fn a_node_that_its_machine_pool_does_not_list_lowers_nothing() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///d"]);
    let unlisted = nodes_of_pool(&["c"]);
    let without_id = vec![NamedNode { provider_id: String::new(), ..nodes_of_pool(&["c"]).remove(0) }];
    let with_another = nodes_of_pool(&["a", "c"]);
    for named in [unlisted, without_id, with_another] {
        let error = world.scale.delete(pool.clone(), named).await.unwrap_err();
        assert_eq!(error.code(), "not_found", "{error}");
        assert!(error.to_string().contains("spec.providerIDList"), "{error}");
    }
    assert_eq!(world.size_of_pool(), 3);
    assert!(world.api.calls().is_empty());
}

/// The infrastructure provider removed another instance. Cluster Autoscaler repeats the request in every loop.
#[tokio::test(start_paused = true)]
async fn an_instance_of_a_machine_pool_that_stays_lowers_the_size_again_however_often_it_is_named() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b"]);
    for second in (0..=300).step_by(10) {
        world.scale.delete(pool.clone(), nodes_of_pool(&["a"])).await.unwrap();
        assert_eq!(world.size_of_pool(), if second < 300 { 2 } else { 1 }, "after {second} s");
        tokio::time::advance(Duration::from_secs(10)).await;
    }
}

/// A Machine of it that no watch shows yet would go in its place.
#[tokio::test]
async fn an_instance_of_a_machine_pool_whose_machines_can_not_be_counted_lowers_nothing() {
    let world = World::new(1, &[]);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///c"]);
    world.api.fault("LIST machines", Fault::Answer(403, status(403, "forbidden")));
    let error = world.scale.delete(pool, nodes_of_pool(&["a"])).await.unwrap_err();
    assert_eq!((error.code(), world.size_of_pool()), ("permission_denied", 3), "{error}");
}

#[tokio::test]
async fn an_instance_that_no_one_can_delete_by_name_is_refused_where_the_operator_says_so() {
    let options = ScaleOptions { machine_pool_deletes: MachinePoolDeletes::Refuse, ..ScaleOptions::default() };
    let world = World::with_options(1, &[], options);
    let pool = world.pool(3, &["cloud:///a", "cloud:///b", "cloud:///c"]);
    let error = world.scale.delete(pool, nodes_of_pool(&["a"])).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(error.to_string().contains("--machine-pool-deletes"), "{error}");
    assert_eq!(world.size_of_pool(), 3);
    assert!(world.api.calls().is_empty());
}

#[tokio::test]
async fn a_command_after_the_end_was_asked_for_is_refused() {
    let world = World::new(4, &ABCD);
    world.scale.drain(LONG).await.unwrap();
    let error = world.scale.delete(group(), nodes(&["b"])).await.unwrap_err();
    assert!(matches!(error, ScaleError::Unavailable(_)), "{error:?}");
    assert!(world.api.calls().is_empty());
}

/// Its controller may see the smaller size before the deletion, and take another Machine then.
#[tokio::test(start_paused = true)]
async fn the_size_of_a_bare_machine_set_follows_when_cluster_api_has_seen_the_deletion() {
    let world = World::new(1, &[]);
    let set = world.bare_set(3, &["a", "b", "c"]);
    let id = set.clone();
    let command = begin(&world, |scale| async move { scale.delete(id, nodes(&["b"])).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(world.api.calls(), ["TRY scale", "DELETE machine b"]);
    world.api.status("machines", "b", &json!({"phase": "Deleting"}));
    world.watch();
    command.await.unwrap().unwrap();
    assert_eq!(world.api.calls()[2..], ["PATCH scale"]);
    world.scale.delete(set, nodes(&["c"])).await.unwrap();
    assert_eq!(world.api.deleting(), ["b", "c"], "where Cluster API is down, the size follows after two seconds");
}
