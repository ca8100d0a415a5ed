//! The report on node groups, as values for programs: every value of a template with its source and the values that it
//! overrode. The text for people is built from the report. The report shows the content of the index, and must
//! implement no rule.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::state::LeftOutObject;
use rules::{Driver, NodeTemplate, PodNeeds, Price, Problem, Sourced};

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
    /// The pods whose fit is reported with each group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
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
    /// The fit of each pod on an empty Node of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<FitReport>,
}

/// A pod whose fit is reported with each group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Kind, namespace and name of the given object.
    #[serde(rename = "pod")]
    pub name: String,
    /// Its requests and constraints; only the requests are written.
    #[serde(rename = "requests", serialize_with = "requests")]
    pub needs: PodNeeds,
    /// The parts of its spec that aren't considered.
    pub not_looked_at: Vec<&'static str>,
}

fn requests<S: Serializer>(needs: &PodNeeds, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(needs.requests.iter().map(|(resource, amount)| (resource, amount.to_string())))
}

/// The fit of a pod on an empty Node of a group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FitReport {
    /// The pod, by its [name](Pod::name).
    pub pod: String,
    /// `None` if nothing is known of the Node.
    pub fits: Option<bool>,
    /// The reasons why it doesn't fit.
    pub missing: Vec<String>,
}

impl Report {
    /// Returns the number of objects in the report that are invalid.
    #[must_use]
    pub fn invalid(&self) -> usize {
        let groups = self.groups.iter().filter(|group| group.invalid).count();
        groups + self.left_out.iter().filter(|object| object.invalid).count()
    }

    /// Returns the pods that fit no Node of any group.
    pub fn homeless(&self) -> impl Iterator<Item = &str> {
        let fits = |pod: &Pod| {
            self.groups.iter().flat_map(|group| &group.fits).any(|fit| fit.pod == pod.name && fit.fits == Some(true))
        };
        self.pods.iter().filter(move |pod| !fits(pod)).map(|pod| pod.name.as_str())
    }
}
