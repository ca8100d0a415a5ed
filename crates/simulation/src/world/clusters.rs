//! The Clusters of a world, one or those of a fleet, and the start of all actors, each on a host of its own.

use std::{collections::BTreeSet, sync::Arc};

use anyhow::Result;
use sandbox::{api::Api, clock::Clock};
use serde_json::Value;
use tokio::sync::Notify;

use super::{Member, REST, World};
use crate::{
    autoscaler,
    controllers::Concern,
    entropy::SECOND,
    host::Host,
    kinds, memory,
    network::Port,
    operator,
    outages::Shortage,
    owners::Owner,
    people,
    plan::{Chance, Plan},
    setup::{self, Place},
    tenant,
    workloads::{self, Waitlist},
};

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

impl World {
    pub(super) fn start_actors(&mut self, shortage: Option<Shortage>) -> Result<()> {
        let (seed, copies) = (self.plan.seed, self.copies);
        let script = self.script.clone();
        let calm = self.plan.seconds * SECOND;
        let times = autoscaler::Times { calm, end: (calm + self.plan.quiet * SECOND).saturating_sub(REST) };
        // Cluster Autoscaler can't use a read-only copy.
        let written = copies - usize::from(self.ways.read_only.is_some());
        let all: Vec<_> = self.clusters.iter().map(|cluster| cluster.groups.clone()).collect();
        for (number, groups) in all.iter().enumerate() {
            let Cluster { seed, waitlist, .. } = &self.clusters[number];
            let (seed, waitlist, script) = (*seed, waitlist.clone(), script.of_cluster(number));
            let pools = groups.iter().map(setup::Group::pool).collect();
            let foreign = all.iter().enumerate().filter(|(other, _)| *other != number);
            let foreign: Vec<_> =
                foreign.flat_map(|(other, groups)| groups.iter().map(move |it| (other, it.id()))).collect();
            self.start_actor_of(number, |port| operator::run(port, copies, seed, script.clone(), foreign))?;
            self.start_actor_of(number, |port| workloads::run(port, seed, pools, script.clone(), waitlist))?;
            self.start_actor_of(number, |port| people::run(port, seed, groups.clone(), script.clone()))?;
            self.start_actor_of(number, |port| autoscaler::run(port, written, seed, times))?;
        }
        // These come last, so that the numbers of all other actors stay the same.
        if tenant::comes(seed) && !self.plan.fleet {
            self.start_actor(|port| tenant::run(port, seed, script.clone()))?;
        }
        if kinds::change(seed) {
            let namespaces = namespaces(&self.clusters);
            self.start_actor(|port| kinds::run(port, seed, namespaces, script.clone()))?;
        }
        if self.plan.remember {
            let groups = all.iter().flatten().cloned().collect();
            self.start_actor(|port| memory::run(port, seed, groups, script.clone()))?;
        }
        if self.plan.fleet {
            for (number, groups) in all.iter().enumerate() {
                let Cluster { place, seed, written, .. } = &self.clusters[number];
                let (owned, seed, written) = ((*place, groups.clone()), *seed, Arc::clone(written));
                let script = script.of_cluster(number);
                self.owners.push(self.members.len());
                self.start_actor(|port| Owner::new(port, owned, written, script).run(seed))?;
            }
        }
        let broken = shortage.filter(|shortage| shortage.rolls_out);
        let short = |shortage: &Shortage| {
            let mut groups = all.into_iter().flatten();
            groups.find(|group| group.kind == "MachineDeployment" && group.name == shortage.group)
        };
        if let Some(shortage) = broken
            && let Some(group) = short(&shortage)
        {
            self.start_actor(|port| people::break_template(port, group, shortage.from))?;
        }
        Ok(())
    }

    fn start_actor_of<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        cluster: usize,
        task: impl FnOnce(Port) -> F,
    ) -> Result<()> {
        let is_fleet = self.plan.fleet;
        self.start_actor(|port| task(if is_fleet { port.of_cluster(cluster) } else { port }))
    }

    fn start_actor<F: Future<Output = ()> + Send + 'static>(&mut self, task: impl FnOnce(Port) -> F) -> Result<()> {
        let host = Host::new(self.now)?;
        host.spawn(task(Port::new(self.members.len(), &host, &self.outbox)));
        self.members.push(Member::Plain(host));
        Ok(())
    }
}
