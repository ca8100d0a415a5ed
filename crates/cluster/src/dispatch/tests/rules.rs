//! Tests of each rule of the way to an index.

use index::{Index, IndexFeed as _, KindState};
use rules::GroupId;
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
    assert_eq!(groups(&world), [0, 0], "a group that doesn't decode isn't served");
    for object in &both {
        world.set(object, State { decodes: false, ..state(Names::ByLabel("other")) });
    }
    world.deliver_all();
    assert_eq!(of_both(&world), [names(&[]), names(&[])]);
    let known = ["stage", "other"].map(|name| world.index(&key(name)).stats().groups.values().sum::<u64>());
    assert_eq!(known, [0, 1]);
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

/// Adds or updates an object, and delivers the events of its kind.
fn set(world: &mut World, (kind, name): (CoreKind, &str), state: State) {
    world.set(&id(kind, name), state);
    world.deliver(kind, usize::MAX);
}

/// Returns a world with the Cluster `stage`, whose group `a` refers to the template `t0`.
fn with_template() -> World {
    let mut world = World::new();
    world.set_kind(KindState::Synced);
    set(&mut world, (CLUSTERS, "stage"), CLUSTER);
    set(&mut world, (DEPLOYMENTS, "a"), State { template: Some("t0"), ..state(Names::InSpec("stage")) });
    world.set_template(&key("t0"), 1, true);
    world.deliver_templates(usize::MAX);
    world.join();
    world.settle();
    world
}

/// Returns the cpu that the group `a` offers.
fn cpu(world: &World) -> Option<String> {
    let served = world.index(&key("stage")).served(&GroupId::new(MachineDeployment, key("a")))?;
    Some(served.definition.template.as_ref()?.capacity.get("cpu")?.value.to_string())
}

/// The classes of Cluster API rotate templates: each change of one makes another one, to which the groups then refer.
#[test]
fn a_group_whose_reference_changes_never_lacks_the_template() {
    let mut world = with_template();
    world.set_template(&key("t2"), 7, true);
    world.deliver_templates(usize::MAX);
    let refers = |template| State { template: Some(template), ..state(Names::InSpec("stage")) };
    set(&mut world, (DEPLOYMENTS, "a"), refers("t2"));
    assert_eq!(cpu(&world).as_deref(), Some("7"), "it is there with the change of the group");
    set(&mut world, (DEPLOYMENTS, "a"), refers("t3"));
    assert_eq!(cpu(&world), None);
    world.set_template(&key("t3"), 8, true);
    world.deliver_templates(usize::MAX);
    assert_eq!(cpu(&world).as_deref(), Some("8"));
}

#[test]
fn nothing_is_left_of_clusters_and_templates_that_are_gone() {
    let mut world = with_template();
    set(&mut world, (CLUSTERS, "stage"), State { is_selected: false, ..CLUSTER });
    world.delete_template(&key("t0"));
    world.deliver_templates(usize::MAX);
    assert!(world.keeps_no_templates());
}
