//! What groups' Nodes are remembered by, and what is remembered for a group: its templates' content leads to both, so that
//! neither the names of templates nor of groups matter.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arcstr::ArcStr;
use jiff::{SignedDuration, Timestamp};
use rules::{
    GroupId,
    capi::{
        InfrastructureRef, InfrastructureTemplate, KindRef, Machine, Node, NodeResources, ObjectKey, OtherLabels,
        SETTLED_AFTER, ScalableKind, ScalableResource, TemplateLabels,
    },
    labels::ARCH,
    remembered::{self, Bootstrap, Entry, Key, Offers, Templates},
    template::stated_arch,
};
use tokio::{sync::watch, time::Instant};

use super::{
    change::KindState,
    relations::{id_of, owner_of, template_key},
    state::{Index, LiveState},
};

/// The parts of the last Node of a group that were remembered: a similar one brings nothing new.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct LastSeen {
    templates: Templates,
    resources: NodeResources,
    labels: TemplateLabels,
    others: OtherLabels,
    day: i64,
}

pub(super) struct Found {
    pub(super) key: Key,
    pub(super) entry: Arc<Entry>,
    /// True if all templates of the group are known.
    pub(super) is_whole: bool,
}

/// The time after an increase in which its Nodes are compared with what was remembered: Machines may be long in coming, and
/// devices register late.
pub(super) const BOUGHT_FOR: Duration = Duration::from_secs(3600);

/// The age of a Node below which its devices can't be expected yet, and the number of Nodes that show as much as an old
/// one if none of them gets that old.
const YOUNG: (SignedDuration, usize) = (SignedDuration::from_mins(3), 3);

/// The increases of a group by what is remembered, while no Node has shown all of that.
#[derive(Clone, Debug)]
pub(super) struct Unconfirmed {
    /// The time of the first.
    pub(super) since: Instant,
    /// The Nodes that went without it, as many as matter.
    gone: BTreeSet<ArcStr>,
}

impl Unconfirmed {
    pub(super) fn new(since: Instant) -> Self {
        Self { since, gone: BTreeSet::new() }
    }
}

/// A Node that was smaller than what was remembered when this process raised the size.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SmallerNode {
    /// The note for people.
    pub note: String,
}

/// A Node whose volumes and devices are to be remembered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NodeToLookAt {
    /// Its name.
    pub node: ArcStr,
    /// The key of its entry.
    pub key: Key,
}

/// Returns the key of an object's bootstrap template. A Secret's data isn't read.
fn bootstrap_of(object: &ScalableResource) -> Option<(&InfrastructureRef, Option<(KindRef, ObjectKey)>)> {
    let reference = object.bootstrap.as_ref()?;
    let key = ObjectKey { namespace: object.meta.key.namespace.clone(), name: reference.name.clone() };
    Some((reference, (reference.kind != "Secret").then(|| (KindRef::from(reference), key))))
}

/// Returns the key of an object's bootstrap template, if it can be read.
pub(super) fn bootstrap_key(object: &ScalableResource) -> Option<(KindRef, ObjectKey)> {
    bootstrap_of(object)?.1
}

/// Returns true if the Nodes of an object may have to be remembered anew: they belong to other templates or another group.
pub(super) fn is_made_differently(old: &ScalableResource, new: &ScalableResource) -> bool {
    let of = |object: &ScalableResource| (object.infrastructure.clone(), object.bootstrap.clone(), id_of(object));
    of(old) != of(new) || (new.kind == ScalableKind::MachinePool && old.node_names != new.node_names)
}

impl LiveState {
    /// Returns the kind of bootstrap template that is followed for a group.
    pub(super) fn wanted_bootstrap(&self, object: &ScalableResource) -> Option<KindRef> {
        self.memory.as_ref()?;
        Some(bootstrap_key(object)?.0)
    }

    /// Returns the content of the templates of an object, once it is known.
    pub(super) fn templates_of(&self, object: &ScalableResource) -> Option<Templates> {
        self.memory.as_ref()?;
        let infrastructure = object.infrastructure.as_ref()?;
        let spec = self.templates.spec(&template_key(object)?)?.0;
        let bootstrap = match bootstrap_of(object) {
            None => Bootstrap::None,
            Some((_, None)) => Bootstrap::Unreadable,
            Some((reference, Some(key))) => match (self.templates.spec(&key), self.kinds.get(&key.0)) {
                (Some((spec, _)), _) => Bootstrap::Known(reference, spec),
                (None, Some(KindState::Unreadable(_))) => Bootstrap::Unreadable,
                (None, Some(KindState::Synced | KindState::Pending) | None) => return None,
            },
        };
        Some(Templates::new(&object.meta.key.namespace, (infrastructure, spec), bootstrap))
    }

