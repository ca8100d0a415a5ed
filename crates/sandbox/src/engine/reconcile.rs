//! A reconcile: a plan made from the controller's views, split into the requests that Cluster API sends one after the
//! other. Its patches contain its changes since it read the object, and no resource version, so a stale view overwrites
//! what others wrote to the same fields. Its deletes have no precondition.

use std::{collections::VecDeque, fmt, sync::Arc};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    Controllers, groups_of_machine,
    kind::{Act, Controller, Fault, Kind, Observed, Step},
    member::{CACHE_TIMEOUT, Member, ObjectKey, Run, key_of},
    others::Server,
    owning_set, same,
};
use crate::{
    api::{Api, DeleteOptions, Deleted, PatchKind, Refusal, Resource, Subresource},
    clock::after,
    controllers::{
        CapiVersion, Context, Plan, Side, Write, cluster, keys, machine, machine_deployment, machine_pool, machine_set,
        node::Hardware, object::Object as _,
    },
    settings::NodeSource,
};

impl Controllers {
    pub(super) fn begin(&mut self, controller: Controller, now: Timestamp) -> Option<Step> {
        let key = self.members[controller as usize].take_head(now)?;
        let found = self.read(controller, &key);
        self.reconciles += 1;
        let machines = self.members[controller as usize].view(Kind::Machine).map_or(0, |view| view.revision);
        let observed = Observed { reconcile: self.reconciles, machines };
        let writes = match found {
            Some(object) => {
                let (ops, again) = self.plan(controller, &key, &object, now);
                let member = &mut self.members[controller as usize];
                if let Some(time) = again {
                    member.queue.add_at(time, key.clone());
                }
                let writes = ops.len();
                let deadline = None;
                member.runs.push(Run { key: key.clone(), object, ops, has_failed: false, observed, deadline });
                if writes == 0 {
                    member.end(member.runs.len() - 1, now);
                }
                writes
            }
            None => 0,
        };
        Some(step(controller, &key, Act::Planned(writes), observed))
    }

    /// Returns the object as the controller sees it, unless it is gone or paused.
    fn read(&mut self, controller: Controller, key: &ObjectKey) -> Option<Arc<Value>> {
        let member = &mut self.members[controller as usize];
        let found = member.get(controller.of(), key);
        if controller == Controller::Kubelet {
            // A server may outlast its Machine.
            return found.or_else(|| Some(Arc::clone(&self.servers.get(key)?.machine)));
        }
        let object = found?;
        if controller.is_of_cluster_api() {
            let cluster_key = super::cluster_key(&object);
            let cluster = cluster_key.as_ref().and_then(|key| member.get(Kind::Cluster, key));
            if cluster::is_paused(&object, cluster.as_deref()) {
                if let Some(cluster) = cluster_key {
                    member.parked.entry(cluster).or_default().insert(key.clone());
                }
                return None;
            }
        }
        Some(object)
    }

