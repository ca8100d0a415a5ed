//! Tests of every capacity annotation and every quirk of `status.capacity`.

use std::collections::BTreeMap;

use crate::capi::ScalableResource;
use arcstr::ArcStr;
use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::{
    GroupId, RealNodes, TemplateRules,
    testing::{annotations, assert_names, deployment, infrastructure},
};

fn key(name: &str) -> String {
    format!("{CAPACITY_PREFIX}{name}")
}

/// Returns the capacity of a group with these annotations and this template.
fn capacity(annotations: &BTreeMap<ArcStr, ArcStr>, infra: &InfrastructureTemplate) -> (Capacity, Vec<Problem>) {
    let group = ScalableResource { annotations: annotations.clone(), ..deployment("workers") };
    let rules = TemplateRules::default();
    let context =
        Context { group: &group, id: GroupId::of(group.kind, &group.meta), nodes: RealNodes::default(), rules: &rules };
    let mut problems = Vec::new();
    let capacity = super::capacity(&context, Some((infra, &name())), &mut problems, &mut Vec::new());
    (capacity, problems)
}

fn name() -> TemplateName {
    TemplateName { kind: "DevMachineTemplate".into(), name: "workers".into() }
}

fn annotated(values: &[(&str, &str)]) -> BTreeMap<ArcStr, ArcStr> {
    annotations(CAPACITY_PREFIX, values)
}

fn shown(capacity: &Capacity) -> Vec<(&str, String)> {
    capacity.iter().map(|(resource, quantity)| (resource.as_str(), quantity.value.to_string())).collect()
}

fn expected(resources: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    resources.iter().map(|(resource, quantity)| (*resource, (*quantity).to_owned())).collect()
}

#[rstest]
#[case::cpu(&[("cpu", "3900m")], &[("cpu", "3900m")])]
#[case::memory(&[("memory", "16Gi")], &[("memory", "16Gi")])]
#[case::ephemeral_disk(&[("ephemeral-disk", "100G")], &[("ephemeral-storage", "100G")])]
#[case::max_pods(&[("maxPods", "250")], &[("pods", "250")])]
#[case::gpu(&[("gpu-type", "nvidia.com/gpu"), ("gpu-count", "2")], &[("nvidia.com/gpu", "2")])]
#[case::gpu_count_as_a_quantity(&[("gpu-type", "a.b/c"), ("gpu-count", "1k")], &[("a.b/c", "1k")])]
#[case::no_gpu(&[("gpu-type", "nvidia.com/gpu"), ("gpu-count", "0")], &[])]
#[case::no_gpu_as_openshifts_operator_writes_it(&[("gpu-type", ""), ("gpu-count", "0")], &[])]
#[case::no_gpu_and_no_type(&[("gpu-count", "0")], &[])]
#[case::bytes_as_openshifts_operator_writes_them(&[("memory", "17179869184")], &[("memory", "17179869184")])]
#[case::little_memory_with_a_unit(&[("memory", "64Mi")], &[("memory", "64Mi")])]
#[case::dra_driver_alone_adds_nothing(&[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2")], &[])]
#[case::dra_driver_and_gpu_type(
    &[("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2"), ("gpu-type", "nvidia.com/gpu")],
    &[("nvidia.com/gpu", "2")]
)]
#[case::csi_driver_is_ignored(&[("csi-driver", "ebs.csi.aws.com=25")], &[])]
#[case::labels_and_taints_are_not_capacity(&[("labels", "a=b"), ("taints", "a:NoSchedule")], &[])]
#[case::empty_values_say_nothing(&[("cpu", ""), ("memory", ""), ("maxPods", ""), ("gpu-count", "")], &[])]
#[case::zeros_say_nothing(&[("maxPods", "0"), ("ephemeral-disk", "0")], &[])]
fn annotations_are_read(#[case] annotations: &[(&str, &str)], #[case] resources: &[(&'static str, &str)]) {
    let (capacity, problems) = of_annotations(&annotated(annotations));
    assert_eq!(shown(&capacity), expected(resources));
    assert_eq!(problems, []);
    assert!(capacity.values().all(|quantity| quantity.source.as_str() == "annotation"));
}

