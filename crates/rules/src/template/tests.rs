//! Tests of every row of the contract's precedence table, and of the bytes that Cluster Autoscaler reads.

mod rows;
mod zones;

use arcstr::ArcStr;

use crate::capi::{CAPACITY_PREFIX, MachineTaint, Node, Propagation, ScalableKind};
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity as WireQuantity};
use proptest::prelude::*;
use prost::Message as _;
use regex::Regex;
use rstest::rstest;

use super::*;
use crate::{
    Architecture, ProblemKind, Quantity, Sourced,
    observed::ObservedLabels,
    testing::{deployment, infrastructure, machine_set, node, scalable},
};

fn annotate(mut group: ScalableResource, annotations: &[(&str, &str)]) -> ScalableResource {
    for (name, value) in annotations {
        group.annotations.insert(format!("{CAPACITY_PREFIX}{name}").into(), ArcStr::from(*value));
    }
    group
}

/// Returns a group of known capacity with these annotations.
fn sized(annotations: &[(&str, &str)]) -> ScalableResource {
    annotate(annotate(deployment("workers"), &[("cpu", "4"), ("memory", "16Gi")]), annotations)
}

fn observed<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> ObservedLabels {
    let mut observed = ObservedLabels::default();
    for node in nodes {
        observed.observe(node);
    }
    observed
}

fn built(group: &ScalableResource, infra: Option<&InfrastructureTemplate>, node: Option<&Node>) -> NodeTemplate {
    let observed = observed(node);
    let nodes = RealNodes { sample: node, observed: Some(&observed), ..RealNodes::default() };
    let Built { template, problems, .. } = build(group, infra, nodes, &TemplateRules::default());
    assert_eq!(problems, []);
    template.unwrap()
}

fn label<'a>(template: &'a NodeTemplate, key: &str) -> Option<(&'a str, &'a str)> {
    template.labels.get(key).map(|label| (label.value.as_str(), label.source.as_str()))
}

fn taints(template: &NodeTemplate) -> Vec<(String, &str)> {
    template.taints.iter().map(|taint| (taint.value.to_string(), taint.source.as_str())).collect()
}

fn machine_taint(key: &str, value: &str, effect: &str) -> MachineTaint {
    MachineTaint { key: key.into(), value: value.into(), effect: effect.into(), propagation: Propagation::Always }
}

#[rstest]
#[case::neither(&[], &[], false)]
#[case::cpu_alone(&[("cpu", "4")], &[], false)]
#[case::memory_alone(&[("memory", "1Gi")], &[], false)]
#[case::annotations(&[("cpu", "4"), ("memory", "1Gi")], &[], true)]
#[case::status_capacity(&[], &[("cpu", "4"), ("memory", "1Gi")], true)]
#[case::one_from_each(&[("cpu", "4")], &[("memory", "1Gi")], true)]
#[case::zero_is_not_known(&[], &[("cpu", "0"), ("memory", "1Gi")], false)]
fn a_template_needs_cpu_and_memory(
    #[case] annotations: &[(&str, &str)],
    #[case] status: &[(&str, &str)],
    #[case] expected: bool,
) {
    let group = annotate(deployment("workers"), annotations);
    let Built { template, problems, .. } =
        build(&group, Some(&infrastructure(status)), RealNodes::default(), &TemplateRules::default());
    assert_eq!(template.is_some(), expected);
    assert_eq!(problems, []);
}

#[test]
fn annotations_win_over_status_capacity() {
    let infra = infrastructure(&[("cpu", "2"), ("memory", "8Gi"), ("pods", "58")]);
    let template = built(&annotate(deployment("workers"), &[("cpu", "4")]), Some(&infra), None);
    let of = |resource| {
        let Sourced { value, source, .. } = &template.capacity[resource];
        (value.to_string(), source.as_str())
    };
    assert_eq!(of("cpu"), ("4".to_owned(), "annotation"));
    assert_eq!(of("memory"), ("8Gi".to_owned(), "status.capacity"));
    assert_eq!(of("pods"), ("58".to_owned(), "status.capacity"));
}

