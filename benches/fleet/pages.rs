//! A workload cluster of the fleet without an API server, and its metrics as the program has them.

use std::{sync::Arc, time::Duration};

use cluster::{Fleet, FleetOptions, InformerMetrics, WorkloadCluster};
use connect::{Clients, Proxies, WorkloadSource};
use index::{GroupMetrics, GroupSeries};
use service::listen::{ReadinessMetrics, SharedRegistry, new_registry};
use shared_informer::Spawner;
use tokio::runtime::Handle;

use crate::fleet;

/// Returns a workload cluster with this number of groups, and of Machines of each.
pub(crate) fn filled(runtime: &Handle, groups: usize, machines_per_group: usize) -> (Fleet, WorkloadCluster) {
    let _context = runtime.enter();
    // The client has no server.
    let nowhere = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    let clients = Clients::new(nowhere, Proxies::default()).expect("clients");
    let options = FleetOptions::of_one(fleet::rules(), Duration::from_secs(120));
    let tasks = Spawner::from(runtime);
    let (served, workload) = Fleet::start_one(clients, WorkloadSource::Management, options, &tasks);
    fleet::fill(workload.index(), groups, machines_per_group);
    (served, workload)
}

/// Returns the metrics of informers, groups and readiness.
pub(crate) fn registry(fleet: &Fleet, series: GroupSeries) -> SharedRegistry {
    let registry = new_registry();
    let index = Arc::clone(fleet.only().expect("a workload cluster").index());
    let mut collectors = registry.write();
    collectors.register_collector(Box::new(InformerMetrics::new(fleet.clone())));
    collectors.register_collector(Box::new(GroupMetrics::new(index, series)));
    collectors.register_collector(Box::new(ReadinessMetrics::new(Arc::new(fleet.clone()))));
    drop(collectors);
    registry
}
