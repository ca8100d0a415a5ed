//! The Nodes that Cluster Autoscaler receives, decoded from the same bytes that a server would send, as core/v1
//! objects: every field that a template has.

use k8s_openapi::{
    api::core::v1 as api,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity as WireQuantity};
use prost::Message as _;
use serde_json::Value;

/// Returns the Node of a template.
///
/// # Errors
/// If the bytes are no Node.
pub(super) fn node(sent: &[u8]) -> Result<Value, String> {
    let sent = wire::Node::decode(sent).map_err(|error| error.to_string())?;
    let mut shown = serde_json::to_value(shown(&sent)).map_err(|error| error.to_string())?;
    // The types of core/v1 are those of Kubernetes 1.33, which lack this field.
    let features = sent.status.map(|status| status.declared_features).unwrap_or_default();
    if let Some(status) = shown.get_mut("status").and_then(Value::as_object_mut).filter(|_| !features.is_empty()) {
        status.insert("declaredFeatures".to_owned(), features.into());
    }
    Ok(shown)
}

fn shown(node: &wire::Node) -> api::Node {
    let metadata = node.metadata.clone().unwrap_or_default();
    api::Node {
        metadata: ObjectMeta {
            name: metadata.name,
            labels: some(metadata.labels),
            annotations: some(metadata.annotations),
            ..ObjectMeta::default()
        },
        spec: node.spec.as_ref().map(|spec| api::NodeSpec {
            provider_id: spec.provider_id.clone(),
            taints: Some(spec.taints.iter().map(shown_taint).collect::<Vec<_>>()).filter(|taints| !taints.is_empty()),
            ..api::NodeSpec::default()
        }),
        status: node.status.as_ref().map(|status| api::NodeStatus {
            capacity: amounts(&status.capacity),
            allocatable: amounts(&status.allocatable),
            conditions: Some(status.conditions.iter().map(shown_condition).collect::<Vec<_>>())
                .filter(|conditions| !conditions.is_empty()),
            ..api::NodeStatus::default()
        }),
    }
}

type Map<T> = std::collections::BTreeMap<String, T>;

fn some<T>(map: Map<T>) -> Option<Map<T>> {
    Some(map).filter(|map| !map.is_empty())
}

fn amounts(amounts: &Map<WireQuantity>) -> Option<Map<Quantity>> {
    let text = |amount: &WireQuantity| Quantity(amount.string.clone().unwrap_or_default());
    some(amounts.iter().map(|(resource, amount)| (resource.clone(), text(amount))).collect())
}

fn shown_taint(taint: &wire::Taint) -> api::Taint {
    api::Taint {
        key: taint.key.clone().unwrap_or_default(),
        value: taint.value.clone(),
        effect: taint.effect.clone().unwrap_or_default(),
        time_added: None,
    }
}

fn shown_condition(condition: &wire::NodeCondition) -> api::NodeCondition {
    api::NodeCondition {
        type_: condition.r#type.clone().unwrap_or_default(),
        status: condition.status.clone().unwrap_or_default(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        ..api::NodeCondition::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use k8s_pb::apimachinery::pkg::apis::meta::v1::ObjectMeta as WireObjectMeta;

    use super::*;

    #[test]
    fn declared_features_are_shown() {
        let status =
            wire::NodeStatus { declared_features: vec!["InPlaceResize".to_owned()], ..wire::NodeStatus::default() };
        let sent =
            wire::Node { status: Some(status), metadata: Some(WireObjectMeta::default()), ..wire::Node::default() };
        assert_eq!(
            node(&sent.encode_to_vec()).unwrap()["status"]["declaredFeatures"],
            serde_json::json!(["InPlaceResize"])
        );
    }

    #[test]
    fn bytes_that_are_no_node_are_an_error() {
        assert!(node(b"\xff\xff").is_err());
    }
}