#[rstest]
#[case::no_quantity("cpu", "four", "must be a Kubernetes quantity")]
#[case::space("memory", "16 Gi", "with no space")]
#[case::an_unknown_suffix("ephemeral-disk", "100GB", "\"GB\" is no suffix")]
#[case::negative("memory", "-1Gi", "must not be negative")]
#[case::zero("cpu", "0", "more than 0")]
#[case::max_pods_as_a_quantity("maxPods", "1k", "plain integer")]
#[case::negative_max_pods("maxPods", "-1", "plain integer")]
#[case::broken_gpu_count("gpu-count", "1.5", "whole number")]
#[case::mebibytes_without_a_unit("memory", "16384", "without a unit it is a number of bytes")]
#[case::kibibytes_without_a_unit("memory", "134217728", "such as 16Gi")]
#[case::disk_without_a_unit("ephemeral-disk", "100", "without a unit")]
#[case::gpus_in_mebibytes("gpu-count", "13Mi", "number of devices")]
#[case::gpu_count_without_a_type("gpu-count", "2", "gpu-type must say the resource's name")]
#[case::gpu_type_without_a_count("gpu-type", "nvidia.com/gpu", "gpu-count must say how many")]
#[case::unknown("maxpods", "2", "known are cpu, memory, ephemeral-disk, maxPods")]
fn a_bad_annotation_is_dropped_alone_and_named(#[case] name: &str, #[case] value: &str, #[case] rule: &str) {
    let other = if name == "cpu" { ("memory", "4Gi") } else { ("cpu", "4") };
    let (capacity, problems) = of_annotations(&annotated(&[(name, value), other]));
    assert_eq!(shown(&capacity), expected(&[other]));
    assert_names(&problems, ProblemKind::Capacity, &[&key(name), &format!("{value:?}"), rule, "ignored"]);
}

#[test]
fn a_gpu_type_must_be_a_resources_name() {
    let (capacity, problems) = of_annotations(&annotated(&[("gpu-type", "two gpus"), ("gpu-count", "2")]));
    assert!(capacity.is_empty());
    assert_names(&problems, ProblemKind::Capacity, &["gpu-type is \"two gpus\""]);
}

#[rstest]
#[case::quantities(&[("cpu", "4"), ("memory", "16G")], &[("cpu", "4"), ("memory", "16G")])]
#[case::extended_resources(&[("nvidia.com/gpu", "0"), ("hugepages-2Mi", "1Gi")],
    &[("hugepages-2Mi", "1Gi"), ("nvidia.com/gpu", "0")])]
#[case::pods(&[("pods", "58")], &[("pods", "58")])]
#[case::openstacks_storage_is_ephemeral_storage(&[("storage", "80G")], &[("ephemeral-storage", "80G")])]
#[case::unless_that_is_there_too(&[("storage", "80G"), ("ephemeral-storage", "70G")], &[("ephemeral-storage", "70G")])]
#[case::zeros_of_what_every_node_has(&[("cpu", "0"), ("memory", "0"), ("pods", "0"), ("storage", "0")], &[])]
fn status_capacity_is_read(#[case] status: &[(&str, &str)], #[case] resources: &[(&'static str, &str)]) {
    let (capacity, problems) = of_status(&infrastructure(status), &name());
    assert_eq!(shown(&capacity), expected(resources));
    assert_eq!(problems, []);
    assert!(capacity.values().all(|quantity| quantity.source == Source::StatusCapacity(name())));
}

