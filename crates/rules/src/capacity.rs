//! The capacity of a future Node, by resource, and what pods don't get of it. The group's annotations override a real
//! Node, or a remembered one, which overrides the infrastructure template's `status.capacity` (kubernetes/autoscaler#8712).
//! An invalid entry is dropped and affects no other.

use std::collections::BTreeMap;

use arcstr::ArcStr;

use crate::{
    NodeTemplate, ObservedNode, Problem, ProblemKind, Quantity, Source, Sourced, SourcedMap, TemplateRules,
    capi::{CAPACITY_PREFIX, InfrastructureTemplate, OWN_CAPACITY_PREFIX},
    drivers::{CSI_DRIVER, DRA_DRIVER},
    labels::{self, LABELS},
    observed::{Amounts, ObservedResources, Remembered},
    problem::{Clipped, switch},
    provenance::{TemplateName, put},
    remembered::REMEMBER,
    resource_list::{
        self, CPU, Capacity, EPHEMERAL_STORAGE, HUGE_PAGES, MEMORY, PODS, bytes_of_node, device_count, quantity,
    },
    taints::TAINTS,
    template::Context,
};

#[cfg(test)]
mod tests;

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
        let source = observed_resources.source_for(&context.id);
        put_learned(&mut capacity, &observed_resources.resources, context, &source, false);
    } else if let Some(Remembered { entry, .. }) = &context.nodes.remembered {
        let source = Source::Remembered(Box::new(entry.seen.clone()));
        put_learned(&mut capacity, &entry.resources, context, &source, entry.is_settled());
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

/// Adds the resources of an observed or remembered Node. They override `status.capacity`, which includes the memory that
/// the kernel reserves. An extended resource of 0 overrides another amount only if the Node is settled: before that, the
/// device plugin may not have started yet.
fn put_learned(
    capacity: &mut Capacity,
    resources: &BTreeMap<ArcStr, Amounts>,
    context: &Context<'_>,
    source: &Source,
    is_settled: bool,
) {
    for (resource, Amounts { capacity: seen, .. }) in resources {
        let wanted = is_never_zero(resource) || context.rules.learn_extended_resources;
        let stated = capacity.get(resource.as_str()).map(|stated| stated.value);
        let may_be_zero = || !is_never_zero(resource) && (is_settled || stated.is_none());
        let says_something = stated != Some(*seen) && (!seen.is_zero() || may_be_zero());
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
            let counted = count.sources().any(|source| source.is_annotation(GPU_COUNT));
            let named = resource.contains('/') && (resource.contains("gpu") || *resource == DIRECTX);
            !count.value.is_zero() && (counted || named)
        })
        .map(|(resource, count)| (resource.as_str(), count.value))
}

/// Returns the capacity in `status.capacity`. An amount of 0 of cpu, memory, ephemeral-storage or pods is skipped:
/// every Node has some. OpenStack reports its root disk as `storage`, which becomes ephemeral-storage if the status
/// lists no ephemeral-storage.
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

// The annotations that Cluster Autoscaler's own provider reads as well.

const EPHEMERAL_DISK: &str = "ephemeral-disk";
const MAX_PODS: &str = "maxPods";
const GPU_TYPE: &str = "gpu-type";
const GPU_COUNT: &str = "gpu-count";

/// The capacity annotations, without their prefix.
const KNOWN: [&str; 10] =
    [CPU, MEMORY, EPHEMERAL_DISK, MAX_PODS, GPU_TYPE, GPU_COUNT, LABELS, TAINTS, DRA_DRIVER, CSI_DRIVER];

