//! The kinds of a workload cluster that Cluster Autoscaler and kube-scheduler list besides the core kinds. They are plain
//! storage: no controller acts on them here.

use super::kind::{CoreKind, KindSpec, PLAIN, Rules};

/// The rules of kinds whose status is written by their controllers.
const CONTROLLED: Rules = Rules { generation: true, create_drops_status: true, ..Rules::CORE };

const WORKLOAD: CoreKind = CoreKind { status: true, categories: &["all"], rules: CONTROLLED, ..PLAIN };

const APPS: CoreKind = CoreKind { group: "apps", scale: true, ..WORKLOAD };

const STORAGE: CoreKind = CoreKind { group: "storage.k8s.io", namespaced: false, ..PLAIN };

/// Cluster Autoscaler 1.33 lists the beta versions.
const RESOURCE: CoreKind =
    CoreKind { group: "resource.k8s.io", versions: &["v1", "v1beta2", "v1beta1"], rules: CONTROLLED, ..PLAIN };

const KINDS: [CoreKind; 26] = [
    CoreKind { kind: "DaemonSet", short: &["ds"], scale: false, ..APPS },
    CoreKind { kind: "Deployment", short: &["deploy"], ..APPS },
    CoreKind { kind: "ReplicaSet", short: &["rs"], ..APPS },
    CoreKind { kind: "StatefulSet", short: &["sts"], ..APPS },
    CoreKind { group: "apps", kind: "ControllerRevision", ..PLAIN },
    CoreKind { kind: "ReplicationController", short: &["rc"], scale: true, ..WORKLOAD },
    CoreKind { group: "batch", kind: "Job", ..WORKLOAD },
    CoreKind { group: "batch", kind: "CronJob", short: &["cj"], ..WORKLOAD },
    CoreKind {
        group: "policy",
        kind: "PodDisruptionBudget",
        short: &["pdb"],
        status: true,
        columns: &[("Allowed disruptions", ".status.disruptionsAllowed", 0)],
        rules: CONTROLLED,
        ..PLAIN
    },
    CoreKind { group: "scheduling.k8s.io", kind: "PriorityClass", short: &["pc"], namespaced: false, ..PLAIN },
    CoreKind { kind: "PersistentVolume", short: &["pv"], namespaced: false, status: true, ..PLAIN },
    CoreKind { kind: "PersistentVolumeClaim", short: &["pvc"], status: true, ..PLAIN },
    CoreKind { kind: "PodTemplate", ..PLAIN },
    CoreKind { kind: "ResourceQuota", short: &["quota"], status: true, ..PLAIN },
    CoreKind { kind: "LimitRange", short: &["limits"], ..PLAIN },
    CoreKind { kind: "StorageClass", short: &["sc"], ..STORAGE },
    CoreKind { kind: "CSINode", ..STORAGE },
    CoreKind { kind: "CSIDriver", ..STORAGE },
    CoreKind { kind: "CSIStorageCapacity", namespaced: true, ..STORAGE },
    CoreKind { kind: "VolumeAttachment", status: true, ..STORAGE },
    CoreKind { kind: "VolumeAttributesClass", short: &["vac"], ..STORAGE },
    CoreKind { kind: "ResourceClaim", status: true, ..RESOURCE },
    CoreKind { kind: "ResourceClaimTemplate", ..RESOURCE },
    CoreKind { kind: "ResourceSlice", namespaced: false, selectable: &["spec.nodeName", "spec.driver"], ..RESOURCE },
    CoreKind { kind: "DeviceClass", namespaced: false, ..RESOURCE },
    CoreKind { kind: "DeviceTaintRule", versions: &["v1beta2", "v1alpha3"], namespaced: false, ..RESOURCE },
];

/// Returns these kinds.
pub(super) fn workload_kinds() -> impl Iterator<Item = KindSpec> {
    KINDS.into_iter().map(KindSpec::from)
}
