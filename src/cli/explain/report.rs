//! What is told of node groups, as values for programs: every value of a template with its source and what it overrode.
//! The text for people is made from it. It shows what the index says and decides no rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::ProblemState;

/// The version of this schema; it changes when a field goes or means something else.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// Everything that is told.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    pub(super) schema_version: u32,
    /// The node groups, by id.
    pub(super) groups: Vec<GroupReport>,
    /// What is no node group, by id.
    pub(super) left_out: Vec<LeftOutReport>,
    /// The pods whose fit is told with each group.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) pods: Vec<PodReport>,
    /// What is wrong with the manifests beside the groups: objects that can't be read, or are there twice.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) warnings: Vec<String>,
    /// What of the manifests is no object.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) skipped: Vec<String>,
}

/// A node group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupReport {
    pub(super) id: String,
    pub(super) cluster: String,
    /// Whether something is wrong with it: it has problems.
    pub(super) invalid: bool,
    pub(super) size: i32,
    pub(super) min_size: i32,
    pub(super) max_size: i32,
    pub(super) rolling_out: bool,
    pub(super) scales_from_zero: bool,
    /// Why it doesn't scale from zero.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) not_from_zero: Option<String>,
    /// The Node that would join, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) template: Option<TemplateReport>,
    /// The autoscaling options it overrides, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(super) options: BTreeMap<String, Value>,
    /// What a Node of it costs in an hour.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) price_per_hour: Option<Value>,
    /// Devices by driver and limits of volumes by driver, which the protocol can't carry.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) drivers: Vec<DriverReport>,
    pub(super) problems: Vec<ProblemState>,
    /// What is no fault and worth knowing.
    pub(super) notes: Vec<String>,
    /// Whether the pods would fit an empty Node of it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) fits: Vec<FitReport>,
}

/// An object that is no node group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LeftOutReport {
    pub(super) id: String,
    pub(super) cluster: String,
    /// Whether it is left out for an error, or something is wrong with it.
    pub(super) invalid: bool,
    /// The reason as a word.
    pub(super) reason: String,
    /// The reason and the remedy.
    pub(super) message: String,
    pub(super) problems: Vec<ProblemState>,
    pub(super) notes: Vec<String>,
}

/// The Node that would join.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateReport {
    pub(super) resources: BTreeMap<String, Resource>,
    pub(super) labels: BTreeMap<String, Value>,
    pub(super) taints: Vec<Value>,
}

/// A resource of a Node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resource {
    pub(super) allocatable: String,
    pub(super) capacity: Value,
    /// What pods don't get of the capacity.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) overhead: Option<Value>,
}

/// A value and where it comes from.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Value {
    #[serde(flatten)]
    pub(super) stated: Stated,
    /// What it won over, the weakest last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) overrode: Vec<Stated>,
}

/// What a source states.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stated {
    pub(super) value: String,
    /// The kind of source, as a word.
    pub(super) source: String,
    /// The source in full, for people.
    pub(super) from: String,
}

/// What a driver has on a Node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DriverReport {
    /// `dra` or `csi`.
    pub(super) kind: String,
    pub(super) driver: String,
    /// Devices, or the most volumes.
    pub(super) count: u32,
    pub(super) from: String,
}

/// A pod whose fit is told.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodReport {
    pub(super) pod: String,
    pub(super) requests: BTreeMap<String, String>,
    pub(super) not_looked_at: Vec<String>,
}

/// Whether a pod would fit an empty Node of a group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FitReport {
    pub(super) pod: String,
    /// `None`: nothing is known of the Node.
    pub(super) fits: Option<bool>,
    pub(super) missing: Vec<String>,
}

impl Report {
    /// How many of the objects that are told of are invalid.
    pub(super) fn invalid(&self) -> usize {
        let groups = self.groups.iter().filter(|group| group.invalid).count();
        groups + self.left_out.iter().filter(|object| object.invalid).count()
    }

    /// The pods that fit no Node of any group.
    pub(super) fn homeless(&self) -> impl Iterator<Item = &str> {
        let fits = |pod: &PodReport| {
            self.groups.iter().flat_map(|group| &group.fits).any(|fit| fit.pod == pod.pod && fit.fits == Some(true))
        };
        self.pods.iter().filter(move |pod| !fits(pod)).map(|pod| pod.pod.as_str())
    }
}