    fn plan(
        &mut self,
        controller: Controller,
        key: &ObjectKey,
        object: &Arc<Value>,
        now: Timestamp,
    ) -> (VecDeque<Op>, Option<Timestamp>) {
        let (version, fate, uid) = (self.options.version, self.fate(object), object.uid());
        let member = &self.members[controller as usize];
        let context = &mut Context { now, settings: &self.options.settings, version, names: &mut self.names };
        let plan = match controller {
            Controller::Cluster => cluster::plan(object, context),
            Controller::MachineDeployment => {
                let cluster = super::cluster_key(object).and_then(|key| member.get(Kind::Cluster, &key));
                let sets = member.controlled(Kind::MachineSet, object);
                machine_deployment::plan(object, cluster.as_deref(), sets, context)
            }
            Controller::MachineSet => machine_set::plan(object, &member.controlled(Kind::Machine, object), context),
            Controller::Machine => {
                let node = object.text("/spec/providerID").and_then(|id| member.node(object, id));
                let inputs = machine::Inputs { machine: object, fate: &fate, node: node.as_ref() };
                let steps = self.machines.entry(uid.to_owned()).or_insert_with(|| machine::Steps::new(now));
                machine::plan(&inputs, steps, context)
            }
            Controller::MachinePool => {
                let nodes = member.nodes_of_pool(object);
                if let Some(ways) = self.options.pools {
                    let machines = member.controlled(Kind::Machine, object);
                    let state = self.infrastructures.entry(uid.to_owned()).or_default();
                    let plan = machine_pool::plan_with_machines(object, &machines, &nodes, state, (ways, context));
                    let again = plan.again;
                    return (ops(plan, controller, object, version), again);
                }
                let reference = object.pointer("/spec/template/spec/infrastructureRef");
                let template = reference.and_then(|reference| referred(&self.management, reference, &key.0));
                let inputs = machine_pool::Inputs { pool: object, template: template.as_deref(), nodes: &nodes };
                machine_pool::plan(&inputs, self.pools.entry(uid.to_owned()).or_default(), context)
            }
            Controller::MachineHealthCheck => {
                let Some(check) = self.options.health else { return Default::default() };
                let node = object.text("/spec/providerID").and_then(|id| member.node(object, id));
                let missing = self.missing.entry(uid.to_owned()).or_default();
                check.plan(object, node.as_deref(), missing, now)
            }
            Controller::Kubelet => self.serve(key, object, now),
            Controller::Hooks => {
                let Some(hook) = fate.hook else { return Default::default() };
                let (op, again) = hook.plan(object, self.held.entry(uid.to_owned()).or_default(), now);
                return (op.into_iter().collect(), again);
            }
        };
        let again = plan.again;
        (ops(plan, controller, object, version), again)
    }

    fn serve(&mut self, key: &ObjectKey, machine: &Arc<Value>, now: Timestamp) -> Plan {
        let member = &self.members[Controller::Kubelet as usize];
        let seen = member.get(Kind::Machine, key);
        if machine.text("/spec/providerID").is_none() {
            return Plan::default();
        }
        let fate = self.fate(machine);
        // Where all steps that are due are taken at once, its infrastructure may have been due earlier.
        let provisioned = self.machines.get(machine.uid()).filter(|_| self.is_live).and_then(|steps| steps.provisioned);
        let up = provisioned.unwrap_or(now);
        let new = |machine: &Arc<Value>| Server::new(Arc::clone(machine), &fate, up);
        let server = self.servers.entry(key.clone()).or_insert_with(|| new(machine));
        match &seen {
            Some(seen) if same(seen, &server.machine) => server.machine = Arc::clone(seen),
            // This is another Machine with the same name.
            Some(seen) => *server = new(seen),
            None => {
                server.gone.get_or_insert(now);
            }
        }
        // A label may change; the times are those of the beginning.
        server.fate.behaviour = fate.behaviour;
        let node = member.node(machine, server.id());
        let source = self.options.settings.node_source(|| groups_of_machine(machine));
        if node.is_none() && seen.is_some() && source == NodeSource::Nothing {
            return Plan::default();
        }
        let make = |is_ready| {
            let owner = owning_set(machine).and_then(|key| member.get(Kind::MachineSet, &key));
            let reference = owner.as_ref().and_then(|owner| owner.pointer("/spec/template/spec/infrastructureRef"));
            let template = reference.and_then(|reference| referred(&self.management, reference, &key.0));
            let hardware = Hardware::of(owner.as_deref(), template.as_deref()).without_memory(fate.missing_memory);
            let mut node = machine::node_of(machine, hardware).registered(is_ready, fate.with_kubeadm, now);
            if let NodeSource::Model(model) = source {
                model.apply(&mut node);
            }
            node
        };
        let plan = server.plan(node.as_ref(), make, now);
        if seen.is_none() && node.is_none() && plan.again.is_none() {
            self.servers.remove(key);
        }
        plan
    }