#[rstest]
#[case::no_quantity("memory", "lots", "must be a Kubernetes quantity")]
#[case::json_of_another_type("memory", "true", "must be a Kubernetes quantity")]
#[case::negative("memory", "-1", "must not be negative")]
#[case::mebibytes_without_a_unit("memory", "16384", "without a unit")]
#[case::openstacks_disk_without_a_unit("storage", "80", "without a unit")]
#[case::no_resource_name("two gpus", "1", "a resource's name")]
fn a_bad_entry_of_status_capacity_is_dropped_alone(#[case] resource: &str, #[case] value: &str, #[case] rule: &str) {
    let (capacity, problems) = of_status(&infrastructure(&[(resource, value), ("cpu", "4")]), &name());
    assert_eq!(shown(&capacity), expected(&[("cpu", "4")]));
    assert_names(
        &problems,
        ProblemKind::Capacity,
        &["team-a/workers", &format!("{resource:?}"), &format!("{value:?}"), rule],
    );
}

#[rstest]
#[case::annotation(Some("250"), Some("58"), "250", "annotation")]
#[case::else_status_capacity(None, Some("58"), "58", "status.capacity")]
#[case::else_110(None, None, "110", "default")]
#[case::a_bad_annotation_counts_as_none(Some("many"), Some("58"), "58", "status.capacity")]
fn pods_come_from(
    #[case] annotation: Option<&str>,
    #[case] status: Option<&str>,
    #[case] pods: &str,
    #[case] source: &str,
) {
    let annotations: Vec<_> = annotation.map(|value| ("maxPods", value)).into_iter().collect();
    let status: Vec<_> = status.map(|value| ("pods", value)).into_iter().collect();
    let (capacity, _) = capacity(&annotated(&annotations), &infrastructure(&status));
    assert_eq!((capacity[PODS].value.to_string().as_str(), capacity[PODS].source.as_str()), (pods, source));
}

#[test]
fn annotations_win_over_status_capacity_one_by_one() {
    let status = infrastructure(&[("cpu", "4"), ("memory", "16G"), ("storage", "80G")]);
    let annotations = annotated(&[("cpu", "8"), ("ephemeral-disk", "100G"), ("memory", "much")]);
    let (capacity, problems) = capacity(&annotations, &status);
    let resources = [("cpu", "8"), ("ephemeral-storage", "100G"), ("memory", "16G"), ("pods", "110")];
    assert_eq!(shown(&capacity), expected(&resources));
    assert_eq!(capacity[CPU].source, Source::Annotation(key("cpu").into()));
    assert_eq!(capacity[MEMORY].source, Source::StatusCapacity(name()));
    let cpu = &capacity[CPU].overrode[0];
    assert_eq!((cpu.value.to_string().as_str(), &cpu.source), ("4", &Source::StatusCapacity(name())));
    assert_eq!(problems.len(), 1);
}

#[rstest]
#[case::by_its_name(&[], &[("nvidia.com/gpu", "2")], &[("nvidia.com/gpu", "2")])]
#[case::named_by_an_annotation(&[("gpu-type", "habana.ai/gaudi"), ("gpu-count", "8")], &[], &[("habana.ai/gaudi", "8")])]
#[case::on_windows(&[], &[("microsoft.com/directx", "1")], &[("microsoft.com/directx", "1")])]
#[case::of_zero_there_are_none(&[], &[("nvidia.com/gpu", "0")], &[])]
#[case::other_devices_are_none(&[("cpu", "4")], &[("example.com/nic", "2"), ("hugepages-2Mi", "1Gi")], &[])]
fn gpus_are(#[case] annotations: &[(&str, &str)], #[case] status: &[(&str, &str)], #[case] expected: &[(&str, &str)]) {
    let (capacity, _) = capacity(&annotated(annotations), &infrastructure(status));
    let gpus: Vec<_> = gpus(&capacity).map(|(resource, count)| (resource, count.to_string())).collect();
    let expected: Vec<_> = expected.iter().map(|(resource, count)| (*resource, (*count).to_owned())).collect();
    assert_eq!(gpus, expected);
}

proptest! {
    #[test]
    fn no_value_panics(name in 0..10_usize, value in any::<String>(), resource in any::<String>()) {
        let _ = capacity(&annotated(&[(KNOWN[name], &value)]), &infrastructure(&[(&resource, &value)]));
    }
}
