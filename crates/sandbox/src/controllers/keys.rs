//! Labels, annotations and finalizers that the controllers read and write.

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
pub(crate) const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

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

/// The API group of Cluster API.
pub(crate) const GROUP: &str = "cluster.x-k8s.io";
