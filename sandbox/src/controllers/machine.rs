//! Machine: from Pending to Running and out again, with the Node that it becomes. How long each step takes is a setting,
//! and a label says whether it gets there at all.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Context,
    capacity::Hardware,
    conditions::{self, Says},
    keys,
    node::{self, NodeOf},
    object::Object,
    plan::{Plan, Side},
};
use crate::{
    clock::after,
    settings::{BEHAVIOUR_LABEL, Behaviour, Contract, Times},
};

/// What a Machine's controller looks at.
pub(crate) struct Inputs<'a> {
    pub(crate) machine: &'a Arc<Value>,
    pub(crate) course: &'a Course,
    /// The MachineSet that controls it.
    pub(crate) owner: Option<&'a Value>,
    /// Looks up the infrastructure template that its owner names; needed only when a Node is made.
    pub(crate) template: &'a dyn Fn() -> Option<Arc<Value>>,
    /// The Node that it has become.
    pub(crate) node: Option<&'a Arc<Value>>,
}

/// The course of a Machine: its outcome, and the times of its steps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Course {
    pub(crate) behaviour: Behaviour,
    pub(crate) times: Times,
    pub(crate) joining: Joining,
}

/// The component that makes the Node of a Machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Joining {
    /// The Machine's controller, together with the reference to it.
    Together,
    /// A kubelet.
    ByKubelet {
        /// The reference lags behind the Node for so long.
        reference: Duration,
        /// The Machine stays for so long after its Node was deleted.
        hang: Duration,
    },
}

impl Course {
    /// As its label says.
    pub(crate) fn of_label(machine: &Value, times: Times) -> Self {
        let behaviour = Behaviour::parse(machine.label(BEHAVIOUR_LABEL));
        Self { behaviour, times: scaled(times, behaviour), joining: Joining::Together }
    }
}

/// When the steps of a Machine were due. Objects hold times to the second only, so these are kept beside them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Steps {
    seen: Timestamp,
    provisioned: Option<Timestamp>,
    joined: Option<Timestamp>,
    /// When its controller first saw the Node of a kubelet.
    found: Option<Timestamp>,
    deleting: Option<Timestamp>,
    /// When nothing held its infrastructure any more.
    released: Option<Timestamp>,
    /// True if a hook has held it.
    was_held: bool,
}

impl Steps {
    /// Of a Machine that is seen for the first time.
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            seen: now,
            provisioned: None,
            joined: None,
            found: None,
            deleting: None,
            released: None,
            was_held: false,
        }
    }
}

/// What is to be said of a Machine's infrastructure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Infrastructure {
    WaitsForBootstrap,
    Coming,
    NoCapacity,
    Failed,
    Ready,
}

/// What a Machine's controller intends.
pub(crate) fn plan(inputs: &Inputs<'_>, steps: &mut Steps, context: &Context<'_>) -> Plan {
    let machine = inputs.machine;
    let Course { behaviour, times, joining } = *inputs.course;
    let mut plan = Plan::default();
    let mut wanted = Value::clone(machine);
    if machine.deleting() {
        leave(&mut plan, &mut wanted, inputs, steps, times, context);
        plan.change(Side::Management, machine, wanted);
        return plan;
    }
    wanted.add_finalizer(keys::MACHINE_FINALIZER);
    let infrastructure = provision(&mut plan, &mut wanted, steps, behaviour, times, context.now);
    if wanted["spec"] != machine["spec"] {
        // What the API will make of the change; so that the status needs not be written twice.
        wanted.set("/metadata/generation", json!(machine.generation() + 1));
    }
    if infrastructure == Infrastructure::Ready && behaviour != Behaviour::NeverJoins {
        match joining {
            Joining::Together => join(&mut plan, &mut wanted, inputs, steps, times, context),
            Joining::ByKubelet { reference, .. } => find(&mut plan, &mut wanted, inputs, steps, reference, context),
        }
    }
    status(&mut wanted, infrastructure, inputs.node.map(|node| &**node), context);
    plan.change(Side::Management, machine, wanted);
    plan
}

fn scaled(times: Times, behaviour: Behaviour) -> Times {
    let factor = if behaviour == Behaviour::Slow { times.slow_factor } else { 1 };
    let times_factor = |time: Duration| time.saturating_mul(factor);
    Times {
        bootstrap: times_factor(times.bootstrap),
        provision: times_factor(times.provision),
        join: times_factor(times.join),
        ready: times_factor(times.ready),
        drain: times_factor(times.drain),
        terminate: times_factor(times.terminate),
        ..times
    }
}

