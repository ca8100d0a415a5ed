//! The part of a Node's capacity that pods can't use: capacity minus allocatable. A template without it makes Cluster
//! Autoscaler scale up endlessly for pods that fit the template but no real Node (kubernetes/autoscaler#2809).

use crate::capi::OWN_CAPACITY_PREFIX;

use super::{
    Problem, ProblemKind, Quantity, Source, Sourced, SourcedMap, TemplateRules,
    observed::ObservedResources,
    provenance::put,
    resource_list::{self, Capacity, HUGE_PAGES, MEMORY},
    template::Context,
};

/// The suffix of the annotation.
pub(super) const OVERHEAD: &str = "overhead";

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
                Some(capacity) => problems.push(problem(
                    key,
                    &resource,
                    quantity,
                    &format!("it must be less than the capacity, which is {}", capacity.value),
                )),
                None => problems.push(problem(key, &resource, quantity, "the Node has no such resource")),
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

fn problem(key: &str, resource: &str, quantity: Quantity, rule: &str) -> Problem {
    let rule = format!("{rule}; it is ignored");
    Problem::annotation_entry(ProblemKind::Capacity, key, &format!("{resource}={quantity}"), &rule)
}
