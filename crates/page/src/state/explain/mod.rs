//! The report on node groups: every value of a template with its source and the values that it overrode, as values for
//! programs and as lines for people ([`rows`]). The command `explain` and the status page show the same report, so that
//! they agree. The report shows the content of the index. This module must implement no rule and query no cluster.

pub mod rows;

use std::collections::BTreeMap;

use rules::capi::{CAPACITY_PREFIX, Keys, ScalableResource};
use rules::{
    Driver, Exclusion, FromZero, NodeTemplate, Overrides, Price, Problem, Source, Sourced,
    resource_list::{CPU, MEMORY},
};
use serde::Serialize;

use super::{LeftOutObject, collect};
use index::{GroupSnapshot, Served};

/// The version of this schema. It changes when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// The whole report.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The [`SCHEMA_VERSION`] of the program that wrote it.
    pub schema_version: u32,
    /// The node groups, by id.
    pub groups: Vec<GroupReport>,
    /// The objects that aren't node groups, by id.
    pub left_out: Vec<LeftOutObject>,
    /// Problems of the manifests besides those of the groups: objects that can't be read, or occur twice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Parts of the manifests that aren't objects.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// A node group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupReport {
    /// Its id, such as `MachineDeployment/team-a/workers`.
    pub id: String,
    /// The name of its Cluster.
    pub cluster: String,
    /// True if the group has problems.
    pub invalid: bool,
    /// Its target size.
    pub size: i32,
    /// Its min size.
    pub min_size: i32,
    /// Its max size.
    pub max_size: i32,
    /// True during a rollout.
    pub rolling_out: bool,
    /// True if it scales from zero.
    pub scales_from_zero: bool,
    /// What lets it scale from zero: `annotation`, `remembered` or `status.capacity`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_zero: Option<&'static str>,
    /// The reason why it doesn't scale from zero.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_from_zero: Option<String>,
    /// The Node that a scale-up would add, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<NodeTemplate>,
    /// The autoscaling options that it overrides, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub options: BTreeMap<String, Sourced<String>>,
    /// The price of one of its Nodes per hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<Sourced<Price>>,
    /// The devices and the volume limits by driver, which the protocol can't carry.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub drivers: Vec<Driver>,
    /// Its problems.
    pub problems: Vec<Problem>,
    /// Notes that are worth knowing and aren't problems.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns the number of objects in the report that are invalid.
    pub fn invalid(&self) -> usize {
        let groups = self.groups.iter().filter(|group| group.invalid).count();
        groups + self.left_out.iter().filter(|object| object.invalid).count()
    }
}

/// The report on an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Explained {
    /// A node group.
    Group(Box<GroupReport>),
    /// An object that isn't one.
    LeftOut(Box<LeftOutObject>),
}

/// Reports on an object of the index; `None` if the object is gone. `notes` are facts that the caller knows and the
/// index lacks.
pub fn explained(snapshot: &GroupSnapshot, notes: &[String], keys: &Keys) -> Option<Explained> {
    let reason = match &snapshot.standing {
        Ok(served) => return Some(Explained::Group(Box::new(group(snapshot, served, notes, keys)))),
        Err(excluded) => excluded.reason,
    };
    let mut object = collect::left_out(snapshot, Vec::new()).filter(|_| reason != Exclusion::Gone)?;
    // A report doesn't wait for a template, since manifests may never contain it.
    if reason == Exclusion::WaitingForTemplate {
        object.message = Exclusion::NoScaleFromZero.to_string();
        object.invalid = true;
    }
    object.notes = notes.to_vec();
    Some(Explained::LeftOut(Box::new(object)))
}

fn group(snapshot: &GroupSnapshot, served: &Served, notes: &[String], keys: &Keys) -> GroupReport {
    let definition = &served.definition;
    let not_from_zero = match &definition.template {
        Some(_) => None,
        None => Some(not_from_zero(snapshot.object.as_deref())),
    };
    GroupReport {
        id: snapshot.id.to_string(),
        cluster: snapshot.object.as_deref().map(|object| object.cluster_name.to_string()).unwrap_or_default(),
        invalid: !definition.problems.is_empty(),
        size: snapshot.size,
        min_size: definition.bounds.min,
        max_size: definition.bounds.max,
        rolling_out: snapshot.rollout.is_some(),
        scales_from_zero: not_from_zero.is_none(),
        from_zero: definition.from_zero.map(FromZero::as_str),
        not_from_zero,
        template: definition.template.clone(),
        options: options(&definition.options, keys),
        price_per_hour: definition.price.as_ref().map(|price| price.price.clone()),
        drivers: definition.drivers.clone(),
        problems: definition.problems.clone(),
        notes: snapshot.note().iter().chain(&definition.notes).chain(notes).cloned().collect(),
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

fn options(overrides: &Overrides, keys: &Keys) -> BTreeMap<String, Sourced<String>> {
    let option = |(name, value): (String, String)| {
        let source = Source::Annotation(format!("{}{name}", keys.options_prefix).into());
        (name, Sourced::new(value, source))
    };
    collect::options(overrides).into_iter().map(option).collect()
}