    /// Continues a reconcile, with at most one write.
    pub(super) fn go_on(&mut self, controller: Controller, number: usize, fault: Fault, now: Timestamp) -> Step {
        let member = &mut self.members[controller as usize];
        let (key, observed) = (member.runs[number].key.clone(), member.runs[number].observed);
        let act = match member.runs[number].ops.front() {
            Some(Op::Wait(_)) => wait(member, number, now),
            Some(_) | None => self.write(controller, number, fault),
        };
        let member = &mut self.members[controller as usize];
        if member.runs[number].ops.is_empty() {
            member.end(number, now);
        }
        step(controller, &key, act, observed)
    }

    fn write(&mut self, controller: Controller, number: usize, fault: Fault) -> Act {
        let version = self.options.version;
        let run = &mut self.members[controller as usize].runs[number];
        let Some(mut op) = run.ops.pop_front() else { return Act::Planned(0) };
        if (run.has_failed || self.is_ailing) && op.is_status_of("MachineSet") && !version.observes_despite_errors() {
            op.keep_observed_generation();
        }
        let what = op.to_string();
        let api = match op.side() {
            Side::Workload => self.workloads.of(&run.object),
            Side::Management => Some(&self.management),
        };
        let answer = if fault == Fault::Before {
            None
        } else {
            let none =
                || Refusal::new(404, "NotFound", format!("{} belongs to no workload cluster", run.object.name()));
            Some(api.ok_or_else(none).and_then(|api| match controller {
                Controller::Kubelet => op.perform(&api.as_manager("kubelets")),
                Controller::Hooks => op.perform(&api.as_manager("hooks")),
                _ => op.perform(api),
            }))
        };
        let is_done = match &answer {
            Some(Ok(_)) => true,
            Some(Err(refusal)) => is_tolerated(refusal, &op, controller, &run.object),
            None => false,
        };
        if is_done
            && controller == Controller::Kubelet
            && matches!(op, Op::Create(..))
            && let Some(server) = self.servers.get_mut(&run.key)
        {
            server.has_registered(self.clock.now());
        }
        if is_done
            && controller == Controller::MachinePool
            && op.target().is_some_and(|(kind, _)| kind == "Machine")
            && let Some(Ok(Written { revision: Some(revision) })) = &answer
        {
            // The infrastructure knows the Machines that it has created, whatever the response.
            let (key, revision) = (run.key.clone(), *revision);
            self.members[controller as usize].note_written(&key, Kind::Machine, revision);
        }
        let run = &mut self.members[controller as usize].runs[number];
        if is_done && fault == Fault::None {
            let member = &mut self.members[controller as usize];
            if !version.waits_for_cache_in_reconcile()
                && let Some(Ok(Written { revision: Some(revision) })) = answer
            {
                let key = member.runs[number].key.clone();
                match (controller, op.target()) {
                    (Controller::MachineSet, Some(("Machine", _))) if !matches!(op, Op::Patch(_)) => {
                        member.note_written(&key, Kind::Machine, revision);
                    }
                    (Controller::MachineDeployment, Some(("MachineSet", _))) => {
                        member.note_written(&key, Kind::MachineSet, revision);
                    }
                    _ => {}
                }
            }
            return Act::Wrote(what);
        }
        run.has_failed = true;
        leave_out(run, &op, controller, version);
        match answer {
            _ if fault == Fault::After => Act::Lost(what),
            Some(Err(refusal)) => Act::Refused(what, refusal.code),
            Some(Ok(_)) | None => Act::Failed(what),
        }
    }
}

/// Returns true if the controller treats a refusal as success.
fn is_tolerated(refusal: &Refusal, op: &Op, controller: Controller, object: &Value) -> bool {
    match op {
        Op::Delete(..) => refusal.code == 404 && (controller != Controller::MachineSet || object.deleting()),
        Op::Create(..) => controller == Controller::Kubelet && refusal.reason == "AlreadyExists",
        // The object was gone with its last finalizer.
        Op::Patch(_) => refusal.code == 404 && object.deleting(),
        Op::Wait(_) => false,
    }
}

