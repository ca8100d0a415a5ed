//! Machine: from Pending to Running and through its deletion, as its fate decides. Its server registers the Node.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Context, Plan, Side,
    conditions::{self, ConditionContent},
    keys,
    node::{self, Hardware, NodeOf},
    object::Object,
};
use crate::{
    clock::after,
    settings::{BEHAVIOUR_LABEL, Behaviour, Contract, Times},
};

pub(crate) struct Inputs<'a> {
    pub(crate) machine: &'a Arc<Value>,
    pub(crate) fate: &'a Fate,
    pub(crate) node: Option<&'a Arc<Value>>,
}

/// The times at which the steps of a Machine were due. They are kept here because objects only hold whole seconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Steps {
    seen: Timestamp,
    /// The time at which its infrastructure was due.
    pub(crate) provisioned: Option<Timestamp>,
    /// The time at which its controller first saw its Node.
    found: Option<Timestamp>,
    deleting: Option<Timestamp>,
    /// The time at which the last hold on its infrastructure was released.
    released: Option<Timestamp>,
    /// True if a hook has held the Machine.
    was_held: bool,
}

impl Steps {
    /// Creates the steps of a Machine that is seen for the first time.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self { seen: now, provisioned: None, found: None, deleting: None, released: None, was_held: false }
    }
}

/// The state of a Machine's infrastructure, as its status reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Infrastructure {
    WaitsForBootstrap,
    Coming,
    NoCapacity,
    Failed,
    Ready,
}

struct Reconcile<'a> {
    inputs: &'a Inputs<'a>,
    steps: &'a mut Steps,
    context: &'a Context<'a>,
    plan: Plan,
    /// The desired state of the Machine.
    wanted: Value,
}

pub(crate) fn plan(inputs: &Inputs<'_>, steps: &mut Steps, context: &Context<'_>) -> Plan {
    let wanted = Value::clone(inputs.machine);
    let mut reconcile = Reconcile { inputs, steps, context, plan: Plan::default(), wanted };
    if inputs.machine.deleting() {
        reconcile.leave();
    } else {
        reconcile.bring_on();
    }
    let Reconcile { mut plan, wanted, .. } = reconcile;
    plan.change(Side::Management, inputs.machine, wanted);
    plan
}

impl Reconcile<'_> {
    fn bring_on(&mut self) {
        let (inputs, context) = (self.inputs, self.context);
        self.wanted.add_finalizer(keys::MACHINE_FINALIZER);
        let infrastructure = self.provision();
        if self.wanted["spec"] != inputs.machine["spec"] {
            // This is the generation that the API will set, so that the status is written only once.
            self.wanted.set("/metadata/generation", json!(inputs.machine.generation() + 1));
        }
        if infrastructure == Infrastructure::Ready {
            self.find();
        }
        status(&mut self.wanted, infrastructure, inputs.node.map(|node| &**node), context);
    }

    /// Returns true if this time has come; otherwise the Machine is reconciled again then.
    fn is_due(&mut self, at: Timestamp) -> bool {
        let is_due = at <= self.context.now;
        if !is_due {
            self.plan.look_again(at);
        }
        is_due
    }

    /// Advances the infrastructure as far as its times permit.
    fn provision(&mut self) -> Infrastructure {
        let Fate { behaviour, times, .. } = *self.inputs.fate;
        if self.wanted.text("/spec/providerID").is_some() {
            return Infrastructure::Ready;
        }
        let bootstrapped = after(self.steps.seen, times.bootstrap);
        if !self.is_due(bootstrapped) {
            return Infrastructure::WaitsForBootstrap;
        }
        let name = self.wanted.name().to_owned();
        self.wanted.set_default("/spec/bootstrap/dataSecretName", json!(name));
        let provisioned = after(bootstrapped, times.provision);
        if !self.is_due(provisioned) {
            return Infrastructure::Coming;
        }
        match behaviour {
            Behaviour::Fails => Infrastructure::Failed,
            Behaviour::NoCapacity => Infrastructure::NoCapacity,
            Behaviour::Joins | Behaviour::Slow | Behaviour::NeverJoins => {
                let id = provider_id(self.wanted.namespace(), self.wanted.name());
                self.wanted.set("/spec/providerID", json!(id));
                self.steps.provisioned = Some(provisioned);
                Infrastructure::Ready
            }
        }
    }

    /// Refers to the Node that a kubelet has registered. Its labels and annotations are updated before the reference is
    /// written, as Cluster API does.
    fn find(&mut self) {
        let Some(node) = self.inputs.node else { return };
        let referred = after(*self.steps.found.get_or_insert(self.context.now), self.inputs.fate.reference);
        if self.wanted.text("/status/nodeRef/name").is_none() {
            if !self.is_due(referred) {
                return;
            }
            self.wanted.set("/status/nodeRef", node_reference(node.name(), self.context.settings.contract));
        }
        let mut labelled = node::with_labels(node, &self.wanted.map("/metadata/labels"));
        node_of(&self.wanted, Hardware::default()).claim(&mut labelled);
        self.plan.change(Side::Workload, node, labelled);
    }

    /// Advances a deletion: it drains the Node, then deletes the infrastructure and the Node, then the Machine.
    fn leave(&mut self) {
        let (now, context) = (self.context.now, self.context);
        let Fate { times, hang, .. } = *self.inputs.fate;
        // Cluster API knows a Node only by the Machine's reference; its cloud removes any other.
        let is_known = self.wanted.text("/status/nodeRef/name").is_some();
        let node = self.inputs.node.filter(|_| is_known);
        if is_known && is_held(&self.wanted, keys::PRE_DRAIN_HOOK) {
            set_deleting_condition(&mut self.wanted, "WaitingForPreDrainHook", context);
            return;
        }
        let since = *self.steps.deleting.get_or_insert(now);
        // Without a Node there is nothing to drain.
        let drained = if node.is_some() && self.steps.released.is_none() { after(since, times.drain) } else { since };
        if !self.is_due(drained) {
            set_deleting_condition(&mut self.wanted, "DrainingNode", context);
            self.cordon(node);
            return;
        }
        if is_held(&self.wanted, keys::PRE_TERMINATE_HOOK) {
            set_deleting_condition(&mut self.wanted, "WaitingForPreTerminateHook", context);
            self.steps.was_held = true;
            return;
        }
        set_deleting_condition(&mut self.wanted, "WaitingForInfrastructureDeletion", context);
        let released = if self.steps.was_held { now } else { drained };
        let gone = after(*self.steps.released.get_or_insert(released), times.terminate);
        if !self.is_due(gone) {
            self.cordon(node);
            return;
        }
        if let Some(node) = node {
            self.plan.delete(Side::Workload, node);
        }
        if self.is_due(after(gone, hang)) {
            self.wanted.remove_finalizer(keys::MACHINE_FINALIZER);
        }
    }

    fn cordon(&mut self, node: Option<&Arc<Value>>) {
        if let Some(node) = node {
            let mut cordoned = Value::clone(node);
            cordoned.set("/spec/unschedulable", json!(true));
            self.plan.change(Side::Workload, node, cordoned);
        }
    }
}

