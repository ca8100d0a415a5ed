//! The observations of Nodes, by the templates and the group that they were made for. Nothing here looks at another
//! object.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arcstr::ArcStr;
use rules::capi::{InfrastructureRef, KindRef, Node, NodeResources, ObjectKey, ScalableResource};
use rules::{
    Amounts, GroupId, ObservedResources,
    labels::ARCH,
    observed::EmptyHugePages,
    observed::{ObservedLabels, OtherZone},
    resource_list::HUGE_PAGES,
};

use super::relations::id_of;

/// The templates that similar Nodes share.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(super) enum Templates {
    /// The templates in a namespace.
    Of { namespace: ArcStr, infrastructure: InfrastructureRef, bootstrap: Option<InfrastructureRef> },
    /// The group itself, if it has no infrastructure template.
    None(GroupId),
}

impl Templates {
    pub(super) fn of(object: &ScalableResource) -> Self {
        match &object.infrastructure {
            Some(infrastructure) => Self::Of {
                namespace: object.meta.key.namespace.clone(),
                infrastructure: infrastructure.clone(),
                bootstrap: object.bootstrap.clone(),
            },
            None => Self::None(id_of(object)),
        }
    }
}

/// The properties of Machines that determine the labels of their Nodes.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct MachineSpec {
    pub(super) templates: Templates,
    pub(super) failure_domain: Option<ArcStr>,
}

impl MachineSpec {
    pub(super) fn of(object: &ScalableResource) -> Self {
        Self { templates: Templates::of(object), failure_domain: object.failure_domain.clone() }
    }
}

/// The observed labels and zones of Nodes.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub(super) by_group: HashMap<GroupId, BTreeMap<MachineSpec, ObservedLabels>>,
    /// The Nodes whose zone differs from their failure domain, by kind of infrastructure template, since all
    /// providers share an API group.
    pub(super) other_zones: HashMap<KindRef, OtherZone>,
}

impl Observations {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_group.is_empty() && self.other_zones.is_empty()
    }
}

/// A Node to observe, with the key that it is found by.
pub(super) type ObservedNode<'a> = (&'a ObjectKey, &'a Arc<Node>);

#[derive(Debug)]
pub(super) struct Observation {
    pub(super) observed: Arc<ObservedResources>,
    /// The Machine of the Node; for a MachinePool the Node itself.
    pub(super) source: ObjectKey,
    pub(super) resources: NodeResources,
    /// True if the Node still exists and would give the same observation.
    pub(super) live: bool,
}

#[derive(Debug, Default)]
pub(super) struct Resources {
    pub(super) by_templates: HashMap<Templates, BTreeMap<GroupId, Observation>>,
    /// Kept for ever: they are those of processors.
    pub(super) empty_huge_pages: EmptyHugePages,
}

/// The maximum number of architectures, and of sizes of each: there are four of both.
const MOST_SIZES: usize = 8;

impl Resources {
    pub(super) fn get(&self, templates: &Templates, group: &GroupId) -> Option<&Observation> {
        self.by_templates.get(templates)?.get(group)
    }

    /// Records the sizes of huge pages that a Node has none of. Returns true if one is new.
    pub(super) fn see_huge_pages(&mut self, node: &Node, seen: &ObservedResources) -> bool {
        let Some(arch) = node.template_label(ARCH) else { return false };
        let is_empty = |amounts: &Amounts| amounts.capacity.is_zero();
        let pages = seen.resources.iter().filter(|(resource, it)| resource.starts_with(HUGE_PAGES) && is_empty(it));
        let mut is_new = false;
        for (resource, _) in pages {
            if self.empty_huge_pages.get(arch).is_some_and(|sizes| sizes.contains_key(resource)) {
                continue;
            }
            if !self.empty_huge_pages.contains_key(arch) && self.empty_huge_pages.len() >= MOST_SIZES {
                continue;
            }
            let sizes = self.empty_huge_pages.entry(arch.into()).or_default();
            if sizes.len() < MOST_SIZES {
                sizes.insert(resource.clone(), node.meta.key.name.clone());
                is_new = true;
            }
        }
        is_new
    }

    /// Returns the observation of the group itself, else that of another group.
    pub(super) fn best(&self, templates: &Templates, group: &GroupId) -> Option<&Arc<ObservedResources>> {
        self.get(templates, group).map(|observation| &observation.observed).or_else(|| self.borrowed(templates))
    }

    /// Returns the observation for groups without one of their own: that of the first group whose Node still exists,
    /// else of the first group.
    pub(super) fn borrowed(&self, templates: &Templates) -> Option<&Arc<ObservedResources>> {
        let groups = self.by_templates.get(templates)?;
        let live = groups.values().find(|observation| observation.live);
        Some(&live.or_else(|| groups.values().next())?.observed)
    }

    pub(super) fn remove(&mut self, templates: &Templates, group: &GroupId) -> bool {
        let Some(groups) = self.by_templates.get_mut(templates) else { return false };
        let removed = groups.remove(group).is_some();
        if groups.is_empty() {
            self.by_templates.remove(templates);
        }
        removed
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_templates.is_empty()
    }
}

impl Observation {
    pub(super) fn says_the_same_as(&self, node: &Node) -> bool {
        let resources = node.resources.as_ref();
        self.observed.node == node.meta.key.name
            && resources.is_some_and(|resources| resources.says_the_same_as(&self.resources))
    }

    pub(super) fn rank(&self) -> (Reverse<u16>, &ObjectKey) {
        (Reverse(self.resources.extended()), &self.source)
    }
}

/// Ranks Nodes for observation: the one with the most extended resources comes first, since those are reported last;
/// of equal ones the first by key.
pub(super) fn rank((key, node): ObservedNode<'_>) -> (Reverse<u16>, &ObjectKey) {
    (Reverse(node.resources.as_ref().map_or(0, NodeResources::extended)), key)
}