    /// Returns what is remembered for a group, with its templates.
    pub(super) fn remembered_for(
        &self,
        object: &ScalableResource,
        infrastructure: Option<&InfrastructureTemplate>,
    ) -> (Option<Templates>, Option<Found>) {
        let Some(memory) = &self.memory else { return (None, None) };
        let Some(templates) = self.templates_of(object) else { return (None, None) };
        if !remembered::is_wanted(object).unwrap_or(true) {
            return (Some(templates), None);
        }
        let stated = stated_arch(object, infrastructure);
        let found = memory.find(&templates, stated.as_deref(), self.rules.template.default_arch.as_str());
        let is_whole =
            bootstrap_of(object).is_none_or(|(_, key)| key.is_some_and(|key| self.templates.spec(&key).is_some()));
        (Some(templates), found.map(|(key, entry)| Found { key, entry, is_whole }))
    }

    /// Remembers the Node of a Machine after either was added or changed.
    pub(super) fn remember_machine(&mut self, machine: &Machine) {
        if self.memory.is_none() {
            return;
        }
        let Some((kind @ ScalableKind::MachineSet, key)) = owner_of(machine) else { return };
        let owner = self.groups.get(&GroupId::new(kind, key)).and_then(|group| group.object.clone());
        let (Some(owner), Some(node)) = (owner, self.node_in_ref_of(machine).cloned()) else { return };
        if machine.deleting {
            self.remember_leaving(&owner, &node, machine.created.time());
        } else {
            self.remember(&owner, &node, machine.created.time(), false);
        }
    }

    /// Remembers the Nodes that leave a MachinePool: its own list is without them, or they are deleted.
    pub(super) fn remember_leaving_pool<'a>(&mut self, pool: &GroupId, names: impl Iterator<Item = &'a ArcStr>) {
        let group = self.groups.get(pool).filter(|group| group.unconfirmed.is_some());
        let Some(owner) = group.and_then(|group| group.object.clone()) else { return };
        let nodes: Vec<_> = names.filter_map(|name| self.nodes.get(name).cloned()).collect();
        for node in nodes {
            self.remember_leaving(&owner, &node, node.created.time());
        }
    }

    fn remember_leaving(&mut self, owner: &ScalableResource, node: &Node, created: Option<Timestamp>) {
        if self.was_bought_in_vain(owner, node) {
            self.remember(owner, node, created, true);
        }
    }

    /// Returns true if the group has long been growing by what is remembered, and no Node has shown all of that: what is
    /// missing on one that goes won't come, and the next one would be bought for the same.
    fn was_bought_in_vain(&mut self, owner: &ScalableResource, node: &Node) -> bool {
        let templates = self.templates_of(owner);
        let group = self.groups.get_mut(&id_of(owner)).filter(|group| group.templates == templates);
        let unconfirmed = group.and_then(|group| group.unconfirmed.as_mut()).filter(|_| node.resources.is_some());
        let Some(unconfirmed) = unconfirmed else { return false };
        if unconfirmed.gone.len() < YOUNG.1 {
            unconfirmed.gone.insert(node.meta.key.name.clone());
        }
        let is_long = unconfirmed.since.elapsed() >= SETTLED_AFTER.unsigned_abs();
        let is_old = node.created.time().is_none_or(|created| Timestamp::now().duration_since(created) >= YOUNG.0);
        is_long && (is_old || unconfirmed.gone.len() >= YOUNG.1)
    }

    /// Remembers the Nodes of a MachineDeployment, MachineSet or MachinePool after it or one of its templates was added or changed.
    pub(super) fn remember_owner(&mut self, id: &GroupId) {
        if self.memory.is_none() {
            return;
        }
        let Some(owner) = self.groups.get(id).and_then(|group| group.object.clone()) else { return };
        match id.kind {
            ScalableKind::MachineDeployment => {
                for set in self.sets_by_deployment.to_vec(&id.key) {
                    self.remember_owner(&GroupId::new(ScalableKind::MachineSet, set));
                }
            }
            ScalableKind::MachineSet => {
                let machines: Vec<_> = self.owned_by(id.kind, &id.key).cloned().collect();
                for machine in machines {
                    self.remember_machine(&machine);
                }
            }
            ScalableKind::MachinePool => {
                let nodes = owner.node_names.iter().filter_map(|name| self.nodes.get(name).cloned());
                for node in nodes.collect::<Vec<_>>() {
                    self.remember(&owner, &node, node.created.time(), false);
                }
            }
        }
    }

    /// Remembers a Node. One that is older than the last change of a template was made from another spec; one that goes
    /// won't show more.
    fn remember(&mut self, owner: &ScalableResource, node: &Node, created: Option<Timestamp>, goes: bool) {
        let (Some(memory), Some(resources)) = (self.memory.clone(), &node.resources) else { return };
        let Some(templates) = self.templates_of(owner) else { return };
        let changed_at = [template_key(owner), bootstrap_key(owner)].into_iter().flatten();
        let changed_at = changed_at.filter_map(|key| self.templates.spec(&key)?.1).max();
        if changed_at.is_some_and(|changed| created.is_none_or(|created| created <= changed)) {
            return;
        }
        let now = Timestamp::now();
        let day = now.as_second() / (24 * 3600);
        let last = LastSeen {
            templates: templates.clone(),
            resources: resources.clone(),
            labels: node.template_labels.clone(),
            others: node.other_labels.clone(),
            day,
        };
        let id = id_of(owner);
        let Some(group) = self.groups.get_mut(&id) else { return };
        let is_wanted = group.object.as_deref().is_some_and(|object| remembered::is_wanted(object).unwrap_or(true));
        if !is_wanted || (!goes && group.last_seen.as_deref() == Some(&last)) {
            return;
        }
        group.last_seen = Some(Box::new(last));
        let arch = node.template_label(ARCH).unwrap_or_else(|| self.rules.template.default_arch.as_str());
        let Some(key) = Key::new(&templates, arch) else { return };
        let Some(entry) = Entry::of(node, owner, &id, now) else { return };
        let entry = if goes { entry.settled() } else { entry };
        let was_bought = group.bought_by_memory.is_some_and(|at| at.elapsed() < BOUGHT_FOR);
        let learned = memory.learn(&templates, &key, &entry);
        if learned.has_all || goes {
            group.unconfirmed = None;
        }
        if let Some((smaller, seen)) = learned.smaller.filter(|_| was_bought) {
            let text = remembered::note_of_smaller(&node.meta.key.name, &seen, &smaller);
            group.smaller = Some(SmallerNode { note: text });
            group.reports_smaller = true;
            self.sizes_to_observe.insert(id.clone());
        }
        // A driver registers its volumes and devices late too. One Node of a group a day is enough.
        let looks_at = Some(Box::new((templates.clone(), day)));
        if !goes && resources.is_settled() && group.looked_at != looks_at {
            group.looked_at = looks_at;
            self.nodes_to_look_at.push(NodeToLookAt { node: node.meta.key.name.clone(), key });
        }
        if learned.changed {
            self.memory_changed(&BTreeSet::from([templates]));
        }
    }

    pub(super) fn memory_changed(&mut self, templates: &BTreeSet<Templates>) {
        let uses = |templates_of: &Option<Templates>| templates_of.as_ref().is_some_and(|of| templates.contains(of));
        let groups = self.groups.iter().filter(|(_, group)| uses(&group.templates));
        self.evaluate_all(groups.map(|(id, _)| id.clone()).collect());
    }
}

