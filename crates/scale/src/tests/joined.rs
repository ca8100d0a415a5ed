//! Machines that have joined although their nodeRef doesn't show it: Cluster API can't reach the workload cluster, or
//! the watch of Machines lags. Nothing that gives up Machines that never joined may remove them.

use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::ScaleError;

/// Builds three Machines, of which `a` alone has a nodeRef.
fn world() -> World {
    let world = World::new(3, &["a"]);
    for name in ["b", "c"] {
        world.machine(name, &json!({}), &json!({}));
    }
    world
}

fn names(machine: &str) -> Value {
    json!({"cluster.x-k8s.io/machine": machine, "cluster.x-k8s.io/cluster-namespace": "team-a"})
}

/// The fields by which a Node identifies its Machine.
#[derive(Clone, Copy, Debug)]
enum Shown {
    ProviderId,
    ProviderIdWrittenDifferently,
    Annotation,
}

fn show(world: &World, name: &str, shown: Shown) {
    match shown {
        Shown::ProviderId => world.node(name, Some(&format!("cloud:///{name}")), &json!({})),
        Shown::ProviderIdWrittenDifferently => world.node(name, Some(&format!("cloud:///zone-1/{name}")), &json!({})),
        Shown::Annotation => world.node(name, None, &names(name)),
    }
}

/// Begins a delete that names `b` as an instance that never joined, or a decrease that chooses it.
fn give_up(world: &World, by: &str) -> JoinHandle<Result<(), ScaleError>> {
    let (scale, named) = (world.scale.clone(), by == "named");
    tokio::spawn(async move {
        if named {
            scale.delete(group(), instance("pending-machine-team-a_b")).await
        } else {
            scale.decrease(group(), -1).await
        }
    })
}

#[rstest]
#[tokio::test]
async fn a_decrease_leaves_machines_whose_nodes_are_there(
    #[values(Shown::ProviderId, Shown::ProviderIdWrittenDifferently, Shown::Annotation)] shown: Shown,
) {
    let world = world();
    for name in ["b", "c"] {
        show(&world, name, shown);
    }
    world.scale.decrease(group(), -2).await.unwrap();
    assert_eq!(world.api.replicas(), 3);
    assert!(world.api.marked().is_empty() && world.api.log().is_empty());
}

#[rstest]
#[tokio::test]
async fn a_machine_whose_node_is_there_is_not_deleted_by_its_placeholder(
    #[values(Shown::ProviderId, Shown::ProviderIdWrittenDifferently, Shown::Annotation)] shown: Shown,
) {
    let world = world();
    show(&world, "b", shown);
    let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert!(world.api.calls().is_empty());
}

/// The watch shows neither its nodeRef nor its Node, so the API server's answer counts.
#[rstest]
#[case::named("named")]
#[case::chosen("chosen")]
#[tokio::test]
async fn a_machine_that_is_given_up_is_read_whole_first(#[case] by: &str) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    let result = match by {
        "named" => world.scale.delete(group(), instance("pending-machine-team-a_b")).await,
        _ => world.scale.decrease(group(), -1).await,
    };
    match by {
        "named" => assert_eq!(result.unwrap_err().code(), "failed_precondition"),
        _ => result.unwrap(),
    }
    assert_eq!((world.api.replicas(), world.api.marked(), world.api.log()), (3, vec![], vec![]));
    assert!(!world.api.calls().iter().any(|call| call.contains("PATCH")), "{:?}", world.api.calls());
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
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec![]));
}

/// Its Node comes while the log is written, and its nodeRef lags, so the mark tests the version that was read and
/// passes.
#[tokio::test]
async fn a_machine_whose_node_is_shown_before_it_is_marked_stays() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH group", Fault::Hold);
    let command = give_up(&world, "named");
    world.api.held().await;
    show(&world, "b", Shown::ProviderId);
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.marked(), world.api.log()), (3, vec![], vec![]));
}

/// Its mark was rejected and it was read again; its Node comes while the log is read after that.
#[tokio::test(start_paused = true)]
async fn a_machine_whose_node_is_shown_while_the_log_is_read_stays() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH machine b", Fault::Answer(409, status(409, "Conflict")));
    // The group is read before the mark is retried, and again after its Machine was read.
    for _ in 0..2 {
        world.api.fault("GET group", Fault::Hold);
    }
    let command = give_up(&world, "named");
    world.api.held().await;
    world.api.release();
    world.api.held().await;
    assert_eq!(world.api.calls()[3..], ["GET group", "GET machine b", "GET group"]);
    show(&world, "b", Shown::ProviderId);
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "failed_precondition", "{error}");
    assert_eq!((world.api.replicas(), world.api.marked(), world.api.log()), (3, vec![], vec![]));
}

/// It joins after it was read, so the mark's test of the version that was read fails.
#[rstest]
#[case::named("named")]
#[case::chosen("chosen")]
#[tokio::test]
async fn a_machine_that_joins_before_it_is_marked_stays(#[case] by: &str) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH machine b", Fault::Hold);
    let named = by == "named";
    let command = give_up(&world, by);
    world.api.held().await;
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    world.api.release();
    let result = command.await.unwrap();
    if named {
        assert_eq!(result.unwrap_err().code(), "failed_precondition");
    } else {
        result.unwrap();
    }
    assert_eq!((world.api.replicas(), world.api.marked(), world.api.log()), (3, vec![], vec![]));
}

