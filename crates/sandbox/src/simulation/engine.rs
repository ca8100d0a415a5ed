//! The engine of the simulation's task: it takes in changes, reconciles the objects that they concern, and executes the
//! controllers' plans. It must never wait.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    port::{Change, Port},
    queue::{Key, Kind, Queue},
    workloads::{Workloads, nodes},
};
use crate::{
    api::{Api, ChangeKind, Refusal, Resource},
    clock::{Clock, after},
    controllers::{
        CapiVersion, Context, cluster, keys, machine, machine_deployment, machine_pool, machine_set,
        names::Names,
        object::Object,
        plan::{Plan, Side, Write},
        propagation,
    },
    settings::{Contract, Settings, Times},
};

/// The delay of a retry after an API has refused a write for another reason than a conflict.
const RETRY: Duration = Duration::from_secs(1);

pub(super) struct Engine {
    management: Port,
    workloads: Workloads,
    clock: Clock,
    settings: Settings,
    names: Names,
    queue: Queue<Key>,
    /// The steps of Machines, by uid.
    machines: HashMap<String, machine::Steps>,
    pools: HashMap<String, machine_pool::Steps>,
    /// The objects that wait for their Cluster to be unpaused, by the Cluster's namespace and name.
    paused: HashMap<(String, String), BTreeSet<Key>>,
}

/// Returns a kind in the version in which the controllers write it.
fn resource(kind: Kind, contract: Contract) -> Resource {
    let version = match contract {
        Contract::V1Beta1 => "v1beta1",
        Contract::V1Beta2 => "v1beta2",
    };
    Resource::new(keys::GROUP, version, kind.plural())
}

impl Engine {
    pub(super) fn new(management: &Api, workloads: Workloads, clock: Clock, settings: Settings) -> Self {
        let kinds = Kind::ALL.map(|kind| resource(kind, settings.contract)).to_vec();
        Self {
            management: Port::new(management.as_manager(propagation::MANAGER), kinds),
            workloads,
            clock,
            settings,
            names: Names::default(),
            queue: Queue::default(),
            machines: HashMap::new(),
            pools: HashMap::new(),
            paused: HashMap::new(),
        }
    }

    /// Adds all existing objects to the queue.
    pub(super) fn add_all(&mut self) {
        for kind in Kind::ALL {
            self.add_kind(kind);
        }
    }

    fn add_kind(&mut self, kind: Kind) {
        for object in self.management.list(&resource(kind, self.settings.contract)) {
            self.add_object(kind, &object);
        }
    }

    /// Returns receivers of the changes of the management cluster, and of the workload clusters.
    pub(super) fn subscribe(&self) -> (watch::Receiver<u64>, Vec<watch::Receiver<u64>>) {
        (self.management.subscribe(), self.workloads.subscribe())
    }

    /// Takes at most `most` steps that are due now. Returns true if none is left.
    pub(super) fn work(&mut self, most: usize) -> bool {
        for _ in 0..most {
            self.take_changes();
            self.queue.advance(self.clock.now());
            let Some(key) = self.queue.pop() else { return true };
            self.reconcile(&key);
        }
        self.take_changes();
        self.queue.advance(self.clock.now());
        self.queue.is_idle()
    }

