//! Converts values of the index to types of the report. This module must implement no rule.

use std::collections::BTreeMap;

use k8s_pb::api::core::v1 as wire;
use prost::Message as _;
use rules::capi::{CAPACITY_PREFIX, Keys, ScalableResource};
use rules::{
    EmptyNode, Exclusion, Overrides, Source, Sourced, fit,
    resource_list::{CPU, MEMORY},
};

use super::{
    super::{LeftOutObject, convert},
    report::{FitReport, GroupReport, Pod},
};
use index::{GroupSnapshot, Served};

/// The report on an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Explained {
    /// A node group.
    Group(Box<GroupReport>),
    /// An object that isn't one.
    LeftOut(LeftOutObject),
}

/// Reports on an object of the index; `None` if the object is gone. `notes` are facts that the caller knows and the
/// index lacks.
#[must_use]
pub fn explained(snapshot: &GroupSnapshot, notes: &[String], keys: &Keys, pods: &[Pod]) -> Option<Explained> {
    let reason = match &snapshot.standing {
        Ok(served) => return Some(Explained::Group(Box::new(group(snapshot, served, notes, keys, pods)))),
        Err(excluded) => excluded.reason,
    };
    let mut object = convert::left_out(snapshot, Vec::new()).filter(|_| reason != Exclusion::Gone)?;
    // A report doesn't wait for a template, since manifests may never contain it.
    if reason == Exclusion::WaitingForTemplate {
        object.message = Exclusion::NoScaleFromZero.to_string();
        object.invalid = true;
    }
    object.notes = notes.to_vec();
    Some(Explained::LeftOut(object))
}

fn group(snapshot: &GroupSnapshot, served: &Served, notes: &[String], keys: &Keys, pods: &[Pod]) -> GroupReport {
    let definition = &served.definition;
    let not_from_zero = match &definition.template {
        Some(_) => None,
        None => Some(not_from_zero(snapshot.object.as_deref())),
    };
    // This program has encoded these bytes, so they decode; a failure counts as an unknown Node.
    let node = served.template.as_ref().and_then(|node| wire::Node::decode(node.clone()).ok());
    GroupReport {
        id: snapshot.id.to_string(),
        cluster: snapshot.object.as_deref().map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        invalid: !definition.problems.is_empty(),
        size: snapshot.size,
        min_size: definition.bounds.min,
        max_size: definition.bounds.max,
        rolling_out: snapshot.rollout.is_some(),
        scales_from_zero: not_from_zero.is_none(),
        not_from_zero,
        template: definition.template.clone(),
        options: options(&definition.options, keys),
        price_per_hour: definition.price.as_ref().map(|price| price.price.clone()),
        drivers: definition.drivers.clone(),
        problems: definition.problems.clone(),
        notes: snapshot.note().iter().chain(&definition.notes).chain(notes).cloned().collect(),
        fits: pods.iter().map(|pod| fits(pod, node.as_ref())).collect(),
    }
}

/// Returns the reason why a group doesn't scale from zero: cpu or memory isn't known. If only one of them has an
/// annotation, the text names the other one.
fn not_from_zero(object: Option<&ScalableResource>) -> String {
    let is_annotated = |name: &str| {
        object.is_some_and(|object| object.annotations.contains_key(format!("{CAPACITY_PREFIX}{name}").as_str()))
    };
    let what = match (is_annotated(CPU), is_annotated(MEMORY)) {
        (true, false) => "the memory of its Nodes isn't known",
        (false, true) => "the cpu of its Nodes isn't known",
        (true, true) | (false, false) => "the cpu and memory of its Nodes aren't both known",
    };
    format!(
        "{what}: the infrastructure template's status.capacity or the annotations {CAPACITY_PREFIX}cpu and …/memory have to \
         state both"
    )
}

/// Returns the overridden options with their annotations.
fn options(overrides: &Overrides, keys: &Keys) -> BTreeMap<String, Sourced<String>> {
    let option = |(name, value): (String, String)| {
        let source = Source::Annotation(format!("{}{name}", keys.options_prefix).into());
        (name, Sourced::new(value, source))
    };
    convert::options(overrides).into_iter().map(option).collect()
}

fn fits(pod: &Pod, node: Option<&wire::Node>) -> FitReport {
    let missing = node.map(|node| fit::obstacles(&pod.needs, &EmptyNode::from(node)));
    FitReport {
        pod: pod.name.clone(),
        fits: missing.as_ref().map(Vec::is_empty),
        missing: missing.into_iter().flatten().map(|obstacle| obstacle.to_string()).collect(),
    }
}
