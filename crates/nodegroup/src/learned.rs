//! The resources of real Nodes, which another Node made from the same templates will have. The choice of the Node, and the time
//! for which its values are kept, are decided by the index.

use std::collections::BTreeMap;

use arcstr::ArcStr;
use capi::Node;

use super::{
    GroupId, LearnedFrom, Quantity, Source,
    capacity::{CPU, MEMORY},
    labels,
    observed::{ObservedLabels, OtherZone},
    resource_list::quantity,
};

/// The resources that a Node was observed to have.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObservedResources {
    /// The Node's name.
    pub node: ArcStr,
    /// The group it belongs to, or belonged to.
    pub group: GroupId,
    /// Its resources.
    pub resources: BTreeMap<ArcStr, Amounts>,
}

/// A Node's amounts of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Amounts {
    /// In all.
    pub capacity: Quantity,
    /// For pods: never more than the capacity, never less than 0.
    pub allocatable: Quantity,
}

impl Amounts {
    /// Returns the amount that pods don't get.
    #[must_use]
    pub fn overhead(self) -> Quantity {
        self.capacity - self.allocatable
    }
}

/// Observations of the real Nodes of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNodes<'a> {
    /// A Node that the group has.
    pub sample: Option<&'a Node>,
    /// The labels of the group's Nodes, of those that are gone too.
    pub observed: Option<&'a ObservedLabels>,
    /// The labels of the Nodes of the other group that `same_templates` is from.
    pub of_sibling: Option<&'a ObservedLabels>,
    /// A Node of the same infrastructure provider whose zone isn't its failure domain.
    pub other_zone: Option<&'a OtherZone>,
    /// The resources of an observed Node that was made from the group's own templates.
    pub same_templates: Option<&'a ObservedResources>,
    /// The resources of an observed Node of the group that was made from other templates, which the group had before.
    pub other_templates: Option<&'a ObservedResources>,
}

impl ObservedResources {
    /// Returns the resources of a group's Node; `None` while the Node doesn't show all of them, or has no cpu or
    /// memory.
    #[must_use]
    pub fn of(node: &Node, group: GroupId) -> Option<Self> {
        let shown = node.resources.as_ref()?;
        let resources: BTreeMap<_, _> = shown.iter().filter_map(amounts).collect();
        let has = |resource: &str| resources.get(resource).is_some_and(|amounts| !amounts.allocatable.is_zero());
        if !has(CPU) || !has(MEMORY) {
            return None;
        }
        Some(Self { node: node.meta.key.name.clone(), group, resources })
    }

    /// As the source of a value of a group.
    #[must_use]
    pub fn source_for(&self, group: &GroupId) -> Source {
        let sibling = (self.group != *group).then(|| self.group.clone());
        Source::Learned(Box::new(LearnedFrom { node: self.node.clone(), sibling }))
    }
}

/// A resource that has no name or amount that a template could have is left out.
fn amounts((name, capacity, allocatable): (&str, &str, &str)) -> Option<(ArcStr, Amounts)> {
    labels::check_key(name).ok()?;
    let capacity = quantity(capacity).ok()?;
    let allocatable = quantity(allocatable).ok()?.min(capacity);
    Some((ArcStr::from(name), Amounts { capacity, allocatable }))
}
