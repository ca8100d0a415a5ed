//! Tests of each rule of the way to an index.

use index::{Index, IndexFeed as _};
use rules::capi::{
    Machine, ObjectKey,
    ScalableKind::{MachineDeployment, MachineSet},
};

use super::{
    super::CoreKind,
    objects::*,
    world::{State, World},
};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("team-a", name)
}

fn id(kind: CoreKind, name: &str) -> Id {
    (kind, key(name))
}

const CLUSTER: State = State { names: Names::Owner(None), decodes: true, is_selected: true, template: None };

fn state(names: Names<'static>) -> State {
    State { names, decodes: true, is_selected: false, template: None }
}

/// Returns a world with the Clusters `stage` and `other`, both served.
fn two() -> World {
    let mut world = World::new();
    for name in ["stage", "other"] {
        world.set(&id(CLUSTERS, name), CLUSTER);
    }
    world.settle();
    world
}

fn machines(index: &Index) -> Vec<String> {
    let mut names: Vec<_> = Machine::keys(index, &()).into_iter().map(|key| key.name.to_string()).collect();
    names.sort();
    names
}

/// Returns the Machines of `stage` and `other`.
fn of_both(world: &World) -> [Vec<String>; 2] {
    ["stage", "other"].map(|name| machines(world.index(&key(name))))
}

fn groups(world: &World) -> [usize; 2] {
    ["stage", "other"].map(|name| {
        let index = world.index(&key(name));
        index.refresh();
        index.groups().len()
    })
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn an_object_goes_to_the_index_of_the_cluster_it_names() {
    let mut world = two();
    world.set(&id(MACHINES, "a"), state(Names::InSpec("stage")));
    world.set(&id(MACHINES, "b"), state(Names::ByLabel("other")));
    world.set(&id(MACHINES, "c"), state(Names::InSpec("a third")));
    world.set(&(MACHINES, ObjectKey::new("team-b", "d")), state(Names::InSpec("stage")));
    world.settle();
    assert_eq!(of_both(&world), [names(&["a"]), names(&["b"])]);
    assert_eq!(world.orphans(), 0, "a Cluster that isn't served is a Cluster");
}

#[test]
fn an_object_that_does_not_decode_stays_where_its_label_or_its_last_state_says() {
    let mut world = two();
    let both = [id(MACHINES, "a"), id(DEPLOYMENTS, "workers")];
    for object in &both {
        world.set(object, state(Names::InSpec("stage")));
    }
    world.settle();
    for object in &both {
        world.set(object, State { decodes: false, ..state(Names::Owner(None)) });
    }
    world.deliver_all();
    assert_eq!(of_both(&world), [names(&["a"]), names(&[])], "what was known of it stays");
    assert_eq!((groups(&world), world.orphans()), ([0, 0], 0), "a group that doesn't decode isn't served");
    for object in &both {
        world.set(object, State { decodes: false, ..state(Names::ByLabel("other")) });
    }
    world.deliver_all();
    assert_eq!(of_both(&world), [names(&[]), names(&[])]);
    let known = ["stage", "other"].map(|name| world.index(&key(name)).stats().groups.values().sum::<u64>());
    assert_eq!(known, [0, 1]);
}

#[test]
fn an_object_that_names_no_cluster_moves_with_its_owner() {
    let mut world = two();
    world.set(&id(MACHINES, "a"), state(Names::Owner(Some((MachineSet, "set")))));
    world.set(&id(MACHINES, "b"), state(Names::Owner(None)));
    world.deliver(MACHINES, 2);
    world.set(&id(SETS, "set"), state(Names::Owner(Some((MachineDeployment, "workers")))));
    world.settle();
    assert_eq!((of_both(&world), world.orphans()), ([names(&[]), names(&[])], 3));
    world.set(&id(DEPLOYMENTS, "workers"), state(Names::InSpec("stage")));
    world.settle();
    assert_eq!((of_both(&world), world.orphans()), ([names(&["a"]), names(&[])], 1));
    world.set(&id(DEPLOYMENTS, "workers"), state(Names::InSpec("other")));
    world.settle();
    assert_eq!(of_both(&world), [names(&[]), names(&["a"])]);
    world.delete(&id(DEPLOYMENTS, "workers"));
    world.settle();
    assert_eq!((of_both(&world), world.orphans()), ([names(&[]), names(&[])], 3));
    for object in [id(MACHINES, "a"), id(MACHINES, "b"), id(SETS, "set")] {
        world.delete(&object);
    }
    world.settle();
    assert_eq!(world.orphans(), 0);
}

/// Returns the number of indexes that the same events look for among so many Clusters.
fn looks_among(clusters: usize) -> usize {
    let mut world = World::new();
    for n in 0..clusters {
        world.set(&id(CLUSTERS, &format!("c{n}")), CLUSTER);
    }
    world.deliver(CLUSTERS, usize::MAX);
    world.join();
    let before = world.looks();
    for name in ["c0", "c0", "nowhere"] {
        world.set(&id(MACHINES, "a"), state(Names::InSpec(name)));
        world.deliver(MACHINES, 1);
    }
    world.set(&id(MACHINES, "b"), state(Names::Owner(Some((MachineSet, "set")))));
    world.deliver(MACHINES, 1);
    world.set(&id(SETS, "set"), state(Names::ByLabel("c0")));
    world.deliver(SETS, 1);
    world.set(&id(CLUSTERS, "c0"), CLUSTER);
    world.delete(&id(MACHINES, "b"));
    world.deliver(MACHINES, 1);
    world.deliver(CLUSTERS, 1);
    world.looks() - before
}

#[test]
fn an_event_costs_the_same_however_many_clusters_there_are() {
    assert_eq!(looks_among(1), 8);
    assert_eq!(looks_among(1000), looks_among(1));
}
