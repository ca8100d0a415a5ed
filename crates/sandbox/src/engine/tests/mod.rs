//! Scenarios in which controllers are up to date, or in which the test decides which of them sees a change and which
//! acts next.

mod live;
mod stepped;

use serde_json::json;

use super::*;
use crate::{
    api::{DeleteOptions, PatchKind, Selection, Subresource},
    controllers::{conditions, keys, node, testing::TIMES},
    define_cluster_api,
    settings::BEHAVIOUR_LABEL,
};

const NAMESPACE: &str = "team-a";

/// Two APIs, or one for both, the controllers, and a clock that only the test advances.
struct World {
    management: Api,
    workload: Api,
    clock: Clock,
    contract: Contract,
    controllers: Controllers,
}

impl World {
    /// Creates a world whose controllers are up to date.
    fn live(times: Times) -> Self {
        Self::live_of(Contract::V1Beta2, times)
    }

    fn live_of(contract: Contract, times: Times) -> Self {
        Self::of(contract, |management, clock| {
            let workload = Api::new(clock.clone());
            let (workloads, settings) =
                (Workloads::Shared(workload.clone()), Settings { contract, times, models: None });
            (workload, Controllers::live(management, workloads, clock.clone(), settings))
        })
    }

    /// Creates a world in which the test shows changes to controllers.
    fn new(version: CapiVersion, fate: Fate) -> Self {
        Self::with(Options { version, ..Options::default() }, fate)
    }

    fn with(options: Options, fate: Fate) -> Self {
        Self::of(Contract::V1Beta2, |api, clock| {
            (api.clone(), Controllers::new(api, api, clock.clone(), options, Box::new(move |_| fate)))
        })
    }

    fn of(contract: Contract, start: impl FnOnce(&Api, &Clock) -> (Api, Controllers)) -> Self {
        let clock = Clock::driven("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let management = Api::new(clock.clone());
        define_cluster_api(&management, contract).unwrap();
        let (workload, controllers) = start(&management, &clock);
        let world = Self { management, workload, clock, contract, controllers };
        world.load(json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {} }));
        world
    }

    /// Creates a live world with a MachineDeployment `workers` and all its Nodes.
    fn with_workers(times: Times, replicas: i64) -> Self {
        let mut world = Self::live(times);
        world.load(group("MachineDeployment", "workers", replicas));
        world.pass(100);
        assert_eq!(world.running().len(), usize::try_from(replicas).unwrap());
        world
    }

    /// Creates a world of [`World::new`] with a settled group `workers`.
    fn with_group(version: CapiVersion, kind: &str, replicas: i64, fate: Fate) -> Self {
        let mut world = Self::new(version, fate);
        world.load(group(kind, "workers", replicas));
        world.pass(60);
        world
    }

    /// Loads an object of Cluster API in the namespace of these tests.
    fn load(&self, mut object: Value) {
        object["apiVersion"] = json!(self.contract.api_version());
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.management.load_values(vec![object]).unwrap();
    }

    fn resource(&self, plural: &'static str) -> Resource {
        Resource::new(keys::GROUP, self.contract.version(), plural)
    }

    fn settle(&mut self) {
        assert!(self.controllers.settle(10_000));
    }

    /// Lets time pass second by second, with all controllers up to date.
    fn pass(&mut self, seconds: u64) {
        self.settle();
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.settle();
        }
    }

    fn get(&self, plural: &'static str, name: &str) -> Arc<Value> {
        self.management.get(&self.resource(plural), NAMESPACE, name).unwrap()
    }

    fn patch(&self, plural: &'static str, name: &str, patch: Value) {
        let resource = self.resource(plural);
        self.management.patch(&resource, NAMESPACE, name, PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    fn resize(&self, plural: &'static str, replicas: i64) {
        self.patch(plural, "workers", json!({ "spec": { "replicas": replicas } }));
    }

    /// Resizes the MachineDeployment, and lets everybody react.
    fn scale(&mut self, replicas: i64) {
        self.resize("machinedeployments", replicas);
        self.settle();
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

    fn running(&self) -> Vec<String> {
        let machines = self.list("machines");
        let running = machines.iter().filter(|machine| machine.text("/status/phase") == Some("Running"));
        running.map(|machine| machine.name().to_owned()).collect()
    }

    /// Returns the number of Machines, and of those that are being deleted.
    fn machines(&self) -> (usize, usize) {
        let machines = self.list("machines");
        (machines.len(), machines.iter().filter(|machine| machine.deleting()).count())
    }

    fn set(&self) -> Arc<Value> {
        self.list("machinesets").remove(0)
    }

    /// Returns `spec.replicas` of the MachineSets, by revision.
    fn sets(&self) -> Vec<(String, i64)> {
        let sets = self.list("machinesets");
        let size =
            |set: &Arc<Value>| (set.annotation(keys::REVISION).unwrap().to_owned(), set.number("/spec/replicas"));
        let mut sets: Vec<_> = sets.iter().map(size).collect();
        sets.sort();
        sets
    }

    fn see(&mut self, controller: Controller, kind: Kind) {
        self.controllers.observe(controller, kind, u64::MAX);
    }

    fn see_all(&mut self, controller: Controller) {
        for kind in controller.reads() {
            self.see(controller, *kind);
        }
    }

    /// Shows everything to one controller, and lets it do everything that is due.
    fn only(&mut self, controller: Controller) {
        self.see_all(controller);
        self.acts(controller);
    }

    fn step(&mut self, controller: Controller) -> Option<String> {
        self.fail(controller, Fault::None)
    }

    fn fail(&mut self, controller: Controller, fault: Fault) -> Option<String> {
        let step = self.controllers.step(controller, 0, fault)?;
        let text = step.to_string();
        Some(text.split_once(": ").map(|(_, act)| act.to_owned()).unwrap_or_default())
    }

    /// Returns all actions of a controller at this time, without the generated names of Machines and MachineSets.
    fn acts(&mut self, controller: Controller) -> Vec<String> {
        std::iter::from_fn(|| self.step(controller)).map(|act| general(&act)).collect()
    }
}

/// Removes generated names from an action.
fn general(act: &str) -> String {
    act.split(' ').filter(|word| !word.starts_with("workers")).collect::<Vec<_>>().join(" ")
}

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
