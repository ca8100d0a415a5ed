//! A reconcile: a plan made from the controller's views, and its writes one by one.

use std::{collections::VecDeque, sync::Arc};

use jiff::Timestamp;
use serde_json::Value;

use super::{
    Controllers,
    kind::{Act, Controller, Fault, Kind, Observed, Step},
    member::{CACHE_TIMEOUT, Member, Run},
    others::Server,
    owning_set, same,
    view::ObjectKey,
    write::{self, Op},
};
use crate::{
    api::{Api, Refusal},
    clock::after,
    controllers::{
        Context, cluster, machine, machine_deployment, machine_pool, machine_set,
        node::Hardware,
        object::Object as _,
        plan::{Plan, Side},
        pool_machines,
    },
};

impl Controllers {
    /// Begins the next reconcile of a controller.
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
                let ids = object["spec"]["providerIDList"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let nodes: Vec<_> = ids.filter_map(|id| member.node(object, id)).collect();
                if let Some(ways) = self.options.pools {
                    let machines = member.controlled(Kind::Machine, object);
                    let state = self.infrastructures.entry(uid.to_owned()).or_default();
                    let plan = pool_machines::plan(object, &machines, &nodes, state, (ways, context));
                    let again = plan.again;
                    return (write::ops(plan, controller, object, version), again);
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
        (write::ops(plan, controller, object, version), again)
    }

    /// Returns the plan of a Machine's server for its Node.
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
        let new = |machine: &Arc<Value>| Server::new(Arc::clone(machine), fate, up);
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
        let make = |is_ready| {
            let owner = owning_set(machine).and_then(|key| member.get(Kind::MachineSet, &key));
            let reference = owner.as_ref().and_then(|owner| owner.pointer("/spec/template/spec/infrastructureRef"));
            let template = reference.and_then(|reference| referred(&self.management, reference, &key.0));
            let hardware = Hardware::of(owner.as_deref(), template.as_deref());
            machine::node_of(machine, hardware).registered(is_ready, fate.with_kubeadm, now)
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
            && let Some(Ok(write::Written { revision: Some(revision) })) = &answer
        {
            // The infrastructure knows the Machines that it has created, whatever the response.
            let (key, revision) = (run.key.clone(), *revision);
            self.members[controller as usize].note_written(&key, Kind::Machine, revision);
        }
        let run = &mut self.members[controller as usize].runs[number];
        if is_done && fault == Fault::None {
            let member = &mut self.members[controller as usize];
            if !version.waits_for_cache_in_reconcile()
                && let Some(Ok(write::Written { revision: Some(revision) })) = answer
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
