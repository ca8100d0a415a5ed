//! The report on node groups, as values for programs: every value of a template with its source and the values that it
//! overrode. The text for people is built from it. It shows the content of the index, and must decide no rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::state::ProblemState;

/// The version of this schema. It changes when a field is removed or changes its meaning.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// The whole report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) schema_version: u32,
    /// The node groups, by id.
    pub(crate) groups: Vec<GroupReport>,
    /// The objects that aren't node groups, by id.
    pub(crate) left_out: Vec<LeftOutReport>,
    /// The pods whose fit is reported with each group.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) pods: Vec<PodReport>,
    /// Problems of the manifests besides those of the groups: objects that can't be read, or occur twice.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) warnings: Vec<String>,
    /// Parts of the manifests that aren't objects.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) skipped: Vec<String>,
}

/// A node group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupReport {
    pub(crate) id: String,
    pub(crate) cluster: String,
    /// True if the group has problems.
    pub(crate) invalid: bool,
    pub(crate) size: i32,
    pub(crate) min_size: i32,
    pub(crate) max_size: i32,
    pub(crate) rolling_out: bool,
    pub(crate) scales_from_zero: bool,
    /// The reason why it doesn't scale from zero.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) not_from_zero: Option<String>,
    /// The Node that would join, if it is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) template: Option<TemplateReport>,
    /// The autoscaling options that it overrides, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) options: BTreeMap<String, Value>,
    /// The price of one of its Nodes per hour.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) price_per_hour: Option<Value>,
    /// The devices and the volume limits by driver, which the protocol can't carry.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) drivers: Vec<DriverReport>,
    pub(crate) problems: Vec<ProblemState>,
    /// Notes that are worth knowing and aren't problems.
    pub(crate) notes: Vec<String>,
    /// The fit of each pod on one of its Nodes, when that is empty.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) fits: Vec<FitReport>,
}

/// An object that isn't a node group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeftOutReport {
    pub(crate) id: String,
    pub(crate) cluster: String,
    /// True if it is left out because of an error, or has problems.
    pub(crate) invalid: bool,
    /// The reason as a word.
    pub(crate) reason: String,
    /// The reason and the remedy.
    pub(crate) message: String,
    pub(crate) problems: Vec<ProblemState>,
    pub(crate) notes: Vec<String>,
}

/// The Node that would join.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TemplateReport {
    pub(crate) resources: BTreeMap<String, Resource>,
    pub(crate) labels: BTreeMap<String, Value>,
    pub(crate) taints: Vec<Value>,
}

/// A resource of a Node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub(crate) allocatable: String,
    pub(crate) capacity: Value,
    /// The part of the capacity that pods don't get.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) overhead: Option<Value>,
}

/// A value and its source.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Value {
    #[serde(flatten)]
    pub(crate) stated: Stated,
    /// The values that it overrode, the weakest last.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) overrode: Vec<Stated>,
}

/// A value as a source states it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stated {
    pub(crate) value: String,
    /// The kind of the source, as a word.
    pub(crate) source: String,
    /// The full source, for people.
    pub(crate) from: String,
}

/// The devices of a driver on a Node, or its limit of volumes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DriverReport {
    /// `dra` or `csi`.
    pub(crate) kind: String,
    pub(crate) driver: String,
    /// The number of devices, or the maximum number of volumes.
    pub(crate) count: u32,
    pub(crate) from: String,
}

/// A pod whose fit is reported.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PodReport {
    pub(crate) pod: String,
    pub(crate) requests: BTreeMap<String, String>,
    pub(crate) not_looked_at: Vec<String>,
}

/// The fit of a pod on an empty Node of a group.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FitReport {
    pub(crate) pod: String,
    /// `None` if nothing is known of the Node.
    pub(crate) fits: Option<bool>,
    pub(crate) missing: Vec<String>,
}

impl Report {
    /// Returns the number of objects in the report that are invalid.
    pub(crate) fn invalid(&self) -> usize {
        let groups = self.groups.iter().filter(|group| group.invalid).count();
        groups + self.left_out.iter().filter(|object| object.invalid).count()
    }

    /// Returns the pods that fit no Node of any group.
    pub(crate) fn homeless(&self) -> impl Iterator<Item = &str> {
        let fits = |pod: &PodReport| {
            self.groups.iter().flat_map(|group| &group.fits).any(|fit| fit.pod == pod.pod && fit.fits == Some(true))
        };
        self.pods.iter().filter(move |pod| !fits(pod)).map(|pod| pod.pod.as_str())
    }
}
