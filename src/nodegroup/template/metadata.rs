//! Labels and taints of the Node to come, from the weakest source to the strongest.

use super::{ARCH, Context, OS, REGION, ZONE};
use crate::{
    capi::{CAPACITY_PREFIX, InfrastructureTemplate, ScalableKind, ScalableResource},
    nodegroup::{
        Problem, ProblemKind, Source, Sourced, SourcedMap, Taint, TemplateName, TemplateRules,
        labels::{self, LABELS},
        problem::Clipped,
        provenance::put,
        taints::{self, TAINTS},
    },
};
use arcstr::ArcStr;

const DEFAULT_OS: &str = "linux";

/// From weakest to strongest: defaults, what a Node that is gone or belongs to another group showed, nodeInfo where it
/// says something, the failure domain, synced template labels, annotation, a real Node. Cluster API syncs no labels to a
/// MachinePool's Nodes.
pub(super) fn labels(
    context: &Context<'_>,
    infrastructure: Option<(&InfrastructureTemplate, &TemplateName)>,
    problems: &mut Vec<Problem>,
) -> SourcedMap<String> {
    let Context { group, nodes, rules, .. } = context;
    let mut labels = SourcedMap::new();
    let arch = rules.default_arch;
    let source = if arch == TemplateRules::default().default_arch {
        Source::Default
    } else {
        Source::Flag(TemplateRules::DEFAULT_ARCH_FLAG)
    };
    put(&mut labels, ARCH, arch.to_string(), source);
    put(&mut labels, OS, DEFAULT_OS.to_owned(), Source::Default);
    put_learned(context, &mut labels);
    if let Some((template, name)) = infrastructure {
        put_node_info(template, name, &mut labels, problems);
    }
    put_failure_domain(group, &mut labels, problems);
    if group.kind != ScalableKind::MachinePool {
        let (synced, more) = labels::synced(&group.template_labels, &rules.additional_sync_labels);
        problems.extend(more);
        for (key, value) in synced {
            put(&mut labels, &key, value, Source::TemplateMetadata);
        }
        let (of_nodes, more) = labels::of_nodes(&group.node_labels);
        problems.extend(more);
        for (key, value) in of_nodes {
            put(&mut labels, &key, value, Source::TemplateSpec("metadata.labels"));
        }
    }
    if let Some((annotation, text)) = annotation(group, LABELS) {
        let (annotated, more) = labels::parse(annotation, text);
        problems.extend(more);
        for (key, value) in annotated {
            put(&mut labels, &key, value, Source::Annotation(annotation.clone()));
        }
    }
    if let Some(node) = nodes.sample {
        for (key, value) in node.template_labels.iter().filter(|(_, value)| !value.is_empty()) {
            put(&mut labels, key, value.to_string(), Source::RealNode(node.meta.key.name.clone()));
        }
    }
    labels
}

/// While the group has a Node, that one says it. The zone and region of another group's Node say nothing here.
fn put_learned(context: &Context<'_>, labels: &mut SourcedMap<String>) {
    let (None, Some(lesson)) = (context.nodes.sample, context.nodes.same_templates) else { return };
    let own = lesson.group == context.id;
    for (key, value) in lesson.labels.iter().filter(|(_, value)| !value.is_empty()) {
        if own || !matches!(key, ZONE | REGION) {
            put(labels, key, value.to_string(), lesson.source_for(&context.id));
        }
    }
}

fn put_node_info(
    infrastructure: &InfrastructureTemplate,
    name: &TemplateName,
    labels: &mut SourcedMap<String>,
    problems: &mut Vec<Problem>,
) {
    let said = [
        (ARCH, "architecture", &infrastructure.architecture),
        (OS, "operatingSystem", &infrastructure.operating_system),
    ];
    for (key, field, value) in said {
        let Some(value) = value else { continue };
        match labels::check_value(value) {
            Ok(()) => put(labels, key, value.to_string(), Source::NodeInfo(name.clone(), field)),
            Err(rule) => problems.push(Problem::new(
                ProblemKind::Template,
                format!(
                    "status.nodeInfo.{field} of infrastructure template {} is {:?}: {rule}; it is ignored",
                    infrastructure.meta.key,
                    Clipped(value),
                ),
            )),
        }
    }
}

/// The failure domain of a group's Machines is the zone of their Nodes.
fn put_failure_domain(group: &ScalableResource, labels: &mut SourcedMap<String>, problems: &mut Vec<Problem>) {
    let Some(domain) = &group.failure_domain else { return };
    match labels::check_value(domain) {
        Ok(()) => put(labels, ZONE, domain.to_string(), Source::TemplateSpec("failureDomain")),
        Err(rule) => problems.push(Problem::new(
            ProblemKind::Labels,
            format!(
                "spec.template.spec.failureDomain is {:?}: as the label {ZONE} it can't be used: {rule}; it is ignored",
                Clipped(domain),
            ),
        )),
    }
}

/// The template's taints, each replaced by an annotation's of the same key and effect, and the annotation's others.
/// Cluster API syncs no taints to a MachinePool's Nodes.
pub(super) fn taints(group: &ScalableResource, problems: &mut Vec<Problem>) -> Vec<Sourced<Taint>> {
    let mut taints: Vec<_> = match group.kind {
        ScalableKind::MachineDeployment | ScalableKind::MachineSet => {
            let (of_template, more) = taints::of_template(&group.taints);
            problems.extend(more);
            of_template.into_iter().map(|taint| Sourced::new(taint, Source::TemplateSpec("taints"))).collect()
        }
        ScalableKind::MachinePool => Vec::new(),
    };
    if let Some((annotation, text)) = annotation(group, TAINTS) {
        let (annotated, more) = taints::parse(annotation, text);
        problems.extend(more);
        for taint in annotated {
            let source = Source::Annotation(annotation.clone());
            match taints.iter_mut().find(|other| taint.replaces(&other.value)) {
                Some(other) => other.override_with(taint, source),
                None => taints.push(Sourced::new(taint, source)),
            }
        }
    }
    taints
}

fn annotation<'a>(group: &'a ScalableResource, name: &str) -> Option<(&'a ArcStr, &'a str)> {
    let (key, text) = group.annotations.get_key_value(format!("{CAPACITY_PREFIX}{name}").as_str())?;
    Some((key, text))
}
