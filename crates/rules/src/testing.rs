//! Objects for the tests of this module: complete and unremarkable, so that a test changes only what it is about.

use arcstr::ArcStr;
use std::collections::BTreeMap;

use crate::{
    Problem, ProblemKind,
    capi::{
        Cluster, Created, InfrastructureTemplate, Machine, MachinePhase, Meta, Node, ObjectKey, ScalableKind,
        ScalableResource, SpecDigest,
    },
};

/// Asserts that there is one problem, which is of this kind and names these parts.
#[track_caller]
pub(crate) fn assert_names(problems: &[Problem], kind: ProblemKind, parts: &[&str]) {
    let [problem] = problems else { panic!("{problems:?}") };
    assert_eq!(problem.kind, kind, "{problem}");
    for part in parts {
        assert!(problem.message.contains(part), "{part:?} isn't in {problem}");
    }
}

/// Returns annotations with keys of this prefix.
pub(crate) fn annotations(prefix: &str, values: &[(&str, &str)]) -> BTreeMap<ArcStr, ArcStr> {
    values.iter().map(|(name, value)| (format!("{prefix}{name}").into(), ArcStr::from(*value))).collect()
}

pub(crate) fn meta(namespace: &str, name: &str) -> Meta {
    Meta { key: ObjectKey::new(namespace, name), uid: format!("uid-of-{name}").into(), resource_version: "1".into() }
}

/// Returns an object of Cluster `prod` in namespace `team-a` with 3 replicas and no annotation.
pub(crate) fn scalable(kind: ScalableKind, name: &str) -> ScalableResource {
    ScalableResource {
        kind,
        meta: meta("team-a", name),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        deployment: None,
        cluster_name: "prod".into(),
        replicas: Some(3),
        infrastructure: None,
        bootstrap: None,
        failure_domain: None,
        template_labels: BTreeMap::new(),
        node_labels: BTreeMap::new(),
        taints: Vec::new(),
        revision: None,
        status_replicas: 3,
        version: Some("v1.35.0".into()),
        created: None,
        rolling_out_since: None,
        on_delete: false,
        held_back: None,
        generation: 1,
        handed_over: false,
        provider_ids: Vec::new(),
        node_names: Vec::new(),
        failure: None,
        infrastructure_not_ready: None,
    }
}

pub(crate) fn deployment(name: &str) -> ScalableResource {
    scalable(ScalableKind::MachineDeployment, name)
}

pub(crate) fn machine_set(name: &str) -> ScalableResource {
    scalable(ScalableKind::MachineSet, name)
}

/// Returns a Machine that was just created.
pub(crate) fn machine(name: &str) -> Machine {
    Machine {
        meta: meta("team-a", name),
        owner: Some((ScalableKind::MachineSet, "workers-1".into())),
        cluster_name: "prod".into(),
        provider_id: None,
        node_name: None,
        phase: MachinePhase::Other,
        created: Created::default(),
        rare: None,
        deleting: false,
    }
}

/// Returns a Cluster that isn't paused.
pub(crate) fn cluster() -> Cluster {
    let meta = meta("team-a", "prod");
    Cluster { meta, paused: false, topology: None, is_selected: false, client_not_before: None }
}

/// Returns an infrastructure template with this `status.capacity`.
pub(crate) fn infrastructure(capacity: &[(&str, &str)]) -> InfrastructureTemplate {
    InfrastructureTemplate {
        spec: SpecDigest::default(),
        generation: 1,
        meta: meta("team-a", "workers"),
        capacity: capacity.iter().map(|(resource, text)| (ArcStr::from(*resource), (*text).to_owned())).collect(),
        architecture: None,
        operating_system: None,
        makes_machines: false,
    }
}

/// Returns a Node with these labels, which must be ones that templates copy.
pub(crate) fn node(labels: &[(&'static str, &str)]) -> Node {
    Node {
        meta: meta("", "worker-1"),
        provider_id: Some("x://worker-1".into()),
        machine: None,
        template_labels: labels.iter().map(|(key, value)| (*key, ArcStr::from(*value))).collect(),
        other_labels: std::iter::empty().collect(),
        resources: None,
        created: Created::default(),
        is_unready: false,
    }
}