impl Index {
    /// Adds the templates of its groups, which need what is remembered of them.
    pub fn add_used_templates(&self, used: &mut BTreeSet<Templates>) {
        let inner = self.inner.read();
        let groups = inner
            .live
            .groups
            .values()
            .filter(|group| group.excluded.as_ref().is_none_or(|it| it.reason.is_meant_as_group()));
        used.extend(groups.filter_map(|group| group.templates.clone()));
    }

    /// Returns a receiver that is notified when [`Index::take_nodes_to_look_at`] has one to return.
    pub fn nodes_to_look_at(&self) -> watch::Receiver<()> {
        self.nodes_to_look_at.subscribe()
    }

    /// Takes the Nodes whose volumes and devices are to be remembered by [`Index::remember_offers`].
    pub fn take_nodes_to_look_at(&self) -> Vec<NodeToLookAt> {
        std::mem::take(&mut self.inner.write().live.nodes_to_look_at)
    }

    /// Remembers the volumes and devices of a Node in its entry.
    pub fn remember_offers(&self, key: &Key, offers: &Offers) {
        let memory = self.inner.read().live.memory.clone();
        if let Some(memory) = memory.filter(|_| !offers.is_empty()) {
            memory.learn_offers(key, offers);
        }
    }

    /// Takes the note on a Node of a group that was smaller than what was remembered, if it isn't reported yet.
    pub fn take_smaller(&self, id: &GroupId) -> Option<SmallerNode> {
        let mut inner = self.inner.write();
        let group = inner.live.groups.get_mut(id)?;
        std::mem::take(&mut group.reports_smaller).then(|| group.smaller.clone()).flatten()
    }
}
