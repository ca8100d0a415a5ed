//! The Nodes that Cluster Autoscaler receives, decoded from the same bytes that a server would send, as core/v1
//! objects. A field that can't be shown must be an error.

use k8s_openapi::{
    api::core::v1 as api,
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use k8s_pb::{
    api::core::v1 as wire,
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::ObjectMeta as WireObjectMeta},
};
use prost::Message as _;
use serde_json::Value;

/// Returns the Node of a template.
///
/// # Errors
/// If the bytes are no Node, or hold a field that isn't shown.
pub(super) fn node(sent: &[u8]) -> Result<Value, String> {
    let mut sent = wire::Node::decode(sent).map_err(|error| error.to_string())?;
    // The types of core/v1 are those of Kubernetes 1.33, which lack this field.
    let features = sent.status.as_mut().map(|status| std::mem::take(&mut status.declared_features)).unwrap_or_default();
    let shown = shown(&sent);
    if wired(&shown) != sent {
        return Err("it holds a field that can't be shown: please report it".to_owned());
    }
    let mut shown = serde_json::to_value(shown).map_err(|error| error.to_string())?;
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

/// Converts the shown Node back to the form in which it was sent, for comparison.
fn wired(node: &api::Node) -> wire::Node {
    let metadata = &node.metadata;
    wire::Node {
        metadata: Some(WireObjectMeta {
            name: metadata.name.clone(),
            labels: metadata.labels.clone().unwrap_or_default(),
            annotations: metadata.annotations.clone().unwrap_or_default(),
            ..WireObjectMeta::default()
        }),
        spec: node.spec.as_ref().map(|spec| wire::NodeSpec {
            provider_id: spec.provider_id.clone(),
            taints: spec.taints.iter().flatten().map(wired_taint).collect(),
            ..wire::NodeSpec::default()
        }),
        status: node.status.as_ref().map(|status| wire::NodeStatus {
            capacity: wired_amounts(status.capacity.as_ref()),
            allocatable: wired_amounts(status.allocatable.as_ref()),
            conditions: status.conditions.iter().flatten().map(wired_condition).collect(),
            ..wire::NodeStatus::default()
        }),
    }
}

fn wired_amounts(amounts: Option<&Map<Quantity>>) -> Map<WireQuantity> {
    let wired = |amount: &Quantity| WireQuantity { string: Some(amount.0.clone()) };
    amounts.into_iter().flatten().map(|(resource, amount)| (resource.clone(), wired(amount))).collect()
}

fn wired_taint(taint: &api::Taint) -> wire::Taint {
    wire::Taint {
        key: Some(taint.key.clone()),
        value: taint.value.clone(),
        effect: Some(taint.effect.clone()),
        time_added: None,
    }
}

fn wired_condition(condition: &api::NodeCondition) -> wire::NodeCondition {
    wire::NodeCondition {
        r#type: Some(condition.type_.clone()),
        status: Some(condition.status.clone()),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        ..wire::NodeCondition::default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
    fn an_undecodable_node_or_one_with_a_field_that_cannot_be_shown_is_an_error() {
        let mut sent = wire::Node { metadata: Some(WireObjectMeta::default()), ..wire::Node::default() };
        assert!(node(&sent.encode_to_vec()).is_ok());
        sent.spec = Some(wire::NodeSpec { unschedulable: Some(true), ..wire::NodeSpec::default() });
        assert!(node(&sent.encode_to_vec()).unwrap_err().contains("can't be shown"));
        assert!(node(b"\xff\xff").is_err());
    }
}
