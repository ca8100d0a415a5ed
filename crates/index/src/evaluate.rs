//! Evaluates the rules for a group after a change of its inputs, and stores the result.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arcstr::ArcStr;
use jiff::Timestamp;
use rules::capi::{KindRef, ObjectKey, ScalableKind};
use rules::{
    self, Definition, Excluded, Exclusion, GroupId, InfrastructureState, RealNodes, Remembered, Rollout, RolloutCause,
    remembered::Templates, rollout,
};
use tokio::sync::watch;

use super::{
    change::KindState,
    group::{Group, Served},
    relations::{cluster_key, template_key},
    state::{Index, LiveState},
    templates::Template,
};

/// The node group that an object is, or the reason why it is none.
type Evaluated = Result<Box<Definition>, Excluded>;

/// The maximum number of groups that are evaluated in a row. A change may concern all groups, and a tenant decides how
/// long the evaluation of its own takes, so that reads get their turn in between.
pub(super) const AT_ONCE: usize = 4;

impl Index {
    /// Returns the template kinds that groups in scope reference, with the namespaces of these groups.
    pub fn wanted_kinds(&self) -> BTreeMap<KindRef, BTreeSet<ArcStr>> {
        let mut wanted = BTreeMap::<KindRef, BTreeSet<ArcStr>>::new();
        for (id, group) in &self.inner.read().live.groups {
            for kind in group.wanted() {
                wanted.entry(kind.clone()).or_default().insert(id.key.namespace.clone());
            }
        }
        wanted
    }

    /// Returns true if groups refer to a kind as that of their bootstrap template alone.
    pub fn is_bootstrap(&self, kind: &KindRef) -> bool {
        let inner = self.inner.read();
        let groups = || inner.live.groups.values();
        let is_template = groups().any(|group| group.wants.as_ref() == Some(kind));
        !is_template && groups().any(|group| group.wants_bootstrap.as_ref() == Some(kind))
    }

    /// Returns a receiver that is notified when the result of [`Index::wanted_kinds`] may have changed.
    pub fn wanted_kinds_changed(&self) -> watch::Receiver<()> {
        self.wanted.subscribe()
    }

    /// Returns the state of an infrastructure template kind.
    pub fn kind_state(&self, kind: &KindRef) -> Option<KindState> {
        self.inner.read().live.kinds.get(kind).cloned()
    }

    /// Returns true if the first list of every referenced template kind has completed or failed, what is remembered has been
    /// read or can't be, and all groups are evaluated.
    pub fn has_settled(&self) -> bool {
        let inner = self.inner.read();
        let state = |kind| inner.live.kinds.get(kind);
        let has_settled = |kind| match state(kind) {
            Some(KindState::Synced | KindState::Unreadable(_)) => true,
            Some(KindState::Pending) | None => false,
        };
        inner.live.due.is_empty()
            && inner.live.memory.as_ref().is_none_or(|memory| memory.has_settled())
            && inner.live.groups.values().flat_map(Group::wanted).all(has_settled)
    }
}

impl LiveState {
    /// Evaluates few groups at once, and many when [`LiveState::evaluate_some_due`] is called.
    pub(super) fn evaluate_all(&mut self, groups: Vec<GroupId>) {
        if groups.len() > AT_ONCE {
            self.due.extend(groups);
            return;
        }
        for group in groups {
            self.evaluate(&group);
        }
    }

    /// Evaluates some of the groups that are due. Returns true if there were any.
    pub(super) fn evaluate_some_due(&mut self) -> bool {
        let mut is_any = false;
        for _ in 0..AT_ONCE {
            let Some(group) = self.due.pop_first() else { break };
            self.evaluate(&group);
            is_any = true;
        }
        is_any
    }

