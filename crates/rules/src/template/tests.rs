//! Tests of every row of the contract's precedence table, and of the bytes that Cluster Autoscaler reads.

mod zones;

use arcstr::ArcStr;

use crate::capi::{CAPACITY_PREFIX, MachineTaint, Node, OWN_CAPACITY_PREFIX, Propagation, ScalableKind};
use k8s_pb::{api::core::v1 as wire, apimachinery::pkg::api::resource::Quantity as WireQuantity};
use proptest::prelude::*;
use prost::Message as _;
use regex::Regex;
use rstest::rstest;

use super::*;
use crate::{
    Amounts, Architecture, ObservedResources, ProblemKind, Quantity, Sourced,
    labels::ZONE,
    observed::ObservedLabels,
    resource_list,
    testing::{self, assert_names, deployment, infrastructure, machine_set, node, scalable},
};

fn annotate(mut group: ScalableResource, annotations: &[(&str, &str)]) -> ScalableResource {
    group.annotations.extend(testing::annotations(CAPACITY_PREFIX, annotations));
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

/// The sources of arch and os, and the resulting values.
#[rstest]
#[case::nothing((None, None), None, None, ("amd64", "default"), ("linux", "default"))]
#[case::node_info((Some("arm64"), Some("windows")), None, None, ("arm64", "status.nodeInfo"), ("windows", "status.nodeInfo"))]
#[case::node_info_of_arch_alone((Some("arm64"), None), None, None, ("arm64", "status.nodeInfo"), ("linux", "default"))]
#[case::node_info_of_os_alone((None, Some("windows")), None, None, ("amd64", "default"), ("windows", "status.nodeInfo"))]
#[case::annotation(
    (Some("arm64"), Some("windows")), Some(("s390x", "linux")), None,
    ("s390x", "annotation"), ("linux", "annotation")
)]
#[case::real_node(
    (Some("arm64"), Some("windows")), Some(("s390x", "linux")), Some(("ppc64le", "plan9")),
    ("ppc64le", "real node"), ("plan9", "real node")
)]
fn arch_and_os_come_from(
    #[case] node_info: (Option<&str>, Option<&str>),
    #[case] annotation: Option<(&str, &str)>,
    #[case] real: Option<(&str, &str)>,
    #[case] arch: (&str, &str),
    #[case] os: (&str, &str),
) {
    let mut infra = infrastructure(&[]);
    (infra.architecture, infra.operating_system) = (node_info.0.map(Into::into), node_info.1.map(Into::into));
    let labels = annotation.map(|(arch, os)| format!("{ARCH}={arch},{OS}={os}"));
    let group = sized(&labels.as_deref().map(|labels| ("labels", labels)).into_iter().collect::<Vec<_>>());
    let node = real.map(|(arch, os)| node(&[(ARCH, arch), (OS, os)]));
    let template = built(&group, Some(&infra), node.as_ref());
    assert_eq!(label(&template, ARCH), Some(arch));
    assert_eq!(label(&template, OS), Some(os));
}

#[test]
fn node_info_that_no_label_can_hold_is_ignored_and_named() {
    let mut infra = infrastructure(&[]);
    infra.architecture = Some("amd 64".into());
    let Built { template, problems, .. } =
        build(&sized(&[]), Some(&infra), RealNodes::default(), &TemplateRules::default());
    assert_eq!(template.unwrap().labels[ARCH].value, "amd64");
    let part = "architecture of infrastructure template team-a/workers is \"amd 64\"";
    assert_names(&problems, ProblemKind::Template, &[part]);
}

#[test]
fn the_default_arch_is_the_operators() {
    let rules = TemplateRules { default_arch: Architecture::Arm64, ..TemplateRules::default() };
    let template = build(&sized(&[]), None, RealNodes::default(), &rules).template.unwrap();
    assert_eq!(template.labels[ARCH], Sourced::new("arm64".to_owned(), Source::Flag("--scale-zero-default-arch")));
}

