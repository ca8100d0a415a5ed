//! Scenarios in which the test decides which controller sees a change and which acts next.

mod faults;
mod machines;
mod versions;
mod views;

use serde_json::json;

use super::*;
use crate::{
    api::{DeleteOptions, PatchKind, Resource, Selection, Subresource},
    controllers::{conditions, keys, testing::TIMES},
    define_cluster_api,
    settings::Contract,
};

const NAMESPACE: &str = "team-a";

struct World {
    api: Api,
    clock: Clock,
    controllers: Controllers,
}

impl World {
    fn new(version: CapiVersion, fate: Fate) -> Self {
        Self::with(Options { version, ..Options::default() }, fate)
    }

    fn with(options: Options, fate: Fate) -> Self {
        let clock = Clock::driven("2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let api = Api::new(clock.clone());
        define_cluster_api(&api, Contract::V1Beta2).unwrap();
        let controllers = Controllers::new(&api, &api, clock.clone(), options, Box::new(move |_| fate));
        let world = Self { api, clock, controllers };
        world.load(json!({ "kind": "Cluster", "metadata": { "name": "prod" }, "spec": {} }));
        world
    }

    /// Creates a world with a settled group `workers`.
    fn with_group(version: CapiVersion, kind: &str, replicas: i64, fate: Fate) -> Self {
        let mut world = Self::new(version, fate);
        world.load(group(kind, replicas));
        world.pass(60);
        world
    }

    fn load(&self, mut object: Value) {
        object["apiVersion"] = json!("cluster.x-k8s.io/v1beta2");
        object["metadata"]["namespace"] = json!(NAMESPACE);
        self.api.load_values(vec![object]).unwrap();
    }

    /// Lets time pass second by second, with all controllers up to date.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            assert!(self.controllers.settle(10_000));
            self.clock.advance(Duration::from_secs(1));
        }
        assert!(self.controllers.settle(10_000));
    }

    fn patch(&self, plural: &'static str, name: &str, patch: Value) {
        let resource = Resource::new(keys::GROUP, "v1beta2", plural);
        self.api.patch(&resource, NAMESPACE, name, PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    fn resize(&self, plural: &'static str, replicas: i64) {
        self.patch(plural, "workers", json!({ "spec": { "replicas": replicas } }));
    }

    fn list(&self, plural: &'static str) -> Vec<Arc<Value>> {
        self.api.list(&Resource::new(keys::GROUP, "v1beta2", plural), &Selection::default()).unwrap()
    }

    fn nodes(&self) -> Vec<Arc<Value>> {
        self.api.list(&Resource::core("nodes"), &Selection::default()).unwrap()
    }

    /// Returns the number of Machines, and of those that are being deleted.
    fn machines(&self) -> (usize, usize) {
        let machines = self.list("machines");
        (machines.len(), machines.iter().filter(|machine| machine.deleting()).count())
    }

    fn set(&self) -> Arc<Value> {
        self.list("machinesets").remove(0)
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

fn group(kind: &str, replicas: i64) -> Value {
    json!({
        "kind": kind,
        "metadata": { "name": "workers" },
        "spec": {
            "clusterName": "prod",
            "replicas": replicas,
            "template": { "spec": { "clusterName": "prod", "version": "v1.35.0" } },
        },
    })
}
