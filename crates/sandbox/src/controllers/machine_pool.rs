//! MachinePool: the infrastructure manages its machines, so there are no Machine objects, only a list of ids and the
//! Nodes. When the pool shrinks, the infrastructure chooses the machine to remove: here the last one of the list.
//!
//! Or the instances are Machines too. Then the infrastructure has a size of its own, which follows the pool's some time
//! later: until then it replaces every Machine that goes. The Machine that it takes for a smaller size is its own choice.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context, Plan, Side,
    conditions::{self, ConditionContent},
    keys,
    machine::{node_reference, provider_id},
    machine_set::{new_machine, set_group_defaults},
    node::{self, Hardware, NodeOf},
    object::{self, Object},
};
use crate::{
    clock::after,
    settings::{BEHAVIOUR_LABEL, Behaviour, Contract, GroupKey, NodeSource, Times},
};

/// The times at which the steps of a MachinePool were due.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Steps {
    /// The time since which it has had too few machines, or too many.
    changing: Option<Timestamp>,
    /// The time since which each machine has existed, by its id.
    listed: BTreeMap<String, Timestamp>,
    /// The time since which each Node that isn't Ready yet has existed.
    joined: BTreeMap<String, Timestamp>,
}

pub(crate) struct Inputs<'a> {
    pub(crate) pool: &'a Arc<Value>,
    pub(crate) template: Option<&'a Value>,
    /// The Nodes that name the pool as their owner.
    pub(crate) nodes: &'a [Arc<Value>],
}

pub(crate) fn plan(inputs: &Inputs<'_>, steps: &mut Steps, context: &mut Context<'_>) -> Plan {
    let pool = inputs.pool;
    let mut plan = Plan::default();
    let mut wanted = Value::clone(pool);
    if pool.deleting() {
        for node in inputs.nodes {
            plan.delete(Side::Workload, node);
        }
        wanted.remove_finalizer(keys::POOL_FINALIZER);
        plan.change(Side::Management, pool, wanted);
        return plan;
    }
    set_group_defaults(&mut wanted, keys::POOL_FINALIZER);
    let behaviour = Behaviour::parse(pool.text(&label_of_template(BEHAVIOUR_LABEL)));
    let ids = resize(&mut plan, &wanted, steps, behaviour, context);
    wanted.set("/spec/providerIDList", json!(ids));
    if wanted["spec"] != pool["spec"] {
        wanted.set("/metadata/generation", json!(pool.generation() + 1));
    }
    nodes(&mut plan, &wanted, &ids, inputs, steps, behaviour, context);
    status(&mut wanted, &ids, inputs.nodes, context);
    plan.change(Side::Management, pool, wanted);
    plan
}

fn label_of_template(key: &str) -> String {
    format!("/spec/template/metadata/labels/{}", object::escape(key))
}

/// Returns the current ids of the pool.
fn resize(
    plan: &mut Plan,
    pool: &Value,
    steps: &mut Steps,
    behaviour: Behaviour,
    context: &mut Context<'_>,
) -> Vec<String> {
    let Times { bootstrap, provision, drain, terminate, .. } = context.settings.times_of(|| group_of(pool));
    let listed = pool["spec"]["providerIDList"].as_array().into_iter().flatten();
    let mut ids: Vec<_> = listed.filter_map(Value::as_str).map(str::to_owned).collect();
    let wanted = usize::try_from(pool.number("/spec/replicas")).unwrap_or_default();
    let stuck = match behaviour {
        Behaviour::Fails | Behaviour::NoCapacity => wanted > ids.len(),
        Behaviour::Joins | Behaviour::Slow | Behaviour::NeverJoins => false,
    };
    if ids.len() == wanted || stuck {
        steps.changing = None;
        return ids;
    }
    let since = *steps.changing.get_or_insert(context.now);
    let takes = if ids.len() < wanted { bootstrap + provision } else { drain + terminate };
    let done = after(since, takes);
    if context.now < done {
        plan.look_again(done);
        return ids;
    }
    steps.changing = None;
    while ids.len() < wanted {
        let id = provider_id(pool.namespace(), &format!("{}-{}", pool.name(), context.names.suffix()));
        steps.listed.insert(id.clone(), done);
        ids.push(id);
    }
    for id in ids.drain(wanted..) {
        steps.listed.remove(&id);
        steps.joined.remove(&id);
    }
    ids
}

