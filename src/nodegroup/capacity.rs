//! What the Node to come has of each resource: the group's capacity annotations over the infrastructure template's
//! `status.capacity` (kubernetes/autoscaler#8712). Every bad entry is dropped alone.

use arcstr::ArcStr;
use std::collections::BTreeMap;

use super::{
    Problem, ProblemKind, Quantity, Source, Sourced, labels, labels::LABELS, problem::Clipped, taints::TAINTS,
};
use crate::capi::{CAPACITY_PREFIX, InfrastructureTemplate};

/// The label of Nodes that have a GPU.
pub const GPU_LABEL: &str = "cluster-api/accelerator";

/// The resource of processor cores.
pub const CPU: &str = "cpu";
/// The resource of memory, in bytes.
pub const MEMORY: &str = "memory";
/// The resource of local disk for pods, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
/// The resource of how many pods fit on a Node.
pub const PODS: &str = "pods";

/// How many pods fit on a Node when nothing says it, as Kubernetes recommends.
pub const DEFAULT_PODS: i64 = 110;

/// The root disk in OpenStack's `status.capacity`. No Node has a resource of that name.
const STORAGE: &str = "storage";

/// A GPU on Windows.
const DIRECTX: &str = "microsoft.com/directx";

const EPHEMERAL_DISK: &str = "ephemeral-disk";
const MAX_PODS: &str = "maxPods";
const GPU_TYPE: &str = "gpu-type";
const GPU_COUNT: &str = "gpu-count";
const DRA_DRIVER: &str = "dra-driver";
const CSI_DRIVER: &str = "csi-driver";

/// What follows the prefix in all the capacity annotations.
const KNOWN: [&str; 10] =
    [CPU, MEMORY, EPHEMERAL_DISK, MAX_PODS, GPU_TYPE, GPU_COUNT, LABELS, TAINTS, DRA_DRIVER, CSI_DRIVER];

/// The resources, and where each value comes from.
pub type Capacity = BTreeMap<String, Sourced<Quantity>>;

/// Annotations over `status.capacity`, with the default number of pods. CPU and memory may be missing.
#[must_use]
pub fn capacity(
    annotations: &BTreeMap<ArcStr, ArcStr>,
    infrastructure: Option<&InfrastructureTemplate>,
) -> (Capacity, Vec<Problem>) {
    let (mut capacity, mut problems) = infrastructure.map(of_status).unwrap_or_default();
    let (annotated, more) = of_annotations(annotations);
    capacity.extend(annotated);
    problems.extend(more);
    capacity
        .entry(PODS.to_owned())
        .or_insert_with(|| Sourced::new(Quantity::from_units(DEFAULT_PODS), Source::Default));
    (capacity, problems)
}

/// The resources that are GPUs, without those of 0: the extended ones that an annotation says, since only `gpu-type` can,
/// and those that call themselves so.
pub fn gpus(capacity: &Capacity) -> impl Iterator<Item = (&str, Quantity)> {
    let is_gpu = |resource: &str, source| {
        resource.contains('/') && (source == Source::Annotation || resource.contains("gpu") || resource == DIRECTX)
    };
    capacity
        .iter()
        .filter(move |(resource, count)| !count.value.is_zero() && is_gpu(resource, count.source))
        .map(|(resource, count)| (resource.as_str(), count.value))
}