/// Removes the steps of the reconcile that are skipped after a failed write.
fn leave_out(run: &mut Run, failed: &Op, controller: Controller, version: crate::controllers::CapiVersion) {
    if controller != Controller::MachineSet {
        run.ops.clear();
        return;
    }
    let is_of_machine = failed.target().is_some_and(|(kind, _)| kind == "Machine");
    match failed {
        Op::Create(..) if version.ends_with_failed_create() => run.ops.retain(|op| !matches!(op, Op::Create(..))),
        Op::Delete(..) if run.object.deleting() => run.ops.clear(),
        Op::Patch(_) if !is_of_machine || version.ends_with_failed_sync() => run.ops.clear(),
        Op::Create(..) | Op::Delete(..) | Op::Patch(_) | Op::Wait(_) => {}
    }
    // A controller that fails doesn't wait.
    run.ops.retain(|op| !matches!(op, Op::Wait(_)));
}

/// Waits for the first of the controller's own writes that its view doesn't show.
fn wait(member: &mut Member, number: usize, now: Timestamp) -> Act {
    let Some(Op::Wait(mut left)) = member.runs[number].ops.pop_front() else { return Act::HasWaited };
    let mut deadline = member.runs[number].deadline.take();
    while left.front().is_some_and(|awaited| member.shows(awaited)) {
        left.pop_front();
        deadline = None;
    }
    let is_new = deadline.is_none();
    let run = &mut member.runs[number];
    if left.is_empty() {
        return Act::HasWaited;
    }
    let deadline = deadline.unwrap_or_else(|| after(now, CACHE_TIMEOUT));
    if deadline <= now && !is_new {
        run.has_failed = true;
        if run.object.kind() == "MachineDeployment" {
            run.ops.clear();
        }
        return Act::GaveUp;
    }
    run.deadline = Some(deadline);
    run.ops.push_front(Op::Wait(left));
    Act::Waits
}

/// Returns the object that a reference of either contract version names, in the version in which it is stored.
fn referred(api: &Api, reference: &Value, namespace: &str) -> Option<Arc<Value>> {
    let group = reference["apiGroup"].as_str().or_else(|| Some(reference["apiVersion"].as_str()?.split_once('/')?.0));
    let kind = reference["kind"].as_str()?;
    let known = api.kinds();
    let spec = known.iter().find(|spec| Some(spec.group.as_str()) == group && spec.kind == kind)?;
    api.get(&spec.storage_resource(), namespace, reference["name"].as_str()?).ok()
}

fn step(controller: Controller, key: &ObjectKey, act: Act, observed: Observed) -> Step {
    Step { controller, namespace: key.0.clone(), name: key.1.clone(), act, observed }
}

#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Creates an object, with the status it has.
    Create(Side, Value),
    /// Applies a merge patch.
    Patch(Patch),
    /// Deletes the object of this name, whatever its uid.
    Delete(Side, Arc<Value>),
    /// Waits until the controller's view shows all of these as created or as being deleted.
    Wait(VecDeque<Awaited>),
}

#[derive(Clone, Debug)]
pub(super) struct Patch {
    side: Side,
    api_version: String,
    kind: String,
    key: ObjectKey,
    subresource: Subresource,
    body: Value,
}

/// An object that a controller has created or deleted, as its cache doesn't show yet.
#[derive(Clone, Debug)]
pub(super) struct Awaited {
    pub(super) key: ObjectKey,
    pub(super) is_deleted: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Written {
    /// The revision of the written object; `None` if it is gone.
    pub(super) revision: Option<u64>,
}

impl fmt::Display for Op {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(_, object) => write!(out, "creates {} {}", object.kind(), object.name()),
            Self::Patch(patch) => {
                let part = if patch.subresource == Subresource::Status { "status of " } else { "" };
                write!(out, "patches {part}{} {}", patch.kind, patch.key.1)?;
                match patch.body.pointer("/spec/replicas") {
                    Some(replicas) => write!(out, " to {replicas} replicas"),
                    None => Ok(()),
                }
            }
            Self::Delete(_, object) => write!(out, "deletes {} {}", object.kind(), object.name()),
            Self::Wait(left) => write!(out, "waits for its cache to show {} objects", left.len()),
        }
    }
}