/// Lets Nodes join, become Ready and go with their ids.
fn nodes(
    plan: &mut Plan,
    pool: &Value,
    ids: &[String],
    inputs: &Inputs<'_>,
    steps: &mut Steps,
    behaviour: Behaviour,
    context: &Context<'_>,
) {
    let (times, now) = (context.settings.times_of(|| group_of(pool)), context.now);
    let source = context.settings.node_source(|| group_of(pool));
    for node in inputs.nodes {
        let id = node.text("/spec/providerID").unwrap_or_default();
        if !ids.iter().any(|listed| listed == id) {
            plan.delete(Side::Workload, node);
        } else if let Some(joined) = steps.joined.get(id) {
            let ready = after(*joined, times.ready);
            if now < ready {
                plan.look_again(ready);
                continue;
            }
            let mut wanted = Value::clone(node);
            node::set_ready(&mut wanted, true, now);
            steps.joined.remove(id);
            plan.change(Side::Workload, node, wanted);
        }
    }
    for id in ids {
        if behaviour == Behaviour::NeverJoins
            || inputs.nodes.iter().any(|node| node.text("/spec/providerID") == Some(id.as_str()))
        {
            continue;
        }
        let Some(listed) = steps.listed.get(id).filter(|_| source != NodeSource::Nothing) else { continue };
        let joins = after(*listed, times.join);
        if now < joins {
            plan.look_again(joins);
            continue;
        }
        steps.listed.remove(id);
        if !times.ready.is_zero() {
            steps.joined.insert(id.clone(), joins);
        }
        let mut node = node_of(pool, id, inputs.template).object(times.ready.is_zero(), now);
        if let NodeSource::Model(model) = source {
            model.apply(&mut node);
        }
        plan.create(Side::Workload, node);
    }
}

fn group_of(pool: &Value) -> Vec<GroupKey> {
    vec![("MachinePool".to_owned(), pool.namespace().to_owned(), pool.name().to_owned())]
}