/// The other Machine is deleted, or its mark failed and its deletion is continued.
#[rstest]
#[case::it_goes(0, 2, "a lowered", "other Machines that were named with it go")]
#[case::it_is_to_go(6, 3, "a wanted", "ask again for its result")]
#[tokio::test(start_paused = true)]
async fn a_request_whose_other_machine_goes_is_not_refused_for_good_for_one_that_has_joined(
    #[case] failed_marks: usize,
    #[case] replicas: i32,
    #[case] log: &str,
    #[case] text: &str,
) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH machine b", Fault::Hold);
    for _ in 0..failed_marks {
        world.api.fault("PATCH machine a", Fault::Answer(503, status(503, "down")));
    }
    let scale = world.scale.clone();
    let named = [instance("pending-machine-team-a_b"), nodes(&["a"])].concat();
    let command = tokio::spawn(async move { scale.delete(group(), named).await });
    world.api.held().await;
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains(text), "{error}");
    assert_eq!((world.api.replicas(), world.api.log()), (replicas, vec![log.to_owned()]));
}

#[tokio::test]
async fn one_that_joins_after_the_size_was_lowered_for_it_is_a_success_when_named_again() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap();
    world.watch();
    world.node("b", Some("cloud:///b"), &json!({}));
    world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec!["b lowered".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_a_machine_that_joined_after_an_unanswered_log_write_is_unavailable() {
    let world = World::new(4, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH group", Fault::CutBefore);
    world.api.fault("GET group", Fault::Hold);
    let (scale, both) = (world.scale.clone(), [instance("pending-machine-team-a_b"), nodes(&["a"])].concat());
    let call = tokio::spawn(async move { scale.delete(group(), both).await });
    world.api.held().await;
    world.machine_unseen("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    world.api.release();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert!(error.to_string().contains("isn't known whether"), "{error}");
}

/// Runs another copy of the program, whose watches go on, until the log is empty.
async fn another_copy_carries_on(world: &World) {
    let other = world.another_copy();
    for _ in 0..1_000 {
        if world.api.log().is_empty() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        other.watch();
    }
    panic!("in vain: the log is {:?}", world.api.log());
}

/// Another copy carries on the log of a killed one, and knows the kind of the entry.
#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_while_its_copy_is_down_stays() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    for _ in 0..6 {
        world.api.fault("PATCH machine b", Fault::Answer(503, status(503, "down")));
    }
    let error = world.scale.delete(group(), instance("pending-machine-team-a_b")).await.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!(world.api.log().len(), 1, "it is carried on");
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    another_copy_carries_on(&world).await;
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec![]));
}

/// Its entry is wanted and it is marked: a smaller size in flight for another Machine may remove it by now, so the size
/// is lowered for it too. If its entry were taken back, it would run with a mark and without an entry.
#[rstest]
#[case::named("named")]
#[case::chosen("chosen")]
#[tokio::test(start_paused = true)]
async fn a_machine_that_joins_after_it_was_marked_keeps_its_entry_and_its_mark(#[case] by: &str) {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    world.api.fault("PATCH machine b", Fault::Hold);
    let command = give_up(&world, by);
    world.api.held().await;
    for _ in 0..6 {
        world.api.fault("PATCH group", Fault::Answer(503, status(503, "down")));
    }
    world.api.release();
    let error = command.await.unwrap().unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!((world.api.log().len(), world.api.marked()), (1, vec!["b".to_owned()]), "it is carried on");
    let mark = world.api.mark_of("b").unwrap();
    let annotations = json!({"annotations": {"cluster.x-k8s.io/delete-machine": mark}});
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &annotations);
    let before = world.api.calls().len();
    let other = world.another_copy();
    for _ in 0..100 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        other.watch();
    }
    let lowered = if by == "named" { "b lowered" } else { "b lowered soft" };
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec![lowered.to_owned()]));
    assert_eq!(world.api.mark_of("b"), Some(mark));
    assert_eq!(world.api.calls()[before..].iter().filter(|call| call.contains("PATCH machine")).count(), 0);
}

#[tokio::test]
async fn deletes_of_machines_with_nodes_still_read_nothing() {
    let world = World::new(3, &["a", "b", "c"]);
    world.scale.delete(group(), super::fake::nodes(&["b"])).await.unwrap();
    assert!(world.api.calls().iter().all(|call| call.starts_with("PATCH")), "{:?}", world.api.calls());
}

/// The watch doesn't show it any more: the smaller size would remove another Machine.
#[tokio::test(start_paused = true)]
async fn one_that_was_chosen_and_is_gone_lowers_nothing() {
    let world = World::new(3, &["a", "c"]);
    world.machine("b", &json!({}), &json!({}));
    for _ in 0..6 {
        world.api.fault("PATCH machine b", Fault::Answer(503, status(503, "down")));
    }
    let error = world.scale.decrease(group(), -1).await.unwrap_err();
    assert_eq!((error.code(), world.api.log().len()), ("unavailable", 1), "{error}");
    world.api.remove("b");
    world.machine("d", &json!({"nodeRef": {"name": "d"}}), &json!({}));
    another_copy_carries_on(&world).await;
    assert_eq!(world.api.replicas(), 3);
}

/// Its Node has another providerID, or none, so Cluster Autoscaler wouldn't recognise it by the Machine's.
#[rstest]
#[case::another(Some("cloud:///zone-1/b"), "cloud:///zone-1/b")]
#[case::none(None, "pending-machine-team-a_b")]
#[tokio::test]
async fn the_id_of_one_that_has_joined_is_the_one_that_its_node_has(#[case] id: Option<&str>, #[case] expected: &str) {
    let world = world();
    world.node("b", id, &names("b"));
    let instances = world.index.instances(&group()).unwrap();
    assert_eq!(instances[1].id, expected);
}