/// The sources of arch and os, and the resulting values.
#[rstest]
#[case::nothing(None, None, None, ("amd64", "default"), ("linux", "default"))]
#[case::node_info(Some(("arm64", "windows")), None, None, ("arm64", "status.nodeInfo"), ("windows", "status.nodeInfo"))]
#[case::annotation(
    Some(("arm64", "windows")), Some(("s390x", "linux")), None,
    ("s390x", "annotation"), ("linux", "annotation")
)]
#[case::real_node(
    Some(("arm64", "windows")), Some(("s390x", "linux")), Some(("ppc64le", "plan9")),
    ("ppc64le", "real node"), ("plan9", "real node")
)]
fn arch_and_os_come_from(
    #[case] node_info: Option<(&str, &str)>,
    #[case] annotation: Option<(&str, &str)>,
    #[case] real: Option<(&str, &str)>,
    #[case] arch: (&str, &str),
    #[case] os: (&str, &str),
) {
    let mut infra = infrastructure(&[]);
    (infra.architecture, infra.operating_system) =
        node_info.map_or((None, None), |(arch, os)| (Some(arch.into()), Some(os.into())));
    let labels = annotation.map(|(arch, os)| format!("{ARCH}={arch},{OS}={os}"));
    let group = sized(&labels.as_deref().map(|labels| ("labels", labels)).into_iter().collect::<Vec<_>>());
    let node = real.map(|(arch, os)| node(&[(ARCH, arch), (OS, os)]));
    let template = built(&group, Some(&infra), node.as_ref());
    assert_eq!(label(&template, ARCH), Some(arch));
    assert_eq!(label(&template, OS), Some(os));
}

#[rstest]
#[case::arch_alone(Some("arm64"), None, "arm64", "linux")]
#[case::os_alone(None, Some("windows"), "amd64", "windows")]
fn node_info_replaces_only_what_it_says(
    #[case] architecture: Option<&str>,
    #[case] operating_system: Option<&str>,
    #[case] arch: &str,
    #[case] os: &str,
) {
    let mut infra = infrastructure(&[]);
    infra.architecture = architecture.map(Into::into);
    infra.operating_system = operating_system.map(Into::into);
    let template = built(&sized(&[]), Some(&infra), None);
    assert_eq!((&*template.labels[ARCH].value, &*template.labels[OS].value), (arch, os));
}

#[test]
fn node_info_that_no_label_can_hold_is_ignored_and_named() {
    let mut infra = infrastructure(&[]);
    infra.architecture = Some("amd 64".into());
    let Built { template, problems, .. } =
        build(&sized(&[]), Some(&infra), RealNodes::default(), &TemplateRules::default());
    assert_eq!(template.unwrap().labels[ARCH].value, "amd64");
    assert_eq!(problems[0].kind, ProblemKind::Template);
    assert!(problems[0].message.contains("architecture of infrastructure template team-a/workers is \"amd 64\""));
}

#[test]
fn the_default_arch_is_the_operators() {
    let rules = TemplateRules { default_arch: Architecture::Arm64, ..TemplateRules::default() };
    let template = build(&sized(&[]), None, RealNodes::default(), &rules).template.unwrap();
    assert_eq!(template.labels[ARCH], Sourced::new("arm64".to_owned(), Source::Flag("--scale-zero-default-arch")));
}

#[test]
fn template_labels_that_are_synced_are_there_and_no_others() {
    let mut group = sized(&[]);
    group.template_labels = [("node-role.kubernetes.io/gpu", ""), ("tier", "web"), ("example.com/team", "a")]
        .map(|(key, value)| (key.into(), value.into()))
        .into();
    let rules = TemplateRules {
        additional_sync_labels: vec![Regex::new("example.com/.*").unwrap()],
        ..TemplateRules::default()
    };
    let template = build(&group, None, RealNodes::default(), &rules).template.unwrap();
    assert_eq!(label(&template, "node-role.kubernetes.io/gpu"), Some(("", "spec.template.metadata")));
    assert_eq!(label(&template, "example.com/team"), Some(("a", "spec.template.metadata")));
    assert_eq!(label(&template, "tier"), None);
}

#[test]
fn annotation_labels_win_over_template_labels() {
    let mut group = sized(&[("labels", "node-role.kubernetes.io/gpu=b,tier=web")]);
    group.template_labels.insert("node-role.kubernetes.io/gpu".into(), "a".into());
    let template = built(&group, None, None);
    assert_eq!(label(&template, "node-role.kubernetes.io/gpu"), Some(("b", "annotation")));
    assert_eq!(label(&template, "tier"), Some(("web", "annotation")));
}

#[rstest]
#[case("node.kubernetes.io/instance-type")]
#[case("topology.kubernetes.io/region")]
#[case("topology.kubernetes.io/zone")]
fn a_real_nodes_labels_win_over_annotation_labels(#[case] key: &'static str) {
    let group = sized(&[("labels", &format!("{key}=guess"))]);
    assert_eq!(label(&built(&group, None, None), key), Some(("guess", "annotation")));
    let template = built(&group, None, Some(&node(&[(key, "real")])));
    assert_eq!(label(&template, key), Some(("real", "real node")));
}

