//! Cluster: reports that it is available. Its infrastructure and control plane aren't simulated.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Context, Plan, Side,
    conditions::{self, ConditionContent},
    object::Object,
};
use crate::settings::Contract;

pub(crate) fn plan(cluster: &Arc<Value>, context: &Context<'_>) -> Plan {
    let mut plan = Plan::default();
    if cluster.deleting() {
        return plan;
    }
    let contract = context.settings.contract;
    let mut after = Value::clone(cluster);
    let generation = cluster.generation();
    after.set("/status/phase", json!("Provisioned"));
    after.set("/status/observedGeneration", json!(generation));
    match contract {
        Contract::V1Beta1 => {
            after.set("/status/infrastructureReady", json!(true));
            after.set("/status/controlPlaneReady", json!(true));
        }
        Contract::V1Beta2 => after.set(
            "/status/initialization",
            json!({ "controlPlaneInitialized": true, "infrastructureProvisioned": true }),
        ),
    }
    for (kind, status, reason) in [
        ("Available", true, "Available"),
        ("InfrastructureReady", true, "Ready"),
        ("ControlPlaneInitialized", true, "Initialized"),
        ("ControlPlaneAvailable", true, "Available"),
        ("Deleting", false, "NotDeleting"),
    ] {
        conditions::set(&mut after, contract, &ConditionContent::new(kind, status, reason), context.now);
    }
    for kind in ["Ready", "InfrastructureReady", "ControlPlaneInitialized", "ControlPlaneReady"] {
        conditions::set_old(&mut after, contract, &ConditionContent::new(kind, true, ""), context.now);
    }
    plan.change(Side::Management, cluster, after);
    plan
}

pub(crate) fn is_paused(object: &Value, cluster: Option<&Value>) -> bool {
    object.annotation(super::keys::PAUSED).is_some() || cluster.is_some_and(|cluster| cluster["spec"]["paused"] == true)
}
