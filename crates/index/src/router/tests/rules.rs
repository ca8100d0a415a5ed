//! Tests of each rule of routing.

use std::sync::Arc;

use rules::capi::{
    Cluster, Machine, ObjectKey,
    ScalableKind::{MachineDeployment, MachineSet},
};

use super::{super::*, model::shown, world::World};
use crate::{Index, objects::routed::*};

fn cluster(name: &str) -> ObjectKey {
    ObjectKey::new("team-a", name)
}

fn id(kind: RoutedKind, name: &str) -> Id {
    (kind, ObjectKey::new("team-a", name))
}

/// Returns a world with the Clusters `stage` and `other`, both opted in, and their indexes.
fn two() -> (World, Arc<Index>, Arc<Index>) {
    let mut world = World::new();
    for name in ["stage", "other"] {
        world.set(&(CLUSTERS, cluster(name)), Names::Owner(None), true);
    }
    world.settle();
    let [stage, other] = ["stage", "other"].map(|name| world.opt_in(&cluster(name)).unwrap());
    world.settle();
    (world, stage, other)
}

fn machines(index: &Index) -> Vec<String> {
    let inner = index.inner.read();
    let mut names: Vec<_> = inner.live.machines.values().map(|machine| machine.meta.key.name.to_string()).collect();
    drop(inner);
    names.sort();
    names
}

fn groups(index: &Index) -> usize {
    index.refresh();
    index.groups().len()
}

#[test]
fn an_object_goes_to_the_index_of_the_cluster_it_names() {
    let (mut world, stage, other) = two();
    world.set(&id(MACHINES, "a"), Names::InSpec("stage"), true);
    world.set(&id(MACHINES, "b"), Names::ByLabel("other"), true);
    world.set(&id(MACHINES, "c"), Names::InSpec("a third"), true);
    world.set(&(MACHINES, ObjectKey::new("team-b", "d")), Names::InSpec("stage"), true);
    world.settle();
    assert_eq!((machines(&stage), machines(&other)), (vec!["a".to_owned()], vec!["b".to_owned()]));
    assert_eq!(world.router.unrouted(), 0, "a Cluster without an index is a Cluster");
}

#[test]
fn an_object_that_changes_its_cluster_is_gone_from_the_old_one() {
    let (mut world, stage, other) = two();
    let deployment = id(DEPLOYMENTS, "workers");
    world.set(&deployment, Names::InSpec("stage"), true);
    world.settle();
    assert_eq!((groups(&stage), groups(&other)), (1, 0));
    world.set(&deployment, Names::InSpec("other"), true);
    world.settle();
    assert_eq!((groups(&stage), groups(&other)), (0, 1));
}

/// The informer merges the change and the deletion, whose last state names another Cluster than the index's.
#[test]
fn a_deletion_right_after_a_change_of_the_cluster_reaches_the_old_one() {
    let (mut world, stage, other) = two();
    world.set(&id(MACHINES, "a"), Names::InSpec("stage"), true);
    world.settle();
    world.set(&id(MACHINES, "a"), Names::InSpec("other"), true);
    world.delete(&id(MACHINES, "a"));
    world.settle();
    assert!(machines(&stage).is_empty() && machines(&other).is_empty());
}

#[test]
fn an_object_that_does_not_decode_stays_where_its_label_or_its_last_state_says() {
    let (mut world, stage, other) = two();
    let (machine, deployment) = (id(MACHINES, "a"), id(DEPLOYMENTS, "workers"));
    world.set(&machine, Names::InSpec("stage"), true);
    world.set(&deployment, Names::InSpec("stage"), true);
    world.settle();
    for object in [&machine, &deployment] {
        world.set(object, Names::Owner(None), false);
    }
    world.settle();
    assert_eq!(machines(&stage), ["a"], "what was known of it stays");
    assert_eq!(world.router.unrouted(), 0);
    for object in [&machine, &deployment] {
        world.set(object, Names::ByLabel("other"), false);
    }
    world.settle();
    assert!(machines(&stage).is_empty() && machines(&other).is_empty());
    let problems = |index: &Index| shown(index).iter().filter(|it| it.contains("Undecodable")).count();
    assert_eq!((problems(&stage), problems(&other)), (0, 1));
}

#[test]
fn an_object_that_names_no_cluster_moves_with_its_owner() {
    let (mut world, stage, other) = two();
    world.set(&id(MACHINES, "a"), Names::Owner(Some((MachineSet, "set"))), true);
    world.set(&id(MACHINES, "b"), Names::Owner(None), true);
    world.deliver(MACHINES, 2);
    world.set(&id(SETS, "set"), Names::Owner(Some((MachineDeployment, "workers"))), true);
    world.settle();
    assert_eq!((machines(&stage).len(), world.router.unrouted()), (0, 3));
    world.set(&id(DEPLOYMENTS, "workers"), Names::InSpec("stage"), true);
    world.settle();
    assert_eq!((machines(&stage), world.router.unrouted()), (vec!["a".to_owned()], 1));
    world.set(&id(DEPLOYMENTS, "workers"), Names::InSpec("other"), true);
    world.settle();
    assert_eq!((machines(&stage).len(), machines(&other)), (0, vec!["a".to_owned()]));
    world.delete(&id(DEPLOYMENTS, "workers"));
    world.settle();
    assert_eq!((machines(&other).len(), world.router.unrouted()), (0, 3));
    for object in [id(MACHINES, "a"), id(MACHINES, "b"), id(SETS, "set")] {
        world.delete(&object);
    }
    world.settle();
    assert_eq!(world.router.unrouted(), 0);
}

