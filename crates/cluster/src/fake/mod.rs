//! Followed clusters over a minimal API server, for tests: the cluster module with an API whose objects and answers a
//! test sets.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

mod api;

use std::time::Duration;

use rules::Rules;
use rules::capi::ObjectKey;
use serde_json::{Value, json};
use shared_informer::{Settings, SharedLimit, Spawner};
use testkit::Wait;
use tokio::runtime::Handle;

pub use self::api::{CAPI, FakeApi, NAMESPACE};
use crate::{Fleet, FleetOptions, WorkloadCluster};
use connect::WorkloadSource;
use index::objects;
use service::listen::{Check, CheckState};

/// Longer than any step takes by the test's clock; only a defect reaches it.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// The maximum number of objects of a kind.
pub const MOST_OBJECTS: usize = 2_000;
/// The maximum memory of a kind's objects in these tests.
pub const MOST_BYTES: usize = 4 << 20;

/// The number of bytes that all kinds have together, and templates a fifth of it.
pub const MOST_OF_ALL: usize = 10 << 20;
pub const WORKERS: &str = "MachineDeployment/team-a/workers";

pub struct World {
    pub fleet: Fleet,
    pub workload: WorkloadCluster,
}

/// What a world reads, and how.
pub struct Setup {
    pub rules: Rules,
    /// Cluster API's version; `None` for the preferred one.
    pub version: Option<&'static str>,
    pub source: WorkloadSource,
    pub max_staleness: Duration,
    /// The ConfigMaps in which Nodes are remembered.
    pub remember: Vec<ObjectKey>,
}

/// The management cluster is the workload cluster, and its watches may be broken for long.
impl Default for Setup {
    fn default() -> Self {
        let source = WorkloadSource::Management;
        Self { rules: objects::rules(), version: None, source, max_staleness: PATIENCE, remember: Vec::new() }
    }
}

impl World {
    pub fn new(api: &FakeApi) -> Self {
        Self::with(api, Setup::default())
    }

    pub fn with(api: &FakeApi, setup: Setup) -> Self {
        let Setup { rules, version, source, max_staleness, remember } = setup;
        let informers = Settings {
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(1),
            max_objects: MOST_OBJECTS,
            max_bytes: MOST_BYTES,
            shared_limit: Some(SharedLimit::new("all objects", MOST_OF_ALL)),
            ..Settings::default()
        };
        let options = FleetOptions {
            capi_version: version.map(str::to_owned),
            informers,
            remember,
            ..FleetOptions::of_one(rules, max_staleness)
        };
        let tasks = Spawner::from(Handle::current());
        let (fleet, workload) = Fleet::start_one(api.clients(), source, options, &tasks);
        Self { fleet, workload }
    }

    /// Like [`World::new`], and waits for the first sync.
    pub async fn synced(api: &FakeApi) -> Self {
        let world = Self::new(api);
        world.until_ready().await;
        world
    }

    pub async fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let state = || format!("{:?}, groups {:?}", self.workload.checks(), self.groups());
        let wait = Wait::new(what).within(PATIENCE).every(Duration::from_millis(20)).showing(&state);
        wait.condition(|| condition(self)).await;
    }

    pub async fn until_ready(&self) {
        self.until("readiness", |world| world.problem().is_empty()).await;
    }

    /// Waits until exactly these groups are served.
    pub async fn until_groups(&self, groups: &[&str]) {
        self.until(&format!("groups {groups:?}"), |world| world.groups() == groups).await;
    }

    /// Returns the reason for which Refresh fails; empty if it doesn't.
    pub fn problem(&self) -> String {
        self.workload.check_fresh().err().unwrap_or_default()
    }

    /// Returns the groups that a Refresh now pins.
    pub fn groups(&self) -> Vec<String> {
        self.workload.index().refresh();
        self.workload.index().groups().iter().map(|group| group.text.to_string()).collect()
    }

    /// Returns the state of a check with its reason, which is empty if it has none.
    pub fn check(&self, name: &str) -> Option<(CheckState, String)> {
        let check = self.workload.checks().into_iter().find(|check| check.name == name)?;
        Some((check.state, check.reason.unwrap_or_default()))
    }

    pub fn is_ready(&self) -> bool {
        self.workload.checks().iter().all(Check::is_ready)
    }

    /// Returns the kinds of a group's problems.
    pub fn problems_of(&self, group: &str) -> Vec<&'static str> {
        let problems = self.workload.index().stats().problems;
        problems.into_iter().filter(|problem| problem.group == group).map(|problem| problem.problem).collect()
    }

    pub async fn shutdown(self) {
        self.fleet.shutdown().await;
    }
}

/// Returns a MachineDeployment, MachineSet or MachinePool with the bounds 1 and 10; `more` is merged into it.
pub fn scalable(more: &Value) -> Value {
    let mut value = json!({
        "metadata": {"annotations": {
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "1",
            "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
        }},
        "spec": {"clusterName": "stage", "replicas": 2},
    });
    objects::merge(&mut value, more);
    value
}

/// Returns an API with the node group [`WORKERS`], whose Machine `a` is a Node, and a broken MachineDeployment.
pub fn fleet() -> FakeApi {
    let api = FakeApi::with_capi();
    let mut workers = scalable(&objects::capacity_annotations("4", "16Gi"));
    objects::merge(
        &mut workers,
        &json!({"metadata": {"annotations": {
            "capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
            "capacity.cluster-autoscaler.kubernetes.io/taints": "gpu=yes:NoSchedule",
            "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "20m",
            "cluster.x-k8s.io/autoscaling-options-scaledownunreadytime": "soon",
        }}}),
    );
    let owned = |kind: &str, name: &str| {
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "controller": true},
        ]}})
    };
    api.put("machinedeployments", "workers", &workers);
    api.put("machinedeployments", "broken", &scalable(&json!({"spec": {"replicas": "three"}})));
    api.put("machinesets", "workers-1", &owned("MachineDeployment", "workers"));
    let mut joined = owned("MachineSet", "workers-1");
    objects::merge(
        &mut joined,
        &json!({
            "spec": {"providerID": "cloud:///zone/a"}, "status": {"phase": "Running", "nodeRef": {"name": "a"}},
        }),
    );
    api.put("machines", "a", &joined);
    api.put("nodes", "a", &json!({"spec": {"providerID": "cloud:///zone/a"}}));
    api
}
