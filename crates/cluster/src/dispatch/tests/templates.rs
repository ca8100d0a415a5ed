//! Templates of a fleet go to the Clusters whose groups refer to them.

use index::KindState;
use rules::GroupId;
use rules::capi::{ObjectKey, ScalableKind};

use super::{
    super::CoreKind,
    objects::{CLUSTERS, DEPLOYMENTS, Names},
    world::{State, World},
};

const TEAM: &str = "team-a";

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(TEAM, name)
}

fn cluster() -> State {
    State { names: Names::Owner(None), decodes: true, is_selected: true, template: None }
}

fn group(cluster: &'static str, template: &'static str) -> State {
    State { names: Names::InSpec(cluster), decodes: true, is_selected: false, template: Some(template) }
}

fn set(world: &mut World, (kind, name): (CoreKind, &str), state: State) {
    world.set(&(kind, key(name)), state);
    world.deliver(kind, usize::MAX);
}

/// Returns the cpu that the group of a Cluster offers.
fn cpu(world: &World, of: &str, name: &str) -> Option<String> {
    let group = GroupId::new(ScalableKind::MachineDeployment, key(name));
    let served = world.index(&key(of)).served(&group)?;
    Some(served.definition.template.as_ref()?.capacity.get("cpu")?.value.to_string())
}

/// Three Clusters of one namespace, whose groups refer to a template each.
fn world() -> World {
    let mut world = World::new();
    world.set_kind(KindState::Synced);
    // A Cluster is paused in every fifth version of the objects, in which none of these comes.
    for (name, of, template) in [("a", "stage", "t0"), ("b", "other", "t1"), ("c", "third", "shared")] {
        set(&mut world, (CLUSTERS, of), cluster());
        set(&mut world, (DEPLOYMENTS, name), group(of, template));
    }
    for template in ["t0", "t1", "shared"] {
        world.set_template(&key(template), 1, true);
    }
    world.deliver_templates(usize::MAX);
    world.join();
    world.settle();
    world
}

#[test]
fn the_change_of_a_template_concerns_the_clusters_that_refer_to_it() {
    let mut world = world();
    world.set_template(&key("t0"), 2, true);
    world.deliver_templates(usize::MAX);
    assert_eq!([cpu(&world, "stage", "a"), cpu(&world, "other", "b")], [Some("2".into()), Some("1".into())]);

    set(&mut world, (DEPLOYMENTS, "b"), group("other", "t0"));
    world.set_template(&key("t0"), 3, true);
    world.set_template(&key("t1"), 4, true);
    world.deliver_templates(usize::MAX);
    assert_eq!([cpu(&world, "stage", "a"), cpu(&world, "other", "b")], [(); 2].map(|()| Some("3".into())));
}

/// The classes of Cluster API rotate templates: each change of one makes another one, to which the groups then refer.
#[test]
fn a_group_whose_reference_changes_never_lacks_the_template() {
    let mut world = world();
    world.set_template(&key("t2"), 7, true);
    world.deliver_templates(usize::MAX);
    set(&mut world, (DEPLOYMENTS, "a"), group("stage", "t2"));
    assert_eq!(cpu(&world, "stage", "a").as_deref(), Some("7"), "it is there with the change of the group");
    set(&mut world, (DEPLOYMENTS, "a"), group("stage", "t3"));
    assert_eq!(cpu(&world, "stage", "a"), None);
    world.set_template(&key("t3"), 8, true);
    world.deliver_templates(usize::MAX);
    assert_eq!(cpu(&world, "stage", "a").as_deref(), Some("8"));
}

#[test]
fn nothing_is_left_of_clusters_and_templates_that_are_gone() {
    let mut world = world();
    for of in ["stage", "other", "third"] {
        set(&mut world, (CLUSTERS, of), State { is_selected: false, ..cluster() });
    }
    for template in ["t0", "t1", "shared"] {
        world.delete_template(&key(template));
    }
    world.deliver_templates(usize::MAX);
    assert!(world.keeps_no_templates());
}
