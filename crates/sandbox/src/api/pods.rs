//! The subresources of Pods by which a scheduler binds them and a drain evicts them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Api, Resource, Subresource,
    collect::{self, DeleteOptions, Deleted},
    object::{Object, ObjectKey, text},
    refusal::Refusal,
    selector::LabelSelector,
    store::{Place, Store, Target},
    write::{self, Request},
};

/// The seconds after which an eviction that a budget forbids is to be tried again, as API servers say.
const RETRY: u64 = 10;

impl Api {
    /// Binds a Pod to the Node that a Binding names.
    pub fn bind(&self, namespace: &str, name: &str, binding: &Value) -> Result<(), Refusal> {
        let node = binding["target"]["name"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Err(Refusal::bad_request("target.name of the Binding must name a Node"));
        }
        self.locked(&Resource::core("pods"), |store, target, request| {
            let pod = found(store, target, namespace, name)?;
            write::check_preconditions(target, pod.value(), text(binding, "uid"), "")?;
            if !text(pod.value(), "deletionTimestamp").is_empty() {
                return Err(Refusal::conflict(
                    &target.spec,
                    name,
                    "pod is being deleted, cannot be assigned to a host",
                ));
            }
            if let Some(taken) = pod.value()["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
                let why = format!("pod {name} is already assigned to node {taken:?}");
                return Err(Refusal::conflict(&target.spec, name, &why));
            }
            if self.dry_run {
                return Ok(());
            }
            let mut value = Value::clone(pod.value());
            value["spec"]["nodeName"] = json!(node);
            for (key, annotation) in binding["metadata"]["annotations"].as_object().into_iter().flatten() {
                value["metadata"]["annotations"][key] = annotation.clone();
            }
            put(store, target, &pod, Subresource::Main, value, request)?;
            let pod = found(store, target, namespace, name)?;
            let mut value = Value::clone(pod.value());
            set_scheduled(&mut value, &request.time);
            put(store, target, &pod, Subresource::Status, value, request)
        })
    }

    /// Evicts a Pod, unless a PodDisruptionBudget forbids it.
    pub fn evict(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<Deleted, Refusal> {
        let options = DeleteOptions { dry_run: options.dry_run || self.dry_run, ..options.clone() };
        self.locked(&Resource::core("pods"), |store, target, request| {
            let pod = found(store, target, namespace, name)?;
            if is_disruption(pod.value()) {
                spend(store, &pod, &options, request)?;
            }
            let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
            collect::delete(store, target, &place, &options, request)
        })
    }
}

fn found(store: &Store, target: &Target, namespace: &str, name: &str) -> Result<Arc<Object>, Refusal> {
    let place = Place { kind: target.id, key: ObjectKey::new(namespace, name) };
    store.get(&place).cloned().ok_or_else(|| Refusal::not_found(&target.spec, name))
}

fn put(
    store: &mut Store,
    target: &Target,
    old: &Arc<Object>,
    subresource: Subresource,
    value: Value,
    request: &Request,
) -> Result<(), Refusal> {
    write::replace(store, target, old, subresource, value, subresource.name(), request).map(drop)
}

/// Sets the condition of a Pod that has a Node.
fn set_scheduled(pod: &mut Value, time: &str) {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|condition| condition["type"] != "PodScheduled");
    conditions.push(json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": time}));
    pod["status"]["conditions"] = json!(conditions);
}

/// Returns true if budgets count the eviction of this Pod.
fn is_disruption(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"))
        && text(pod, "deletionTimestamp").is_empty()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Returns true if a budget doesn't count Pods that aren't ready: always, or by default while enough others are.
fn gives_up_unhealthy(budget: &Value) -> bool {
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    let (healthy, desired) = (status("currentHealthy"), status("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (desired > 0 && healthy >= desired)
}

/// Takes the eviction of a Pod off its budget.
fn spend(store: &mut Store, pod: &Object, options: &DeleteOptions, request: &Request) -> Result<(), Refusal> {
    let Some(kind) = store.find("policy", "poddisruptionbudgets") else { return Ok(()) };
    let Some(target) = Target::stored(store, kind) else { return Ok(()) };
    let namespace = text(pod.value(), "namespace");
    let budgets: Vec<Arc<Object>> = store
        .table(kind)
        .into_iter()
        .flat_map(|table| table.objects.values())
        .filter(|budget| text(budget.value(), "namespace") == namespace)
        .filter(|budget| {
            LabelSelector::of_object(&budget.value()["spec"]["selector"]).is_some_and(|it| it.matches(pod.value()))
        })
        .cloned()
        .collect();
    let budget = match budgets.as_slice() {
        [] => return Ok(()),
        [budget] => budget,
        [..] => {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Refusal::new(500, "InternalError", why));
        }
    };
    if !is_ready(pod.value()) && gives_up_unhealthy(budget.value()) {
        return Ok(());
    }
    let allowed = budget.value()["status"]["disruptionsAllowed"].as_i64().unwrap_or_default();
    if allowed <= 0 {
        let why = "Cannot evict pod as it would violate the pod's disruption budget.";
        let details = json!({"retryAfterSeconds": RETRY, "causes": [{
            "reason": "DisruptionBudget",
            "message": format!("The disruption budget {} allows no disruption now", text(budget.value(), "name")),
        }]});
        return Err(Refusal { details: Some(Box::new(details)), ..Refusal::new(429, "TooManyRequests", why) });
    }
    if options.dry_run {
        return Ok(());
    }
    let mut value = Value::clone(budget.value());
    value["status"]["disruptionsAllowed"] = json!(allowed - 1);
    put(store, &target, budget, Subresource::Status, value, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn api() -> Api {
        let api = Api::new(Clock::real());
        api.define_workload_kinds();
        api.load_values(vec![
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n", "labels": {"app": "web"}},
                "spec": {"terminationGracePeriodSeconds": 0}, "status": {"phase": "Running"}}),
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web", "namespace": "n"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}}, "status": {"disruptionsAllowed": 0}}),
        ])
        .unwrap();
        api
    }

    #[test]
    fn a_pod_is_bound_once() {
        let api = api();
        let binding = json!({"target": {"kind": "Node", "name": "node-1"}});
        api.bind("n", "a", &binding).unwrap();
        let pod = api.get(&Resource::core("pods"), "n", "a").unwrap();
        assert_eq!((&pod["spec"]["nodeName"], &pod["status"]["phase"]), (&json!("node-1"), &json!("Running")));
        assert_eq!(pod["status"]["conditions"][0]["type"], "PodScheduled");
        let refused = api.bind("n", "a", &binding).unwrap_err();
        assert_eq!((refused.code, refused.reason), (409, "Conflict"));
        assert_eq!(api.bind("n", "b", &binding).unwrap_err().code, 404);
    }

    #[test]
    fn a_budget_forbids_evictions_until_it_allows_one() {
        let api = api();
        let budgets = Resource::new("policy", "v1", "poddisruptionbudgets");
        let refused = api.evict("n", "a", &DeleteOptions::default()).unwrap_err();
        assert_eq!((refused.code, refused.reason), (429, "TooManyRequests"));
        let mut budget = Value::clone(&api.get(&budgets, "n", "web").unwrap());
        budget["status"]["disruptionsAllowed"] = json!(1);
        api.update_status(&budgets, budget).unwrap();
        assert!(matches!(api.evict("n", "a", &DeleteOptions::default()).unwrap(), Deleted::Gone(_)));
        assert_eq!(api.get(&budgets, "n", "web").unwrap()["status"]["disruptionsAllowed"], 0);
    }
}
