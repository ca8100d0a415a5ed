//! Failure domains, overhead, the program's own annotations, drivers and GPU labels: a row each.

use crate::capi::{InfrastructureRef, OWN_CAPACITY_PREFIX};

use super::*;
use crate::{Amounts, ObservedResources, labels::ZONE, resource_list};

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

fn kinds(problems: &[Problem]) -> Vec<ProblemKind> {
    problems.iter().map(|problem| problem.kind).collect()
}

#[test]
fn a_failure_domain_that_is_no_label_is_ignored_and_named() {
    let group = ScalableResource { failure_domain: Some("rack 7/a".into()), ..sized(&[]) };
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(label(&built.template.unwrap(), ZONE), None);
    assert_eq!(kinds(&built.problems), [ProblemKind::Labels]);
    assert!(built.problems[0].message.contains("failureDomain is \"rack 7/a\""), "{:?}", built.problems);
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

#[test]
fn a_capacity_names_its_annotation_and_the_template_it_overrode() {
    let mut group = sized(&[]);
    let reference =
        InfrastructureRef { group: "a.example".into(), kind: "DevMachineTemplate".into(), name: "workers".into() };
    group.infrastructure = Some(reference);
    let template = built(&group, Some(&infrastructure(&[("cpu", "2")])), None);
    let cpu = &template.capacity["cpu"];
    assert_eq!(cpu.source.to_string(), format!("annotation {CAPACITY_PREFIX}cpu"));
    assert_eq!(cpu.overrode[0].source.to_string(), "status.capacity of DevMachineTemplate/workers");
}

#[rstest]
#[case::no_entry("memory", "written name=quantity")]
#[case::more_than_there_is("memory=16Gi", "less than the capacity, which is 16Gi")]
#[case::no_such_resource("a.example/nic=1", "the Node has no such resource")]
fn a_bad_overhead_is_dropped_alone_and_named(#[case] entry: &str, #[case] rule: &str) {
    let group = own(sized(&[]), "overhead", &format!("{entry},cpu=100m"));
    let built = build(&group, None, RealNodes::default(), &TemplateRules::default());
    assert_eq!(built.template.unwrap().allocatable("cpu").unwrap().to_string(), "3900m");
    assert_eq!(kinds(&built.problems), [ProblemKind::Capacity]);
    for part in ["overhead", rule, "ignored"] {
        assert!(built.problems[0].message.contains(part), "{part:?} isn't in {}", built.problems[0]);
    }
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
    let [problem] = built.problems.as_slice() else { panic!("{:?}", built.problems) };
    assert!(problem.message.contains(rule) && problem.message.contains("ignored"), "{problem}");
}

#[test]
fn an_own_annotation_that_is_not_known_is_named() {
    let built = build(&own(sized(&[]), "overheads", "cpu=1"), None, RealNodes::default(), &TemplateRules::default());
    assert!(
        built.problems[0].message.contains("known are overhead, resources, price-per-hour"),
        "{:?}",
        built.problems
    );
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
    if let [problem] = problems.as_slice() {
        assert_eq!(problem.kind, ProblemKind::Labels);
        assert!(
            problem.message.contains("cluster-api/accelerator=t4") && problem.message.contains("unready"),
            "{problem}"
        );
        assert!(problem.message.contains("gpu.intel.com/xe (from 1.35 on)"), "{problem}");
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

/// The `status.capacity` that each infrastructure provider writes, as far as they differ, and the capacity of the
/// Node that would join.
#[rstest]
#[case::aws_and_azure(&[("cpu", "8"), ("memory", "32Gi")], &[("cpu", "8"), ("memory", "32Gi"), ("pods", "110")])]
#[case::openstack(&[("cpu", "4"), ("memory", "8G"), ("storage", "80G")],
    &[("cpu", "4"), ("ephemeral-storage", "80G"), ("memory", "8G"), ("pods", "110")])]
#[case::integers(&[("cpu", "8"), ("memory", "34359738368")], &[("cpu", "8"), ("memory", "34359738368"), ("pods", "110")])]
fn providers_write(#[case] status: &[(&str, &str)], #[case] expected: &[(&str, &str)]) {
    let template = built(&deployment("workers"), Some(&infrastructure(status)), None);
    let capacity: Vec<_> = template.capacity.iter().map(|(name, it)| (name.as_str(), it.value.to_string())).collect();
    assert_eq!(capacity.iter().map(|(name, it)| (*name, it.as_str())).collect::<Vec<_>>(), expected);
}