#[test]
fn template_labels_that_are_synced_are_there_and_no_others() {
    let mut group = sized(&[("labels", "node-role.kubernetes.io/spot=b")]);
    group.template_labels = [
        ("node-role.kubernetes.io/gpu", ""),
        ("node-role.kubernetes.io/spot", "a"),
        ("tier", "web"),
        ("example.com/team", "a"),
    ]
    .map(|(key, value)| (key.into(), value.into()))
    .into();
    let rules = TemplateRules {
        additional_sync_labels: vec![Regex::new("example.com/.*").unwrap()],
        ..TemplateRules::default()
    };
    let template = build(&group, None, RealNodes::default(), &rules).template.unwrap();
    assert_eq!(label(&template, "node-role.kubernetes.io/gpu"), Some(("", "spec.template.metadata")));
    assert_eq!(label(&template, "example.com/team"), Some(("a", "spec.template.metadata")));
    assert_eq!(label(&template, "node-role.kubernetes.io/spot"), Some(("b", "annotation")));
    assert_eq!(label(&template, "tier"), None);
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
    let Built { template, notes, .. } = build(&group, None, RealNodes::default(), &TemplateRules::default());
    let valid = [of_a, of_b].into_iter().filter(|effect| *effect != "No").count();
    assert_eq!(template.unwrap().taints.len(), valid, "a new Node has them in either propagation");
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

fn own(mut group: ScalableResource, name: &str, value: &str) -> ScalableResource {
    group.annotations.insert(format!("{OWN_CAPACITY_PREFIX}{name}").into(), value.into());
    group
}

/// Returns the observed resources of a group's Node.
fn observed_resources(group: &str, resources: &[(&str, &str, &str)]) -> ObservedResources {
    let amounts = |(name, capacity, allocatable): &(&str, &str, &str)| {
        let amounts = Amounts { capacity: capacity.parse().unwrap(), allocatable: allocatable.parse().unwrap() };
        (ArcStr::from(*name), amounts)
    };
    ObservedResources {
        node: "worker-x7".into(),
        group: GroupId::parse(group).unwrap(),
        resources: resources.iter().map(amounts).collect(),
        declared_features: Vec::new(),
    }
}

const WORKERS: &str = "MachineDeployment/team-a/workers";

#[test]
fn a_failure_domain_that_is_no_label_is_ignored_and_named() {
    let group = ScalableResource { failure_domain: Some("rack 7/a".into()), ..sized(&[]) };
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(label(&built.template.unwrap(), ZONE), None);
    assert_names(&built.problems, ProblemKind::Labels, &["failureDomain is \"rack 7/a\""]);
}

/// Any domain is allowed, as in OpenShift; the annotation is stronger.
#[rstest]
#[case::of_the_nodes("tier", None, Some(("batch", "spec.template.spec")))]
#[case::any_domain("example.com/tier", None, Some(("batch", "spec.template.spec")))]
#[case::an_annotation_is_stronger("example.com/tier", Some("spot"), Some(("spot", "annotation")))]
#[case::no_label("example.com/tier!", None, None)]
fn all_labels_for_nodes_are_on_them(
    #[case] key: &str,
    #[case] annotation: Option<&str>,
    #[case] expected: Option<(&str, &str)>,
) {
    let labels = annotation.map(|value| format!("{key}={value}")).unwrap_or_default();
    let mut group = annotate(
        scalable(ScalableKind::MachineSet, "workers"),
        &[("cpu", "4"), ("memory", "16Gi"), ("labels", labels.as_str())],
    );
    group.node_labels = [(ArcStr::from(key), ArcStr::from("batch"))].into();
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(built.problems.len(), usize::from(expected.is_none()), "{:?}", built.problems);
    assert_eq!(label(&built.template.unwrap(), key), expected);
}

/// An observed Node is stronger than the annotation, and that than the flag; the result is the allocatable part of
/// 16Gi.
#[rstest]
#[case::nothing("", "", None, "16Gi", "")]
#[case::flag("memory=1Gi", "", None, "15Gi", "flag")]
#[case::annotation("memory=1Gi", "memory=2Gi", None, "14Gi", "annotation")]
#[case::learned("memory=1Gi", "memory=2Gi", Some(("16Gi", "13Gi")), "13Gi", "learned")]
#[case::learned_from_a_node_that_keeps_nothing("memory=1Gi", "", Some(("16Gi", "16Gi")), "16Gi", "learned")]
#[case::the_flag_speaks_of_another_resource("cpu=1", "", None, "16Gi", "")]
#[case::more_than_there_is("memory=17Gi", "", None, "0", "flag")]
fn the_overhead_of_a_template_comes_from_a_node_before_the_annotation_and_the_flag(
    #[case] flag: &str,
    #[case] annotation: &str,
    #[case] learned: Option<(&str, &str)>,
    #[case] allocatable: &str,
    #[case] source: &str,
    #[values(true, false)] same_templates: bool,
) {
    let rules = TemplateRules { default_overhead: resource_list::parse_all(flag).unwrap(), ..TemplateRules::default() };
    let observed_resources =
        learned.map(|(capacity, allocatable)| observed_resources(WORKERS, &[("memory", capacity, allocatable)]));
    let nodes = if same_templates {
        RealNodes { same_templates: observed_resources.as_ref(), ..RealNodes::default() }
    } else {
        RealNodes { other_templates: observed_resources.as_ref(), ..RealNodes::default() }
    };
    let built = build(&own(sized(&[]), "overhead", annotation), None, nodes, &rules);
    assert_eq!(built.problems, []);
    let template = built.template.unwrap();
    assert_eq!(template.allocatable("memory").unwrap().to_string(), allocatable);
    assert_eq!(template.overhead.get("memory").map_or("", |overhead| overhead.source.as_str()), source);
    let node = wire::Node::decode(template.encode("n")).unwrap().status.unwrap();
    assert_eq!(node.allocatable["memory"].string.as_deref(), Some(allocatable));
    assert_eq!(node.capacity["memory"].string.as_deref(), Some("16Gi"));
}

/// A kubelet takes its huge pages off allocatable memory: of 64Gi, and 32Gi of huge pages by the annotation or by
/// `status.capacity`.
#[rstest]
#[case::nothing_else("", "", None, "32Gi", "huge pages")]
#[case::the_flag("memory=2Gi", "", None, "30Gi", "huge pages and --default-node-overhead")]
#[case::the_annotation(
    "memory=2Gi",
    "memory=4Gi",
    None,
    "28Gi",
    "huge pages and annotation capacity.capi-autoscaler-provider.io/overhead"
)]
#[case::more_than_is_left(
    "",
    "memory=60Gi",
    None,
    "0",
    "huge pages and annotation capacity.capi-autoscaler-provider.io/overhead"
)]
#[case::a_node_of_the_same_templates_has_them("", "memory=4Gi", Some((true, "32Gi", "30Gi")), "30Gi",
    "learned from Node worker-x7")]