/// Returns the provider ID that the simulated cloud assigns to a machine.
pub(crate) fn provider_id(namespace: &str, name: &str) -> String {
    format!("sandbox:///{namespace}/{name}")
}

/// Returns namespace and name of the machine with this provider ID.
pub(crate) fn key_of_id(id: &str) -> Option<(String, String)> {
    let (namespace, name) = id.strip_prefix("sandbox:///")?.split_once('/')?;
    Some((namespace.to_owned(), name.to_owned()))
}

pub(crate) fn node_of(machine: &Value, hardware: Hardware) -> NodeOf<'_> {
    NodeOf {
        name: machine.name(),
        provider_id: machine.text("/spec/providerID").unwrap_or_default(),
        cluster: machine.text("/spec/clusterName").unwrap_or_default(),
        namespace: machine.namespace(),
        machine: Some(machine.name()),
        owner: machine.controller().map_or(("", ""), |owner| {
            (owner["kind"].as_str().unwrap_or_default(), owner["name"].as_str().unwrap_or_default())
        }),
        version: machine.text("/spec/version").unwrap_or_default(),
        zone: machine.text("/spec/failureDomain"),
        labels: machine.map("/metadata/labels"),
        taints: machine["spec"]["taints"].as_array().into_iter().flatten().map(core_taint).collect(),
        hardware,
    }
}

fn core_taint(taint: &Value) -> Value {
    let mut taint = taint.clone();
    taint.unset("/propagation");
    taint
}

pub(super) fn node_reference(name: &str, contract: Contract) -> Value {
    match contract {
        Contract::V1Beta1 => json!({ "apiVersion": "v1", "kind": "Node", "name": name }),
        Contract::V1Beta2 => json!({ "name": name }),
    }
}

/// Returns true if an annotation with this prefix holds the Machine.
fn is_held(machine: &Value, hook: &str) -> bool {
    let annotations = machine.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(hook)))
}

fn set_deleting_condition(machine: &mut Value, reason: &'static str, context: &Context<'_>) {
    let (contract, now) = (context.settings.contract, context.now);
    machine.set("/status/phase", json!("Deleting"));
    conditions::set(machine, contract, &ConditionContent::new("Deleting", true, reason), now);
    conditions::set(
        machine,
        contract,
        &ConditionContent::new("Ready", false, "NotReady").because("it is being deleted"),
        now,
    );
    conditions::set_old(machine, contract, &ConditionContent::new("Ready", false, "Deleting"), now);
}