/// Whether labels and taints of `spec.template` reach Nodes. A MachinePool's Machines get its labels, but no taints.
#[rstest]
#[case::machine_deployment(ScalableKind::MachineDeployment, false, false, (true, true))]
#[case::machine_set(ScalableKind::MachineSet, false, false, (true, true))]
#[case::machine_pool(ScalableKind::MachinePool, false, false, (false, false))]
#[case::machine_pool_with_machines(ScalableKind::MachinePool, true, false, (true, false))]
#[case::machine_pool_whose_machines_come(ScalableKind::MachinePool, false, true, (true, false))]
fn cluster_api_syncs_to_nodes(
    #[case] kind: ScalableKind,
    #[case] pool_has_machines: bool,
    #[case] makes_machines: bool,
    #[case] expected: (bool, bool),
) {
    let mut group = annotate(scalable(kind, "workers"), &[("cpu", "4"), ("memory", "1Gi"), ("labels", "tier=web")]);
    group.template_labels.insert("node-role.kubernetes.io/gpu".into(), "".into());
    group.taints = vec![machine_taint("gpu", "", "NoSchedule")];
    let nodes = RealNodes { pool_has_machines, ..RealNodes::default() };
    let infra = InfrastructureTemplate { makes_machines, ..infrastructure(&[]) };
    let template = build(&group, Some(&infra), nodes, &TemplateRules::default()).template.unwrap();
    let has_label = label(&template, "node-role.kubernetes.io/gpu").is_some();
    assert_eq!((has_label, !template.taints.is_empty()), expected);
    assert_eq!(label(&template, "tier"), Some(("web", "annotation")));
}

/// Two taints, each with its propagation and effect, and the flags that the note asks for.
#[rstest]
#[case::lasting(Propagation::Always, "NoSchedule", "NoExecute", None)]
#[case::no_effect_on_most_pods(Propagation::OnInitialization, "PreferNoSchedule", "PreferNoSchedule", None)]
#[case::one(Propagation::OnInitialization, "NoSchedule", "PreferNoSchedule", Some("--startup-taint=a"))]
#[case::both(Propagation::OnInitialization, "NoSchedule", "NoExecute", Some("--startup-taint=a --startup-taint=b/c"))]
#[case::a_bad_one(Propagation::OnInitialization, "No", "NoExecute", Some("--startup-taint=b/c"))]
fn taints_of_initialization_are_noted(
    #[case] propagation: Propagation,
    #[case] of_a: &str,
    #[case] of_b: &str,
    #[case] expected: Option<&str>,
) {
    let mut group = sized(&[]);
    group.taints = [("a", of_a), ("b/c", of_b)]
        .map(|(key, effect)| MachineTaint { propagation, ..machine_taint(key, "", effect) })
        .into();
    let notes = build(&group, None, RealNodes::default(), &TemplateRules::default()).notes;
    assert_eq!(notes.len(), usize::from(expected.is_some()), "{notes:?}");
    assert!(expected.is_none_or(|flags| notes[0].ends_with(flags)), "{notes:?}");
}

#[rstest]
#[case::template_alone(&[("a", "1", "NoSchedule")], None, &[("a=1:NoSchedule", "spec.template.spec")])]
#[case::annotation_alone(&[], Some("a=1:NoSchedule,b:NoExecute"),
    &[("a=1:NoSchedule", "annotation"), ("b:NoExecute", "annotation")])]
#[case::both(&[("a", "1", "NoSchedule")], Some("b:NoExecute"),
    &[("a=1:NoSchedule", "spec.template.spec"), ("b:NoExecute", "annotation")])]
#[case::the_annotation_wins_on_key_and_effect(&[("a", "1", "NoSchedule"), ("b", "", "NoExecute")], Some("a=2:NoSchedule"),
    &[("a=2:NoSchedule", "annotation"), ("b:NoExecute", "spec.template.spec")])]
#[case::another_effect_is_another_taint(&[("a", "1", "NoSchedule")], Some("a=1:NoExecute"),
    &[("a=1:NoSchedule", "spec.template.spec"), ("a=1:NoExecute", "annotation")])]
#[case::none(&[], None, &[])]
fn taints_come_from(
    #[case] spec: &[(&str, &str, &str)],
    #[case] annotation: Option<&str>,
    #[case] expected: &[(&str, &str)],
) {
    let mut group = sized(&annotation.map(|text| ("taints", text)).into_iter().collect::<Vec<_>>());
    group.taints = spec.iter().map(|(key, value, effect)| machine_taint(key, value, effect)).collect();
    let expected: Vec<_> = expected.iter().map(|(taint, source)| ((*taint).to_owned(), *source)).collect();
    assert_eq!(taints(&built(&group, None, None)), expected);
}

#[rstest]
#[case::always(Propagation::Always)]
#[case::on_initialization(Propagation::OnInitialization)]
fn both_propagations_are_on_a_new_node(#[case] propagation: Propagation) {
    let mut group = sized(&[]);
    group.taints = vec![MachineTaint { propagation, ..machine_taint("a", "", "NoSchedule") }];
    assert_eq!(taints(&built(&group, None, None)), [("a:NoSchedule".to_owned(), "spec.template.spec")]);
}