impl Op {
    /// Creates a merge patch of an object except for its status.
    pub(super) fn patch(side: Side, object: &Value, body: Value) -> Self {
        Self::part(side, object, Subresource::Main, body)
    }

    fn part(side: Side, object: &Value, subresource: Subresource, body: Value) -> Self {
        let api_version = object["apiVersion"].as_str().unwrap_or_default().to_owned();
        let kind = object.kind().to_owned();
        Self::Patch(Patch { side, api_version, kind, key: key_of(object), subresource, body })
    }

    pub(super) fn is_status_of(&self, of: &str) -> bool {
        matches!(self, Self::Patch(patch) if patch.subresource == Subresource::Status && patch.kind == of)
    }

    /// Leaves `status.observedGeneration` unchanged.
    pub(super) fn keep_observed_generation(&mut self) {
        if let Self::Patch(patch) = self {
            patch.body.unset("/status/observedGeneration");
        }
    }

    pub(super) fn target(&self) -> Option<(&str, ObjectKey)> {
        match self {
            Self::Create(_, object) => Some((object.kind(), key_of(object))),
            Self::Delete(_, object) => Some((object.kind(), key_of(object))),
            Self::Patch(patch) => Some((&patch.kind, patch.key.clone())),
            Self::Wait(_) => None,
        }
    }

    pub(super) fn side(&self) -> Side {
        match self {
            Self::Create(side, _) | Self::Delete(side, _) => *side,
            Self::Patch(patch) => patch.side,
            Self::Wait(_) => Side::Management,
        }
    }

    pub(super) fn perform(&self, api: &Api) -> Result<Written, Refusal> {
        match self {
            Self::Create(_, object) => {
                let resource = resource(api, object["apiVersion"].as_str().unwrap_or_default(), object.kind())?;
                let mut created = api.create(&resource, object.clone())?;
                if object.get("status").is_some_and(|status| created.get("status") != Some(status)) {
                    let mut whole = Value::clone(&created);
                    whole.set("/status", object["status"].clone());
                    created = api.update_status(&resource, whole)?;
                }
                Ok(Written { revision: revision(&created) })
            }
            Self::Patch(patch) => {
                let Patch { key: (namespace, name), .. } = patch;
                let resource = resource(api, &patch.api_version, &patch.kind)?;
                let body = patch.body.clone();
                let after = api.patch(&resource, namespace, name, PatchKind::Merge, patch.subresource, body)?;
                Ok(Written { revision: revision(&after) })
            }
            Self::Delete(_, object) => {
                let resource = resource(api, object["apiVersion"].as_str().unwrap_or_default(), object.kind())?;
                match api.delete(&resource, object.namespace(), object.name(), &DeleteOptions::default())? {
                    Deleted::Waiting(after) => Ok(Written { revision: revision(&after) }),
                    Deleted::Gone(_) => Ok(Written { revision: None }),
                }
            }
            Self::Wait(_) => Ok(Written { revision: None }),
        }
    }
}

fn resource(api: &Api, api_version: &str, kind: &str) -> Result<Resource, Refusal> {
    api.resource_of(api_version, kind)
        .ok_or_else(|| Refusal::new(404, "NotFound", format!("no kind {kind} is known in {api_version}")))
}

fn revision(object: &Value) -> Option<u64> {
    object.text("/metadata/resourceVersion")?.parse().ok()
}

/// The inputs of a MachineDeployment's writes to its MachineSets.
struct Wish<'a> {
    deployment: &'a Value,
    /// The revision of the newest MachineSet.
    revision: Option<&'a str>,
    version: CapiVersion,
}