/// What `status.capacity` says. A cpu, memory, ephemeral-storage or pods of 0 says nothing: no Node has none. OpenStack
/// writes its root disk as `storage`; it becomes ephemeral-storage unless that is there too.
#[must_use]
pub fn of_status(infrastructure: &InfrastructureTemplate) -> (Capacity, Vec<Problem>) {
    let mut capacity = Capacity::new();
    let mut problems = Vec::new();
    for (resource, text) in &infrastructure.capacity {
        let quantity = labels::check_key(resource)
            .map_err(|rule| format!("a resource's name is like a label's key: {rule}"))
            .and_then(|()| quantity(text));
        match quantity {
            Ok(quantity) if quantity.is_zero() && is_never_zero(resource) => {}
            Ok(quantity) => {
                capacity.insert(resource.to_string(), Sourced::new(quantity, Source::StatusCapacity));
            }
            Err(rule) => problems.push(Problem::new(
                ProblemKind::Capacity,
                format!(
                    "status.capacity of infrastructure template {}, {:?} is {:?}: {rule}; it is ignored, and the \
                     annotation {CAPACITY_PREFIX}… can say it instead",
                    infrastructure.meta.key,
                    Clipped(resource),
                    Clipped(text),
                ),
            )),
        }
    }
    if let Some(disk) = capacity.remove(STORAGE) {
        capacity.entry(EPHEMERAL_STORAGE.to_owned()).or_insert(disk);
    }
    (capacity, problems)
}

fn is_never_zero(resource: &str) -> bool {
    matches!(resource, CPU | MEMORY | EPHEMERAL_STORAGE | STORAGE | PODS)
}

/// What the annotations say. An empty value and one of 0 say nothing, as in Cluster Autoscaler; a cpu or memory of 0
/// is a problem all the same.
///
/// `gpu-count` counts the resource that `gpu-type` names. With `dra-driver` it counts devices of a ResourceSlice, which
/// the protocol can't carry yet (kubernetes/autoscaler#10199): without a `gpu-type` that adds no resource.
/// `csi-driver` can't be carried either and is ignored.
#[must_use]
pub fn of_annotations(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Capacity, Vec<Problem>) {
    let mut reader = Reader { annotations, capacity: Capacity::new(), problems: Vec::new() };
    reader.read(CPU, CPU, quantity);
    reader.read(MEMORY, MEMORY, quantity);
    reader.read(EPHEMERAL_DISK, EPHEMERAL_STORAGE, quantity);
    reader.read(MAX_PODS, PODS, plain_integer);
    reader.read_gpus();
    reader.name_unknown();
    (reader.capacity, reader.problems)
}

struct Reader<'a> {
    annotations: &'a BTreeMap<ArcStr, ArcStr>,
    capacity: Capacity,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// An annotation's value unless it is empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        let value: &str = self.annotations.get(key(name).as_str())?;
        (!value.is_empty()).then_some(value)
    }

    fn problem(&mut self, name: &str, value: &str, rule: &str) {
        let rule = format!("{rule}; it is ignored");
        self.problems.push(Problem::annotation(ProblemKind::Capacity, &key(name), value, &rule));
    }

    fn read(&mut self, name: &str, resource: &str, parse: fn(&str) -> Result<Quantity, String>) {
        let Some(value) = self.get(name) else { return };
        match parse(value) {
            Ok(quantity) if !quantity.is_zero() => {
                self.capacity.insert(resource.to_owned(), Sourced::new(quantity, Source::Annotation));
            }
            Ok(_) if matches!(resource, CPU | MEMORY) => self.problem(name, value, "a Node must have more than 0"),
            Ok(_) => {}
            Err(rule) => self.problem(name, value, &rule),
        }
    }

    fn read_gpus(&mut self) {
        match (self.get(GPU_TYPE), self.get(GPU_COUNT)) {
            (Some(resource), Some(_)) => match labels::check_key(resource) {
                Ok(()) => self.read(GPU_COUNT, resource, whole_quantity),
                Err(rule) => {
                    let rule = format!("it must be the resource's name, such as nvidia.com/gpu: {rule}");
                    self.problem(GPU_TYPE, resource, &rule);
                }
            },
            (Some(resource), None) => {
                let rule = format!("{} must say how many there are", key(GPU_COUNT));
                self.problem(GPU_TYPE, resource, &rule);
            }
            (None, Some(count)) => match whole_quantity(count) {
                Err(rule) => self.problem(GPU_COUNT, count, &rule),
                Ok(_) if self.get(DRA_DRIVER).is_some() => {}
                Ok(_) => {
                    let rule = format!("{} must say the resource's name, such as nvidia.com/gpu", key(GPU_TYPE));
                    self.problem(GPU_COUNT, count, &rule);
                }
            },
            (None, None) => {}
        }
    }

    /// A key that is none of the known ones is a typing error.
    fn name_unknown(&mut self) {
        for (key, value) in self.annotations {
            if let Some(name) = key.strip_prefix(CAPACITY_PREFIX)
                && !KNOWN.contains(&name)
            {
                let rule = format!("no such capacity annotation is known; known are {}", KNOWN.join(", "));
                self.problem(name, value, &rule);
            }
        }
    }
}