#[case::one_of_older_templates_that_had_none("", "", Some((false, "0", "62Gi")), "30Gi",
    "huge pages and learned from Node worker-x7")]
#[case::one_of_older_templates_that_had_fewer("", "", Some((false, "16Gi", "46Gi")), "30Gi",
    "huge pages and learned from Node worker-x7")]
#[case::one_of_older_templates_that_had_as_many("", "", Some((false, "32Gi", "30Gi")), "30Gi",
    "learned from Node worker-x7")]
fn huge_pages_come_off_memory_for_pods(
    #[case] flag: &str,
    #[case] annotation: &str,
    #[case] seen: Option<(bool, &str, &str)>,
    #[case] allocatable: &str,
    #[case] source: &str,
    #[values(true, false)] annotated: bool,
) {
    let rules = TemplateRules { default_overhead: resource_list::parse_all(flag).unwrap(), ..TemplateRules::default() };
    let seen = seen.map(|(same_templates, pages, allocatable)| {
        let amounts = [("memory", "64Gi", allocatable), ("hugepages-1Gi", "0", "0"), ("hugepages-2Mi", pages, pages)];
        (same_templates, observed_resources(WORKERS, &amounts))
    });
    let of = |same| seen.as_ref().filter(|(other, _)| *other == same).map(|(_, resources)| resources);
    let nodes = RealNodes { same_templates: of(true), other_templates: of(false), ..RealNodes::default() };
    let sized = own(annotate(deployment("workers"), &[("cpu", "16"), ("memory", "64Gi")]), "overhead", annotation);
    let pages = "hugepages-2Mi";
    let (group, infra) = if annotated {
        (own(sized, "resources", "hugepages-2Mi=32Gi"), infrastructure(&[]))
    } else {
        (sized, infrastructure(&[(pages, "32Gi")]))
    };
    let built = build(&group, Some(&infra), nodes, &rules);
    assert_eq!(built.problems, []);
    let template = built.template.unwrap();
    assert_eq!(template.allocatable("memory").unwrap().to_string(), allocatable);
    assert_eq!(template.overhead["memory"].source.to_string(), source);
    assert_eq!(template.allocatable(pages).unwrap().to_string(), "32Gi", "pods get all of them");
}

