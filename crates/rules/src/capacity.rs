//! The capacity of a future Node, by resource: the group's capacity annotations override the infrastructure template's
//! `status.capacity` (kubernetes/autoscaler#8712). An invalid entry is dropped and affects no other.

mod annotations;
pub(super) mod own;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use arcstr::ArcStr;

pub use self::annotations::of_annotations;
pub use self::own::of_own_annotations;
use super::{
    NodeTemplate, ObservedNode, Problem, ProblemKind, Quantity, Source, Sourced, labels,
    observed::{Amounts, ObservedResources},
    problem::Clipped,
    provenance::{TemplateName, put},
    resource_list::{CPU, Capacity, EPHEMERAL_STORAGE, MEMORY, PODS, bytes_of_node, quantity},
    template::Context,
};
use crate::capi::{CAPACITY_PREFIX, InfrastructureTemplate};

/// The label of Nodes that have a GPU.
pub const GPU_LABEL: &str = "cluster-api/accelerator";

/// The number of pods that fit on a Node if nothing states it, as Kubernetes recommends.
const DEFAULT_PODS: i64 = 110;

/// The root disk in OpenStack's `status.capacity`. Nodes have no resource of this name.
const STORAGE: &str = "storage";

/// The resource of a GPU on Windows.
const DIRECTX: &str = "microsoft.com/directx";

/// Returns the capacity. The sources, from weakest to strongest: the default number of pods, `status.capacity`, an
/// observed or remembered Node of the same templates, the annotations that Cluster Autoscaler's own provider reads, the annotation
/// `resources`. The result may lack CPU and memory.
pub(super) fn capacity(
    context: &Context<'_>,
    infrastructure: Option<(&InfrastructureTemplate, &TemplateName)>,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) -> Capacity {
    let mut capacity = Capacity::new();
    put(&mut capacity, PODS, Quantity::from_units(DEFAULT_PODS), Source::Default);
    if let Some((infrastructure, name)) = infrastructure {
        let (stated, more) = of_status(infrastructure, name);
        problems.extend(more);
        put_all(&mut capacity, stated);
    }
    if let Some(observed_resources) = context.nodes.same_templates {
        put_learned(&mut capacity, &observed_resources.resources, context, &observed_resources.source_for(&context.id));
    } else if let Some(remembered) = &context.nodes.remembered {
        put_learned(&mut capacity, &remembered.entry.resources, context, &remembered.source());
    }
    let annotations = &context.group.annotations;
    for (stated, more) in [of_annotations(annotations), of_own_annotations(annotations)] {
        problems.extend(more);
        put_all(&mut capacity, stated);
    }
    if let Some(observed_resources) = context.nodes.same_templates {
        notes.extend(contradictions(&capacity, observed_resources));
    }
    capacity
}

fn put_all(capacity: &mut Capacity, stated: Capacity) {
    for (resource, stated) in stated {
        put(capacity, &resource, stated.value, stated.source);
    }
}

/// Adds the resources of an observed or remembered Node. They override `status.capacity`, which includes the memory that the kernel
/// reserves. An extended resource of 0 doesn't override another amount: the device
/// plugin may not have started yet.
fn put_learned(capacity: &mut Capacity, resources: &BTreeMap<ArcStr, Amounts>, context: &Context<'_>, source: &Source) {
    for (resource, Amounts { capacity: seen, .. }) in resources {
        let wanted = is_never_zero(resource) || context.rules.learn_extended_resources;
        let stated = capacity.get(resource.as_str()).map(|stated| stated.value);
        let says_something =
            if seen.is_zero() { stated.is_none() && !is_never_zero(resource) } else { stated != Some(*seen) };
        if wanted && says_something {
            put(capacity, resource, *seen, source.clone());
        }
    }
}

/// Adds an amount of 0 of each size of huge pages that Nodes of the architecture have and nothing states. Cluster Autoscaler
/// counts two groups as dissimilar if one Node lists a resource that the other lacks, be it of 0.
pub(super) fn put_empty_huge_pages(capacity: &mut Capacity, arch: &str, context: &Context<'_>) {
    let pages = context.nodes.empty_huge_pages.and_then(|pages| pages.get(arch));
    for (resource, node) in pages.into_iter().flatten().filter(|_| context.rules.learn_extended_resources) {
        if !capacity.contains_key(resource.as_str()) {
            let from = ObservedNode { node: node.clone(), sibling: None };
            put(capacity, resource, Quantity::ZERO, Source::Learned(Box::new(from)));
        }
    }
}

/// The percentage by which an annotation may differ from an observed Node.
const TOLERANCE: i64 = 10;

