//! Simulated controllers of Cluster API (behaviour as of v1.14). Each is a function from the objects it reads to the
//! writes it plans; it must never call an API or depend on a task. `crate::engine` passes the objects and executes the
//! writes.

pub(crate) mod cluster;
pub(crate) mod conditions;
pub(crate) mod machine;
pub(crate) mod machine_deployment;
pub(crate) mod machine_pool;
pub(crate) mod machine_set;
pub(crate) mod node;
pub(crate) mod object;

#[cfg(test)]
pub(crate) mod testing;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use self::object::{Names, Object as _};
use crate::settings::Settings;

/// The context that every controller gets besides its objects.
pub(crate) struct Context<'a> {
    pub(crate) now: Timestamp,
    pub(crate) settings: &'a Settings,
    pub(crate) version: CapiVersion,
    pub(crate) names: &'a mut Names,
}

/// One of the two APIs.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Side {
    Management,
    /// The API of the workload cluster.
    Workload,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Write {
    Create(Side, Value),
    /// Changes an object from one state to another: metadata and spec if they differ, then status if it differs.
    Change(Side, Arc<Value>, Value),
    /// Deletes the object of this name.
    Delete(Side, Arc<Value>),
}

impl Write {
    pub(crate) fn is_change_of(&self, object: &Arc<Value>) -> bool {
        matches!(self, Self::Change(_, before, _) if Arc::ptr_eq(before, object))
    }
}

/// The result of a controller's reconcile.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plan {
    pub(crate) writes: Vec<Write>,
    /// The time of the next reconcile if nothing changes.
    pub(crate) again: Option<Timestamp>,
}

impl Plan {
    /// Plans the next step of the deletion of an object, which goes after those that it owns.
    pub(crate) fn leave(object: &Arc<Value>, owned: &[Arc<Value>], finalizer: &str) -> Self {
        let mut plan = Self::default();
        for one in owned.iter().filter(|one| !one.deleting()) {
            plan.delete(Side::Management, one);
        }
        let mut after = Value::clone(object);
        if owned.is_empty() {
            after.remove_finalizer(finalizer);
        }
        plan.change(Side::Management, object, after);
        plan
    }

    pub(crate) fn create(&mut self, side: Side, object: Value) {
        self.writes.push(Write::Create(side, object));
    }

    /// Plans a change, unless both states are equal.
    pub(crate) fn change(&mut self, side: Side, before: &Arc<Value>, after: Value) {
        if **before != after {
            self.writes.push(Write::Change(side, Arc::clone(before), after));
        }
    }

    pub(crate) fn delete(&mut self, side: Side, object: &Arc<Value>) {
        self.writes.push(Write::Delete(side, Arc::clone(object)));
    }

    /// Plans the next reconcile for `time` at the latest.
    pub(crate) fn look_again(&mut self, time: Timestamp) {
        self.again = Some(self.again.map_or(time, |again| again.min(time)));
    }
}

/// A version of Cluster API. Read in its sources (tags v1.8.12, v1.9.11, v1.10 to v1.14):
///
/// | what | 1.8 | 1.9, 1.10 | 1.11 | 1.14 |
/// |---|---|---|---|---|
/// | a MachineDeployment writes its newest MachineSet | labels and the size it *sees* by server-side apply, then the new size by a merge patch | as 1.8 | as 1.8 | all in one apply; in two writes only with `spec.paused` |
/// | order in which a MachineSet gives up Machines, no policy or `Random` | marked and unhealthy ones alike, by name | marked before unhealthy | as 1.10 | as 1.10, then those being updated in place |
/// | after creates and deletes the MachineSet controller | waits up to 10 s for each until its cache shows it, before it writes the status; not after an error | as 1.8 | as 1.8 | writes the status at once, and puts the next reconcile off until its cache has all it has written |
/// | a Machine can't be deleted | the others are deleted, then the reconcile fails | as 1.8 | as 1.8 | as 1.8 |
/// | a Machine can't be created | the others are created, then the reconcile fails | as 1.8 | as 1.8 | the first error ends it |
/// | a Machine can't be updated from the template | the reconcile ends | the size is seen to all the same | as 1.10 | as 1.10 |
/// | a MachineSet's `status.observedGeneration` after an error of creates and deletes | moves | moves | stays | stays |
/// | reconciles of one object | as they come | as they come | as they come | once a second at most |
///
/// With `OnDelete` all versions here do what 1.12 and later do. Up to 1.11 a Machine leaves the size of an old MachineSet as
/// soon as it is being deleted, and a smaller size takes from the largest old MachineSet first.
///
/// In all of them patches carry no resource version, deletes have no precondition, and a MachineSet treats it as an
/// error if a Machine that it deletes is already gone.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum CapiVersion {
    /// 1.8
    V1_8,
    /// 1.9 and 1.10
    V1_10,
    /// 1.11
    V1_11,
    /// 1.14
    #[default]
    V1_14,
}