/// Brings the infrastructure on as far as it is time for.
fn provision(
    plan: &mut Plan,
    machine: &mut Value,
    steps: &mut Steps,
    behaviour: Behaviour,
    times: Times,
    now: Timestamp,
) -> Infrastructure {
    if machine.text("/spec/providerID").is_some() {
        return Infrastructure::Ready;
    }
    let bootstrapped = after(steps.seen, times.bootstrap);
    if now < bootstrapped {
        plan.look_again(bootstrapped);
        return Infrastructure::WaitsForBootstrap;
    }
    let name = machine.name().to_owned();
    machine.set_default("/spec/bootstrap/dataSecretName", json!(name));
    let provisioned = after(bootstrapped, times.provision);
    if now < provisioned {
        plan.look_again(provisioned);
        return Infrastructure::Coming;
    }
    match behaviour {
        Behaviour::Fails => Infrastructure::Failed,
        Behaviour::NoCapacity => Infrastructure::NoCapacity,
        Behaviour::Joins | Behaviour::Slow | Behaviour::NeverJoins => {
            machine.set("/spec/providerID", json!(provider_id(machine.namespace(), machine.name())));
            steps.provisioned = Some(provisioned);
            Infrastructure::Ready
        }
    }
}

/// The id that the simulated cloud gives to a machine.
pub(crate) fn provider_id(namespace: &str, name: &str) -> String {
    format!("sandbox:///{namespace}/{name}")
}

/// Lets the Node join and become Ready when it is time, and keeps its labels.
fn join(
    plan: &mut Plan,
    machine: &mut Value,
    inputs: &Inputs<'_>,
    steps: &mut Steps,
    times: Times,
    context: &Context<'_>,
) {
    let now = context.now;
    if machine.text("/status/nodeRef/name").is_none() {
        let joins = after(*steps.provisioned.get_or_insert(now), times.join);
        if now < joins {
            plan.look_again(joins);
            return;
        }
        if inputs.node.is_none() {
            plan.create(Side::Workload, node_of(machine, inputs).object(times.ready.is_zero(), now));
        }
        steps.joined = Some(joins);
        let name = machine.name().to_owned();
        refer_to_node(machine, &name, context.settings.contract);
    }
    let Some(node) = inputs.node else { return };
    let mut wanted = node::with_labels(node, &machine.map("/metadata/labels"));
    if !node::is_ready(node)
        && let Some(joined) = steps.joined
    {
        let ready = after(joined, times.ready);
        if now < ready {
            plan.look_again(ready);
        } else {
            node::set_ready(&mut wanted, true, now);
            // Whatever its kubelet says later is for others to decide.
            steps.joined = None;
        }
    }
    plan.change(Side::Workload, node, wanted);
}

/// The Node that a Machine becomes.
pub(crate) fn node_of<'a>(machine: &'a Value, inputs: &Inputs<'a>) -> NodeOf<'a> {
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
        hardware: Hardware::of(inputs.owner, (inputs.template)().as_deref()),
    }
}

/// A Machine's taint as a Node has it.
fn core_taint(taint: &Value) -> Value {
    let mut taint = taint.clone();
    taint.unset("/propagation");
    taint
}

/// Refers to the Node that a kubelet has registered, and brings its labels and annotations up to date: before the
/// reference is written, as Cluster API does.
fn find(
    plan: &mut Plan,
    machine: &mut Value,
    inputs: &Inputs<'_>,
    steps: &mut Steps,
    reference: Duration,
    context: &Context<'_>,
) {
    let Some(node) = inputs.node else { return };
    let referred = after(*steps.found.get_or_insert(context.now), reference);
    if machine.text("/status/nodeRef/name").is_none() {
        if context.now < referred {
            plan.look_again(referred);
            return;
        }
        refer_to_node(machine, node.name(), context.settings.contract);
    }
    let mut wanted = node::with_labels(node, &machine.map("/metadata/labels"));
    node_of(machine, inputs).annotate(&mut wanted);
    plan.change(Side::Workload, node, wanted);
}

fn refer_to_node(machine: &mut Value, name: &str, contract: Contract) {
    let reference = match contract {
        Contract::V1Beta1 => json!({ "apiVersion": "v1", "kind": "Node", "name": name }),
        Contract::V1Beta2 => json!({ "name": name }),
    };
    machine.set("/status/nodeRef", reference);
}

