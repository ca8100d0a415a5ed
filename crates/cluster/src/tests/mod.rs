//! Tests of followed clusters over a minimal API server. With in-process requests the clock is tokio's paused one: it
//! jumps as soon as all tasks are idle, so that long intervals cost no time.
mod fleet_bounds;
mod fleet_nodes;
mod fleet_world;
mod fleets;
mod following;
mod health;
mod hostile_kinds;
mod metrics;
mod misbehaving;
mod namespaces;
mod remembered;
mod start;
mod templates;

use serde_json::{Value, json};

use super::fake::{self, MOST_OBJECTS, PATIENCE, WORKERS, World, scalable};
use index::objects::{self, capacity_annotations};

/// The API group of infrastructure templates.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The check of the kinds of templates that aren't followed.
const NOT_FOLLOWED: &str = "templates/not-followed";

/// Returns a MachineDeployment that names the template `t` of a kind; `more` is merged into it.
fn naming(group: &str, kind: &str, more: &Value) -> Value {
    let reference = json!({"apiGroup": group, "kind": kind, "name": "t"});
    let mut value = scalable(&json!({"spec": {"template": {"spec": {"infrastructureRef": reference}}}}));
    objects::merge(&mut value, more);
    value
}

/// Returns one that its annotations make scalable from zero, whatever its template reports.
fn annotated(group: &str, kind: &str) -> Value {
    naming(group, kind, &capacity_annotations("4", "16Gi"))
}

/// Returns one that is a group only by its template.
fn from_zero(kind: &str) -> Value {
    naming(GROUP, kind, &json!({"spec": {"replicas": 0}}))
}

/// Returns a template.
fn template(cpu: &str) -> Value {
    json!({"status": {"capacity": {"cpu": cpu, "memory": "16Gi"}}})
}