impl CapiVersion {
    /// All versions.
    pub const ALL: [Self; 4] = [Self::V1_8, Self::V1_10, Self::V1_11, Self::V1_14];

    pub(crate) fn marked_ties_with_unhealthy(self) -> bool {
        self == Self::V1_8
    }

    pub(crate) fn sizes_machine_set_apart(self) -> bool {
        self <= Self::V1_11
    }

    pub(crate) fn waits_for_cache_in_reconcile(self) -> bool {
        self <= Self::V1_11
    }

    pub(crate) fn ends_with_failed_create(self) -> bool {
        self >= Self::V1_14
    }

    pub(crate) fn ends_with_failed_sync(self) -> bool {
        self == Self::V1_8
    }

    pub(crate) fn observes_despite_errors(self) -> bool {
        self <= Self::V1_10
    }

    pub(crate) fn limits_rate(self) -> bool {
        self >= Self::V1_14
    }
}

/// Labels, annotations and finalizers that the controllers read and write.
pub(crate) mod keys {
    pub(crate) const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
    pub(crate) const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
    pub(crate) const SET_NAME: &str = "cluster.x-k8s.io/set-name";
    pub(crate) const TEMPLATE_HASH: &str = "machine-template-hash";

    pub(crate) const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// The annotation of a MachineSet that creates no Machines.
    pub(crate) const NO_NEW_MACHINES: &str = "cluster.x-k8s.io/disable-machine-create";
    pub(crate) const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
    /// The prefix of the annotations that hold a Machine before its Node is drained.
    pub(crate) const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
    /// The prefix of those that hold a Machine before its infrastructure is deleted.
    pub(crate) const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
    pub(crate) const REVISION: &str = "machinedeployment.clusters.x-k8s.io/revision";
    pub(crate) const DESIRED_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/desired-replicas";
    pub(crate) const MAX_REPLICAS: &str = "machinedeployment.clusters.x-k8s.io/max-replicas";
    pub(crate) const MIN_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    pub(crate) const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
    pub(crate) const CAPACITY: &str = "capacity.cluster-autoscaler.kubernetes.io/";

    /// Annotations of a Node.
    pub(crate) const NODE_MACHINE: &str = "cluster.x-k8s.io/machine";
    pub(crate) const NODE_CLUSTER: &str = "cluster.x-k8s.io/cluster-name";
    pub(crate) const NODE_NAMESPACE: &str = "cluster.x-k8s.io/cluster-namespace";
    pub(crate) const NODE_OWNER_KIND: &str = "cluster.x-k8s.io/owner-kind";
    pub(crate) const NODE_OWNER_NAME: &str = "cluster.x-k8s.io/owner-name";

    pub(crate) const DEPLOYMENT_FINALIZER: &str = "cluster.x-k8s.io/machinedeployment";
    pub(crate) const SET_FINALIZER: &str = "cluster.x-k8s.io/machineset";
    pub(crate) const MACHINE_FINALIZER: &str = "machine.cluster.x-k8s.io";
    pub(crate) const POOL_NAME: &str = "cluster.x-k8s.io/pool-name";
    pub(crate) const POOL_FINALIZER: &str = "machinepool.cluster.x-k8s.io";

    pub(crate) const GROUP: &str = "cluster.x-k8s.io";
}
