//! Property test: whatever happens to objects and Clusters, and in whatever order their events arrive, each Cluster
//! that is served ends with the index that its own objects alone give, and one that has left keeps its last state.

use index::KindState;
use proptest::{collection::vec, prelude::*};
use rules::capi::ObjectKey;

use super::{
    super::CoreKind,
    objects::*,
    world::{State, World},
};

#[derive(Clone, Debug)]
enum Step {
    /// Adds or updates an object, or replaces it by another one of its name.
    Set {
        id: Id,
        state: State,
        replaces: bool,
    },
    Delete(Id),
    /// Lists a kind again: what wasn't delivered is lost.
    Relist(CoreKind),
    /// Delivers some events of a kind.
    Deliver(CoreKind, usize),
    /// Lets those Clusters join that are selected.
    Join,
    /// Fills indexes with some objects.
    Fill(usize),
    LeaveOut(bool),
    SetTemplate {
        key: ObjectKey,
        cpu: u8,
        decodes: bool,
    },
    DeleteTemplate(ObjectKey),
    RelistTemplates,
    DeliverTemplates(usize),
    /// Lets the kind of the templates be in sync, and the indexes hear of it.
    Kind(KindState),
    Supply,
    /// Delivers everything, and compares.
    Settle,
}

fn namespace() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("team-a"), 1 => Just("team-b")]
}

fn kind() -> impl Strategy<Value = CoreKind> {
    (0..KINDS.len()).prop_map(|n| KINDS[n])
}

fn id() -> impl Strategy<Value = Id> {
    let cluster = (namespace(), prop_oneof![Just("stage"), Just("other")]);
    let kind = prop_oneof![1 => Just(DEPLOYMENTS), 2 => Just(SETS), 1 => Just(POOLS), 3 => Just(MACHINES)];
    prop_oneof![
        2 => cluster.prop_map(|(namespace, name)| (CLUSTERS, ObjectKey::new(namespace, name))),
        5 => (kind, namespace(), 0..3)
            .prop_map(|(kind, namespace, n)| (kind, ObjectKey::new(namespace, format!("o{n}")))),
    ]
}

fn template() -> impl Strategy<Value = ObjectKey> {
    (namespace(), prop_oneof![Just("t0"), Just("t1")]).prop_map(|(namespace, name)| ObjectKey::new(namespace, name))
}

fn step() -> impl Strategy<Value = Step> {
    let weighted = prop::bool::weighted;
    let refers = prop_oneof![Just(None), Just(Some("t0")), Just(Some("t1"))];
    let set = (id(), any::<u8>(), refers, weighted(0.1), weighted(0.8), weighted(0.7)).prop_map(
        |(id, choice, template, replaces, decodes, is_selected)| {
            let names = Names::choose(id.0, choice);
            Step::Set { id, state: State { names, decodes, is_selected, template }, replaces }
        },
    );
    let set_template =
        (template(), 1..4_u8, weighted(0.8)).prop_map(|(key, cpu, decodes)| Step::SetTemplate { key, cpu, decodes });
    let states = [KindState::Pending, KindState::Synced, KindState::Unreadable("forbidden".into())];
    prop_oneof![
        20 => set,
        3 => id().prop_map(Step::Delete),
        1 => kind().prop_map(Step::Relist),
        8 => (kind(), 1..6_usize).prop_map(|(kind, count)| Step::Deliver(kind, count)),
        4 => Just(Step::Join),
        4 => (1..6_usize).prop_map(Step::Fill),
        1 => any::<bool>().prop_map(Step::LeaveOut),
        6 => set_template,
        1 => template().prop_map(Step::DeleteTemplate),
        1 => Just(Step::RelistTemplates),
        4 => (1..6_usize).prop_map(Step::DeliverTemplates),
        1 => (0..states.len()).prop_map(move |n| Step::Kind(states[n].clone())),
        2 => Just(Step::Supply),
        1 => Just(Step::Settle),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn each_cluster_is_served_from_the_index_of_its_own_objects(steps in vec(step(), 0..120)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Set { id, state, replaces } => {
                    if replaces {
                        world.replace(&id);
                    }
                    world.set(&id, state);
                }
                Step::Delete(id) => world.delete(&id),
                Step::Relist(kind) => world.relist(kind),
                Step::Deliver(kind, count) => world.deliver(kind, count),
                Step::Join => world.join(),
                Step::Fill(count) => world.fill(count),
                Step::LeaveOut(is_left_out) => world.leave_out(is_left_out),
                Step::SetTemplate { key, cpu, decodes } => world.set_template(&key, cpu, decodes),
                Step::DeleteTemplate(key) => world.delete_template(&key),
                Step::RelistTemplates => world.relist_templates(),
                Step::DeliverTemplates(count) => world.deliver_templates(count),
                Step::Kind(state) => world.set_kind(state),
                Step::Supply => world.supply(),
                Step::Settle => world.settle(),
            }
        }
        world.settle();
    }
}
