//! The flags of [`IndexArgs`] as typed configuration, validated together, in the types of the modules below.
//! Nothing may be read or opened here.

use std::{path::PathBuf, sync::Arc};

use regex::Regex;
use rules::capi::Keys;
use rules::{
    Architecture, CapacityWords, ErrorRules, ResourceList, Rules, Scope, ScopeSpec, TemplateRules, resource_list,
};

use super::{
    IndexArgs, UsageError,
    usage::{Flag, given},
    values::{capi_group, capi_version, source},
};
use app::IndexConfig;
use connect::{ClusterRef, NodeAccess, WorkloadSource};

impl IndexArgs {
    /// Validates the flags. `unless_chosen` is the scope if they choose none; without it, that is an error.
    pub(super) fn config(
        &self,
        unless_chosen: Option<Scope>,
        warnings: &mut Vec<String>,
    ) -> Result<IndexConfig, UsageError> {
        let cluster = match given(self.cluster.as_deref()) {
            Some(text) => Some(text.parse::<ClusterRef>().map_err(|error| CLUSTER.wrong(text, &error))?),
            None => None,
        };
        let workload = self.workload(cluster.as_ref())?;
        let specs = specs(&self.node_group_auto_discovery)?;
        Ok(IndexConfig {
            management: given(self.management_kubeconfig.as_deref()).map(source).unwrap_or_default(),
            workload,
            rules: Rules {
                keys: Keys::new(capi_group(&self.capi_group)?),
                scope: scope(cluster.as_ref(), specs, self.all_clusters, unless_chosen)?,
                template: TemplateRules {
                    default_arch: architecture(&self.scale_zero_default_arch, warnings),
                    additional_sync_labels: synced_labels(&self.additional_sync_machine_labels)?,
                    default_overhead: default_overhead(self.default_node_overhead.as_deref())?,
                    learn_extended_resources: self.learn_extended_resources,
                },
                // The prices are read from the file at the start.
                prices: Arc::default(),
                errors: ErrorRules::default(),
                capacity_words: CapacityWords::default(),
            },
            capi_version: capi_version(self.capi_version.as_deref())?,
            prices: given(self.prices.as_deref()).map(PathBuf::from),
        })
    }

    /// Returns the credentials by which Nodes are read; `None` if no flag names any.
    pub(super) fn node_access(&self) -> Result<Option<NodeAccess>, UsageError> {
        let Some(text) = given(self.workload_nodes.as_deref()) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| WORKLOAD_NODES.wrong(text, &error))
    }

    fn workload(&self, cluster: Option<&ClusterRef>) -> Result<WorkloadSource, UsageError> {
        let nodes = self.node_access()?;
        let wrong = |why: &str| {
            let text = self.workload_nodes.as_deref().unwrap_or_default();
            Err(WORKLOAD_NODES.wrong(text, &why))
        };
        Ok(match (given(self.workload_kubeconfig.as_deref()), cluster, nodes) {
            (Some(_), _, Some(_)) => return wrong("--workload-kubeconfig has the credentials already"),
            (Some(text), _, None) => WorkloadSource::Own(source(text)),
            (None, Some(cluster), nodes) => nodes.unwrap_or_default().of(cluster),
            (None, None, Some(NodeAccess::None)) => WorkloadSource::None,
            (None, None, Some(NodeAccess::Secret(_) | NodeAccess::Made(_))) => {
                return wrong("a Secret belongs to a Cluster: give --cluster or --fleet-selector");
            }
            (None, None, None) => WorkloadSource::Management,
        })
    }
}

const CLUSTER: Flag = Flag { name: "--cluster", variable: "CAPI_AUTOSCALER_CLUSTER", default: "" };
const DISCOVERY: Flag =
    Flag { name: "--node-group-auto-discovery", variable: "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", default: "" };
const SYNCED_LABELS: Flag = Flag {
    name: "--additional-sync-machine-labels",
    variable: "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS",
    default: "",
};
const OVERHEAD: Flag =
    Flag { name: TemplateRules::DEFAULT_OVERHEAD_FLAG, variable: "CAPI_AUTOSCALER_DEFAULT_NODE_OVERHEAD", default: "" };
const WORKLOAD_NODES: Flag = Flag { name: "--workload-nodes", variable: "CAPI_AUTOSCALER_WORKLOAD_NODES", default: "" };
/// The flags whose values are parsed here: a test compares their names with clap's.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 5] = [CLUSTER, DISCOVERY, SYNCED_LABELS, OVERHEAD, WORKLOAD_NODES];
const ALL_CLUSTERS: &str = "--all-clusters";

/// Parses specs separated by space or semicolons, neither of which labels and names contain.
fn specs(values: &[String]) -> Result<Vec<ScopeSpec>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split(|c: char| c.is_whitespace() || c == ';'))
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().map_err(|error| DISCOVERY.wrong(text, &error)))
        .collect()
}

fn scope(
    cluster: Option<&ClusterRef>,
    specs: Vec<ScopeSpec>,
    all: bool,
    unless_chosen: Option<Scope>,
) -> Result<Scope, UsageError> {
    let conflict = |first, second| Err(UsageError::Conflict { first, second });
    match (cluster, specs.is_empty(), all) {
        (Some(_), _, true) => conflict(CLUSTER.name, ALL_CLUSTERS),
        (Some(_), false, false) => conflict(CLUSTER.name, DISCOVERY.name),
        (None, false, true) => conflict(DISCOVERY.name, ALL_CLUSTERS),
        (Some(cluster), true, false) => Ok(Scope::Specs(vec![ScopeSpec::cluster(cluster.namespace(), cluster.name())])),
        (None, false, false) => Ok(Scope::Specs(specs)),
        (None, true, true) => Ok(Scope::All),
        (None, true, false) => unless_chosen.ok_or(UsageError::NoScope),
    }
}

/// Parses the architecture. An unknown one counts as amd64, as in the in-tree provider (contract, section 4).
fn architecture(text: &str, warnings: &mut Vec<String>) -> Architecture {
    let Some(text) = given(Some(text)) else { return Architecture::default() };
    text.parse().unwrap_or_else(|_| {
        warnings.push(format!(
            "--scale-zero-default-arch (or CAPI_SCALE_ZERO_DEFAULT_ARCH): {text:?} is not one of amd64, arm64, ppc64le \
             and s390x: amd64 is taken"
        ));
        Architecture::default()
    })
}

/// Parses expressions separated by space. Commas may be part of an expression, as in Cluster API's own flag.
fn synced_labels(values: &[String]) -> Result<Vec<Regex>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split_whitespace())
        .map(|text| Regex::new(text).map_err(|error| SYNCED_LABELS.wrong(text, &error)))
        .collect()
}

fn default_overhead(text: Option<&str>) -> Result<ResourceList, UsageError> {
    let text = given(text).unwrap_or_default();
    resource_list::parse_all(text).map_err(|error| OVERHEAD.wrong(text, &error))
}