#[test]
fn a_template_names_the_overridden_overheads_with_the_weakest_last() {
    let rules =
        TemplateRules { default_overhead: resource_list::parse_all("cpu=1").unwrap(), ..TemplateRules::default() };
    let observed_resources = observed_resources("MachineSet/team-a/others", &[("cpu", "4", "3900m")]);
    let nodes = RealNodes { same_templates: Some(&observed_resources), ..RealNodes::default() };
    let template = build(&own(sized(&[]), "overhead", "cpu=200m"), None, nodes, &rules).template.unwrap();
    let overhead = &template.overhead["cpu"];
    assert_eq!(overhead.source.to_string(), "learned from Node worker-x7 of MachineSet/team-a/others");
    let weaker: Vec<_> = overhead.overrode.iter().map(|it| (it.value.to_string(), it.source.to_string())).collect();
    let annotation = format!("annotation {OWN_CAPACITY_PREFIX}overhead");
    assert_eq!(weaker, [("200m".to_owned(), annotation), ("1".to_owned(), "--default-node-overhead".to_owned())]);
}

#[rstest]
#[case::no_entry("memory", "written name=quantity")]
#[case::more_than_there_is("memory=16Gi", "less than the capacity, which is 16Gi")]
#[case::no_such_resource("a.example/nic=1", "the Node has no such resource")]
fn a_bad_overhead_is_dropped_alone_and_named(#[case] entry: &str, #[case] rule: &str) {
    let group = own(sized(&[]), "overhead", &format!("{entry},cpu=100m"));
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(built.template.unwrap().allocatable("cpu").unwrap().to_string(), "3900m");
    assert_names(&built.problems, ProblemKind::Capacity, &["overhead", rule, "ignored"]);
}

#[test]
fn any_extra_resource_can_be_named() {
    let group = own(
        sized(&[("gpu-type", "nvidia.com/gpu"), ("gpu-count", "1")]),
        "resources",
        "nvidia.com/gpu=2,hugepages-2Mi=1Gi",
    );
    let template = built(&group, Some(&infrastructure(&[("hugepages-2Mi", "2Gi")])), None);
    for (resource, amount, overrode) in [("nvidia.com/gpu", "2", "1"), ("hugepages-2Mi", "1Gi", "2Gi")] {
        let capacity = &template.capacity[resource];
        assert_eq!(
            (capacity.value.to_string().as_str(), capacity.overrode[0].value.to_string().as_str()),
            (amount, overrode)
        );
        assert!(capacity.source.is_annotation("resources"));
    }
}

#[rstest]
#[case::cpu("cpu=1", "is said by the annotation capacity.cluster-autoscaler.kubernetes.io/cpu")]
#[case::memory("memory=1Gi", "kubernetes.io/memory")]
#[case::disk("ephemeral-storage=1Gi", "kubernetes.io/ephemeral-disk")]
#[case::pods("pods=1", "kubernetes.io/maxPods")]
#[case::a_broken_one("a.example/nic=0.5", "whole number")]
#[case::no_name("a b=1", "a resource's name")]
fn a_bad_extra_resource_is_dropped_alone_and_named(#[case] entry: &str, #[case] rule: &str) {
    let group = own(sized(&[]), "resources", &format!("{entry},b.example/nic=1"));
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    let capacity = built.template.unwrap().capacity;
    assert_eq!(capacity.keys().collect::<Vec<_>>(), ["b.example/nic", "cpu", "memory", "pods"]);
    assert_names(&built.problems, ProblemKind::Capacity, &[rule, "ignored"]);
}