    /// Evaluates the rules for a group. Does nothing if its object is unknown, or doesn't decode.
    pub(super) fn evaluate(&mut self, id: &GroupId) {
        #[cfg(test)]
        {
            self.evaluations += 1;
        }
        let Some(group) = self.groups.get(id) else { return };
        if group.is_undecodable() {
            return;
        }
        let Some(object) = group.object.as_deref() else { return };
        let template = template_key(object);
        let known = template.as_ref().and_then(|key| self.templates.get(key));
        let unreadable = template.as_ref().and_then(|(kind, _)| self.why_unreadable(kind, known.as_ref()));
        let infrastructure = match (&template, &unreadable) {
            (None, _) => InfrastructureState::None,
            (Some(_), Some(why)) => InfrastructureState::Unreadable(why),
            (Some(_), None) => match &known {
                Some(Ok(template)) => InfrastructureState::Known(template),
                Some(Err(_)) | None => InfrastructureState::Unknown,
            },
        };
        let cluster = self.clusters.get(&cluster_key(object)).map(AsRef::as_ref);
        let sample = group.sample.as_ref().map(|(_, node)| node.as_ref());
        let of_group = match infrastructure {
            InfrastructureState::Known(template) => Some(template),
            InfrastructureState::None | InfrastructureState::Unknown | InfrastructureState::Unreadable(_) => None,
        };
        let (templates, found) = self.remembered_for(object, of_group);
        let remembered = found.as_ref().map(|found| Remembered {
            entry: &found.entry,
            arch: found.key.arch(),
            is_whole: found.is_whole,
        });
        let resources = self.resources_for(id, object, remembered);
        let observed = self.observed_labels(id, object);
        let sibling = resources.same_templates.filter(|resources| resources.group != *id);
        let of_sibling = sibling.map(|resources| self.labels_of_sibling(&resources.group, object));
        let nodes = RealNodes {
            sample,
            observed: Some(&observed),
            of_sibling: of_sibling.as_ref(),
            other_zone: self.other_zone(object),
            pool_has_machines: id.kind == ScalableKind::MachinePool
                && self.machines_by_owner.contains_key(&(id.kind, id.key.clone())),
            ..resources
        };
        let evaluated = rules::evaluate(object, cluster, infrastructure, nodes, &self.rules);
        let evaluated = self.in_its_namespace(id, evaluated);
        let needs_template = evaluated.as_ref().err().is_none_or(|excluded| excluded.reason.needs_template());
        let wants = if needs_template { template.map(|(kind, _)| kind) } else { None };
        let wants_bootstrap = if needs_template { self.wanted_bootstrap(object) } else { None };
        self.set_templates(id, templates);
        self.set_evaluated(id, evaluated);
        self.set_wanted(id, wants, wants_bootstrap);
    }

    fn set_templates(&mut self, id: &GroupId, templates: Option<Templates>) {
        if let Some(group) = self.groups.get_mut(id)
            && group.templates != templates
        {
            group.templates = templates;
            group.bought_by_memory = None;
            group.unconfirmed = None;
            group.smaller = None;
        }
    }

    /// Excludes a group whose namespace can't be read. An object that isn't meant to be a group keeps its reason.
    fn in_its_namespace(&self, id: &GroupId, evaluated: Evaluated) -> Evaluated {
        let is_meant = evaluated.as_ref().err().is_none_or(|excluded| excluded.reason.is_meant_as_group());
        if is_meant && self.forbidden_namespaces.contains(&*id.key.namespace) {
            return Err(Exclusion::NamespaceForbidden.into());
        }
        evaluated
    }

    /// Returns the reason that a template can't be read, for a message to which the rules add the template's name.
    fn why_unreadable(&self, kind: &KindRef, known: Option<&Template>) -> Option<String> {
        match (known, self.kinds.get(kind)) {
            (Some(Err(error)), _) => Some(error.to_string()),
            (None, Some(KindState::Synced)) => {
                Some("it doesn't exist: create it, or correct infrastructureRef".to_owned())
            }
            (None, Some(KindState::Unreadable(why))) => Some(why.to_string()),
            (Some(Ok(_)), _) | (None, Some(KindState::Pending) | None) => None,
        }
    }

