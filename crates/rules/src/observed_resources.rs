//! The resources of observed Nodes, which a new Node of the same templates will have. The index chooses the Node, and
//! decides how long its values are kept.

use std::collections::BTreeMap;

use crate::capi::Node;
use arcstr::ArcStr;

use super::{
    GroupId, ObservedNode, Quantity, Source, labels,
    observed::{ObservedLabels, OtherZone},
    resource_list::{CPU, MEMORY, quantity},
};

/// The observed resources of a Node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ObservedResources {
    /// The Node's name.
    pub node: ArcStr,
    /// The group that it belongs to, or belonged to.
    pub group: GroupId,
    /// Its resources.
    pub resources: BTreeMap<ArcStr, Amounts>,
    /// The features that its kubelet declares, in order.
    pub declared_features: Vec<String>,
}

/// A Node's amounts of a resource.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Amounts {
    /// The capacity.
    pub capacity: Quantity,
    /// The amount for pods: never more than the capacity, never less than 0.
    pub allocatable: Quantity,
}

impl Amounts {
    /// Returns the amount that pods don't get.
    #[must_use]
    pub fn overhead(self) -> Quantity {
        self.capacity - self.allocatable
    }
}

/// The huge pages of which kubelets report an amount of 0, by the architecture of their Nodes, each with one of these Nodes.
/// A kubelet reports all sizes that its processor has, also those without pages.
pub type EmptyHugePages = BTreeMap<ArcStr, BTreeMap<ArcStr, ArcStr>>;

/// Observations of the real Nodes of a group.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealNodes<'a> {
    /// One of the group's Nodes.
    pub sample: Option<&'a Node>,
    /// The labels of the group's Nodes, including deleted ones.
    pub observed: Option<&'a ObservedLabels>,
    /// The labels of the Nodes of another group, if `same_templates` is of that group.
    pub of_sibling: Option<&'a ObservedLabels>,
    /// A Node of the same infrastructure provider whose zone isn't its failure domain.
    pub other_zone: Option<&'a OtherZone>,
    /// The resources of an observed Node that was made from the group's own templates.
    pub same_templates: Option<&'a ObservedResources>,
    /// The resources of an observed Node of the group that was made from other templates, which the group had before.
    pub other_templates: Option<&'a ObservedResources>,
    /// The sizes of huge pages of all observed Nodes.
    pub empty_huge_pages: Option<&'a EmptyHugePages>,
    /// True if the group is a MachinePool that owns a Machine.
    pub pool_has_machines: bool,
}

impl ObservedResources {
    /// Returns the resources of a group's Node; `None` if the Node doesn't report its resources yet, or has no cpu or
    /// memory.
    #[must_use]
    pub fn of(node: &Node, group: GroupId) -> Option<Self> {
        let shown = node.resources.as_ref()?;
        let resources: BTreeMap<_, _> = shown.iter().filter_map(amounts).collect();
        let has = |resource: &str| resources.get(resource).is_some_and(|amounts| !amounts.allocatable.is_zero());
        if !has(CPU) || !has(MEMORY) {
            return None;
        }
        let declared_features = shown.declared_features().map(ToOwned::to_owned).collect();
        Some(Self { node: node.meta.key.name.clone(), group, resources, declared_features })
    }

    /// Returns the source of a value that a group takes from this Node.
    #[must_use]
    pub(crate) fn source_for(&self, group: &GroupId) -> Source {
        let sibling = (self.group != *group).then(|| self.group.clone());
        Source::Learned(Box::new(ObservedNode { node: self.node.clone(), sibling }))
    }
}

/// Returns the amounts of a resource; `None` if a template couldn't have its name or amount.
fn amounts((name, capacity, allocatable): (&str, &str, &str)) -> Option<(ArcStr, Amounts)> {
    labels::check_key(name).ok()?;
    let capacity = quantity(capacity).ok()?;
    let allocatable = quantity(allocatable).ok()?.min(capacity);
    Some((ArcStr::from(name), Amounts { capacity, allocatable }))
}
