//! The Nodes that Cluster Autoscaler receives, decoded from the same bytes that a server would send, as core/v1
//! objects: every field that a template has.

use std::collections::BTreeMap;

use k8s_pb::{
    api::core::v1::{Node, NodeCondition, Taint},
    apimachinery::pkg::api::resource::Quantity,
};
use prost::{DecodeError, Message as _};
use serde_json::{Value, json};

/// Returns the Node of a template.
///
/// # Errors
/// If the bytes are no Node.
pub(super) fn node(sent: &[u8]) -> Result<Value, DecodeError> {
    let Node { metadata, spec, status } = Node::decode(sent)?;
    let metadata = metadata.unwrap_or_default();
    let metadata = [
        ("name", json!(metadata.name)),
        ("labels", json!(metadata.labels)),
        ("annotations", json!(metadata.annotations)),
    ];
    let mut shown = json!({"apiVersion": "v1", "kind": "Node", "metadata": object(metadata)});
    if let Some(spec) = spec {
        shown["spec"] =
            object([("providerID", json!(spec.provider_id)), ("taints", spec.taints.into_iter().map(taint).collect())]);
    }
    if let Some(status) = status {
        shown["status"] = object([
            ("capacity", amounts(&status.capacity)),
            ("allocatable", amounts(&status.allocatable)),
            ("conditions", status.conditions.into_iter().map(condition).collect()),
            ("declaredFeatures", json!(status.declared_features)),
        ]);
    }
    Ok(shown)
}

/// Returns an object of the fields that aren't empty.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let is_set = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    fields.into_iter().filter(|(_, value)| is_set(value)).collect()
}

fn amounts(amounts: &BTreeMap<String, Quantity>) -> Value {
    amounts.iter().map(|(resource, amount)| (resource.as_str(), amount.string.as_deref().unwrap_or_default())).collect()
}

fn taint(taint: Taint) -> Value {
    object([
        ("key", taint.key.unwrap_or_default().into()),
        ("value", json!(taint.value)),
        ("effect", taint.effect.unwrap_or_default().into()),
    ])
}

fn condition(condition: NodeCondition) -> Value {
    object([
        ("type", condition.r#type.unwrap_or_default().into()),
        ("status", condition.status.unwrap_or_default().into()),
        ("reason", json!(condition.reason)),
        ("message", json!(condition.message)),
    ])
}

#[cfg(test)]
mod tests {
    use k8s_pb::api::core::v1::NodeStatus;

    use super::*;

    #[test]
    fn declared_features_are_shown() {
        let status = NodeStatus { declared_features: vec!["InPlaceResize".to_owned()], ..NodeStatus::default() };
        let sent = Node { status: Some(status), ..Node::default() };
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