/// Returns a note for each annotation whose amount differs by more than [`TOLERANCE`] percent from the real Node's.
fn contradictions(capacity: &Capacity, observed_resources: &ObservedResources) -> Vec<String> {
    let contradiction = |(resource, stated): (&String, &Sourced<Quantity>)| {
        let Source::Annotation(key) = &stated.source else { return None };
        let seen = observed_resources.resources.get(resource.as_str())?.capacity;
        let more = if stated.value > seen { stated.value - seen } else { seen - stated.value };
        more.is_more_than_percent(TOLERANCE, seen).then(|| {
            format!(
                "annotation {key} says {resource} {}, and Node {} has {seen}: correct the annotation, or remove it if \
                 something else states it",
                stated.value, observed_resources.node,
            )
        })
    };
    capacity.iter().filter_map(contradiction).collect()
}

/// Returns the GPU resources with a count other than 0: the one that `gpu-type` and `gpu-count` state, and those whose
/// name is that of a GPU.
pub fn gpus(capacity: &Capacity) -> impl Iterator<Item = (&str, Quantity)> {
    capacity
        .iter()
        .filter(|(resource, count)| {
            let counted = count.sources().any(|source| source.is_annotation(annotations::GPU_COUNT));
            let named = resource.contains('/') && (resource.contains("gpu") || *resource == DIRECTX);
            !count.value.is_zero() && (counted || named)
        })
        .map(|(resource, count)| (resource.as_str(), count.value))
}

/// Returns the capacity in `status.capacity`. An amount of 0 of cpu, memory, ephemeral-storage or pods is skipped:
/// every Node has some. OpenStack reports its root disk as `storage`, which becomes ephemeral-storage if the status
/// lists no ephemeral-storage.
#[must_use]
pub fn of_status(infrastructure: &InfrastructureTemplate, name: &TemplateName) -> (Capacity, Vec<Problem>) {
    let mut capacity = Capacity::new();
    let mut problems = Vec::new();
    for (resource, text) in &infrastructure.capacity {
        let quantity = labels::check_key(resource)
            .map_err(|rule| format!("a resource's name is like a label's key: {rule}"))
            .and_then(|()| match resource.as_str() {
                MEMORY | EPHEMERAL_STORAGE | STORAGE => bytes_of_node(text),
                _ => quantity(text),
            });
        match quantity {
            Ok(quantity) if quantity.is_zero() && is_never_zero(resource) => {}
            Ok(quantity) => {
                put(&mut capacity, resource, quantity, Source::StatusCapacity(name.clone()));
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

/// The resources that Cluster Autoscaler counts as GPUs, with the version from which on it does, if that isn't the first
/// that this program serves.
const KNOWN_GPUS: [(&str, Option<&str>); 5] = [
    ("nvidia.com/gpu", None),
    (DIRECTX, None),
    ("amd.com/gpu", Some("1.34.3")),
    ("habana.ai/gaudi", Some("1.34.3")),
    ("gpu.intel.com/xe", Some("1.35")),
];

/// Judges a Node with the GPU label by its GPUs. Cluster Autoscaler counts one without a GPU that it knows as unready for
/// ever: a problem, and a note if only some versions know it. A `dra-driver` exempts no external provider's Node.
pub(super) fn check_gpu_label(template: &NodeTemplate, problems: &mut Vec<Problem>, notes: &mut Vec<String>) {
    let Some(label) = template.labels.get(GPU_LABEL) else { return };
    let has = |resource: &str| template.allocatable(resource).is_some_and(|count| !count.is_zero());
    let of_label = format!("label {GPU_LABEL}={} (from {}) says that the Node has a GPU", label.value, label.source);
    match KNOWN_GPUS.iter().find(|(resource, _)| has(resource)) {
        Some((_, None)) => {}
        Some((resource, Some(since))) => notes.push(format!(
            "{of_label}, and it has {resource}: Cluster Autoscaler knows that as a GPU from {since} on, and takes such Nodes for \
             unready before"
        )),
        None => {
            let known = KNOWN_GPUS.map(|(resource, since)| match since {
                None => resource.to_owned(),
                Some(since) => format!("{resource} (from {since} on)"),
            });
            problems.push(Problem::new(
                ProblemKind::Labels,
                format!(
                    "{of_label}, and allocatable has none that Cluster Autoscaler knows: {}. It takes such Nodes for unready, also \
                     those with a dra-driver; give {CAPACITY_PREFIX}gpu-type and …/gpu-count, or take the label off",
                    known.join(", "),
                ),
            ));
        }
    }
}