/// Returns the capacity that the annotations state. An empty value and a value of 0 are skipped, as in Cluster
/// Autoscaler; a cpu or memory of 0 is a problem all the same.
///
/// `gpu-count` counts the resource that `gpu-type` names. With `dra-driver` it counts devices of a ResourceSlice,
/// which the protocol can't carry yet (kubernetes/autoscaler#10277); without a `gpu-type` it then adds no resource.
/// [`drivers`](crate::drivers) reads `dra-driver` and `csi-driver`.
pub fn of_annotations(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Capacity, Vec<Problem>) {
    let mut reader = Reader { annotations, capacity: Capacity::new(), problems: Vec::new() };
    reader.read(CPU, CPU, quantity);
    reader.read(MEMORY, MEMORY, bytes_of_node);
    reader.read(EPHEMERAL_DISK, EPHEMERAL_STORAGE, bytes_of_node);
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
    /// Returns an annotation's value, unless it is empty.
    fn get(&self, name: &str) -> Option<&'a str> {
        self.entry(name).map(|(_, value)| value)
    }

    /// Returns an annotation's key, as the object holds it, and its value, unless that is empty.
    fn entry(&self, name: &str) -> Option<(&'a ArcStr, &'a str)> {
        let (key, value) = self.annotations.get_key_value(key(name).as_str())?;
        (!value.is_empty()).then_some((key, value.as_str()))
    }

    fn problem(&mut self, name: &str, value: &str, rule: &str) {
        let rule = format!("{rule}; it is ignored");
        self.problems.push(Problem::annotation(ProblemKind::Capacity, &key(name), value, &rule));
    }

    fn read(&mut self, name: &str, resource: &str, parse: fn(&str) -> Result<Quantity, String>) {
        let Some((key, value)) = self.entry(name) else { return };
        match parse(value) {
            Ok(quantity) if !quantity.is_zero() => {
                put(&mut self.capacity, resource, quantity, Source::Annotation(key.clone()));
            }
            Ok(_) if matches!(resource, CPU | MEMORY) => self.problem(name, value, "a Node must have more than 0"),
            Ok(_) => {}
            Err(rule) => self.problem(name, value, &rule),
        }
    }

    fn read_gpus(&mut self) {
        let (resource, count) = (self.get(GPU_TYPE), self.get(GPU_COUNT).map(|count| (count, device_count(count))));
        match (resource, count) {
            // OpenShift's operator writes a count of 0, and no type, for Nodes without a GPU.
            (_, Some((_, Ok(count)))) if count.is_zero() => {}
            (Some(resource), Some(_)) => match labels::check_key(resource) {
                Ok(()) => self.read(GPU_COUNT, resource, device_count),
                Err(rule) => {
                    let rule = format!("it must be the resource's name, such as nvidia.com/gpu: {rule}");
                    self.problem(GPU_TYPE, resource, &rule);
                }
            },
            (Some(resource), None) => {
                let rule = format!("{} must say how many there are", key(GPU_COUNT));
                self.problem(GPU_TYPE, resource, &rule);
            }
            (None, Some((count, Err(rule)))) => self.problem(GPU_COUNT, count, &rule),
            (None, Some((count, Ok(_)))) if self.get(DRA_DRIVER).is_none() => {
                let rule = format!("{} must say the resource's name, such as nvidia.com/gpu", key(GPU_TYPE));
                self.problem(GPU_COUNT, count, &rule);
            }
            (None, Some(_) | None) => {}
        }
    }

    /// Reports unknown keys, which are typing errors.
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

fn plain_integer(text: &str) -> Result<Quantity, String> {
    match text.parse() {
        Ok(count @ 0..) => Ok(Quantity::from_units(count)),
        Ok(..0) | Err(_) => Err("it must be a plain integer such as 110".to_owned()),
    }
}

// The annotations that only this program reads.

const RESOURCES: &str = "resources";
/// The annotation of a Node's price, which isn't capacity but has the same prefix.
const PRICE: &str = "price-per-hour";

/// The annotation that decides if a failure domain is used as the zone.
pub(crate) const ZONE_FROM_FAILURE_DOMAIN: &str = "zone-from-failure-domain";

/// The annotations, without their prefix.
const KNOWN_OWN: [&str; 5] = [OVERHEAD, RESOURCES, PRICE, ZONE_FROM_FAILURE_DOMAIN, REMEMBER];

/// Returns false if a group's annotation says that its failure domain isn't a zone.
///
/// # Errors
/// If the annotation is neither true nor false.
pub(crate) fn takes_zone_of_failure_domain(annotations: &BTreeMap<ArcStr, ArcStr>) -> Result<bool, Problem> {
    let key = format!("{OWN_CAPACITY_PREFIX}{ZONE_FROM_FAILURE_DOMAIN}");
    switch((ProblemKind::Labels, &key), annotations, true)
}

/// Returns the resources in the annotation `resources`, which is for resources without a dedicated annotation. An
/// amount of 0 removes a resource from the Node. An unknown key with the prefix is a problem, since it is a typo.
pub fn of_own_annotations(annotations: &BTreeMap<ArcStr, ArcStr>) -> (Capacity, Vec<Problem>) {
    let mut capacity = Capacity::new();
    let mut problems = Vec::new();
    for (key, value) in annotations {
        match key.strip_prefix(OWN_CAPACITY_PREFIX) {
            Some(RESOURCES) => {
                let (resources, more) = resource_list::parse(key, value, allowed);
                problems.extend(more);
                for (resource, quantity) in resources {
                    put(&mut capacity, &resource, quantity, Source::Annotation(key.clone()));
                }
            }
            Some(name) if !KNOWN_OWN.contains(&name) => {
                let rule = format!("no such annotation is known; known are {}; it is ignored", KNOWN_OWN.join(", "));
                problems.push(Problem::annotation(ProblemKind::Capacity, key, value, &rule));
            }
            Some(_) | None => {}
        }
    }
    (capacity, problems)
}

