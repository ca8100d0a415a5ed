//! The Node that would join if a group grew: capacity, overhead, labels and taints, each value with its source.
//! Cluster Autoscaler simulates with it, so it must match the Node that would really join.

mod encode;
mod metadata;
#[cfg(test)]
mod tests;

use capi::{InfrastructureTemplate, ScalableResource};
use regex::Regex;

use super::{
    Architecture, GroupId, Problem, Quantity, Source, Sourced, SourcedMap, Taint, TemplateName,
    capacity::{self, CPU, Capacity, MEMORY},
    drivers::{self, Drivers},
    observed_resources::RealNodes,
    overhead,
    resource_list::ResourceList,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const ARCH: &str = "kubernetes.io/arch";
const OS: &str = "kubernetes.io/os";
/// The label of a Node's zone.
pub const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";

/// The maximum number of notes on drivers that are reported.
const MOST_NOTES: usize = 10;

/// The operator's rules for all templates.
#[derive(Clone, Debug)]
pub struct TemplateRules {
    /// The architecture if nothing else states it (`CAPI_SCALE_ZERO_DEFAULT_ARCH`).
    pub default_arch: Architecture,
    /// The expressions of Cluster API's `--additional-sync-machine-labels`, for label keys; they aren't anchored.
    pub additional_sync_labels: Vec<Regex>,
    /// The part of a Node that pods don't get, if nothing else states it.
    pub default_overhead: ResourceList,
    /// True if resources other than cpu, memory, local disk and pods are taken from observed Nodes.
    pub learn_extended_resources: bool,
}

impl TemplateRules {
    /// The flag behind [`default_arch`](Self::default_arch).
    pub const DEFAULT_ARCH_FLAG: &str = "--scale-zero-default-arch";
    /// The flag behind [`default_overhead`](Self::default_overhead).
    pub const DEFAULT_OVERHEAD_FLAG: &str = "--default-node-overhead";
}

impl Default for TemplateRules {
    fn default() -> Self {
        Self {
            default_arch: Architecture::default(),
            additional_sync_labels: Vec::new(),
            default_overhead: ResourceList::new(),
            learn_extended_resources: true,
        }
    }
}

/// The Node that would join.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeTemplate {
    /// The resources; cpu, memory and pods are always present.
    pub capacity: Capacity,
    /// The amounts that pods don't get, for resources of the capacity. Pods get all of a resource without an entry. An
    /// amount may exceed the capacity: see [`allocatable`](Self::allocatable).
    pub overhead: SourcedMap<Quantity>,
    /// The labels; arch and os are always present. [`encode`](Self::encode) adds the hostname.
    pub labels: SourcedMap<String>,
    /// The taints, no two with the same key and effect.
    pub taints: Vec<Sourced<Taint>>,
}

impl NodeTemplate {
    /// Returns the allocatable amount of a resource: never less than 0 and never more than the capacity. `None` if
    /// the Node has no such resource.
    #[must_use]
    pub fn allocatable(&self, resource: &str) -> Option<Quantity> {
        Some(self.without_overhead(resource, self.capacity.get(resource)?.value))
    }

    /// Returns the source of cpu and memory, the stronger one if they have two.
    #[must_use]
    pub fn source(&self) -> Option<&Source> {
        let sources = [CPU, MEMORY].into_iter().filter_map(|resource| Some(&self.capacity.get(resource)?.source));
        sources.max_by_key(|source| match source {
            Source::Annotation(_) => 2,
            Source::Learned(_) => 1,
            Source::Default
            | Source::Flag(_)
            | Source::StatusCapacity(_)
            | Source::NodeInfo(..)
            | Source::TemplateMetadata
            | Source::TemplateSpec(_)
            | Source::RealNode(_) => 0,
        })
    }

    fn without_overhead(&self, resource: &str, capacity: Quantity) -> Quantity {
        match self.overhead.get(resource) {
            Some(overhead) if overhead.value >= capacity => Quantity::ZERO,
            Some(overhead) => capacity - overhead.value,
            None => capacity,
        }
    }
}

/// The result of [`build`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Built {
    /// The Node that would join; `None` if its cpu or memory isn't stated.
    pub template: Option<NodeTemplate>,
    /// Its drivers, which the template can't carry.
    pub drivers: Drivers,
    /// The problems of all inputs.
    pub problems: Vec<Problem>,
    /// The notes, which are no faults.
    pub notes: Vec<String>,
}

/// Builds the template of a group. `nodes` is the knowledge of its real Nodes.
///
/// Cpu and memory must be stated by an annotation or `status.capacity`; observed Nodes only refine them. A group that
/// could scale from zero only because of an observed Node would disappear after a restart.
#[must_use]
pub fn build(
    group: &ScalableResource,
    infrastructure: Option<&InfrastructureTemplate>,
    nodes: RealNodes<'_>,
    rules: &TemplateRules,
) -> Built {
    let context = Context { group, id: GroupId::of(group.kind, &group.meta), nodes, rules };
    let mut built = Built::default();
    let infrastructure = infrastructure.map(|template| (template, template_name(group, template)));
    let infrastructure = infrastructure.as_ref().map(|(template, name)| (*template, name));
    let capacity = capacity::capacity(&context, infrastructure, &mut built);
    let (drivers, of_drivers) = drivers::drivers(&group.annotations);
    built.problems.extend(of_drivers);
    built.drivers = drivers;
    let labels = metadata::labels(&context, infrastructure, &mut built);
    let taints = metadata::taints(group, &mut built.problems);
    let is_stated = |resource| {
        let stated = |source: &Source| !matches!(source, Source::Learned(_) | Source::Default);
        capacity.get(resource).is_some_and(|capacity| capacity.sources().any(stated))
    };
    let known = is_stated(CPU) && is_stated(MEMORY);
    let overhead = overhead::overhead(&context, &capacity, &mut built.problems);
    if known {
        let template = NodeTemplate { capacity, overhead, labels, taints };
        built.problems.extend(capacity::gpu_label_without_gpu(&template, &built.drivers));
        built.template = Some(template);
    }
    built.notes.extend(built.drivers.notes().take(MOST_NOTES));
    built
}

/// The sources of the parts of a template, besides the infrastructure template.
pub(super) struct Context<'a> {
    pub(super) group: &'a ScalableResource,
    pub(super) id: GroupId,
    pub(super) nodes: RealNodes<'a>,
    pub(super) rules: &'a TemplateRules,
}

/// Returns the name by which the group refers to the template.
fn template_name(group: &ScalableResource, template: &InfrastructureTemplate) -> TemplateName {
    group.infrastructure.as_ref().map_or_else(
        || TemplateName { kind: "infrastructure template".into(), name: template.meta.key.name.clone() },
        TemplateName::from,
    )
}
