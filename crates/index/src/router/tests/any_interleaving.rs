//! Property test: any interleaving of events, opt-ins and opt-outs gives each Cluster the index that it would have
//! alone.

use proptest::{collection::vec, prelude::*};
use rules::capi::ObjectKey;

use super::{super::RoutedKind, world::World};
use crate::objects::routed::*;

#[derive(Clone, Debug)]
enum Step {
    /// Adds, updates or replaces an object.
    Set {
        id: Id,
        names: u8,
        replaces: bool,
        decodes: bool,
    },
    Delete(Id),
    Relist(RoutedKind),
    /// Delivers some events of a kind.
    Deliver(RoutedKind, usize),
    /// Fills indexes with some objects.
    Fill(usize),
    /// Delivers everything.
    Settle,
    OptIn(ObjectKey),
    OptOut(ObjectKey),
}

fn namespace() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("team-a"), 1 => Just("team-b")]
}

fn cluster() -> impl Strategy<Value = ObjectKey> {
    (namespace(), prop_oneof![Just("stage"), Just("other")])
        .prop_map(|(namespace, name)| ObjectKey::new(namespace, name))
}

fn kind() -> impl Strategy<Value = RoutedKind> {
    (0..KINDS.len()).prop_map(|n| KINDS[n])
}

fn id() -> impl Strategy<Value = Id> {
    prop_oneof![
        1 => cluster().prop_map(|key| (CLUSTERS, key)),
        4 => (prop_oneof![1 => Just(DEPLOYMENTS), 2 => Just(SETS), 1 => Just(POOLS), 3 => Just(MACHINES)], namespace(), 0..3)
            .prop_map(|(kind, namespace, n)| (kind, ObjectKey::new(namespace, format!("o{n}")))),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let set = (id(), any::<u8>(), prop::bool::weighted(0.1), prop::bool::weighted(0.8))
        .prop_map(|(id, names, replaces, decodes)| Step::Set { id, names, replaces, decodes });
    prop_oneof![
        20 => set,
        3 => id().prop_map(Step::Delete),
        1 => kind().prop_map(Step::Relist),
        8 => (kind(), 1..6_usize).prop_map(|(kind, count)| Step::Deliver(kind, count)),
        4 => (1..6_usize).prop_map(Step::Fill),
        1 => Just(Step::Settle),
        3 => cluster().prop_map(Step::OptIn),
        1 => cluster().prop_map(Step::OptOut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn each_index_is_that_of_its_cluster_alone(steps in vec(step(), 0..120)) {
        let mut world = World::new();
        for cluster in ["stage", "other"] {
            world.set(&(CLUSTERS, ObjectKey::new("team-a", cluster)), Names::Owner(None), true);
        }
        world.settle();
        for step in steps {
            match step {
                Step::Set { id, names: choice, replaces, decodes } => {
                    if replaces {
                        world.replace(&id);
                    }
                    world.set(&id, Names::choose(id.0, choice), decodes);
                }
                Step::Delete(id) => world.delete(&id),
                Step::Relist(kind) => world.relist(kind),
                Step::Deliver(kind, count) => world.deliver(kind, count),
                Step::Fill(count) => world.fill(count),
                Step::Settle => world.settle(),
                Step::OptIn(cluster) => drop(world.opt_in(&cluster)),
                Step::OptOut(cluster) => world.opt_out(&cluster),
            }
        }
        world.settle();
    }
}