#[test]
fn every_bad_part_is_dropped_alone_and_named() {
    let mut group = sized(&[("maxPods", "many"), ("labels", "bad,a=b"), ("taints", "bad,a:NoExecute")]);
    group.template_labels.insert("node-role.kubernetes.io/".into(), "x".into());
    group.taints = vec![machine_taint("x", "", "Never"), machine_taint("y", "", "NoSchedule")];
    let infra = infrastructure(&[("bad", "bad")]);
    let Built { template, problems, .. } = build(&group, Some(&infra), RealNodes::default(), &TemplateRules::default());
    let template = template.unwrap();
    assert_eq!(template.capacity["pods"].value, Quantity::from_units(110));
    assert_eq!(label(&template, "a"), Some(("b", "annotation")));
    assert_eq!(template.taints.len(), 2);
    let kinds: Vec<_> = problems.iter().map(|problem| problem.kind).collect();
    let expected = [ProblemKind::Capacity, ProblemKind::Labels, ProblemKind::Taints];
    assert_eq!(kinds, expected.map(|kind| [kind; 2]).concat());
}

#[test]
fn the_bytes_are_a_node_that_is_well() {
    let group = sized(&[
        ("gpu-type", "nvidia.com/gpu"),
        ("gpu-count", "2"),
        ("labels", "tier=web"),
        ("taints", "gpu=yes:NoSchedule"),
    ]);
    let mut template = built(&group, None, None);
    template.declared_features = vec![Sourced::new("InPlaceResize".to_owned(), Source::Default)];
    let node = wire::Node::decode(template.encode("workers-0")).unwrap();

    let metadata = node.metadata.unwrap();
    assert_eq!(metadata.name.as_deref(), Some("workers-0"));
    let labels: Vec<_> = metadata.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(labels, [(ARCH, "amd64"), (HOSTNAME, "workers-0"), (OS, "linux"), ("tier", "web")]);

    let taints = node.spec.unwrap().taints;
    let [taint] = taints.as_slice() else { panic!("{taints:?}") };
    assert_eq!(taint.key.as_deref(), Some("gpu"));
    assert_eq!(taint.value.as_deref(), Some("yes"));
    assert_eq!(taint.effect.as_deref(), Some("NoSchedule"));

    let status = node.status.unwrap();
    let text = |quantity: &WireQuantity| quantity.string.clone().unwrap();
    let capacity: Vec<_> =
        status.capacity.iter().map(|(resource, quantity)| (resource.as_str(), text(quantity))).collect();
    let expected = [("cpu", "4"), ("memory", "16Gi"), ("nvidia.com/gpu", "2"), ("pods", "110")];
    assert_eq!(capacity, expected.map(|(resource, quantity)| (resource, quantity.to_owned())));
    assert_eq!(status.allocatable, status.capacity);
    assert_eq!(status.declared_features, ["InPlaceResize"]);
    let conditions: Vec<_> =
        status.conditions.iter().map(|condition| (condition.r#type.as_deref(), condition.status.as_deref())).collect();
    assert_eq!(
        conditions,
        [
            (Some("Ready"), Some("True")),
            (Some("MemoryPressure"), Some("False")),
            (Some("DiskPressure"), Some("False")),
            (Some("PIDPressure"), Some("False")),
            (Some("NetworkUnavailable"), Some("False")),
        ]
    );
}

#[test]
fn the_bytes_are_the_same_from_call_to_call() {
    let group = sized(&[("labels", "a=1,b=2,c=3,d=4,e=5"), ("taints", "a:NoSchedule,b:NoExecute")]);
    let first = built(&group, None, None).encode("workers-0");
    for _ in 0..10 {
        assert_eq!(built(&group, None, None).encode("workers-0"), first);
    }
}

#[test]
fn an_annotations_hostname_wins_over_the_name() {
    let template = built(&sized(&[("labels", "kubernetes.io/hostname=fixed")]), None, None);
    let node = wire::Node::decode(template.encode("workers-0")).unwrap();
    assert_eq!(node.metadata.unwrap().labels[HOSTNAME], "fixed");
}

proptest! {
    #[test]
    fn no_annotation_panics(name in "(cpu|memory|labels|taints|maxPods|gpu-count)", value in any::<String>()) {
        let group = annotate(machine_set("workers"), &[("cpu", "4"), ("memory", "1Gi"), (&name, &value)]);
        if let Some(template) = build(&group, None, RealNodes::default(), &TemplateRules::default()).template {
            prop_assert!(wire::Node::decode(template.encode(&value)).is_ok());
        }
    }
}