#[test]
fn an_own_annotation_that_is_not_known_is_named() {
    let built = build(&own(sized(&[]), "overheads", "cpu=1"), None, RealNodes::default(), &TemplateRules::default());
    assert_names(&built.problems, ProblemKind::Capacity, &["known are overhead, resources, price-per-hour"]);
}

#[rstest]
#[case::no_resource(&[], false, None)]
#[case::none_of_it(&[("gpu-type", "nvidia.com/gpu"), ("gpu-count", "0")], false, None)]
#[case::one_that_the_caller_does_not_know(&[("gpu-type", "a.example/gpu"), ("gpu-count", "1")], false, None)]
#[case::a_gpu(&[("gpu-type", "nvidia.com/gpu"), ("gpu-count", "1")], true, None)]
#[case::of_windows(&[("gpu-type", "microsoft.com/directx"), ("gpu-count", "1")], true, None)]
#[case::known_from_1_34_3_on(&[("gpu-type", "habana.ai/gaudi"), ("gpu-count", "8")], true, Some("from 1.34.3 on"))]
#[case::of_amd(&[("gpu-type", "amd.com/gpu"), ("gpu-count", "8")], true, Some("from 1.34.3 on"))]
#[case::known_from_1_35_on(&[("gpu-type", "gpu.intel.com/xe"), ("gpu-count", "1")], true, Some("from 1.35 on"))]
#[case::devices_of_a_driver(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "1")], false, Some("can't be sent"))]
fn a_gpu_label_needs_a_gpu_in_allocatable(
    #[case] annotations: &[(&str, &str)],
    #[case] fine: bool,
    #[case] noted: Option<&str>,
) {
    let group = annotate(sized(&[("labels", "cluster-api/accelerator=t4")]), annotations);
    let Built { problems, notes, .. } = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(problems.is_empty(), fine, "{problems:?}");
    assert_eq!(notes.len(), usize::from(noted.is_some()), "{notes:?}");
    assert!(noted.is_none_or(|part| notes[0].contains(part)), "{notes:?}");
    if !fine {
        let parts = ["cluster-api/accelerator=t4", "unready", "gpu.intel.com/xe (from 1.35 on)"];
        assert_names(&problems, ProblemKind::Labels, &parts);
    }
}

#[test]
fn drivers_are_kept_with_the_note_that_they_can_not_be_sent() {
    let group = sized(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2"), ("csi-driver", "ebs.csi.aws.com=25")]);
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(built.problems, []);
    assert_eq!(built.drivers.iter().map(|driver| driver.count).collect::<Vec<_>>(), [2, 25]);
    assert_eq!(built.notes.len(), 2);
}

/// A tenth is tolerated: the kernel reserves some of a machine's memory.
#[rstest]
#[case::the_same("16Gi", false)]
#[case::a_little_less("15Gi", false)]
#[case::a_little_more("17Gi", false)]
#[case::much_less("12Gi", true)]
#[case::much_more("24Gi", true)]
fn an_annotation_that_a_real_node_contradicts_is_noted(#[case] seen: &str, #[case] noted: bool) {
    let observed_resources = observed_resources(WORKERS, &[("memory", seen, seen)]);
    let nodes = RealNodes { same_templates: Some(&observed_resources), ..RealNodes::default() };
    let built = build(&sized(&[]), None, nodes, &TemplateRules::default());
    assert_eq!(built.problems, []);
    assert_eq!(!built.notes.is_empty(), noted, "{:?}", built.notes);
    assert_eq!(built.template.unwrap().capacity["memory"].value.to_string(), "16Gi");
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
