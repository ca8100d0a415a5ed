//! Machines that somebody else has deleted without the watch showing it: the answers to their marks show it, and the
//! size is lowered for them only where no other Machine has replaced them.

use rstest::rstest;
use serde_json::json;

use super::fake::{Fault, World, group, nodes};

const ABC: [&str; 3] = ["a", "b", "c"];

/// The state of a deletion by somebody else.
#[derive(Clone, Copy)]
enum Deletion {
    Begun,
    Done,
}

impl Deletion {
    /// Begins or completes the deletion without the watch showing it.
    fn of(self, world: &World, machine: &str) {
        match self {
            Self::Begun => world.api.begin_to_delete(machine),
            Self::Done => world.api.remove(machine),
        }
    }
}

/// Creates `d` in the place of a Machine, without the watch showing it.
fn replace(world: &World) {
    world.machine_unseen("d", &json!({"nodeRef": {"name": "d"}}), &json!({}));
}

#[rstest]
#[case::that_is_being_deleted(Deletion::Begun)]
#[case::that_is_gone(Deletion::Done)]
#[tokio::test]
async fn a_machine_whose_place_is_filled_lowers_nothing(#[case] deletion: Deletion) {
    let world = World::new(3, &ABC);
    deletion.of(&world, "a");
    replace(&world);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (3, vec![]));
    let calls = world.api.calls();
    assert_eq!(calls[..4], ["PATCH group", "PATCH machine a", "LIST machines", "PATCH group"]);
}

#[rstest]
#[case::that_is_being_deleted(Deletion::Begun)]
#[case::that_is_gone(Deletion::Done)]
#[tokio::test]
async fn a_machine_whose_place_is_open_lowers_the_size(#[case] deletion: Deletion) {
    let world = World::new(3, &ABC);
    deletion.of(&world, "a");
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec!["a lowered".to_owned()]));
}

#[tokio::test]
async fn those_named_with_it_lower_the_size() {
    let world = World::new(3, &ABC);
    Deletion::Done.of(&world, "a");
    replace(&world);
    world.scale.delete(group(), nodes(&["a", "b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec!["b lowered".to_owned()]));
}

#[tokio::test]
async fn of_two_as_many_lower_the_size_as_places_are_open() {
    let world = World::new(3, &ABC);
    Deletion::Done.of(&world, "a");
    Deletion::Done.of(&world, "b");
    replace(&world);
    world.scale.delete(group(), nodes(&["a", "b"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log().len()), (2, 1));
}

/// An entry that has lowered the size leaves its own place open, and no other.
#[tokio::test]
async fn a_place_that_is_given_up_already_is_not_open() {
    let world = World::new(3, &ABC);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    Deletion::Done.of(&world, "a");
    replace(&world);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (2, vec!["b lowered".to_owned()]));
}

#[tokio::test]
async fn the_machines_are_counted_anew_after_a_write_that_came_between() {
    let world = World::new(3, &ABC);
    Deletion::Done.of(&world, "a");
    world.api.fault("LIST machines", Fault::Hold);
    let delete = world.scale.delete(group(), nodes(&["a"]));
    let meanwhile = async {
        world.api.held().await;
        world.api.change("machinedeployments", "workers", json!({"spec": {"replicas": 4}}));
        world.machine_unseen("d", &json!({}), &json!({}));
        world.machine_unseen("e", &json!({}), &json!({}));
        world.api.release();
    };
    let (deleted, ()) = tokio::join!(delete, meanwhile);
    deleted.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (4, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_is_asked_again() {
    let world = World::new(3, &ABC);
    Deletion::Done.of(&world, "a");
    replace(&world);
    world.api.fault("LIST machines", Fault::CutBefore);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (3, vec![]));
}

/// A mark of somebody else is no write whose answer would show the deletion.
#[tokio::test]
async fn a_machine_that_somebody_else_has_marked_is_read() {
    let world = World::new(3, &[]);
    let marked = json!({"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}});
    world.machine("a", &json!({"nodeRef": {"name": "a"}}), &marked);
    world.machine("b", &json!({"nodeRef": {"name": "b"}}), &json!({}));
    world.machine("c", &json!({"nodeRef": {"name": "c"}}), &json!({}));
    Deletion::Done.of(&world, "a");
    replace(&world);
    world.scale.delete(group(), nodes(&["a"])).await.unwrap();
    assert_eq!((world.api.replicas(), world.api.log()), (3, vec![]));
}
