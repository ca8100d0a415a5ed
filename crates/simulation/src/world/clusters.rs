//! The Clusters of a world: one, or those of a fleet.

use std::{collections::BTreeSet, sync::Arc};

use sandbox::{api::Api, clock::Clock};
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    chance::Chance,
    controllers::Concern,
    memory,
    plan::Plan,
    setup::{self, Place},
    workloads::Waitlist,
};

/// A Cluster of a world.
pub(super) struct Cluster {
    pub(super) place: Place,
    /// The seed of the decisions about it.
    pub(super) seed: u64,
    pub(super) groups: Vec<setup::Group>,
    /// The Pods that fit on no Node.
    pub(super) waitlist: Waitlist,
    /// Notified when a copy sends a write about one of its groups.
    pub(super) written: Arc<Notify>,
}

impl Cluster {
    pub(super) fn new(chance: Chance, plan: &Plan, (number, places): (usize, &[Place])) -> Self {
        let (place, seed) = (places[number], chance.seed_of_cluster(number));
        let groups = setup::groups(Chance::new(seed), plan.pools, place);
        Self { place, seed, groups, waitlist: Waitlist::default(), written: Arc::default() }
    }

    /// Returns the concern of its controllers, with an API for its workload cluster.
    pub(super) fn concern((number, cluster): (usize, &Self)) -> Concern {
        Concern { number, place: cluster.place, workload: Api::new(Clock::real()) }
    }
}

/// Returns the objects of the start.
pub(super) fn objects(clusters: &[Cluster], plan: &Plan) -> Vec<Value> {
    let mut objects: Vec<_> = if plan.fleet {
        let of_clusters = clusters.iter().flat_map(|cluster| setup::served(cluster.place, &cluster.groups));
        setup::templates_of_all(&namespaces(clusters)).into_iter().chain(of_clusters).collect()
    } else {
        clusters.iter().flat_map(|cluster| setup::objects(&cluster.groups)).collect()
    };
    if plan.remember {
        objects.extend(namespaces(clusters).into_iter().map(memory::config_map));
    }
    objects
}

pub(super) fn namespaces(clusters: &[Cluster]) -> Vec<&'static str> {
    let namespaces: BTreeSet<_> = clusters.iter().map(|cluster| cluster.place.namespace).collect();
    namespaces.into_iter().collect()
}
