//! Conditions of v1beta2 and of v1beta1. An object of either contract version has both lists, each at the path that the
//! version defines.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::Object;
use crate::settings::Contract;

#[derive(Clone, Copy)]
pub(crate) struct ConditionContent<'a> {
    pub(crate) kind: &'a str,
    /// The status; `None` is Unknown.
    pub(crate) status: Option<bool>,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

impl<'a> ConditionContent<'a> {
    pub(crate) fn new(kind: &'a str, status: bool, reason: &'a str) -> Self {
        Self { kind, status: Some(status), reason, message: "" }
    }

    pub(crate) fn unknown(kind: &'a str, reason: &'a str) -> Self {
        Self { kind, status: None, reason, message: "" }
    }

    pub(crate) fn because(self, message: &'a str) -> Self {
        Self { message, ..self }
    }
}

/// Sets a condition of v1beta2 at the path of the contract version.
pub(crate) fn set(object: &mut Value, contract: Contract, says: &ConditionContent<'_>, now: Timestamp) {
    let place = match contract {
        Contract::V1Beta1 => "/status/v1beta2/conditions",
        Contract::V1Beta2 => "/status/conditions",
    };
    let condition = json!({
        "type": says.kind,
        "status": status(says.status),
        "reason": says.reason,
        "message": says.message,
        "observedGeneration": object.generation(),
    });
    put(object, place, condition, now);
}

/// Sets a condition of v1beta1, which has a reason only if it isn't True.
pub(crate) fn set_old(object: &mut Value, contract: Contract, says: &ConditionContent<'_>, now: Timestamp) {
    let place = match contract {
        Contract::V1Beta1 => "/status/conditions",
        Contract::V1Beta2 => "/status/deprecated/v1beta1/conditions",
    };
    let mut condition = json!({ "type": says.kind, "status": status(says.status) });
    if says.status != Some(true) {
        condition["reason"] = json!(says.reason);
        condition["message"] = json!(says.message);
        condition["severity"] = json!("Info");
    }
    put(object, place, condition, now);
}

/// Sets a condition of the core API, as a kubelet writes it on its Node.
pub(crate) fn set_core(object: &mut Value, says: &ConditionContent<'_>, now: Timestamp) {
    let condition = json!({
        "type": says.kind,
        "status": status(says.status),
        "reason": says.reason,
        "message": says.message,
        "lastHeartbeatTime": time(now),
    });
    put(object, "/status/conditions", condition, now);
}

/// Returns true if a condition of v1beta2 (or of the core API, which has the same path) is True.
pub(crate) fn is_true(object: &Value, contract: Contract, kind: &str) -> bool {
    has_status(object, contract, kind, "True")
}

/// Returns true if such a condition is False.
pub(crate) fn is_false(object: &Value, contract: Contract, kind: &str) -> bool {
    has_status(object, contract, kind, "False")
}

fn has_status(object: &Value, contract: Contract, kind: &str, status: &str) -> bool {
    let place = match contract {
        Contract::V1Beta1 => &object["status"]["v1beta2"]["conditions"],
        Contract::V1Beta2 => &object["status"]["conditions"],
    };
    place.as_array().is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == status))
}

/// Returns a time in the format of objects, in whole seconds.
pub(crate) fn time(now: Timestamp) -> String {
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}

fn status(status: Option<bool>) -> &'static str {
    match status {
        Some(true) => "True",
        Some(false) => "False",
        None => "Unknown",
    }
}

/// Puts a condition into a list. The time of its last transition stays while its status does.
fn put(object: &mut Value, place: &str, mut condition: Value, now: Timestamp) {
    object.set_default(place, json!([]));
    let Some(Value::Array(all)) = object.pointer_mut(place) else { return };
    let old = all.iter_mut().find(|old| old["type"] == condition["type"]);
    let since = old.as_ref().filter(|old| old["status"] == condition["status"]);
    condition["lastTransitionTime"] = since.map_or_else(|| json!(time(now)), |old| old["lastTransitionTime"].clone());
    match old {
        Some(old) => *old = condition,
        None => all.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::clock::after;

    #[rstest]
    #[case(Contract::V1Beta1, "/status/v1beta2/conditions", "/status/conditions")]
    #[case(Contract::V1Beta2, "/status/conditions", "/status/deprecated/v1beta1/conditions")]
    fn the_time_of_a_transition_stays_while_the_status_does(
        #[case] contract: Contract,
        #[case] new: &str,
        #[case] old: &str,
    ) {
        let mut object = json!({ "metadata": { "generation": 3 } });
        let start = Timestamp::UNIX_EPOCH;
        let later = after(start, Duration::from_secs(60));
        set(&mut object, contract, &ConditionContent::new("Ready", false, "NotReady"), start);
        set_old(&mut object, contract, &ConditionContent::new("Ready", false, "NotReady"), start);
        set(&mut object, contract, &ConditionContent::new("Ready", false, "StillNotReady"), later);
        let condition = &object.pointer(new).unwrap()[0];
        assert_eq!(condition["reason"], "StillNotReady");
        assert_eq!(condition["observedGeneration"], 3);
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:00Z");
        set(&mut object, contract, &ConditionContent::new("Ready", true, "Ready"), later);
        assert!(is_true(&object, contract, "Ready"));
        assert_eq!(object.pointer(new).unwrap()[0]["lastTransitionTime"], "1970-01-01T00:01:00Z");
        assert_eq!(object.pointer(old).unwrap()[0]["severity"], "Info");
    }
}
