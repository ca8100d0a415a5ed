//! An infrastructure provider that follows Cluster API's contract (v1beta2) without any infrastructure: its machines
//! are Nodes on a real API server, and Pods bound to them run at once.
//!
//! It also stands in for other parts of a real cluster: an externally managed control plane, the kubelets, and the part
//! of kube-controller-manager that removes the taint of a Node that has become ready. A label sets the fate of
//! machines, the same as in the sandbox, so that a scenario can run on both. It must never do the work of Cluster API's
//! own controllers.

mod at_once;
mod machines;
mod nodes;
mod pools;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use futures::StreamExt as _;
use kube::{
    Api, Client, Resource as _,
    api::{DynamicObject, Patch, PatchParams},
};
use kube_runtime::{
    controller::{Action, Controller},
    watcher,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    crds::{self, Reach, established},
    objects::{Contract, INFRASTRUCTURE_GROUP, Objects, Place},
};

/// The kinds that a provider needs from the start.
pub const KINDS: [&str; 9] = [
    "LoopbackCluster",
    "LoopbackClusterTemplate",
    "LoopbackConfig",
    "LoopbackConfigTemplate",
    "LoopbackControlPlane",
    "LoopbackControlPlaneTemplate",
    "LoopbackMachine",
    "LoopbackMachinePool",
    "LoopbackMachineTemplate",
];

/// Installs kinds and waits until they are served. Their CRDs are labelled with the contract version that they follow,
/// which differs from their own version.
pub async fn install(objects: &Objects, kinds: &[&str]) -> Result<()> {
    let mut names = Vec::new();
    for kind in kinds {
        names.push(objects.create(definition(kind)).await?.metadata.name.context("a CRD without name")?);
    }
    for name in names {
        established(objects, &name).await?;
    }
    Ok(())
}

fn definition(kind: &str) -> Value {
    let version = Place::of(kind, Contract::V1Beta2).resource.version;
    let mut definition = crds::open(INFRASTRUCTURE_GROUP, kind, &[&version], Reach::Namespace);
    definition["metadata"]["labels"] = json!({ "cluster.x-k8s.io/v1beta2": version });
    definition
}

/// The time after which an object is reconciled again when a dependency is missing.
const AGAIN: Duration = Duration::from_millis(100);

/// The durations of a machine's steps.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The time from a machine's creation until it is provisioned, or has failed.
    pub provision: Duration,
    /// The time from then until its Node joins.
    pub join: Duration,
    /// The time from then until the Node is ready.
    pub ready: Duration,
    /// The time from a machine's deletion until it is gone.
    pub terminate: Duration,
}

impl Default for Times {
    fn default() -> Self {
        let short = Duration::from_millis(200);
        Self { provision: short, join: short, ready: short, terminate: short }
    }
}

/// The clients, cluster access and durations that a provider needs.
#[derive(Clone)]
pub struct Settings {
    /// A client of the management cluster.
    pub management: Client,
    /// A client of the workload cluster, which all Clusters share.
    pub workload: Client,
    /// A kubeconfig of the workload cluster's administrator, which goes into the Secret of each Cluster.
    pub kubeconfig: Value,
    /// The port of the workload cluster's API server on 127.0.0.1.
    pub port: u16,
    /// The durations of a machine's steps.
    pub times: Times,
}

/// A running provider. Dropping it ends it.
pub struct Infrastructure {
    world: Arc<World>,
    tasks: JoinSet<()>,
}

/// The state that its controllers share.
struct World {
    settings: Settings,
    steps: Steps,
}

/// The reason for a failed reconcile, which is retried.
#[derive(Debug)]
struct Failure(anyhow::Error);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.0)
    }
}

impl std::error::Error for Failure {}

/// The result of a reconcile: the time until the next one, if any.
type Outcome = Result<Option<Duration>>;

