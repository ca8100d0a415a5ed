//! Labels and taints of the Node that would join, from the weakest source to the strongest.

use std::collections::BTreeMap;

use arcstr::ArcStr;

use super::{ARCH, Built, Context, OS, REGION};
use crate::{
    ObservedNode, Problem, ProblemKind, Source, Sourced, SourcedMap, Taint, TemplateName, TemplateRules,
    capacity::{ZONE_FROM_FAILURE_DOMAIN, takes_zone_of_failure_domain},
    capi::{CAPACITY_PREFIX, InfrastructureTemplate, OWN_CAPACITY_PREFIX, ScalableKind, ScalableResource},
    labels::{self, LABELS, ZONE},
    observed::{ObservedLabels, OtherZone, Values},
    problem::Clipped,
    provenance::put,
    taints::{self, TAINTS},
};

const DEFAULT_OS: &str = "linux";

/// Returns the labels. The sources, from weakest to strongest: defaults; remembered labels; other labels of the group's
/// Nodes; observed Nodes of another group, and deleted ones of this group; nodeInfo; the remembered architecture and operating
/// system; the failure domain; the remembered zone, and that of deleted Nodes; synced template labels; OpenShift's labels for Nodes; the annotation; and, while the group has Nodes,
/// the values on which they agree. To the Nodes of a MachinePool Cluster API syncs labels only by way of its Machines, which few infrastructure providers make.
pub(super) fn labels(
    context: &Context<'_>,
    infrastructure: Option<(&InfrastructureTemplate, &TemplateName)>,
    built: &mut Built,
) -> SourcedMap<String> {
    let Context { group, nodes, rules, .. } = context;
    let problems = &mut built.problems;
    let mut labels = SourcedMap::new();
    let arch = rules.default_arch;
    let source = if arch == TemplateRules::default().default_arch {
        Source::Default
    } else {
        Source::Flag(TemplateRules::DEFAULT_ARCH_FLAG)
    };
    put(&mut labels, ARCH, arch.to_string(), source);
    put(&mut labels, OS, DEFAULT_OS.to_owned(), Source::Default);
    put_remembered(context, &mut labels, |key| ![ARCH, OS, ZONE].contains(&key));
    put_others(context, &mut labels);
    put_learned(context, &mut labels);
    if let Some((template, name)) = infrastructure {
        put_node_info(template, name, &mut labels, problems);
    }
    put_remembered(context, &mut labels, |key| [ARCH, OS].contains(&key));
    put_failure_domain(context, &mut labels, problems, &mut built.notes);
    put_remembered(context, &mut labels, |key| key == ZONE);
    put_observed(context, &mut labels, |key| key == ZONE);
    let pool_makes_machines =
        nodes.pool_has_machines || infrastructure.is_some_and(|(template, _)| template.makes_machines);
    if group.kind != ScalableKind::MachinePool || pool_makes_machines {
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
    let Some(observed) = nodes.observed else { return labels };
    if let Some(sample) = nodes.sample {
        for (key, value, first) in observed.agreed() {
            let is_of_sample = sample.template_label(key) == Some(value.as_str());
            let node = if is_of_sample { &sample.meta.key.name } else { first };
            put(&mut labels, key, value.to_string(), Source::RealNode(node.clone()));
        }
    }
    built.notes.extend(observed.differing().map(|(key, values)| differ(key, values, labels.get(key))));
    labels
}

/// Returns a note on why a label isn't taken from the group's Nodes.
fn differ(key: &str, values: &Values, label: Option<&Sourced<String>>) -> String {
    let nodes: Vec<_> = values.iter().map(|(value, node)| format!("{value} (Node {node})")).collect();
    let instead = match label {
        Some(label) => format!("{} by {} is sent", label.value, label.source),
        None => "none is sent; the annotation labels can state one".to_owned(),
    };
    format!("the Nodes of the group have different values of {key}: {}; {instead}", nodes.join(", "))
}

/// Adds the labels besides [`crate::capi::Node::TEMPLATE_LABELS`] on which the group's Nodes agree, also those that are
/// deleted. All that states a label is stronger: these are of anyone's making, and some may change.
fn put_others(context: &Context<'_>, labels: &mut SourcedMap<String>) {
    let Some(observed) = context.nodes.observed else { return };
    let (others, first) = observed.others();
    let Some(first) = first else { return };
    for (key, value) in
        others.into_iter().filter(|(key, value)| labels::check_key(key).and(labels::check_value(value)).is_ok())
    {
        let source = match context.nodes.sample {
            Some(sample) if sample.other_labels.get(key) == Some(value) => {
                Source::RealNode(sample.meta.key.name.clone())
            }
            Some(_) => Source::RealNode(first.clone()),
            None => Source::Learned(Box::new(ObservedNode { node: first.clone(), sibling: None })),
        };
        put(labels, key, value.to_owned(), source);
    }
}

/// Adds the labels that are remembered, while the group has no Node.
fn put_remembered(context: &Context<'_>, labels: &mut SourcedMap<String>, takes: impl Fn(&str) -> bool) {
    let Context { group, id, nodes, .. } = context;
    let Some(remembered) = nodes.remembered.as_ref().filter(|_| nodes.sample.is_none()) else { return };
    if takes(ARCH) {
        put(labels, ARCH, remembered.arch.to_string(), remembered.source());
    }
    for (key, value) in remembered.entry.labels_for(id, group, remembered.is_whole).filter(|(key, _)| takes(key)) {
        put(labels, key, value.to_string(), remembered.source());
    }
}

/// Returns the architecture that the annotation `labels` states.
pub(super) fn annotated_arch(group: &ScalableResource) -> Option<String> {
    let (key, text) = annotation(group, LABELS)?;
    labels::parse(key, text).0.remove(ARCH)
}

/// Adds the labels of observed Nodes while the group has no Node. Labels of another group's Nodes are added without
/// zone and region, and those of the group's deleted Nodes without the zone.
fn put_learned(context: &Context<'_>, labels: &mut SourcedMap<String>) {
    let Context { nodes, id, .. } = context;
    if nodes.sample.is_some() {
        return;
    }
    if let (Some(observed_resources), Some(observed)) = (nodes.same_templates, nodes.of_sibling) {
        for (key, value, _) in observed.agreed().filter(|(key, ..)| !matches!(*key, ZONE | REGION)) {
            put(labels, key, value.to_string(), observed_resources.source_for(id));
        }
    }
    put_observed(context, labels, |key| key != ZONE);
}

/// Adds the labels on which the group's deleted Nodes agreed, while it has no Node.
fn put_observed(context: &Context<'_>, labels: &mut SourcedMap<String>, takes: impl Fn(&str) -> bool) {
    let Context { nodes, .. } = context;
    if nodes.sample.is_some() {
        return;
    }
    let agreed = nodes.observed.into_iter().flat_map(ObservedLabels::agreed);
    for (key, value, node) in agreed.filter(|(key, ..)| takes(key)) {
        let from = ObservedNode { node: node.clone(), sibling: None };
        put(labels, key, value.to_string(), Source::Learned(Box::new(from)));
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

/// Adds the failure domain of a group's Machines, which with most infrastructure providers is the zone of their
/// Nodes. With Azure, one is "1" and the other "<region>-1": as soon as a Node shows that, the failure domain is
/// ignored for all groups of the provider.
fn put_failure_domain(
    context: &Context<'_>,
    labels: &mut SourcedMap<String>,
    problems: &mut Vec<Problem>,
    notes: &mut Vec<String>,
) {
    let Context { group, nodes, .. } = context;
    let Some(domain) = &group.failure_domain else { return };
    let zones = nodes.observed.and_then(|observed| observed.values(ZONE)).map_or(0, BTreeMap::len);
    // The group's own Nodes have precedence, and a note reports where they differ.
    if zones > 1 || (zones == 1 && nodes.other_zone.is_some()) {
        return;
    }
    let is_wanted = takes_zone_of_failure_domain(&group.annotations).unwrap_or_else(|problem| {
        problems.push(problem);
        true
    });
    if !is_wanted {
        notes.push(format!(
            "spec.template.spec.failureDomain {domain} isn't taken for the label {ZONE}: the annotation \
             {OWN_CAPACITY_PREFIX}{ZONE_FROM_FAILURE_DOMAIN} is false; the annotation labels can state one"
        ));
        return;
    }
    if let Some(OtherZone { node, domain: its_domain, zone }) = nodes.other_zone {
        notes.push(format!(
            "spec.template.spec.failureDomain {domain} isn't taken for the label {ZONE}: Node {node}, of the same kind of \
             infrastructure template, is in the failure domain {its_domain} and has the zone {zone}; the annotation labels \
             can state one"
        ));
        return;
    }
    if let Some(node) = nodes.observed.and_then(ObservedLabels::without_zone) {
        notes.push(format!(
            "spec.template.spec.failureDomain {domain} isn't taken for the label {ZONE}: Node {node} of the group has long been \
             ready without that label, and so would be the next; the annotation labels can state one"
        ));
        return;
    }
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

/// Returns the template's taints, each replaced by an annotation's of the same key and effect, and the other taints
/// of the annotation. Cluster API syncs no taints to a MachinePool's Nodes, also not by way of its Machines.
///
/// A note names those that a Node has for a while only: of them Cluster Autoscaler must be told.
pub(super) fn taints(group: &ScalableResource, built: &mut Built) -> Vec<Sourced<Taint>> {
    let Built { problems, notes, .. } = built;
    let mut taints: Vec<_> = match group.kind {
        ScalableKind::MachineDeployment | ScalableKind::MachineSet => {
            let (of_template, more) = taints::of_template(&group.taints);
            problems.extend(more);
            notes.extend(taints::note_of_initialization(&group.taints));
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