#[test]
fn a_cluster_that_is_opted_in_gets_what_exists_and_one_that_is_opted_out_gets_nothing_more() {
    let (mut world, stage, _) = two();
    world.set(&id(MACHINES, "a"), Names::InSpec("stage"), true);
    world.settle();
    world.opt_out(&cluster("stage"));
    world.set(&id(MACHINES, "b"), Names::InSpec("stage"), true);
    world.delete(&id(MACHINES, "a"));
    world.settle();
    assert_eq!(machines(&stage), ["a"], "it keeps its last state");
    let again = world.opt_in(&cluster("stage")).unwrap();
    world.set(&id(MACHINES, "c"), Names::InSpec("stage"), true);
    world.settle();
    assert_eq!(machines(&again), ["b", "c"]);
}

/// An object whose first event waits may be deleted before: nobody would remove it from the index then.
#[test]
fn an_index_is_filled_with_the_objects_that_have_arrived_as_they_are_at_their_turn() {
    let (mut world, ..) = two();
    for name in ["changed", "deleted", "moved"] {
        world.set(&id(MACHINES, name), Names::InSpec("stage"), true);
    }
    world.settle();
    let again = world.opt_in(&cluster("stage")).unwrap();
    world.set(&id(MACHINES, "late"), Names::InSpec("stage"), true);
    world.delete(&id(MACHINES, "deleted"));
    world.set(&id(MACHINES, "moved"), Names::InSpec("other"), true);
    world.fill(usize::MAX);
    assert_eq!(machines(&again), ["changed"]);
    world.settle();
    assert_eq!(machines(&again), ["changed", "late"]);
}

#[test]
fn a_cluster_that_is_created_again_begins_anew() {
    let (mut world, stage, _) = two();
    world.set(&id(MACHINES, "a"), Names::InSpec("stage"), true);
    world.settle();
    world.replace(&(CLUSTERS, cluster("stage")));
    world.set(&(CLUSTERS, cluster("stage")), Names::Owner(None), true);
    world.settle();
    world.set(&id(MACHINES, "b"), Names::InSpec("stage"), true);
    world.settle();
    assert_eq!(machines(&stage), ["a"], "it is the index of the Cluster before");
    let again = world.opt_in(&cluster("stage")).unwrap();
    world.settle();
    assert_eq!(machines(&again), ["a", "b"]);
}

#[test]
fn a_cluster_that_comes_back_in_a_later_list_keeps_its_index() {
    let (mut world, stage, _) = two();
    world.delete(&(CLUSTERS, cluster("stage")));
    world.settle();
    assert!(world.opt_in(&cluster("nowhere")).is_none(), "nobody knows it");
    world.set(&(CLUSTERS, cluster("stage")), Names::Owner(None), true);
    world.set(&id(MACHINES, "a"), Names::InSpec("stage"), true);
    world.settle();
    assert_eq!(machines(&stage), ["a"]);
}

/// Returns the number of indexes that the same events look for among so many Clusters.
fn looks_among(clusters: usize) -> usize {
    let mut world = World::new();
    for n in 0..clusters {
        world.set(&(CLUSTERS, cluster(&format!("c{n}"))), Names::Owner(None), true);
    }
    world.settle();
    for n in 0..clusters {
        let index = Arc::new(Index::new(crate::objects::rules()));
        assert!(world.router.insert(&cluster(&format!("c{n}")), index));
    }
    let before = world.router.state.lock().followed.looks;
    for name in ["c0", "c0", "nowhere"] {
        world.set(&id(MACHINES, "a"), Names::InSpec(name), true);
        world.deliver(MACHINES, 1);
    }
    world.set(&id(MACHINES, "b"), Names::Owner(Some((MachineSet, "set"))), true);
    world.deliver(MACHINES, 1);
    world.set(&id(SETS, "set"), Names::ByLabel("c0"), true);
    world.deliver(SETS, 1);
    world.set(&(CLUSTERS, cluster("c0")), Names::Owner(None), true);
    world.delete(&id(MACHINES, "b"));
    world.deliver(MACHINES, 1);
    world.deliver(CLUSTERS, 1);
    let after = world.router.state.lock().followed.looks;
    after - before
}

#[test]
fn an_event_costs_the_same_however_many_clusters_there_are() {
    assert_eq!(looks_among(1), 9);
    assert_eq!(looks_among(1000), looks_among(1));
}