impl Infrastructure {
    /// Starts the provider. Its kinds must be installed: see [`install`].
    pub fn start(settings: Settings) -> Self {
        let world = Arc::new(World { settings, steps: Steps::default() });
        let mut provider = Self { world, tasks: JoinSet::new() };
        provider.control("LoopbackCluster", at_once::cluster);
        provider.control("LoopbackConfig", at_once::config);
        provider.control("LoopbackControlPlane", at_once::control_plane);
        provider.control("LoopbackMachinePool", pools::pool);
        provider.control("LoopbackMachine", machines::machine);
        provider.control("LoopbackMachineTemplate", at_once::template);
        let world = Arc::clone(&provider.world);
        provider.tasks.spawn(nodes::run_pods(world));
        provider
    }

    fn control<F>(&mut self, kind: &str, reconcile: fn(Arc<World>, Arc<DynamicObject>) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let place = Place::of(kind, Contract::V1Beta2);
        let objects = Api::<DynamicObject>::all_with(self.world.settings.management.clone(), &place.resource);
        let controller = Controller::new_with(objects, watcher::Config::default(), place.resource);
        let reconcile = move |object: Arc<DynamicObject>, world: Arc<World>| {
            let outcome = reconcile(world, object);
            async move {
                match outcome.await {
                    Ok(again) => Ok(again.map_or_else(Action::await_change, Action::requeue)),
                    Err(error) => Err(Failure(error)),
                }
            }
        };
        let retry = |_: Arc<DynamicObject>, _: &Failure, _: Arc<World>| Action::requeue(AGAIN);
        let run = controller.run(reconcile, retry, Arc::clone(&self.world));
        self.tasks.spawn(run.for_each(|_| std::future::ready(())));
    }
}

impl World {
    /// Returns access to the objects of a kind, in the namespace of `beside`.
    fn api(&self, kind: &str, beside: &DynamicObject) -> Api<DynamicObject> {
        let place = Place::of(kind, Contract::V1Beta2);
        let namespace = beside.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced_with(self.settings.management.clone(), namespace, &place.resource)
    }

    /// Writes fields of an object and of its status if they differ.
    async fn write(&self, object: &DynamicObject, spec: Value, status: Value) -> Result<()> {
        let kind = &object.types.as_ref().context("an object without kind")?.kind;
        let (api, name) = (self.api(kind, object), name_of(object));
        let params = PatchParams::default();
        for (part, fields) in [("spec", spec), ("status", status)] {
            if contains(&object.data[part], &fields) {
                continue;
            }
            let patch = Patch::Merge(json!({ part: fields }));
            let written = match part {
                "status" => api.patch_status(name, &params, &patch).await,
                _ => api.patch(name, &params, &patch).await,
            };
            written.with_context(|| format!("writing {part} of {kind} {name}"))?;
        }
        Ok(())
    }
}

/// Returns true if an object holds these fields already. A list is compared as a whole.
fn contains(object: &Value, fields: &Value) -> bool {
    match fields {
        Value::Object(fields) => fields.iter().all(|(key, value)| contains(&object[key.as_str()], value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => object == fields,
    }
}

fn name_of(object: &DynamicObject) -> &str {
    object.meta().name.as_deref().unwrap_or_default()
}

/// Returns the name of the owner of this kind, once it is set.
fn owner<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a str> {
    let owners = object.metadata.owner_references.as_ref()?;
    owners.iter().find(|owner| owner.kind == kind).map(|owner| owner.name.as_str())
}

/// Returns a condition that follows the contract. Its time is the object's own, so that an unchanged condition is not
/// written again.
fn condition(object: &DynamicObject, ready: bool, reason: &str, message: &str) -> Value {
    json!([{
        "type": "Ready",
        "status": if ready { "True" } else { "False" },
        "reason": reason,
        "message": message,
        "lastTransitionTime": object.metadata.creation_timestamp,
    }])
}

/// The start times of the steps of all objects: times in objects have a resolution of a second, and machines here are
/// faster.
#[derive(Default)]
struct Steps(Mutex<HashMap<(String, &'static str), Instant>>);

impl Steps {
    /// Returns the remaining part of `takes` at a step of an object, or `None` when it is over. The first call begins
    /// the step.
    fn left(&self, object: &str, step: &'static str, takes: Duration) -> Option<Duration> {
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *steps.entry((object.to_owned(), step)).or_insert_with(Instant::now);
        let left = takes.saturating_sub(since.elapsed());
        (!left.is_zero()).then_some(left)
    }
}
