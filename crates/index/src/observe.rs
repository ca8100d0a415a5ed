//! What is observed of Nodes: their resources, their labels, and the sample of each group.

use std::{collections::BTreeSet, sync::Arc};

use rules::capi::{KindRef, Machine, Node, NodeResources, ObjectKey, ScalableKind, ScalableResource};
use rules::{
    GroupId, ObservedResources, RealNodes, Remembered,
    labels::ZONE,
    observed::{ObservedLabels, OtherZone},
};

use super::{
    group::Group,
    observations::{MachineSpec, Observation, ObservedNode, Templates, rank},
    relations::{ByKey, id_of, owner_of},
    state::LiveState,
};

// Resources of observed Nodes, recorded for future Nodes. The records are keyed by the templates of the Nodes and by
// group. A record remains after its Node is deleted, until another Node is observed or the group no longer uses these
// templates. A Node that is being deleted or not ready must never be observed: it reports fewer resources than it has.

impl LiveState {
    /// Updates the observations after a Machine or its Node was added, changed or deleted.
    pub(super) fn observe_resources(&mut self, machine: &Machine) {
        let Some((ScalableKind::MachineSet, owner)) = owner_of(machine) else { return };
        let owner = GroupId::new(ScalableKind::MachineSet, owner);
        let Some(set) = self.groups.get(&owner).and_then(|group| group.object.as_ref()) else { return };
        let (templates, id) = (Templates::of(set), id_of(set));
        let known = self.resources.get(&templates, &id);
        let changed = match (self.observed_node(&machine.meta.key), known) {
            (Some((_, node)), Some(known)) if known.source == machine.meta.key => {
                !known.live || !known.says_the_same_as(node)
            }
            (Some(observed_node), Some(known)) => !known.live || rank(observed_node) < known.rank(),
            (Some(_), None) => true,
            (None, Some(known)) => known.live && known.source == machine.meta.key,
            (None, None) => false,
        };
        if changed {
            self.observe_again(&templates, &id);
        }
    }

    /// Updates the observations after a Machine has left its owner.
    pub(super) fn update_resources_without(&mut self, machine: &Machine) {
        let Some((ScalableKind::MachineSet, owner)) = owner_of(machine) else { return };
        let owner = GroupId::new(ScalableKind::MachineSet, owner);
        let Some(set) = self.groups.get(&owner).and_then(|group| group.object.as_ref()) else { return };
        let (templates, id) = (Templates::of(set), id_of(set));
        if self.resources.get(&templates, &id).is_some_and(|known| known.live && known.source == machine.meta.key) {
            self.observe_again(&templates, &id);
        }
    }

