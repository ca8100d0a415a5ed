//! Machines that can't be read before they are decided on: they delay no request that doesn't name them.

use rstest::rstest;
use serde_json::json;

use super::fake::{Fault, World, group, instance, nodes, status};
use crate::NodeName;

#[rstest]
#[case::forbidden(403, "permission_denied")]
#[case::failing(500, "unavailable")]
#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_fails_no_other_request_of_its_batch(#[case] code: u16, #[case] error: &str) {
    let world = World::new(4, &["a", "b", "d"]);
    world.machine("c", &json!({}), &json!({}));
    for _ in 0..30 {
        world.api.fault("GET machine c", Fault::Answer(code, status(code, "made up")));
    }
    let scale = &world.scale;
    let (a, c, b) = tokio::join!(
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), instance("pending-machine-team-a_c")),
        scale.delete(group(), nodes(&["b"])),
    );
    assert_eq!((a, b), (Ok(()), Ok(())));
    assert_eq!(c.unwrap_err().code(), error);
    assert_eq!((world.api.replicas(), world.api.marked()), (2, vec!["a".to_owned(), "b".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_at_first_is_deleted_after_the_others_of_its_batch() {
    let world = World::new(3, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    for _ in 0..3 {
        world.api.fault("GET machine c", Fault::Answer(500, status(500, "made up")));
    }
    let scale = &world.scale;
    let (c, a) = tokio::join!(
        scale.delete(group(), instance("pending-machine-team-a_c")),
        scale.delete(group(), nodes(&["a"])),
    );
    assert_eq!((c, a), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.api.marked()), (1, vec!["a".to_owned(), "c".to_owned()]));
    let calls = world.api.calls();
    let writes: Vec<_> = calls.iter().filter(|call| call.starts_with("PATCH")).map(String::as_str).collect();
    let group = "PATCH group";
    assert_eq!(writes, [group, "PATCH machine a", group, group, "PATCH machine c", group], "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn machines_that_cannot_be_read_share_one_turn() {
    let world = World::new(4, &["a"]);
    for name in ["b", "c"] {
        world.machine(name, &json!({}), &json!({}));
    }
    for call in ["GET machine b", "GET machine c"] {
        world.api.fault(call, Fault::Answer(500, status(500, "made up")));
    }
    let scale = &world.scale;
    let (b, a, c) = tokio::join!(
        scale.delete(group(), instance("pending-machine-team-a_b")),
        scale.delete(group(), nodes(&["a"])),
        scale.delete(group(), instance("pending-machine-team-a_c")),
    );
    assert_eq!((b, a, c), (Ok(()), Ok(()), Ok(())));
    let calls = world.api.calls();
    assert_eq!(calls.iter().filter(|call| *call == "PATCH group").count(), 4, "two batches: {calls:?}");
}

/// The log write may still arrive, so nothing of it is refused for good.
#[tokio::test(start_paused = true)]
async fn a_machine_that_cannot_be_read_after_a_log_write_without_an_answer_is_not_refused_for_good() {
    let world = World::new(4, &["a", "b"]);
    world.machine("c", &json!({}), &json!({}));
    world.api.fault("PATCH group", Fault::CutBefore);
    world.api.fault("GET machine c", Fault::Hold);
    world.api.fault("GET machine c", Fault::Answer(403, status(403, "forbidden")));
    let both = [nodes(&["b"]), instance("pending-machine-team-a_c")].concat();
    let released = async {
        world.api.held().await;
        world.api.release();
    };
    let (a, bc, ()) =
        tokio::join!(world.scale.delete(group(), nodes(&["a"])), world.scale.delete(group(), both), released);
    assert_eq!(a, Ok(()));
    let error = bc.unwrap_err();
    assert_eq!(error.code(), "unavailable", "{error}");
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["a".to_owned()]));
}

#[rstest]
#[case::a_machine_that_is_being_deleted(4, nodes(&["b"]))]
#[case::a_replica_without_a_machine(5, instance("replica-MachineDeployment-team-a_workers-0"))]
#[case::both(5, [nodes(&["b"]), instance("replica-MachineDeployment-team-a_workers-0")].concat())]
#[tokio::test]
async fn a_list_that_fails_fails_no_request_that_needs_none(#[case] size: i32, #[case] counted: Vec<NodeName>) {
    let world = World::new(size, &["a", "b", "c", "d"]);
    world.api.begin_to_delete("b");
    world.watch();
    world.api.fault("LIST machines", Fault::Answer(403, status(403, "forbidden")));
    let scale = &world.scale;
    let (a, b) = tokio::join!(scale.delete(group(), nodes(&["a"])), scale.delete(group(), counted));
    assert_eq!((a, b.unwrap_err().code()), (Ok(()), "permission_denied"));
    assert_eq!((world.api.replicas(), world.api.log()), (size - 1, vec!["a lowered".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_be_counted_at_first_is_given_up_after_the_others_of_its_batch() {
    let world = World::new(5, &["a", "b", "c", "d"]);
    for _ in 0..3 {
        world.api.fault("LIST machines", Fault::Answer(500, status(500, "made up")));
    }
    let scale = &world.scale;
    let replica = instance("replica-MachineDeployment-team-a_workers-0");
    let (replica, a) = tokio::join!(scale.delete(group(), replica), scale.delete(group(), nodes(&["a"])));
    assert_eq!((replica, a), (Ok(()), Ok(())));
    assert_eq!((world.api.replicas(), world.api.marked()), (3, vec!["a".to_owned()]));
    let calls = world.api.calls();
    let first = calls.iter().position(|call| call == "PATCH machine a");
    let lists: Vec<_> = (0..calls.len()).filter(|at| calls[*at] == "LIST machines").collect();
    assert!(lists.len() >= 4 && first < Some(lists[1]), "the second list comes after the other's mark: {calls:?}");
}

/// A list without end would occupy the command, and with it all others of its group, for ever.
#[tokio::test(start_paused = true)]
async fn a_list_of_machines_that_has_no_end_fails_the_command_at_its_bound() {
    let world = World::new(4, &["a", "b"]);
    let page = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": [],
        "metadata": {"resourceVersion": "1", "continue": "more"},
    });
    for _ in 0..1_000 {
        world.api.fault("LIST machines", Fault::Answer(200, page.clone()));
    }
    let error = world.scale.decrease(group(), -1).await.unwrap_err();
    assert!(error.to_string().contains("the list of Machines has more than 300 pages of 500"), "{error}");
    let lists = world.api.calls().iter().filter(|call| *call == "LIST machines").count();
    assert_eq!((lists, world.api.replicas()), (300, 4));
}