/// Returns the writes of a controller's plan for `object`, one by one.
pub(super) fn ops(plan: Plan, controller: Controller, object: &Value, version: CapiVersion) -> VecDeque<Op> {
    let mut ops = VecDeque::new();
    let mut awaited = VecDeque::new();
    let waits = version.waits_for_cache_in_reconcile() && !object.deleting();
    let own = plan.writes.iter().find_map(|write| match write {
        Write::Change(_, before, after) if before.uid() == object.uid() => Some(after),
        Write::Change(..) | Write::Create(..) | Write::Delete(..) => None,
    });
    let revision = own.unwrap_or(object).annotation(keys::REVISION).map(str::to_owned);
    for write in plan.writes {
        match write {
            Write::Create(side, object) => {
                awaited.push_back(Awaited { key: key_of(&object), is_deleted: false });
                ops.push_back(Op::Create(side, object));
                if waits && controller == Controller::MachineDeployment {
                    ops.push_back(Op::Wait(std::mem::take(&mut awaited)));
                }
            }
            Write::Delete(side, object) => {
                awaited.push_back(Awaited { key: key_of(&object), is_deleted: true });
                ops.push_back(Op::Delete(side, object));
            }
            Write::Change(side, before, after) => {
                let is_own = before.uid() == object.uid();
                if is_own && controller == Controller::MachineSet && waits && !awaited.is_empty() {
                    ops.push_back(Op::Wait(std::mem::take(&mut awaited)));
                }
                if !is_own && controller == Controller::MachineDeployment {
                    let wish = Wish { deployment: object, revision: revision.as_deref(), version };
                    resize(&mut ops, side, &before, &after, &wish);
                } else {
                    change(&mut ops, side, &before, &after);
                }
            }
        }
    }
    if controller == Controller::MachineSet && waits && !awaited.is_empty() {
        ops.push_back(Op::Wait(awaited));
    }
    ops
}

/// Adds the writes of a change: metadata and spec first, then the status.
fn change(ops: &mut VecDeque<Op>, side: Side, before: &Value, after: &Value) {
    if let Some(body) = main_difference(before, after) {
        ops.push_back(Op::part(side, before, Subresource::Main, body));
    }
    if let Some(status) = difference(&before["status"], &after["status"]) {
        ops.push_back(Op::part(side, before, Subresource::Status, json!({ "status": status })));
    }
}

/// Adds a MachineDeployment's write of a MachineSet. The applied fields are sent as a whole, not as a difference to the
/// read state.
fn resize(ops: &mut VecDeque<Op>, side: Side, before: &Value, after: &Value, wish: &Wish<'_>) {
    let Some(mut body) = main_difference(before, after) else { return };
    let replicas = &after["spec"]["replicas"];
    let is_resized = before["spec"]["replicas"] != *replicas;
    let is_newest = wish.revision.is_none() || after.annotation(keys::REVISION) == wish.revision;
    if !is_newest {
        ops.push_back(Op::part(side, before, Subresource::Main, body));
        return;
    }
    let is_apart = wish.version.sizes_machine_set_apart() || wish.deployment["spec"]["paused"] == true;
    let first = if is_apart { &before["spec"]["replicas"] } else { replicas };
    body.set("/spec/replicas", first.clone());
    ops.push_back(Op::part(side, before, Subresource::Main, body));
    if is_apart && is_resized {
        ops.push_back(Op::part(side, before, Subresource::Main, json!({ "spec": { "replicas": replicas } })));
    }
}

fn main_difference(before: &Value, after: &Value) -> Option<Value> {
    let mut body = difference(before, after)?;
    body.unset("/status");
    for field in ["generation", "resourceVersion", "managedFields"] {
        body.unset(&format!("/metadata/{field}"));
    }
    if body["metadata"].as_object().is_some_and(Map::is_empty) {
        body.unset("/metadata");
    }
    body.as_object().is_some_and(|body| !body.is_empty()).then_some(body)
}

/// Returns the merge patch that turns `before` into `after`.
fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) => {
                if let Some(value) = difference(known, value) {
                    patch.insert(key.clone(), value);
                }
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