    /// Returns the Node of a Machine, if it may be observed.
    fn observed_node(&self, machine: &ObjectKey) -> Option<ObservedNode<'_>> {
        let machine = self.machine(machine).filter(|machine| !machine.deleting)?;
        let node = self.node_in_ref_of(machine).filter(|node| node.resources.is_some())?;
        Some((&machine.meta.key, node))
    }

    /// Updates the observations after a MachinePool or one of its Nodes was added, changed or deleted.
    pub(super) fn observe_pool_resources(&mut self, id: &GroupId) {
        let Some(pool) = self.groups.get(id).and_then(|group| group.object.as_ref()) else { return };
        self.observe_again(&Templates::of(pool), id);
    }

    /// Updates the observations after a MachineDeployment, MachineSet or MachinePool was added, changed or deleted: its
    /// Nodes may now belong to other templates, to another group, or to none.
    pub(super) fn update_resources_of_owner(
        &mut self,
        id: &GroupId,
        old: Option<&ScalableResource>,
        new: Option<&ScalableResource>,
    ) {
        let place = |object: &ScalableResource| (Templates::of(object), id_of(object));
        let (from, to) = (old.map(place), new.map(place));
        if from != to {
            for (templates, group) in from.iter().chain(&to) {
                self.observe_again(templates, group);
            }
        } else if id.kind == ScalableKind::MachinePool {
            self.observe_pool_resources(id);
        }
    }

    /// Observes the group's Nodes with these templates again, and evaluates the groups that this affects.
    fn observe_again(&mut self, templates: &Templates, id: &GroupId) {
        let best = self.observed_nodes(templates, id).min_by_key(|observed_node| rank(*observed_node));
        let known = self.resources.get(templates, id);
        let observation = best.and_then(|(source, node)| {
            let resources = node.resources.clone()?;
            let too_early =
                known.is_some_and(|known| resources.extended() < known.resources.extended() && !resources.is_settled());
            let observed = ObservedResources::of(node, id.clone()).filter(|_| !too_early)?;
            Some(Observation { observed: Arc::new(observed), source: source.clone(), resources, live: true })
        });
        let best = best.map(|(_, node)| Arc::clone(node));
        if let (Some(node), Some(observation)) = (&best, &observation)
            && self.resources.see_huge_pages(node, &observation.observed)
        {
            self.evaluate_all(self.groups.keys().cloned().collect());
        }
        let borrowed = self.resources.borrowed(templates).cloned();
        let changed = match observation {
            Some(observation) => self.replace(templates, id, observation),
            None if best.is_some() || self.has_templates(templates, id) => self.keep_last(templates, id),
            None => self.resources.remove(templates, id),
        };
        if changed {
            self.resources_changed(templates, id, borrowed.as_ref());
        }
    }

    fn replace(&mut self, templates: &Templates, id: &GroupId, observation: Observation) -> bool {
        let groups = self.resources.by_templates.entry(templates.clone()).or_default();
        let same = |old: &Observation| old.live && old.observed == observation.observed;
        let changed = !groups.get(id).is_some_and(same);
        groups.insert(id.clone(), observation);
        changed
    }

    /// Keeps the last observation, but as not live: its Node is gone or can't be observed now.
    fn keep_last(&mut self, templates: &Templates, id: &GroupId) -> bool {
        let groups = self.resources.by_templates.get_mut(templates);
        let Some(observation) = groups.and_then(|groups| groups.get_mut(id)) else { return false };
        std::mem::replace(&mut observation.live, false)
    }

    /// Returns true if a group, or a MachineSet of it, has these templates.
    fn has_templates(&self, templates: &Templates, id: &GroupId) -> bool {
        let object = self.groups.get(id).and_then(|group| group.object.as_deref());
        object.is_some_and(|object| Templates::of(object) == *templates) || self.owners(templates, id).next().is_some()
    }

    /// Returns the MachineSets of a group with these templates, or its MachinePool.
    fn owners<'a>(
        &'a self,
        templates: &'a Templates,
        id: &'a GroupId,
    ) -> impl Iterator<Item = &'a Arc<ScalableResource>> {
        let own = (id.kind != ScalableKind::MachineDeployment).then(|| id.clone());
        let sets = (id.kind == ScalableKind::MachineDeployment).then(|| self.sets_by_deployment.get(&id.key));
        let sets = sets.into_iter().flatten().map(|set| GroupId::new(ScalableKind::MachineSet, set.clone()));
        own.into_iter()
            .chain(sets)
            .filter_map(|owner| self.groups.get(&owner)?.object.as_ref())
            .filter(move |owner| Templates::of(owner) == *templates && id_of(owner) == *id)
    }

    fn observed_nodes<'a>(
        &'a self,
        templates: &'a Templates,
        id: &'a GroupId,
    ) -> impl Iterator<Item = ObservedNode<'a>> {
        self.owners(templates, id).flat_map(|owner| {
            let set = (owner.kind == ScalableKind::MachineSet).then(|| self.owned_by(owner.kind, &owner.meta.key));
            let of_machines = set.into_iter().flatten().filter_map(|machine| self.observed_node(&machine.meta.key));
            let nodes = owner.node_names.iter().filter_map(|name| self.nodes.get(name));
            let of_pool = nodes.filter(|node| node.resources.is_some()).map(|node| (&node.meta.key, node));
            of_machines.chain(of_pool)
        })
    }

    /// Evaluates the group, and all borrowers of these templates if the observation that they borrow is no longer
    /// `borrowed`.
    fn resources_changed(&mut self, templates: &Templates, id: &GroupId, borrowed: Option<&Arc<ObservedResources>>) {
        let is_same = self.resources.borrowed(templates) == borrowed;
        let mut groups = if is_same { BTreeSet::new() } else { self.borrowers(templates) };
        groups.insert(id.clone());
        self.evaluate_all(groups.into_iter().collect());
    }

    /// Returns the groups with these templates that have no observation of their own.
    pub(super) fn borrowers(&self, templates: &Templates) -> BTreeSet<GroupId> {
        let Templates::Of { namespace, infrastructure, .. } = templates else { return BTreeSet::new() };
        let key = (
            KindRef::from(infrastructure),
            ObjectKey { namespace: namespace.clone(), name: infrastructure.name.clone() },
        );
        let others = self.groups_by_template.get(&key).filter(|other| {
            let object = self.groups.get(other).and_then(|group| group.object.as_deref());
            // A MachineSet of a MachineDeployment is never a group.
            let same = object.is_some_and(|object| object.deployment.is_none() && Templates::of(object) == *templates);
            same && self.resources.get(templates, other).is_none()
        });
        others.cloned().collect()
    }
}

