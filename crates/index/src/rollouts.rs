//! The rollouts of groups. The index evaluates them when a MachineSet, a MachineDeployment or a Cluster's topology
//! changes, so that no query has to.

use std::sync::Arc;

use arcstr::ArcStr;
use capi::{ObjectKey, ScalableKind, ScalableResource};
use jiff::Timestamp;
use nodegroup::{GroupId, Rollout, rollout, writing::Ongoing};

use super::{group::Served, live_state::LiveState, relation::cluster_key};

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
        let ongoing = found.map(|rollout| Ongoing {
            cause: rollout.cause,
            since: rollout.since.or(known).unwrap_or_else(Timestamp::now),
        });
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
    fn rollout_of(&self, id: &GroupId) -> Option<Rollout> {
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
    /// Returns the MachineSet from which a rollout with the strategy OnDelete takes a smaller size: the oldest one that
    /// has replicas (read in Cluster API 1.12 to 1.14; before, at least any but the newest loses Machines).
    pub(super) fn shrinks_first(&self, id: &GroupId, deployment: &ScalableResource) -> Option<ArcStr> {
        let sets = self.sets_of(&id.key).filter(|set| set.replicas.unwrap_or_default() > 0);
        let oldest = sets.min_by_key(|set| (set.created, set.meta.key.name.clone()));
        deployment.on_delete.then(|| oldest.map(|set| set.meta.key.name.clone()))?
    }
}