fn key(name: &str) -> String {
    format!("{CAPACITY_PREFIX}{name}")
}

fn quantity(text: &str) -> Result<Quantity, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("it must be a Kubernetes quantity: {error}"))?;
    if quantity.is_negative() { Err("it must not be negative".to_owned()) } else { Ok(quantity) }
}

fn whole_quantity(text: &str) -> Result<Quantity, String> {
    let quantity = quantity(text)?;
    if quantity.is_whole() { Ok(quantity) } else { Err("it must be a whole number".to_owned()) }
}

fn plain_integer(text: &str) -> Result<Quantity, String> {
    match text.parse() {
        Ok(count @ 0..) => Ok(Quantity::from_units(count)),
        Ok(..0) | Err(_) => Err("it must be a plain integer such as 110".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::nodegroup::testing::infrastructure;

    fn annotated(annotations: &[(&str, &str)]) -> BTreeMap<ArcStr, ArcStr> {
        annotations.iter().map(|(name, value)| (key(name).into(), ArcStr::from(*value))).collect()
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
        assert!(capacity.values().all(|quantity| quantity.source == Source::Annotation));
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
    #[case::gpu_count_without_a_type("gpu-count", "2", "gpu-type must say the resource's name")]
    #[case::gpu_type_without_a_count("gpu-type", "nvidia.com/gpu", "gpu-count must say how many")]
    #[case::unknown("maxpods", "2", "known are cpu, memory, ephemeral-disk, maxPods")]
    fn a_bad_annotation_is_dropped_alone_and_named(#[case] name: &str, #[case] value: &str, #[case] rule: &str) {
        let other = if name == "cpu" { "memory" } else { "cpu" };
        let (capacity, problems) = of_annotations(&annotated(&[(name, value), (other, "4")]));
        assert_eq!(shown(&capacity), expected(&[(other, "4")]));
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!(problem.kind, ProblemKind::Capacity);
        for part in [&key(name), &format!("{value:?}"), rule, "ignored"] {
            assert!(problem.message.contains(part), "{part:?} isn't in {problem}");
        }
    }

    #[test]
    fn a_gpu_type_must_be_a_resources_name() {
        let (capacity, problems) = of_annotations(&annotated(&[("gpu-type", "two gpus"), ("gpu-count", "2")]));
        assert!(capacity.is_empty());
        assert!(problems[0].message.contains("gpu-type is \"two gpus\""), "{problems:?}");
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
        let (capacity, problems) = of_status(&infrastructure(status));
        assert_eq!(shown(&capacity), expected(resources));
        assert_eq!(problems, []);
        assert!(capacity.values().all(|quantity| quantity.source == Source::StatusCapacity));
    }

    #[rstest]
    #[case::no_quantity("memory", "lots", "must be a Kubernetes quantity")]
    #[case::json_of_another_type("memory", "true", "must be a Kubernetes quantity")]
    #[case::negative("memory", "-1", "must not be negative")]
    #[case::no_resource_name("two gpus", "1", "a resource's name")]
    fn a_bad_entry_of_status_capacity_is_dropped_alone(#[case] name: &str, #[case] value: &str, #[case] rule: &str) {
        let (capacity, problems) = of_status(&infrastructure(&[(name, value), ("cpu", "4")]));
        assert_eq!(shown(&capacity), expected(&[("cpu", "4")]));
        let [problem] = problems.as_slice() else { panic!("{problems:?}") };
        assert_eq!(problem.kind, ProblemKind::Capacity);
        for part in ["team-a/workers", &format!("{name:?}"), &format!("{value:?}"), rule] {
            assert!(problem.message.contains(part), "{part:?} isn't in {problem}");
        }
    }

    #[rstest]
    #[case::annotation(Some("250"), Some("58"), "250", Source::Annotation)]
    #[case::else_status_capacity(None, Some("58"), "58", Source::StatusCapacity)]
    #[case::else_110(None, None, "110", Source::Default)]
    #[case::a_bad_annotation_counts_as_none(Some("many"), Some("58"), "58", Source::StatusCapacity)]
    fn pods_come_from(
        #[case] annotation: Option<&str>,
        #[case] status: Option<&str>,
        #[case] pods: &str,
        #[case] source: Source,
    ) {
        let annotations: Vec<_> = annotation.map(|value| ("maxPods", value)).into_iter().collect();
        let status: Vec<_> = status.map(|value| ("pods", value)).into_iter().collect();
        let (capacity, _) = capacity(&annotated(&annotations), Some(&infrastructure(&status)));
        assert_eq!(capacity[PODS], Sourced::new(pods.parse().unwrap(), source));
    }

    #[test]
    fn annotations_win_over_status_capacity_one_by_one() {
        let status = infrastructure(&[("cpu", "4"), ("memory", "16G"), ("storage", "80G")]);
        let annotations = annotated(&[("cpu", "8"), ("ephemeral-disk", "100G"), ("memory", "much")]);
        let (capacity, problems) = capacity(&annotations, Some(&status));
        let resources = [("cpu", "8"), ("ephemeral-storage", "100G"), ("memory", "16G"), ("pods", "110")];
        assert_eq!(shown(&capacity), expected(&resources));
        assert_eq!(capacity[CPU].source, Source::Annotation);
        assert_eq!(capacity[MEMORY].source, Source::StatusCapacity);
        assert_eq!(problems.len(), 1);
    }

    #[rstest]
    #[case::by_its_name(&[], &[("nvidia.com/gpu", "2")], &[("nvidia.com/gpu", "2")])]
    #[case::named_by_an_annotation(&[("gpu-type", "habana.ai/gaudi"), ("gpu-count", "8")], &[], &[("habana.ai/gaudi", "8")])]
    #[case::on_windows(&[], &[("microsoft.com/directx", "1")], &[("microsoft.com/directx", "1")])]
    #[case::of_zero_there_are_none(&[], &[("nvidia.com/gpu", "0")], &[])]
    #[case::other_devices_are_none(&[("cpu", "4")], &[("example.com/nic", "2"), ("hugepages-2Mi", "1Gi")], &[])]
    fn gpus_are(
        #[case] annotations: &[(&str, &str)],
        #[case] status: &[(&str, &str)],
        #[case] expected: &[(&str, &str)],
    ) {
        let (capacity, _) = capacity(&annotated(annotations), Some(&infrastructure(status)));
        let gpus: Vec<_> = gpus(&capacity).map(|(resource, count)| (resource, count.to_string())).collect();
        let expected: Vec<_> = expected.iter().map(|(resource, count)| (*resource, (*count).to_owned())).collect();
        assert_eq!(gpus, expected);
    }

    proptest! {
        #[test]
        fn no_value_panics(name in 0..10_usize, value in any::<String>(), resource in any::<String>()) {
            let _ = capacity(&annotated(&[(KNOWN[name], &value)]), Some(&infrastructure(&[(&resource, &value)])));
        }
    }
}