#[cfg(test)]
impl LiveState {
    pub(super) fn forget_the_gone(&mut self) {
        self.observe_anew();
        let gone: Vec<_> = self
            .resources
            .by_templates
            .iter()
            .flat_map(|(templates, groups)| groups.iter().map(move |(id, observation)| (templates, id, observation)))
            .filter(|(.., observation)| !observation.live)
            .map(|(templates, id, _)| (templates.clone(), id.clone()))
            .collect();
        for (templates, id) in gone {
            let borrowed = self.resources.borrowed(&templates).cloned();
            self.resources.remove(&templates, &id);
            self.observe_again(&templates, &id);
            self.resources_changed(&templates, &id, borrowed.as_ref());
        }
    }
}

// The labels observed on groups' Nodes, recorded for future Nodes, and failure domains that turned out not to be
// zones. A deleted Node doesn't remove its observations: a group with Nodes in three zones must not look like one in a
// single zone after two Nodes are deleted. Observations are removed with their MachineSets and groups.

impl LiveState {
    /// Observes the Node of a Machine after either was added or changed.
    pub(super) fn observe_machine(&mut self, machine: &Machine) {
        let Some((kind @ ScalableKind::MachineSet, key)) = owner_of(machine) else { return };
        let owner = self.groups.get(&GroupId::new(kind, key)).and_then(|group| group.object.clone());
        let (Some(owner), Some(node)) = (owner, self.node_in_ref_of(machine).cloned()) else { return };
        self.observe(&owner, &node);
    }

    /// Observes the Nodes of a MachineSet or MachinePool that was added or changed, since they may have arrived
    /// before it.
    pub(super) fn observe_owner(&mut self, owner: &ScalableResource) {
        let nodes: Vec<_> = match owner.kind {
            ScalableKind::MachineDeployment => Vec::new(),
            ScalableKind::MachineSet => {
                let machines = self.owned_by(owner.kind, &owner.meta.key);
                machines.filter_map(|machine| self.node_in_ref_of(machine).cloned()).collect()
            }
            ScalableKind::MachinePool => {
                owner.node_names.iter().filter_map(|name| self.nodes.get(name).cloned()).collect()
            }
        };
        for node in nodes {
            self.observe(owner, &node);
        }
    }

    fn observe(&mut self, owner: &ScalableResource, node: &Node) {
        let (id, name) = (id_of(owner), &node.meta.key.name);
        let is_settled = node.resources.as_ref().is_some_and(NodeResources::is_settled);
        let has_others = node.other_labels.text().is_some_and(|labels| !labels.is_empty());
        if is_settled || has_others || node.template_labels.iter().next().is_some() {
            let labels =
                self.observations.by_group.entry(id.clone()).or_default().entry(MachineSpec::of(owner)).or_default();
            if labels.observe(node) {
                self.labels_changed(&Templates::of(owner), id);
            }
        }
        let kind = owner.infrastructure.as_ref().map(KindRef::from);
        let (Some(kind), Some(domain), Some(zone)) = (kind, &owner.failure_domain, node.template_label(ZONE)) else {
            return;
        };
        if zone.is_empty() || *zone == **domain || self.observations.other_zones.contains_key(&kind) {
            return;
        }
        let other = OtherZone { node: name.clone(), domain: domain.clone(), zone: zone.into() };
        self.observations.other_zones.insert(kind.clone(), other);
        self.evaluate_all(self.groups_by_kind.to_vec(&kind));
    }