    /// Returns the time of the next step if nothing changes.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.queue.next()
    }

    pub(super) fn set_times(&mut self, times: Times) {
        self.settings.times = times;
    }

    fn add(&mut self, key: Key) {
        let react = self.settings.times.react;
        if react.is_zero() {
            self.queue.add(key);
        } else {
            self.queue.add_at(after(self.clock.now(), react), key);
        }
    }

    fn add_object(&mut self, kind: Kind, object: &Value) {
        self.add(Key { kind, namespace: object.namespace().to_owned(), name: object.name().to_owned() });
    }

    fn take_changes(&mut self) {
        for change in self.management.changes() {
            match change {
                Change::Object(change, object) => self.management_changed(change, &object),
                Change::Anything(kind) => {
                    if let Some(kind) = Kind::ALL.into_iter().find(|known| known.plural() == kind.plural) {
                        self.add_kind(kind);
                    }
                }
            }
        }
        for change in self.workloads.changes() {
            match change {
                Change::Object(_, node) => self.node_changed(&node),
                Change::Anything(_) => {
                    self.add_kind(Kind::Machine);
                    self.add_kind(Kind::MachinePool);
                }
            }
        }
    }

    /// Adds the objects that a change concerns: its own and its owner; for a Cluster, everything that belongs to it.
    fn management_changed(&mut self, change: ChangeKind, object: &Value) {
        let Some(kind) = Kind::parse(object.kind()) else { return };
        if change == ChangeKind::Deleted {
            self.machines.remove(object.uid());
            self.pools.remove(object.uid());
        } else {
            self.add_object(kind, object);
        }
        let owner = object.controller();
        if let Some(owner) = owner
            && let Some(kind) = owner["kind"].as_str().and_then(Kind::parse)
            && let Some(name) = owner["name"].as_str()
        {
            self.add(Key { kind, namespace: object.namespace().to_owned(), name: name.to_owned() });
        }
        if kind == Kind::Cluster {
            self.cluster_changed(object);
        }
    }

    /// Adds the objects that waited for their Cluster to be unpaused.
    fn cluster_changed(&mut self, cluster: &Value) {
        if cluster["spec"]["paused"] != true {
            let waiting = self.paused.remove(&(cluster.namespace().to_owned(), cluster.name().to_owned()));
            for key in waiting.into_iter().flatten() {
                self.add(key);
            }
        }
    }

    fn node_changed(&mut self, node: &Value) {
        let Some(namespace) = node.annotation(keys::NODE_NAMESPACE) else { return };
        let pool = || {
            let is_pool = node.annotation(keys::NODE_OWNER_KIND) == Some(Kind::MachinePool.as_str());
            Some((Kind::MachinePool, node.annotation(keys::NODE_OWNER_NAME).filter(|_| is_pool)?))
        };
        let machine = node.annotation(keys::NODE_MACHINE).map(|name| (Kind::Machine, name));
        if let Some((kind, name)) = machine.or_else(pool) {
            self.add(Key { kind, namespace: namespace.to_owned(), name: name.to_owned() });
        }
    }

    fn get(&self, kind: Kind, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.management.get(&resource(kind, self.settings.contract), namespace, name)
    }

    /// Reconciles an object, and executes its controller's plan.
    fn reconcile(&mut self, key: &Key) {
        let Some(object) = self.get(key.kind, &key.namespace, &key.name) else { return };
        let cluster =
            object.text("/spec/clusterName").and_then(|cluster| self.get(Kind::Cluster, &key.namespace, cluster));
        if cluster::is_paused(&object, cluster.as_deref()) {
            if let Some(cluster) = cluster {
                let cluster = (cluster.namespace().to_owned(), cluster.name().to_owned());
                self.paused.entry(cluster).or_default().insert(key.clone());
            }
            return;
        }
        let plan = self.plan(key.kind, &object, cluster.as_deref());
        if let Some(time) = plan.again {
            self.queue.add_at(time, key.clone());
        }
        for write in &plan.writes {
            match self.write(&object, write) {
                Ok(()) => {}
                // Somebody else has changed the object, which has been taken in: reconcile again.
                Err(refusal) if refusal.code == 409 && refusal.reason == "Conflict" => {
                    self.queue.add(key.clone());
                    return;
                }
                Err(_) => {
                    self.queue.add_at(after(self.clock.now(), RETRY), key.clone());
                    return;
                }
            }
        }
    }

    fn plan(&mut self, kind: Kind, object: &Arc<Value>, cluster: Option<&Value>) -> Plan {
        let now = self.clock.now();
        let context =
            &mut Context { now, settings: &self.settings, version: CapiVersion::default(), names: &mut self.names };
        let template = |owner: &Value| {
            let reference = owner.pointer("/spec/template/spec/infrastructureRef")?;
            self.management.referred(reference, owner.namespace())
        };
        match kind {
            Kind::Cluster => cluster::plan(object, context),
            Kind::MachineDeployment => {
                let sets = self.management.controlled(object, "MachineSet");
                machine_deployment::plan(object, cluster, sets, context)
            }
            Kind::MachineSet => {
                let machines = self.management.controlled(object, "Machine");
                machine_set::plan(object, &machines, context)
            }
            Kind::Machine => {
                let owner = owning_set(object).and_then(|name| {
                    let sets = resource(Kind::MachineSet, self.settings.contract);
                    self.management.get(&sets, object.namespace(), name)
                });
                let name = object.text("/status/nodeRef/name").unwrap_or_else(|| object.name());
                let node = self.workloads.of(object).and_then(|workload| workload.get(&nodes(), "", name));
                let course = machine::Course::of_label(object, self.settings.times);
                let inputs = machine::Inputs {
                    machine: object,
                    course: &course,
                    owner: owner.as_deref(),
                    template: &|| owner.as_deref().and_then(template),
                    node: node.as_ref(),
                };
                let mut steps = self.machines.get(object.uid()).copied().unwrap_or(machine::Steps::new(now));
                let plan = machine::plan(&inputs, &mut steps, context);
                self.machines.insert(object.uid().to_owned(), steps);
                plan
            }
            Kind::MachinePool => {
                let template = template(object);
                let ids = object["spec"]["providerIDList"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let workload = self.workloads.of(object);
                let node = |id| workload?.get(&nodes(), "", machine_pool::node_name(id));
                let nodes: Vec<_> = ids.filter_map(node).collect();
                let inputs = machine_pool::Inputs { pool: object, template: template.as_deref(), nodes: &nodes };
                let mut steps = self.pools.remove(object.uid()).unwrap_or_default();
                let plan = machine_pool::plan(&inputs, &mut steps, context);
                self.pools.insert(object.uid().to_owned(), steps);
                plan
            }
        }
    }

    /// Executes a write of an object's plan.
    fn write(&self, object: &Value, write: &Write) -> Result<(), Refusal> {
        let port = |side: Side| match side {
            Side::Management => Ok(&self.management),
            Side::Workload => self.workloads.of(object).ok_or_else(|| {
                Refusal::new(404, "NotFound", format!("{} belongs to no workload cluster", object.name()))
            }),
        };
        match write {
            Write::Create(side, object) => port(*side)?.create(object),
            Write::Change(side, before, after) => port(*side)?.change(before, after),
            Write::Delete(side, object) => port(*side)?.delete(object),
        }
    }
}

/// Returns the name of the MachineSet that controls a Machine.
fn owning_set(machine: &Value) -> Option<&str> {
    let owner = machine.controller()?;
    if owner["kind"] == Kind::MachineSet.as_str() { owner["name"].as_str() } else { None }
}
