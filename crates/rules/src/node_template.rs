//! The Node that would join if a group grew, each value with its source.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use super::{
    Quantity, Source, Sourced, SourcedMap, Taint,
    resource_list::{CPU, Capacity, MEMORY},
};

/// The Node that would join.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// The resources; cpu, memory and pods are always present.
    pub capacity: Capacity,
    /// The amounts that pods don't get, for resources of the capacity. Pods get all of a resource without an entry. An
    /// amount may exceed the capacity: see [`allocatable`](Self::allocatable).
    pub overhead: SourcedMap<Quantity>,
    /// The labels; arch and os are always present. [`encode`](Self::encode) adds the hostname.
    pub labels: SourcedMap<String>,
    /// The taints, no two with the same key and effect.
    pub taints: Vec<Sourced<Taint>>,
    /// The features that its kubelet declares, in order. Only an observed Node shows them.
    pub declared_features: Vec<Sourced<String>>,
}

/// Serialized with the three amounts of each resource together.
impl Serialize for NodeTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Resource<'a> {
            allocatable: String,
            capacity: &'a Sourced<Quantity>,
            #[serde(skip_serializing_if = "Option::is_none")]
            overhead: Option<&'a Sourced<Quantity>>,
        }
        let resources = self.capacity.iter().map(|(name, capacity)| {
            let allocatable = self.without_overhead(name, capacity.value).to_string();
            (name, Resource { allocatable, capacity, overhead: self.overhead.get(name) })
        });
        let resources: BTreeMap<_, _> = resources.collect();
        let mut fields = serializer.serialize_struct("NodeTemplate", 4)?;
        fields.serialize_field("resources", &resources)?;
        fields.serialize_field("labels", &self.labels)?;
        fields.serialize_field("taints", &self.taints)?;
        if !self.declared_features.is_empty() {
            fields.serialize_field("declaredFeatures", &self.declared_features)?;
        }
        fields.end()
    }
}

impl NodeTemplate {
    /// Returns the allocatable amount of a resource: never less than 0 and never more than the capacity. `None` if
    /// the Node has no such resource.
    #[must_use]
    pub fn allocatable(&self, resource: &str) -> Option<Quantity> {
        Some(self.without_overhead(resource, self.capacity.get(resource)?.value))
    }

    /// Returns the source of cpu and memory, the stronger one if they have two.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        let sources = [CPU, MEMORY].into_iter().filter_map(|resource| Some(&self.capacity.get(resource)?.source));
        sources.max_by_key(|source| match source {
            Source::Annotation(_) => 2,
            Source::Learned(_) => 1,
            Source::Default
            | Source::Flag(_)
            | Source::StatusCapacity(_)
            | Source::NodeInfo(..)
            | Source::TemplateMetadata
            | Source::TemplateSpec(_)
            | Source::RealNode(_)
            | Source::HugePages(_)
            | Source::PriceFile(_) => 0,
        })
    }

    pub(super) fn without_overhead(&self, resource: &str, capacity: Quantity) -> Quantity {
        match self.overhead.get(resource) {
            Some(overhead) if overhead.value >= capacity => Quantity::ZERO,
            Some(overhead) => capacity - overhead.value,
            None => capacity,
        }
    }
}