/// Brings a deletion on: drain, then let go of the infrastructure and the Node, then of the Machine.
fn leave(
    plan: &mut Plan,
    machine: &mut Value,
    inputs: &Inputs<'_>,
    steps: &mut Steps,
    times: Times,
    context: &Context<'_>,
) {
    let now = context.now;
    let joining = inputs.course.joining;
    // A Node without a reference to it is left to its cloud.
    let is_known = joining == Joining::Together || machine.text("/status/nodeRef/name").is_some();
    let node = inputs.node.filter(|_| is_known);
    if is_known && is_held(machine, keys::PRE_DRAIN_HOOK) {
        say_deleting(machine, "WaitingForPreDrainHook", context);
        return;
    }
    let since = *steps.deleting.get_or_insert(now);
    // Without a Node there is nothing to drain.
    let drained = if node.is_some() && steps.released.is_none() { after(since, times.drain) } else { since };
    if now < drained {
        say_deleting(machine, "DrainingNode", context);
        plan.look_again(drained);
        cordon(plan, node);
        return;
    }
    if is_held(machine, keys::PRE_TERMINATE_HOOK) {
        say_deleting(machine, "WaitingForPreTerminateHook", context);
        steps.was_held = true;
        return;
    }
    say_deleting(machine, "WaitingForInfrastructureDeletion", context);
    let released = *steps.released.get_or_insert(if steps.was_held { now } else { drained });
    let gone = after(released, times.terminate);
    if now < gone {
        plan.look_again(gone);
        cordon(plan, node);
        return;
    }
    if let Some(node) = node {
        plan.delete(Side::Workload, node);
    }
    if let Joining::ByKubelet { hang, .. } = joining
        && now < after(gone, hang)
    {
        plan.look_again(after(gone, hang));
        return;
    }
    machine.remove_finalizer(keys::MACHINE_FINALIZER);
}

fn cordon(plan: &mut Plan, node: Option<&Arc<Value>>) {
    if let Some(node) = node {
        let mut cordoned = Value::clone(node);
        cordoned.set("/spec/unschedulable", json!(true));
        plan.change(Side::Workload, node, cordoned);
    }
}

/// Returns true if somebody holds it by an annotation with this prefix.
fn is_held(machine: &Value, hook: &str) -> bool {
    let annotations = machine.pointer("/metadata/annotations").and_then(Value::as_object);
    annotations.is_some_and(|all| all.keys().any(|key| key.starts_with(hook)))
}

fn say_deleting(machine: &mut Value, reason: &'static str, context: &Context<'_>) {
    let (contract, now) = (context.settings.contract, context.now);
    machine.set("/status/phase", json!("Deleting"));
    conditions::set(machine, contract, &Says::new("Deleting", true, reason), now);
    conditions::set(machine, contract, &Says::new("Ready", false, "NotReady").because("it is being deleted"), now);
    conditions::set_old(machine, contract, &Says::new("Ready", false, "Deleting"), now);
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

/// Says that it has failed for good, where its contract version has that.
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
        Infrastructure::WaitsForBootstrap => Says::new("BootstrapConfigReady", false, "NotReady"),
        Infrastructure::Coming | Infrastructure::NoCapacity | Infrastructure::Failed | Infrastructure::Ready => {
            Says::new("BootstrapConfigReady", true, "Ready")
        }
    };
    let not_ready = || Says::new("InfrastructureReady", false, "NotReady");
    let ready = match infrastructure {
        Infrastructure::WaitsForBootstrap => not_ready().because("waiting for bootstrap data"),
        Infrastructure::Coming => not_ready().because("the server is being made"),
        Infrastructure::NoCapacity => not_ready()
            .because("InsufficientInstanceCapacity: the cloud has no server of this type left in this zone; trying on"),
        Infrastructure::Failed => not_ready().because("the server could not be made: its image does not exist"),
        Infrastructure::Ready => Says::new("InfrastructureReady", true, "Ready"),
    };
    let healthy = node.is_some_and(node::is_ready);
    let joined = machine.text("/status/nodeRef/name").is_some();
    let (node_healthy, node_ready) = match node {
        Some(_) if healthy => {
            (Says::new("NodeHealthy", true, "NodeHealthy"), Says::new("NodeReady", true, "NodeReady"))
        }
        Some(_) => (Says::new("NodeHealthy", false, "NodeNotHealthy"), Says::new("NodeReady", false, "NodeNotReady")),
        None if joined => {
            (Says::unknown("NodeHealthy", "NodeDoesNotExist"), Says::unknown("NodeReady", "NodeDoesNotExist"))
        }
        None => (Says::unknown("NodeHealthy", "InspectionFailed"), Says::unknown("NodeReady", "InspectionFailed")),
    };
    let whole = healthy && infrastructure == Infrastructure::Ready;
    let whole_says = |kind, no| Says::new(kind, whole, if whole { kind } else { no });
    for old in [
        Says::new("Ready", whole, "WaitingForNodeRef"),
        Says { kind: "BootstrapReady", ..bootstrap },
        Says { reason: "WaitingForInfrastructure", ..ready },
        Says { kind: "NodeHealthy", ..node_healthy },
    ] {
        conditions::set_old(machine, contract, &old, now);
    }
    for says in [
        whole_says("Available", "NotReady"),
        whole_says("Ready", "NotReady"),
        Says::new("UpToDate", true, "UpToDate"),
        Says { kind: "BootstrapConfigReady", ..bootstrap },
        ready,
        node_healthy,
        node_ready,
        Says::new("Deleting", false, "NotDeleting"),
    ] {
        conditions::set(machine, contract, &says, now);
    }
}
