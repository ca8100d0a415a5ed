//! Scenarios: the actions of the controllers for given objects after a given time.

mod deletion;
mod machines;
mod pools;
mod rollouts;
mod sizes;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    api::{Api, DeleteOptions, PatchKind, Resource, Selection, Subresource},
    clock::Clock,
    controllers::{keys, object::Object, testing::TIMES},
    define_cluster_api,
    settings::{BEHAVIOUR_LABEL, Contract, Settings, Times},
    simulation::Simulation,
};

const NAMESPACE: &str = "team-a";

/// Two APIs, the controllers and a clock that only the test advances.
struct World {
    management: Api,
    workload: Api,
    clock: Clock,
    contract: Contract,
    simulation: Simulation,
}

impl World {
    fn new(times: Times) -> Self {
        Self::of(Contract::V1Beta2, times)
    }

    fn of(contract: Contract, times: Times) -> Self {
        let clock = Clock::driven("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let (management, workload) = (Api::new(clock.clone()), Api::new(clock.clone()));
        define_cluster_api(&management, contract).unwrap();
        let settings = Settings { contract, times };
        let simulation = Simulation::start(&management, &workload, clock.clone(), settings);
        let world = Self { management, workload, clock, contract, simulation };
        world.load(json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {} }));
        world
    }

    /// Loads an object of Cluster API in the namespace of these tests.
    fn load(&self, mut object: Value) {
        object["apiVersion"] = json!(self.contract.api_version());
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.management.load_values(vec![object]).unwrap();
    }

    /// Creates a MachineDeployment `workers` with all its Nodes.
    async fn with_workers(times: Times, replicas: i64) -> Self {
        let world = Self::new(times);
        world.load(group("MachineDeployment", "workers", replicas));
        world.pass(100).await;
        assert_eq!(world.running().len(), usize::try_from(replicas).unwrap());
        world
    }

    fn resource(&self, plural: &'static str) -> Resource {
        let version = self.contract.api_version().split_once('/').unwrap().1;
        Resource::new(keys::GROUP, version, plural)
    }

    async fn settle(&self) {
        tokio::time::timeout(Duration::from_secs(60), self.simulation.settle()).await.expect("it settles");
    }

    /// Lets time pass in steps of a second, and the part beyond a few minutes in one step.
    async fn pass(&self, seconds: u64) {
        let steps = seconds.min(200);
        self.settle().await;
        for _ in 0..steps {
            self.clock.advance(Duration::from_secs(1));
            self.settle().await;
        }
        self.clock.advance(Duration::from_secs(seconds - steps));
        self.settle().await;
    }

    fn get(&self, plural: &'static str, name: &str) -> Arc<Value> {
        self.management.get(&self.resource(plural), NAMESPACE, name).unwrap()
    }

    fn patch(&self, plural: &'static str, name: &str, patch: Value) {
        let resource = self.resource(plural);
        self.management.patch(&resource, NAMESPACE, name, PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    fn annotate(&self, plural: &'static str, name: &str, annotation: &str, value: Option<&str>) {
        self.patch(plural, name, json!({ "metadata": { "annotations": { annotation: value } } }));
    }

    async fn scale(&self, replicas: i64) {
        self.patch("machinedeployments", "workers", json!({ "spec": { "replicas": replicas } }));
        self.settle().await;
    }

    fn delete(&self, plural: &'static str, name: &str) {
        self.management.delete(&self.resource(plural), NAMESPACE, name, &DeleteOptions::default()).unwrap();
    }

    fn list(&self, plural: &'static str) -> Vec<Arc<Value>> {
        self.management.list(&self.resource(plural), &Selection::default()).unwrap()
    }

    fn nodes(&self) -> Vec<Arc<Value>> {
        self.workload.list(&Resource::core("nodes"), &Selection::default()).unwrap()
    }

    fn names(&self, plural: &'static str) -> Vec<String> {
        self.list(plural).iter().map(|object| object.name().to_owned()).collect()
    }

    /// Returns the phases of all Machines, in the order of their names.
    fn phases(&self) -> Vec<String> {
        self.list("machines").iter().map(|one| one.text("/status/phase").unwrap_or("none").to_owned()).collect()
    }

    /// Returns the names of the running Machines.
    fn running(&self) -> Vec<String> {
        let machines = self.list("machines");
        let running = machines.iter().filter(|machine| machine.text("/status/phase") == Some("Running"));
        running.map(|machine| machine.name().to_owned()).collect()
    }

    /// Returns `spec.replicas` of the MachineSets, by revision.
    fn sets(&self) -> Vec<(String, i64)> {
        let mut sets: Vec<_> = self
            .list("machinesets")
            .iter()
            .map(|set| (set.annotation(keys::REVISION).unwrap().to_owned(), set.number("/spec/replicas")))
            .collect();
        sets.sort();
        sets
    }
}

/// Returns a group of Machines of any kind.
fn group(kind: &str, name: &str, replicas: i64) -> Value {
    json!({
        "kind": kind,
        "metadata": { "name": name },
        "spec": {
            "clusterName": "prod",
            "replicas": replicas,
            "template": { "spec": { "clusterName": "prod", "version": "v1.35.0" } },
        },
    })
}

/// Returns a MachineDeployment `workers` whose Machines have this behaviour.
fn workers_that(behaviour: &str, replicas: i64) -> Value {
    let mut group = group("MachineDeployment", "workers", replicas);
    group["spec"]["template"]["metadata"]["labels"][BEHAVIOUR_LABEL] = json!(behaviour);
    group
}

/// Returns a condition of a Machine, from the path of the contract version.
fn condition<'a>(object: &'a Value, contract: Contract, kind: &str) -> &'a Value {
    let all = match contract {
        Contract::V1Beta1 => &object["status"]["v1beta2"]["conditions"],
        Contract::V1Beta2 => &object["status"]["conditions"],
    };
    all.as_array().unwrap().iter().find(|one| one["type"] == kind).unwrap()
}