    fn set_evaluated(&mut self, id: &GroupId, evaluated: Evaluated) {
        let Some(group) = self.groups.get_mut(id) else { return };
        match evaluated {
            Ok(mut definition) => {
                definition.notes.extend(group.smaller.as_ref().map(|smaller| smaller.note.clone()));
                let old = group.served.as_deref().map(|served| &served.definition);
                if !group.is_live() || old.is_none_or(|old| old.bounds != definition.bounds) {
                    self.membership_changed = true;
                }
                let says = |old: &Definition| (old.problems == definition.problems) && (old.notes == definition.notes);
                if !group.is_live() || !old.is_some_and(says) {
                    self.to_log.insert(id.clone());
                }
                if old.and_then(|old| old.price.as_ref()) != definition.price.as_ref() {
                    self.cheapest_units.take();
                }
                let template = definition.template.as_ref().map(|template| template.encode(&template_name(id)));
                group.served = Some(Arc::new(Served::new(*definition, template, group.rollout.as_ref())));
                group.excluded = None;
            }
            Err(excluded) => {
                if group.excluded.as_ref() != Some(&excluded) {
                    self.membership_changed |= group.is_live();
                    self.to_log.insert(id.clone());
                    group.excluded = Some(excluded);
                }
            }
        }
    }
}

/// Returns the name of the Node in a group's template: stable, and a valid Node name if the group's name is.
fn template_name(id: &GroupId) -> String {
    format!("{}-template", id.key.name)
}

impl LiveState {
    pub(super) fn set_wanted(&mut self, id: &GroupId, kind: Option<KindRef>, bootstrap: Option<KindRef>) {
        if let Some(group) = self.groups.get_mut(id)
            && (&group.wants, &group.wants_bootstrap) != (&kind, &bootstrap)
        {
            (group.wants, group.wants_bootstrap) = (kind, bootstrap);
            self.wanted_changed = true;
        }
    }
}

// The rollouts of groups. The index evaluates them when a MachineSet, a MachineDeployment or a Cluster's topology
// changes, so that no query has to.

impl LiveState {
    /// Evaluates the rollouts of groups after a change of their MachineSets, their own objects or their Clusters.
    pub(super) fn update_rollouts(&mut self, groups: Vec<GroupId>) {
        for id in groups {
            self.update_rollout(&id);
        }
    }

    fn update_rollout(&mut self, id: &GroupId) {
        let found = self.rollout_of(id);
        let Some(group) = self.groups.get_mut(id) else { return };
        let known = group.rollout.as_ref().map(|ongoing| ongoing.since);
        let ongoing =
            found.map(|(cause, since)| Rollout { cause, since: since.or(known).unwrap_or_else(Timestamp::now) });
        if group.rollout == ongoing {
            return;
        }
        group.rollout = ongoing;
        // A group that is no longer live keeps its last served state.
        if let Some(served) = group.served.as_deref().filter(|_| group.is_live()) {
            let (definition, template) = (served.definition.clone(), served.template.clone());
            group.served = Some(Arc::new(Served::new(definition, template, group.rollout.as_ref())));
        }
    }

    /// Returns the rollout of a MachineDeployment; the other kinds don't roll out.
    fn rollout_of(&self, id: &GroupId) -> Option<(RolloutCause, Option<Timestamp>)> {
        if id.kind != ScalableKind::MachineDeployment {
            return None;
        }
        let deployment = self.groups.get(id)?.object.as_deref()?;
        let set =
            |key: &ObjectKey| self.groups.get(&GroupId::new(ScalableKind::MachineSet, key.clone()))?.object.as_deref();
        let sets: Vec<_> = self.sets_by_deployment.get(&id.key).filter_map(set).collect();
        let cluster = self.clusters.get(&cluster_key(deployment)).map(AsRef::as_ref);
        rollout::rollout(deployment, sets, cluster)
    }
}
