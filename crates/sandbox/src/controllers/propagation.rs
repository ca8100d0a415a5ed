//! The annotations that a MachineDeployment propagates to its MachineSets. As with server-side apply, an annotation
//! that the MachineDeployment has lost is removed there too, and one that somebody else has set stays.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    keys,
    object::{self, Object},
};

/// The controllers' name in `managedFields`.
pub(crate) const MANAGER: &str = "capi-controllers";

/// The annotations that aren't propagated, because they describe the object that has them.
const NOT_PROPAGATED: [&str; 4] = [keys::LAST_APPLIED, keys::REVISION, keys::DESIRED_REPLICAS, keys::MAX_REPLICAS];

/// Updates the annotations of a MachineSet to those that its MachineDeployment has now.
pub(super) fn propagate(set: &mut Value, deployment: &Value) {
    let wanted = wanted(deployment);
    for key in applied(set).iter().filter(|key| is_propagated(key) && !wanted.contains_key(key.as_str())) {
        set.unset(&object::annotation(key));
    }
    if set.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
        set.unset("/metadata/annotations");
    }
    for (key, value) in wanted {
        set.set(&object::annotation(&key), value);
    }
}

/// Returns the annotations that a MachineDeployment propagates.
pub(crate) fn wanted(deployment: &Value) -> Map<String, Value> {
    let mut wanted = deployment.map("/metadata/annotations");
    wanted.retain(|key, _| is_propagated(key));
    wanted
}

fn is_propagated(key: &str) -> bool {
    !NOT_PROPAGATED.contains(&key)
}

/// Returns the annotations of an object that the controllers have written.
fn applied(object: &Value) -> BTreeSet<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let fields = entries
        .filter(|entry| entry["manager"] == json!(MANAGER))
        .filter_map(|entry| entry["fieldsV1"]["f:metadata"]["f:annotations"].as_object());
    fields.flat_map(Map::keys).filter_map(|field| field.strip_prefix("f:")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::testing;

    const LOG: &str = "capi-autoscaler-provider.io/deleting";

    /// Returns a MachineSet with an annotation whose last writer is `manager`.
    fn annotated_by(manager: &str) -> Value {
        let mut set = testing::machine_set("workers-abcde", 1);
        set.set(&object::annotation(LOG), json!("machine-a"));
        let fields = json!({ "f:metadata": { "f:annotations": { ".": {}, format!("f:{LOG}"): {} } } });
        set.set("/metadata/managedFields", json!([{ "manager": manager, "operation": "Update", "fieldsV1": fields }]));
        set
    }

    #[test]
    fn an_annotation_that_the_machine_deployment_has_lost_goes() {
        let mut set = annotated_by(MANAGER);
        propagate(&mut set, &testing::machine_deployment("workers", 1));
        assert_eq!(set.pointer("/metadata/annotations"), None);
    }

    #[test]
    fn an_annotation_of_somebody_else_stays() {
        let mut set = annotated_by("kubectl-annotate");
        propagate(&mut set, &testing::machine_deployment("workers", 1));
        assert_eq!(set.annotation(LOG), Some("machine-a"));
    }

    #[test]
    fn a_machine_deployments_annotation_overwrites_that_of_another_manager_on_its_machine_set() {
        let mut set = annotated_by("kubectl-annotate");
        let mut deployment = testing::machine_deployment("workers", 1);
        deployment.set(&object::annotation(LOG), json!("machine-b"));
        propagate(&mut set, &deployment);
        assert_eq!(set.annotation(LOG), Some("machine-b"));
    }

    #[test]
    fn revisions_and_sizes_are_not_passed_on_and_not_taken_off() {
        let mut set = testing::machine_set("workers-abcde", 1);
        set.set(&object::annotation(keys::REVISION), json!("1"));
        let fields = json!({ "f:metadata": { "f:annotations": { format!("f:{}", keys::REVISION): {} } } });
        set.set("/metadata/managedFields", json!([{ "manager": MANAGER, "operation": "Update", "fieldsV1": fields }]));
        let mut deployment = testing::machine_deployment("workers", 1);
        deployment.set(&object::annotation(keys::DESIRED_REPLICAS), json!("7"));
        propagate(&mut set, &deployment);
        assert_eq!((set.annotation(keys::REVISION), set.annotation(keys::DESIRED_REPLICAS)), (Some("1"), None));
    }
}