fn allowed(resource: &str, quantity: Quantity) -> Result<(), String> {
    let other = match resource {
        CPU => "cpu",
        MEMORY => "memory",
        EPHEMERAL_STORAGE => "ephemeral-disk",
        PODS => "maxPods",
        _ if quantity.is_whole() => return Ok(()),
        _ => return Err("it must be a whole number".to_owned()),
    };
    Err(format!("{resource} is said by the annotation {CAPACITY_PREFIX}{other}"))
}

// The part of the capacity that pods can't use: capacity minus allocatable. A template without it makes Cluster
// Autoscaler scale up endlessly for pods that fit the template but no real Node (kubernetes/autoscaler#2809).

/// The suffix of the annotation that states it.
const OVERHEAD: &str = "overhead";

/// Returns the overhead. The sources, from weakest to strongest, for each resource: the operator's default, the
/// annotation, an observed or remembered Node. A Node whose allocatable equals its capacity has an overhead of 0.
///
/// A kubelet takes its huge pages off allocatable memory. An observed Node of the same templates shows that already; to
/// the others they are added.
pub(super) fn overhead(
    context: &Context<'_>,
    capacity: &Capacity,
    problems: &mut Vec<Problem>,
) -> SourcedMap<Quantity> {
    let mut overhead = SourcedMap::new();
    let has = |resource: &str| capacity.contains_key(resource);
    for (resource, quantity) in context.rules.default_overhead.iter().filter(|(resource, _)| has(resource)) {
        put(&mut overhead, resource, *quantity, Source::Flag(TemplateRules::DEFAULT_OVERHEAD_FLAG));
    }
    let annotations = &context.group.annotations;
    if let Some((key, text)) = annotations.get_key_value(format!("{OWN_CAPACITY_PREFIX}{OVERHEAD}").as_str()) {
        let (annotated, more) = resource_list::parse(key, text, |_, _| Ok(()));
        problems.extend(more);
        for (resource, quantity) in annotated {
            match capacity.get(&resource) {
                Some(capacity) if quantity < capacity.value || quantity.is_zero() => {
                    put(&mut overhead, &resource, quantity, Source::Annotation(key.clone()));
                }
                Some(capacity) => problems.push(overhead_problem(
                    key,
                    &resource,
                    quantity,
                    &format!("it must be less than the capacity, which is {}", capacity.value),
                )),
                None => problems.push(overhead_problem(key, &resource, quantity, "the Node has no such resource")),
            }
        }
    }
    let nodes = &context.nodes;
    let of_node = |seen: &ObservedResources| seen.source_for(&context.id);
    let learned = match (nodes.same_templates, &nodes.remembered) {
        (Some(same), _) => Some((&same.resources, of_node(same))),
        (None, Some(remembered)) => Some((&remembered.entry.resources, remembered.source())),
        (None, None) => nodes.other_templates.map(|other| (&other.resources, of_node(other))),
    };
    if let Some((resources, source)) = &learned {
        for (resource, amounts) in resources.iter().filter(|(resource, _)| has(resource)) {
            put(&mut overhead, resource, amounts.overhead(), source.clone());
        }
    }
    if nodes.same_templates.is_none() && nodes.remembered.is_none() && has(MEMORY) {
        add_huge_pages(&mut overhead, capacity, context.nodes.other_templates);
    }
    overhead
}

/// Adds the huge pages of the capacity to the overhead of memory, instead of those of the Node that it was taken from.
fn add_huge_pages(overhead: &mut SourcedMap<Quantity>, capacity: &Capacity, of: Option<&ObservedResources>) {
    let pages = sum(capacity.iter().filter(|(name, _)| is_huge(name)).map(|(_, pages)| pages.value));
    let counted =
        sum(of.into_iter().flat_map(|of| &of.resources).filter(|(name, _)| is_huge(name)).map(|(_, it)| it.capacity));
    if pages == counted {
        return;
    }
    let stated = overhead.remove(MEMORY);
    let rest = stated.as_ref().map_or(Quantity::ZERO, |stated| stated.value - stated.value.min(counted));
    let source = Source::HugePages(stated.map(|stated| Box::new(stated.source)));
    overhead.insert(MEMORY.to_owned(), Sourced::new(rest + pages, source));
}

fn is_huge(resource: &str) -> bool {
    resource.starts_with(HUGE_PAGES)
}

fn sum(amounts: impl Iterator<Item = Quantity>) -> Quantity {
    amounts.fold(Quantity::ZERO, |sum, amount| sum + amount)
}

fn overhead_problem(key: &str, resource: &str, quantity: Quantity, rule: &str) -> Problem {
    let rule = format!("{rule}; it is ignored");
    Problem::annotation_entry(ProblemKind::Capacity, key, &format!("{resource}={quantity}"), &rule)
}
