//! Builds the Node that would join if a group grew: capacity, overhead, labels and taints, each value with its source.
//! Cluster Autoscaler simulates with it, so it must match the Node that would really join.

mod encode;
mod metadata;
#[cfg(test)]
mod tests;

use crate::capi::{InfrastructureTemplate, ScalableResource};

use super::{
    GroupId, NodeTemplate, Problem, Source, Sourced, TemplateName, TemplateRules, capacity,
    drivers::{self, Driver},
    labels::ARCH,
    observed_resources::{ObservedResources, RealNodes},
    overhead,
    resource_list::{CPU, MEMORY},
    template_input::Context,
};

const HOSTNAME: &str = "kubernetes.io/hostname";
const OS: &str = "kubernetes.io/os";
const REGION: &str = "topology.kubernetes.io/region";

/// The maximum number of notes on drivers that are reported.
const MOST_NOTES: usize = 10;

/// The result of [`build`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Built {
    /// The Node that would join; `None` if its cpu or memory isn't stated.
    pub template: Option<NodeTemplate>,
    /// Its drivers, which the template can't carry.
    pub drivers: Vec<Driver>,
    /// The problems of all inputs.
    pub problems: Vec<Problem>,
    /// The notes, which aren't problems.
    pub notes: Vec<String>,
}

/// Builds the template of a group. `nodes` has the observations of its Nodes.
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
    let mut capacity = capacity::capacity(&context, infrastructure, &mut built.problems, &mut built.notes);
    let (drivers, of_drivers) = drivers::drivers(&group.annotations);
    built.problems.extend(of_drivers);
    built.drivers = drivers;
    let labels = metadata::labels(&context, infrastructure, &mut built);
    let taints = metadata::taints(group, &mut built);
    if let Some(arch) = labels.get(ARCH) {
        capacity::put_empty_huge_pages(&mut capacity, &arch.value, &context);
    }
    let is_stated = |resource| {
        let stated = |source: &Source| !matches!(source, Source::Learned(_) | Source::Default);
        capacity.get(resource).is_some_and(|capacity| capacity.sources().any(stated))
    };
    let known = is_stated(CPU) && is_stated(MEMORY);
    let overhead = overhead::overhead(&context, &capacity, &mut built.problems);
    if known {
        let declared_features = declared_features(&context);
        let template = NodeTemplate { capacity, overhead, labels, taints, declared_features };
        capacity::check_gpu_label(&template, &mut built.problems, &mut built.notes);
        built.template = Some(template);
    }
    built.notes.extend(built.drivers.iter().map(Driver::note).take(MOST_NOTES));
    built
}

/// Returns the features that the kubelets of Nodes of the same templates declare. Cluster Autoscaler takes a pod that needs
/// one for unschedulable on a Node without it, from 1.36 on.
fn declared_features(context: &Context<'_>) -> Vec<Sourced<String>> {
    let of_node = |seen: &ObservedResources| {
        let source = seen.source_for(&context.id);
        seen.declared_features.iter().map(|feature| Sourced::new(feature.clone(), source.clone())).collect()
    };
    context.nodes.same_templates.map(of_node).unwrap_or_default()
}

/// Returns the name by which the group refers to the template.
fn template_name(group: &ScalableResource, template: &InfrastructureTemplate) -> TemplateName {
    group.infrastructure.as_ref().map_or_else(
        || TemplateName { kind: "infrastructure template".into(), name: template.meta.key.name.clone() },
        TemplateName::from,
    )
}