fn status(machine: &mut Value, infrastructure: Infrastructure, node: Option<&Value>, context: &Context<'_>) {
    let contract = context.settings.contract;
    let joined = machine.text("/status/nodeRef/name").is_some();
    let bootstrapped = infrastructure != Infrastructure::WaitsForBootstrap;
    let provisioned = infrastructure == Infrastructure::Ready;
    let phase = match infrastructure {
        Infrastructure::WaitsForBootstrap => "Pending",
        Infrastructure::Failed if contract == Contract::V1Beta1 => "Failed",
        Infrastructure::Failed | Infrastructure::Coming | Infrastructure::NoCapacity => "Provisioning",
        Infrastructure::Ready if joined => "Running",
        Infrastructure::Ready => "Provisioned",
    };
    let generation = machine.generation();
    machine.set("/status/phase", json!(phase));
    machine.set("/status/observedGeneration", json!(generation));
    match contract {
        Contract::V1Beta1 => {
            machine.set("/status/bootstrapReady", json!(bootstrapped));
            machine.set("/status/infrastructureReady", json!(provisioned));
        }
        Contract::V1Beta2 => {
            let mut done = Map::new();
            for (field, is) in
                [("bootstrapDataSecretCreated", bootstrapped), ("infrastructureProvisioned", provisioned)]
            {
                if is {
                    done.insert(field.to_owned(), json!(true));
                }
            }
            if !done.is_empty() {
                machine.set("/status/initialization", Value::Object(done));
            }
        }
    }
    if infrastructure == Infrastructure::Failed {
        fail(machine, contract);
    }
    set_conditions(machine, infrastructure, node, context);
}

/// Reports a permanent failure, at the path of the contract version.
fn fail(machine: &mut Value, contract: Contract) {
    let place = match contract {
        Contract::V1Beta1 => "/status",
        Contract::V1Beta2 => "/status/deprecated/v1beta1",
    };
    machine.set(&format!("{place}/failureReason"), json!("CreateError"));
    machine.set(&format!("{place}/failureMessage"), json!("the server could not be made: its image does not exist"));
}

fn set_conditions(machine: &mut Value, infrastructure: Infrastructure, node: Option<&Value>, context: &Context<'_>) {
    let (contract, now) = (context.settings.contract, context.now);
    let bootstrap = match infrastructure {
        Infrastructure::WaitsForBootstrap => ConditionContent::new("BootstrapConfigReady", false, "NotReady"),
        Infrastructure::Coming | Infrastructure::NoCapacity | Infrastructure::Failed | Infrastructure::Ready => {
            ConditionContent::new("BootstrapConfigReady", true, "Ready")
        }
    };
    let not_ready = || ConditionContent::new("InfrastructureReady", false, "NotReady");
    let ready = match infrastructure {
        Infrastructure::WaitsForBootstrap => not_ready().because("waiting for bootstrap data"),
        Infrastructure::Coming => not_ready().because("the server is being made"),
        Infrastructure::NoCapacity => not_ready()
            .because("InsufficientInstanceCapacity: the cloud has no server of this type left in this zone; trying on"),
        Infrastructure::Failed => not_ready().because("the server could not be made: its image does not exist"),
        Infrastructure::Ready => ConditionContent::new("InfrastructureReady", true, "Ready"),
    };
    let healthy = node.is_some_and(node::is_ready);
    let joined = machine.text("/status/nodeRef/name").is_some();
    let (node_healthy, node_ready) = match node {
        Some(_) if healthy => (
            ConditionContent::new("NodeHealthy", true, "NodeHealthy"),
            ConditionContent::new("NodeReady", true, "NodeReady"),
        ),
        Some(_) => (
            ConditionContent::new("NodeHealthy", false, "NodeNotHealthy"),
            ConditionContent::new("NodeReady", false, "NodeNotReady"),
        ),
        None if joined => (
            ConditionContent::unknown("NodeHealthy", "NodeDoesNotExist"),
            ConditionContent::unknown("NodeReady", "NodeDoesNotExist"),
        ),
        None => (
            ConditionContent::unknown("NodeHealthy", "InspectionFailed"),
            ConditionContent::unknown("NodeReady", "InspectionFailed"),
        ),
    };
    let whole = healthy && infrastructure == Infrastructure::Ready;
    let whole_says = |kind, no| ConditionContent::new(kind, whole, if whole { kind } else { no });
    for old in [
        ConditionContent::new("Ready", whole, "WaitingForNodeRef"),
        ConditionContent { kind: "BootstrapReady", ..bootstrap },
        ConditionContent { reason: "WaitingForInfrastructure", ..ready },
        ConditionContent { kind: "NodeHealthy", ..node_healthy },
    ] {
        conditions::set_old(machine, contract, &old, now);
    }
    for says in [
        whole_says("Available", "NotReady"),
        whole_says("Ready", "NotReady"),
        ConditionContent::new("UpToDate", true, "UpToDate"),
        ConditionContent { kind: "BootstrapConfigReady", ..bootstrap },
        ready,
        node_healthy,
        node_ready,
        ConditionContent::new("Deleting", false, "NotDeleting"),
    ] {
        conditions::set(machine, contract, &says, now);
    }
}

