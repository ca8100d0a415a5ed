//! A MachinePool whose instances are Machines too. Its infrastructure has a size of its own, which follows the pool's
//! some time later: until then it replaces every Machine that goes. The Machine that it takes for a smaller size is its
//! own choice.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Context, keys,
    machine_pool::{set_defaults, status},
    machine_set::new_machine,
    object::{self, Object},
    plan::{Plan, Side},
};
use crate::clock::after;

/// The behaviour of the infrastructure of MachinePools that have Machines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PoolWays {
    /// The time after which it follows the pool's size.
    pub lag: Duration,
    /// True if it takes marked Machines first.
    pub minds_marks: bool,
}

/// The state of the infrastructure of one pool.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Infrastructure {
    size: Option<usize>,
    /// The time since which the pool's size has been different.
    differs: Option<Timestamp>,
}

/// Plans the writes of the controllers of a pool and of its infrastructure.
pub(crate) fn plan(
    pool: &Arc<Value>,
    machines: &[Arc<Value>],
    nodes: &[Arc<Value>],
    state: &mut Infrastructure,
    (ways, context): (PoolWays, &mut Context<'_>),
) -> Plan {
    let mut plan = Plan::default();
    let mut wanted = Value::clone(pool);
    if pool.deleting() {
        for machine in machines.iter().filter(|machine| !machine.deleting()) {
            plan.delete(Side::Management, machine);
        }
        if machines.is_empty() {
            wanted.remove_finalizer(keys::POOL_FINALIZER);
        }
        plan.change(Side::Management, pool, wanted);
        return plan;
    }
    set_defaults(&mut wanted);
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
        controllers::{CapiVersion, names::Names, plan::Write},
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
            let plan = plan(&pool(replicas), machines, &[], &mut state, (ways, context));
            plan.writes.into_iter().filter_map(names_of).collect::<Vec<_>>()
        };
        let all = [machine("a", false), machine("b", true)];
        assert!(look(2, &all, 0).is_empty());
        assert!(look(1, &all, 1).is_empty(), "it hasn't followed");
        assert_eq!(look(1, &all[..1], 30), ["+"], "nor does it know why one has gone");
        assert_eq!(look(1, &all, 61), ["-b"]);
    }
}
