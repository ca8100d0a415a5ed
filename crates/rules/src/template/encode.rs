//! Encodes the template as the core/v1 Node that Cluster Autoscaler reads.

use std::collections::{BTreeMap, btree_map::Entry};

use k8s_pb::{
    api::core::v1 as wire,
    apimachinery::pkg::{api::resource::Quantity as WireQuantity, apis::meta::v1::ObjectMeta},
};
use prost::{Message, bytes::Bytes};

use super::{HOSTNAME, NodeTemplate};
use crate::{Quantity, Sourced, Taint};

impl NodeTemplate {
    /// Returns a core/v1 Node of this name in protobuf, without an envelope: labels with the hostname, taints,
    /// capacity, allocatable, declared features, and the conditions of a healthy Node. Equal templates with equal names give equal
    /// bytes.
    #[must_use]
    pub fn encode(&self, name: &str) -> Bytes {
        let mut labels: BTreeMap<_, _> =
            self.labels.iter().map(|(key, value)| (key.clone(), value.value.clone())).collect();
        if let Entry::Vacant(entry) = labels.entry(HOSTNAME.to_owned()) {
            entry.insert(name.to_owned());
        }
        let resources = |amount: &dyn Fn(&str, Quantity) -> Quantity| {
            let wire = |(resource, stated): (&String, &Sourced<Quantity>)| {
                (resource.clone(), wire_quantity(amount(resource, stated.value)))
            };
            self.capacity.iter().map(wire).collect::<BTreeMap<_, _>>()
        };
        let node = wire::Node {
            metadata: Some(ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() }),
            spec: Some(wire::NodeSpec {
                taints: self.taints.iter().map(|taint| wire_taint(&taint.value)).collect(),
                ..wire::NodeSpec::default()
            }),
            status: Some(wire::NodeStatus {
                capacity: resources(&|_, capacity| capacity),
                allocatable: resources(&|resource, capacity| self.without_overhead(resource, capacity)),
                declared_features: self.declared_features.iter().map(|feature| feature.value.clone()).collect(),
                conditions: CONDITIONS.iter().map(|(kind, status)| wire_condition(kind, status)).collect(),
                ..wire::NodeStatus::default()
            }),
        };
        node.encode_to_vec().into()
    }
}

/// The conditions of a healthy Node.
const CONDITIONS: [(&str, &str); 5] = [
    ("Ready", "True"),
    ("MemoryPressure", "False"),
    ("DiskPressure", "False"),
    ("PIDPressure", "False"),
    ("NetworkUnavailable", "False"),
];

fn wire_quantity(quantity: Quantity) -> WireQuantity {
    WireQuantity { string: Some(quantity.to_string()) }
}

fn wire_taint(taint: &Taint) -> wire::Taint {
    wire::Taint {
        key: Some(taint.key.clone()),
        value: Some(taint.value.clone()),
        effect: Some(taint.effect.as_str().to_owned()),
        time_added: None,
    }
}

fn wire_condition(kind: &str, status: &str) -> wire::NodeCondition {
    wire::NodeCondition {
        r#type: Some(kind.to_owned()),
        status: Some(status.to_owned()),
        ..wire::NodeCondition::default()
    }
}