    /// Evaluates the group, and the groups that share its observation.
    fn labels_changed(&mut self, templates: &Templates, id: GroupId) {
        let lends = self.resources.borrowed(templates).is_some_and(|resources| resources.group == id);
        let mut groups = if lends { self.borrowers(templates) } else { BTreeSet::new() };
        groups.insert(id);
        self.evaluate_all(groups.into_iter().collect());
    }

    /// Updates the observations after a MachineDeployment, MachineSet or MachinePool was added, changed or deleted.
    pub(super) fn update_labels_of_owner(&mut self, old: Option<&ScalableResource>, new: Option<&ScalableResource>) {
        let place = |object: &ScalableResource| (id_of(object), MachineSpec::of(object));
        let (from, to) = (old.map(place), new.map(place));
        let from_is_other = from != to;
        // A group may use what was observed of the newest of its older MachineSets.
        let is_ranked_anew = from_is_other || old.map(|old| old.revision) != new.map(|new| new.revision);
        if let Some((id, spec)) = from.filter(|(id, spec)| is_ranked_anew && self.is_observed(id, spec)) {
            if from_is_other
                && !self.has_spec(&id, &spec)
                && let Some(by_spec) = self.observations.by_group.get_mut(&id)
            {
                by_spec.remove(&spec);
                if by_spec.is_empty() {
                    self.observations.by_group.remove(&id);
                }
            }
            self.labels_changed(&spec.templates, id);
        }
        if let Some((id, spec)) = to.filter(|(id, spec)| is_ranked_anew && self.is_observed(id, spec)) {
            self.labels_changed(&spec.templates, id);
        }
        if let Some(kind) = old.and_then(|old| old.infrastructure.as_ref()).map(KindRef::from)
            && self.groups_by_kind.get(&kind).next().is_none()
        {
            self.observations.other_zones.remove(&kind);
        }
        // The Nodes of a MachineSet whose `MachineSpec` is unchanged are observed on their own events.
        if let Some(new) = new.filter(|new| from_is_other || new.kind == ScalableKind::MachinePool) {
            self.observe_owner(new);
        }
    }

    /// Returns true if a Node of a group with this spec has been observed.
    fn is_observed(&self, id: &GroupId, spec: &MachineSpec) -> bool {
        let has_labels = self.observations.by_group.get(id).is_some_and(|by_spec| by_spec.contains_key(spec));
        has_labels || self.resources.get(&spec.templates, id).is_some()
    }

    /// Returns true if a group, or one of its MachineSets, creates Machines with this spec.
    fn has_spec(&self, id: &GroupId, spec: &MachineSpec) -> bool {
        let object = self.groups.get(id).and_then(|group| group.object.as_deref());
        let is_like = |object: &ScalableResource| id_of(object) == *id && MachineSpec::of(object) == *spec;
        let of_sets = || id.kind == ScalableKind::MachineDeployment && self.sets_of(&id.key).any(|set| is_like(set));
        object.is_some_and(is_like) || of_sets()
    }
}

#[cfg(test)]
impl LiveState {
    /// Rebuilds the observations from the Nodes that still exist.
    pub(super) fn observe_anew(&mut self) {
        self.observations = super::observations::Observations::default();
        let mut owners: Vec<_> = self.groups.values().filter_map(|group| group.object.clone()).collect();
        owners.sort_by_key(|owner| (owner.kind, owner.meta.key.clone()));
        for owner in &owners {
            self.observe_owner(owner);
        }
        self.evaluate_all(self.groups.keys().cloned().collect());
        while self.evaluate_some_due() {}
    }
}

// The observations that the rules use for a group: its own, else those of its older MachineSets or of other groups.

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

    /// Returns the observations of a group's real Nodes, without its sample. What is remembered comes before all but a
    /// running Node of the group.
    pub(super) fn resources_for<'a>(
        &'a self,
        id: &GroupId,
        object: &ScalableResource,
        remembered: Option<Remembered<'a>>,
    ) -> RealNodes<'a> {
        let templates = Templates::of(object);
        let same_templates = if remembered.is_some() {
            let own = self.resources.get(&templates, id).filter(|own| own.live);
            own.map(|own| own.observed.as_ref())
        } else {
            self.resources.best(&templates, id).map(AsRef::as_ref)
        };
        let is_known = same_templates.is_some() || remembered.is_some();
        let other_templates = if is_known { None } else { self.resources_of_other_templates(id) };
        let empty_huge_pages = Some(&self.resources.empty_huge_pages);
        RealNodes { remembered, same_templates, other_templates, empty_huge_pages, ..RealNodes::default() }
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