/// The outcome of a Machine, and the times of its steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fate {
    /// The outcome: its infrastructure is created and its Node joins, or not. `Slow` equals `Joins` because `times` has
    /// all durations.
    pub behaviour: Behaviour,
    /// The times of its steps, drain included. `slow_factor` is ignored.
    pub times: Times,
    /// The time by which `status.nodeRef` and the Node's annotations lag behind the Node.
    pub reference: Duration,
    /// True if its kubelet registers the Node with the taint that Cluster API takes off together with the annotations.
    pub with_kubeadm: bool,
    /// The loss of its Node object, which returns under the same name and providerID.
    pub rejoins: Option<Rejoin>,
    /// The period during which its Node isn't Ready.
    pub unready: Option<Unready>,
    /// An annotation that holds its deletion.
    pub hook: Option<Hook>,
    /// The time for which the Machine stays after its Node was deleted.
    pub hang: Duration,
    /// The time for which its Node stays after the Machine, if Cluster API hasn't deleted it.
    pub lingers: Duration,
    /// The mebibytes of memory that its Node has less than others of its type.
    pub missing_memory: u32,
    /// The device plugin on its Node.
    pub plugin: Option<Plugin>,
}

/// A device plugin, and what its kubelet reports of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Plugin {
    /// The number of its devices.
    pub devices: u32,
    /// The time from which it runs, after the Node was due to be Ready.
    pub after: Duration,
    /// The times after that from which it doesn't, and does again.
    pub restart: Option<(Duration, Duration)>,
}

impl Plugin {
    /// The time from the last of these to one more report of the kubelet, by which the Node has long been Ready.
    const LATER: Duration = Duration::from_secs(11 * 60);

    /// Returns the reports, each with the time since the one before and the devices.
    pub(crate) fn reports(self) -> impl Iterator<Item = (Duration, u32)> {
        let restart = self.restart.map(|(stops, starts)| [(stops, 0), (starts, self.devices)]);
        [(self.after, self.devices)]
            .into_iter()
            .chain(restart.into_iter().flatten())
            .chain([(Self::LATER, self.devices)])
    }
}

/// The loss and return of a Node object.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rejoin {
    /// The time of the loss, after the Node has joined.
    pub after: Duration,
    /// The time until the return.
    pub gap: Duration,
}

/// A period during which a Node isn't Ready.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Unready {
    /// The beginning, after the last time at which it was due to become Ready.
    pub after: Duration,
    /// The duration.
    pub lasts: Duration,
}

/// An annotation that holds a Machine's deletion, set when the Machine is first seen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hook {
    /// The step that is held.
    pub at: HookPoint,
    /// The time after which it is removed, since the Machine's deletion was seen.
    pub held: Duration,
}

/// The steps of a deletion that can be held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HookPoint {
    /// Before its Node is drained.
    PreDrain,
    /// Before its infrastructure is deleted.
    PreTerminate,
}

impl Fate {
    /// Creates the fate of a Machine whose Node joins, and which is deleted without delay.
    pub fn plain(times: Times) -> Self {
        Self {
            behaviour: Behaviour::Joins,
            times,
            reference: Duration::ZERO,
            with_kubeadm: false,
            rejoins: None,
            unready: None,
            hook: None,
            hang: Duration::ZERO,
            lingers: Duration::ZERO,
            missing_memory: 0,
            plugin: None,
        }
    }

    pub(crate) fn of_label(machine: &Value, times: Times) -> Self {
        let behaviour = Behaviour::parse(machine.label(BEHAVIOUR_LABEL));
        let factor = if behaviour == Behaviour::Slow { times.slow_factor } else { 1 };
        let Times { bootstrap, provision, join, ready, drain, terminate, slow_factor } = times;
        let [bootstrap, provision, join, ready, drain, terminate] =
            [bootstrap, provision, join, ready, drain, terminate].map(|time| time.saturating_mul(factor));
        Self { behaviour, ..Self::plain(Times { bootstrap, provision, join, ready, drain, terminate, slow_factor }) }
    }
}