pub(crate) fn node_name(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

fn node_of<'a>(pool: &'a Value, id: &'a str, template: Option<&Value>) -> NodeOf<'a> {
    NodeOf {
        name: node_name(id),
        provider_id: id,
        cluster: pool.text("/spec/clusterName").unwrap_or_default(),
        namespace: pool.namespace(),
        machine: None,
        owner: ("MachinePool", pool.name()),
        version: pool.text("/spec/template/spec/version").unwrap_or_default(),
        zone: None,
        labels: serde_json::Map::new(),
        taints: Vec::new(),
        hardware: Hardware::of(Some(pool), template),
    }
}

fn status(pool: &mut Value, ids: &[String], nodes: &[Arc<Value>], context: &Context<'_>) {
    let contract = context.settings.contract;
    let node = |id: &String| nodes.iter().find(|node| node.text("/spec/providerID") == Some(id.as_str()));
    let joined: Vec<_> = ids.iter().filter_map(node).collect();
    let ready = joined.iter().filter(|node| node::is_ready(node)).count();
    let references: Vec<_> = joined.iter().map(|node| node_reference(node.name(), contract)).collect();
    let wanted = usize::try_from(pool.number("/spec/replicas")).unwrap_or_default();
    let phase = match ids.len().cmp(&wanted) {
        std::cmp::Ordering::Less => "ScalingUp",
        std::cmp::Ordering::Greater => "ScalingDown",
        std::cmp::Ordering::Equal if ready < wanted => "Provisioned",
        std::cmp::Ordering::Equal => "Running",
    };
    let generation = pool.generation();
    for (field, value) in [
        ("observedGeneration", json!(generation)),
        ("replicas", json!(ids.len())),
        ("readyReplicas", json!(ready)),
        ("availableReplicas", json!(ready)),
        ("nodeRefs", json!(references)),
        ("phase", json!(phase)),
    ] {
        pool.set(&format!("/status/{field}"), value);
    }
    match contract {
        Contract::V1Beta1 => {
            pool.set("/status/bootstrapReady", json!(true));
            pool.set("/status/infrastructureReady", json!(ids.len() >= wanted));
        }
        Contract::V1Beta2 => pool.set("/status/upToDateReplicas", json!(ids.len())),
    }
    let says = ConditionContent::new("InfrastructureReady", ids.len() >= wanted, "NotReady");
    conditions::set(pool, contract, &says, context.now);
    conditions::set_old(pool, contract, &says, context.now);
}

/// The behaviour of the infrastructure of MachinePools that have Machines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolWays {
    /// The time after which it follows the pool's size.
    pub lag: Duration,
    /// True if it takes marked Machines first.
    pub minds_marks: bool,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Infrastructure {
    size: Option<usize>,
    /// The time since which the pool's size has been different.
    differs: Option<Timestamp>,
}

pub(crate) fn plan_with_machines(
    pool: &Arc<Value>,
    machines: &[Arc<Value>],
    nodes: &[Arc<Value>],
    state: &mut Infrastructure,
    (ways, context): (PoolWays, &mut Context<'_>),
) -> Plan {
    if pool.deleting() {
        return Plan::leave(pool, machines, keys::POOL_FINALIZER);
    }
    let mut plan = Plan::default();
    let mut wanted = Value::clone(pool);
    set_group_defaults(&mut wanted, keys::POOL_FINALIZER);
    let replicas = usize::try_from(wanted.number("/spec/replicas")).unwrap_or_default();
    let size = follow(&mut plan, replicas, state, ways, context.now);
    for _ in machines.len()..size {
        let mut machine = new_machine(&wanted, context);
        machine.unset(&object::label(keys::SET_NAME));
        machine.set(&object::label(keys::POOL_NAME), json!(pool.name()));
        plan.create(Side::Management, machine);
    }
    let mut order: Vec<_> = machines.iter().collect();
    let is_kept = |machine: &Value| !(ways.minds_marks && machine.annotation(keys::DELETE_MACHINE).is_some());
    order.sort_by_key(|machine| (!machine.deleting(), is_kept(machine), machine.name().to_owned()));
    let surplus = machines.len().saturating_sub(size);
    for machine in order.into_iter().take(surplus).filter(|machine| !machine.deleting()) {
        plan.delete(Side::Management, machine);
    }
    let ids: Vec<String> =
        machines.iter().filter_map(|machine| machine.text("/spec/providerID")).map(str::to_owned).collect();
    wanted.set("/spec/providerIDList", json!(ids));
    if wanted["spec"] != pool["spec"] {
        wanted.set("/metadata/generation", json!(pool.generation() + 1));
    }
    status(&mut wanted, &ids, nodes, context);
    plan.change(Side::Management, pool, wanted);
    plan
}

/// Returns the size of the infrastructure, which follows that of the pool after a delay.
fn follow(plan: &mut Plan, replicas: usize, state: &mut Infrastructure, ways: PoolWays, now: Timestamp) -> usize {
    let size = *state.size.get_or_insert(replicas);
    if size == replicas {
        state.differs = None;
        return size;
    }
    let due = after(*state.differs.get_or_insert(now), ways.lag);
    if now < due {
        plan.look_again(due);
        return size;
    }
    (state.size, state.differs) = (Some(replicas), None);
    replicas
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        controllers::{CapiVersion, Write, object::Names},
        settings::Settings,
    };

    fn machine(name: &str, marked: bool) -> Arc<Value> {
        let mark = if marked { json!({ keys::DELETE_MACHINE: "" }) } else { json!({}) };
        Arc::new(json!({
            "kind": "Machine", "metadata": {"name": name, "annotations": mark}, "spec": {"providerID": format!("p://{name}")},
        }))
    }

    #[test]
    fn its_infrastructure_follows_later_and_makes_good_until_then() {
        let pool = |replicas| {
            Arc::new(json!({"kind": "MachinePool", "metadata": {"name": "p"}, "spec": {"replicas": replicas}}))
        };
        let (settings, mut names, mut state) = (Settings::default(), Names::default(), Infrastructure::default());
        let ways = PoolWays { lag: Duration::from_secs(60), minds_marks: true };
        let mut look = |replicas: u32, machines: &[Arc<Value>], second: i64| {
            let now = Timestamp::from_second(second).unwrap();
            let context = &mut Context { now, settings: &settings, version: CapiVersion::default(), names: &mut names };
            let names_of = |write: Write| match write {
                Write::Delete(_, object) => Some(format!("-{}", object.name())),
                Write::Create(..) => Some("+".to_owned()),
                Write::Change(..) => None,
            };
            let plan = plan_with_machines(&pool(replicas), machines, &[], &mut state, (ways, context));
            plan.writes.into_iter().filter_map(names_of).collect::<Vec<_>>()
        };
        let all = [machine("a", false), machine("b", true)];
        assert!(look(2, &all, 0).is_empty());
        assert!(look(1, &all, 1).is_empty(), "it hasn't followed");
        assert_eq!(look(1, &all[..1], 30), ["+"], "nor does it know why one has gone");
        assert_eq!(look(1, &all, 61), ["-b"]);
    }
}
