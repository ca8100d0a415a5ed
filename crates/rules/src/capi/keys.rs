//! The annotation and label keys that are read and written. Keys that depend on the API group (`CAPI_GROUP`) are built
//! once per group; the others are constants. What follows a prefix stands with its rule: `capacity`, `options`, `labels`,
//! `taints`, `drivers`.

use std::fmt;

/// Cluster API's group unless `CAPI_GROUP` overrides it.
pub const DEFAULT_GROUP: &str = "cluster.x-k8s.io";

/// The domain of [`DEFAULT_GROUP`].
const DEFAULT_DOMAIN: &str = "x-k8s.io";

/// The group of OpenShift's Machine API: MachineSets and Machines, without Clusters and MachineDeployments.
pub const OPENSHIFT_GROUP: &str = "machine.openshift.io";

// These keys don't depend on `CAPI_GROUP`.

/// Annotation that pauses its object.
pub const PAUSED: &str = "cluster.x-k8s.io/paused";

/// Annotation of a MachinePool: something other than Cluster API sizes it, and its infrastructure provider writes the
/// size. Any value but `false` counts.
pub const REPLICAS_MANAGED_BY: &str = "cluster.x-k8s.io/replicas-managed-by";

/// Label of a MachineDeployment that Karpenter's provider for Cluster API sizes.
pub const KARPENTER_MEMBER: &str = "node.cluster.x-k8s.io/karpenter-member";

/// Annotation of a group: permits deletions of its Machines during a rollout.
pub const SCALE_DOWN_WHILE_ROLLING_OUT: &str = "capi-autoscaler-provider.io/scale-down-while-rolling-out";

/// Annotation of a group: the time for which a lack of capacity may last before it is an error.
pub const CAPACITY_ERROR_GRACE: &str = "capi-autoscaler-provider.io/capacity-error-grace";

/// Annotation of a Cluster of a fleet: the time before which no certificate of its autoscaler may have been issued.
pub const CLIENT_NOT_BEFORE: &str = "capi-autoscaler-provider.io/client-not-before";

/// Label of a MachineDeployment: its name in its Cluster's topology.
pub const TOPOLOGY_NAME: &str = "topology.cluster.x-k8s.io/deployment-name";

/// Label of a MachinePool: its name in its Cluster's topology.
pub const TOPOLOGY_POOL_NAME: &str = "topology.cluster.x-k8s.io/pool-name";

/// Annotation of a MachineDeployment in a Cluster's topology: its upgrade waits until the annotation is removed.
pub const DEFER_UPGRADE: &str = "topology.cluster.x-k8s.io/defer-upgrade";

/// Like [`DEFER_UPGRADE`], for this and all later MachineDeployments of the topology.
pub const HOLD_UPGRADE_SEQUENCE: &str = "topology.cluster.x-k8s.io/hold-upgrade-sequence";

/// Prefix of this program's own annotations of a group, other than those of capacity.
pub const OWN_PREFIX: &str = "capi-autoscaler-provider.io/";

/// Prefix of the capacity annotations of a group.
pub const CAPACITY_PREFIX: &str = "capacity.cluster-autoscaler.kubernetes.io/";

/// Prefix of this program's own capacity annotations of a group.
pub const OWN_CAPACITY_PREFIX: &str = "capacity.capi-autoscaler-provider.io/";
/// Annotation of a group: the price of one of its Nodes per hour.
pub const PRICE_PER_HOUR: &str = "capacity.capi-autoscaler-provider.io/price-per-hour";

/// The keys that depend on the API group.
#[derive(Clone, Eq, PartialEq)]
pub struct Keys {
    /// The API group itself.
    pub group: String,
    /// Prefix of the annotations that state the sizes of a group.
    pub size_prefix: String,
    /// Annotation of a group: the min size.
    pub min_size: String,
    /// Annotation of a group: the max size.
    pub max_size: String,
    /// Prefix of the annotations that override autoscaling options.
    pub options_prefix: String,
    /// Annotation of a Machine that its MachineSet deletes first on scale-down.
    pub delete_machine: String,
    /// Annotation of a Node: the name of its Machine.
    pub machine: String,
    /// Annotation of a Node: the namespace of its Cluster and Machine.
    pub cluster_namespace: String,
    /// Label of every object of a Cluster: the Cluster's name.
    pub cluster_name: String,
    /// Annotation of a Node: the kind of its Machine's owner, or `MachinePool`.
    pub owner_kind: String,
    /// Annotation of a Node: the name of the owner of its Machine.
    pub owner_name: String,
    /// Annotation of a MachineSet: the revision of its MachineDeployment. Its domain is that of the API group, as in
    /// `machinedeployment.clusters.k8s.io` for `cluster.k8s.io`.
    pub revision: String,
}

impl Keys {
    /// Builds the keys of an API group.
    pub fn new(group: &str) -> Self {
        let key = |name: &str| format!("{group}/{name}");
        Self {
            group: group.to_owned(),
            size_prefix: key("cluster-api-autoscaler-node-group-"),
            min_size: key("cluster-api-autoscaler-node-group-min-size"),
            max_size: key("cluster-api-autoscaler-node-group-max-size"),
            options_prefix: key("autoscaling-options-"),
            delete_machine: key("delete-machine"),
            machine: key("machine"),
            cluster_namespace: key("cluster-namespace"),
            cluster_name: key("cluster-name"),
            owner_kind: key("owner-kind"),
            owner_name: key("owner-name"),
            revision: format!(
                "machinedeployment.clusters.{}/revision",
                group.strip_prefix("cluster.").unwrap_or(DEFAULT_DOMAIN)
            ),
        }
    }

    /// Returns the namespace and name of the Machine in a Node's annotations. OpenShift writes both into the annotation
    /// `machine`; Cluster API writes the namespace into a separate annotation.
    pub fn machine_of<'a>(&self, annotation: impl Fn(&str) -> Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let name = annotation(&self.machine)?;
        name.split_once('/').or_else(|| Some((annotation(&self.cluster_namespace)?, name)))
    }

    /// Returns true if a MachineSet counts Machines that are being deleted as replicas, and removes them first when its
    /// size comes down. MachineSets of other groups, such as OpenShift's and Kubermatic's, replace them at once.
    pub fn counts_deleting(&self) -> bool {
        self.group == DEFAULT_GROUP
    }

    /// Returns true if a rule reads this annotation on a node group.
    pub(super) fn is_read_on_groups(&self, key: &str) -> bool {
        key == PAUSED
            || key == REPLICAS_MANAGED_BY
            || key.starts_with(OWN_PREFIX)
            || key.starts_with(&self.size_prefix)
            || key.starts_with(&self.options_prefix)
            || key.starts_with(CAPACITY_PREFIX)
            || key.starts_with(OWN_CAPACITY_PREFIX)
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self::new(DEFAULT_GROUP)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.group).finish()
    }
}