// The sample of a group: one of its Nodes, for values that refer to an existing Node. It is updated when Machines
// and Nodes change, and must never be searched for by a read.

impl LiveState {
    pub(super) fn node_changed(&mut self, name: &str) {
        let machines: Vec<_> = self.machines_by_node.get(name).map(|ByKey(machine)| Arc::clone(machine)).collect();
        for machine in machines {
            self.machine_changed(&machine);
        }
        for pool in self.pools_by_node.to_vec(name) {
            self.resample(&pool);
            self.remember_owner(&pool);
            self.observe_pool_resources(&pool);
            if let Some(pool) = self.groups.get(&pool).and_then(|group| group.object.clone()) {
                self.observe_owner(&pool);
            }
        }
    }

    /// Updates a group's sample after a change of a Machine or its Node, which may become the sample or stop being
    /// it.
    pub(super) fn machine_changed(&mut self, machine: &Arc<Machine>) {
        self.remember_machine(machine);
        self.observe_resources(machine);
        self.observe_machine(machine);
        let key = &machine.meta.key;
        let Some(id) = self.group_of(machine).filter(|id| id.kind != ScalableKind::MachinePool) else { return };
        let Some(group) = self.groups.get(&id) else { return };
        let node = self.node_in_ref_of(machine).cloned();
        let sample = group.sample.as_ref().map(|(sample, _)| sample);
        match (sample, node) {
            (sample, Some(node)) if sample.is_none_or(|sample| key <= sample) => {
                self.set_sample(&id, Some((key.clone(), node)));
            }
            (Some(sample), None) if sample == key => self.resample(&id),
            (Some(_) | None, Some(_) | None) => {}
        }
    }

    /// Searches for the sample of a group again: the first of its Machines, by name, that has a Node; for a
    /// MachinePool the first of its Nodes.
    pub(super) fn resample(&mut self, id: &GroupId) {
        let Some(object) = self.groups.get(id).and_then(|group| group.object.as_ref()) else { return };
        let sample = if id.kind == ScalableKind::MachinePool {
            let nodes = object.node_names.iter().filter_map(|name| self.nodes.get(name));
            nodes.min_by_key(|node| &node.meta.key).map(|node| (node.meta.key.clone(), Arc::clone(node)))
        } else {
            self.machines_of(id)
                .filter_map(|machine| Some((&machine.meta.key, self.node_in_ref_of(machine)?)))
                .min_by_key(|(key, _)| *key)
                .map(|(key, node)| (key.clone(), Arc::clone(node)))
        };
        self.set_sample(id, sample);
    }

    /// Sets the sample of a group that has an object. A group without an object gets its sample with the object.
    fn set_sample(&mut self, id: &GroupId, sample: Option<(ObjectKey, Arc<Node>)>) {
        let Some(group) = self.groups.get_mut(id).filter(|group| group.object.is_some()) else { return };
        let shown = |sample: Option<&(ObjectKey, Arc<Node>)>| {
            sample
                .map(|(_, node)| (node.meta.key.name.clone(), node.template_labels.clone(), node.other_labels.clone()))
        };
        let changed = shown(group.sample.as_ref()) != shown(sample.as_ref());
        group.sample = sample;
        if changed {
            self.evaluate(id);
        }
    }

    /// Updates a group's sample after a Machine has left the group.
    pub(super) fn update_sample_without(&mut self, old: &Machine) {
        if let Some(group) = self.group_of(old)
            && self.groups.get(&group).is_some_and(|group| is_sample(group, &old.meta.key))
        {
            self.resample(&group);
        }
    }
}

fn is_sample(group: &Group, key: &ObjectKey) -> bool {
    group.sample.as_ref().is_some_and(|(sample, _)| sample == key)
}
