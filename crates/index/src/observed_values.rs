//! The observations that the rules use for a group: its own, else those of its older MachineSets or of other groups.

use capi::{KindRef, ObjectKey, ScalableKind, ScalableResource};
use nodegroup::{
    GroupId, ObservedResources, RealNodes,
    labels::ZONE,
    observed::{ObservedLabels, OtherZone},
};

use super::{
    live_state::LiveState,
    observations::{MachineSpec, Templates},
};

impl LiveState {
    /// Returns the labels of a group's Nodes that were created from the same spec as its next Node, else the labels of
    /// its newest older MachineSet's Nodes, without the zone of another failure domain and without other labels, which
    /// depend on the templates.
    pub(super) fn observed_labels(&self, id: &GroupId, object: &ScalableResource) -> ObservedLabels {
        let Some(by_spec) = self.observations.by_group.get(id) else { return ObservedLabels::default() };
        let spec = MachineSpec::of(object);
        if let Some(labels) = by_spec.get(&spec) {
            return labels.clone();
        }
        if id.kind != ScalableKind::MachineDeployment || self.groups.get(id).is_none_or(|group| group.sample.is_none())
        {
            return ObservedLabels::default();
        }
        let observed = |set: &std::sync::Arc<ScalableResource>| {
            let of_set = MachineSpec::of(set);
            let labels = by_spec.get(&of_set)?;
            Some(((set.revision, set.meta.key.clone()), of_set.failure_domain, labels))
        };
        let newest = self.sets_of(&id.key).filter_map(observed).max_by(|(a, ..), (b, ..)| a.cmp(b));
        newest.map_or_else(ObservedLabels::default, |(_, failure_domain, labels)| {
            let labels = labels.clone().without_others();
            if failure_domain == spec.failure_domain { labels } else { labels.without(ZONE) }
        })
    }

    /// Returns the labels of another group's Nodes that were made from the same templates.
    pub(super) fn labels_of_sibling(&self, sibling: &GroupId, object: &ScalableResource) -> ObservedLabels {
        let templates = Templates::of(object);
        let mut all = ObservedLabels::default();
        for (spec, labels) in self.observations.by_group.get(sibling).into_iter().flatten() {
            if spec.templates == templates {
                all.merge(labels);
            }
        }
        all
    }

    /// Returns a Node that proves that a group's failure domain isn't a zone.
    pub(super) fn other_zone(&self, object: &ScalableResource) -> Option<&OtherZone> {
        self.observations.other_zones.get(&KindRef::from(object.infrastructure.as_ref()?))
    }

    /// Returns the observations of a group's real Nodes, without its sample.
    pub(super) fn resources_for(&self, id: &GroupId, object: &ScalableResource) -> RealNodes<'_> {
        let templates = Templates::of(object);
        let same_templates = self.resources.best(&templates, id).map(AsRef::as_ref);
        let other_templates = if same_templates.is_some() { None } else { self.resources_of_other_templates(id) };
        let empty_huge_pages = Some(&self.resources.empty_huge_pages);
        RealNodes { same_templates, other_templates, empty_huge_pages, ..RealNodes::default() }
    }

    /// Returns the resources observed for templates of older MachineSets of the group: those of a Node that still
    /// exists, if there is one, of the newest MachineSet.
    fn resources_of_other_templates(&self, id: &GroupId) -> Option<&ObservedResources> {
        let observation = |set: &ObjectKey| {
            let set = self.groups.get(&GroupId::new(ScalableKind::MachineSet, set.clone()))?.object.as_deref()?;
            let observation = self.resources.get(&Templates::of(set), id)?;
            Some(((observation.live, set.revision, &set.meta.key), observation.observed.as_ref()))
        };
        match id.kind {
            ScalableKind::MachineDeployment => {
                let observation = self.sets_by_deployment.get(&id.key).filter_map(observation);
                observation.max_by_key(|(rank, _)| *rank).map(|(_, observed)| observed)
            }
            ScalableKind::MachineSet | ScalableKind::MachinePool => None,
        }
    }
}
