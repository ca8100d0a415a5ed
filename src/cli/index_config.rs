//! The flags that determine the index: the clusters, the node groups, and the operator's rules for all of them. Every
//! subcommand that has an index takes these flags, so that all indexes are the same. Nothing may be read or opened here.

use std::{collections::BTreeMap, path::PathBuf};

use app::IndexConfig;
use clap::Args;
use connect::{ClusterRef, NodeAccess, WorkloadSource};
use regex::Regex;
use rules::{
    Architecture, ResourceList, Rules, Scope, ScopeSpec, TemplateRules,
    capi::{DEFAULT_GROUP, Keys, ObjectKey},
    resource_list,
};

use super::{
    help,
    usage::{UsageError, given, wrong},
    values::{capi_group, capi_version, management, parse_bool, source},
};

/// The flags that determine an index, as typed.
#[derive(Args, Clone, Debug)]
pub struct IndexArgs {
    /// Scope: one Cluster
    #[arg(long, env = "CAPI_AUTOSCALER_CLUSTER", value_name = "NAMESPACE/NAME", help_heading = help::SCOPE)]
    pub cluster: Option<String>,

    /// Scope, as in-tree: clusterapi:namespace=NS,clusterName=NAME,label=value, each item optional. Repeatable, or
    /// separated by spaces or semicolons
    #[arg(long, env = "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", value_name = "SPEC", help_heading = help::SCOPE)]
    pub node_group_auto_discovery: Vec<String>,

    /// Scope: everything, in one workload cluster
    #[arg(long, env = "CAPI_AUTOSCALER_ALL_CLUSTERS", value_parser = parse_bool, help_heading = help::SCOPE)]
    pub all_clusters: bool,

    #[command(flatten)]
    #[allow(missing_docs, reason = "a text here would become that of the flags")]
    pub clusters: ClusterArgs,

    /// API group of Cluster API
    #[arg(long, env = "CAPI_GROUP", value_name = "GROUP", default_value = DEFAULT_GROUP, help_heading = help::CLUSTERS, hide_short_help = true)]
    pub capi_group: String,

    /// API version of that group. Default: the one that the API server prefers
    #[arg(long, env = "CAPI_VERSION", value_name = "VERSION", help_heading = help::CLUSTERS, hide_short_help = true)]
    pub capi_version: Option<String>,

    /// Architecture of new Nodes if nothing else states it: amd64, arm64, ppc64le or s390x
    #[arg(long, env = "CAPI_SCALE_ZERO_DEFAULT_ARCH", value_name = "ARCH", default_value = "amd64", help_heading = help::TEMPLATES, hide_short_help = true)]
    pub scale_zero_default_arch: String,

    /// Regular expression for label keys that Cluster API syncs to Nodes, as in its own flag. Repeatable, or separated
    /// by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS", value_name = "REGEX", help_heading = help::TEMPLATES, hide_short_help = true)]
    pub additional_sync_machine_labels: Vec<String>,

    /// Resources of a new Node that pods can't use, such as cpu=100m,memory=800Mi. Annotations and real Nodes win
    #[arg(long, env = "CAPI_AUTOSCALER_DEFAULT_NODE_OVERHEAD", value_name = "RESOURCES", help_heading = help::TEMPLATES, hide_short_help = true)]
    pub default_node_overhead: Option<String>,

    /// Learn extended resources and huge pages from real Nodes
    #[arg(
        long, env = "CAPI_AUTOSCALER_LEARN_EXTENDED_RESOURCES", value_name = "BOOL", default_value = "true",
        action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", value_parser = parse_bool, help_heading = help::TEMPLATES, hide_short_help = true
    )]
    pub learn_extended_resources: bool,

    /// ConfigMap in which Nodes are remembered, so that their groups scale from zero. Repeatable, or separated by spaces:
    /// one of several is for its own namespace
    #[arg(long, env = "CAPI_AUTOSCALER_REMEMBER_IN", value_name = "NAMESPACE/NAME", help_heading = help::TEMPLATES)]
    pub remember_in: Vec<String>,

    /// YAML file with prices for the price expander. Annotations win
    #[arg(long, env = "CAPI_AUTOSCALER_PRICES", value_name = "FILE", help_heading = help::TEMPLATES, hide_short_help = true)]
    pub prices: Option<String>,
}

/// The flags that say how clusters are reached, as typed.
#[derive(Args, Clone, Debug)]
pub struct ClusterArgs {
    /// Kubeconfig of the management cluster, or in-cluster. Default: the Pod's service account, else KUBECONFIG, else
    /// ~/.kube/config
    #[arg(long, visible_alias = "kubeconfig", env = "CAPI_AUTOSCALER_MANAGEMENT_KUBECONFIG", value_name = "FILE", help_heading = help::CLUSTERS)]
    pub management_kubeconfig: Option<String>,

    /// Context of --management-kubeconfig. Default: its current context
    #[arg(long, env = "CAPI_AUTOSCALER_CONTEXT", value_name = "NAME", help_heading = help::CLUSTERS)]
    pub context: Option<String>,

    /// Kubeconfig of the workload cluster, or in-cluster. Default: the Secret of --cluster; without --cluster, the
    /// management cluster
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_KUBECONFIG", value_name = "FILE", help_heading = help::CLUSTERS)]
    pub workload_kubeconfig: Option<String>,

    /// Secret with the kubeconfig to read Nodes with, in the Cluster's namespace, or none. Default:
    /// {cluster}-kubeconfig
    #[arg(long, env = "CAPI_AUTOSCALER_WORKLOAD_NODES", value_name = "SECRET", help_heading = help::CLUSTERS, hide_short_help = true)]
    pub workload_nodes: Option<String>,
}

impl IndexArgs {
    /// Validates the flags. `unless_chosen` is the scope if they choose none; without it, that is an error.
    pub(super) fn config(
        &self,
        unless_chosen: Option<Scope>,
        warnings: &mut Vec<String>,
    ) -> Result<IndexConfig, UsageError> {
        let cluster = match given(self.cluster.as_deref()) {
            Some(text) => Some(text.parse::<ClusterRef>().map_err(|error| wrong(CLUSTER, text, error))?),
            None => None,
        };
        let workload = self.workload(cluster.as_ref())?;
        let specs = specs(&self.node_group_auto_discovery)?;
        let scope = scope(cluster.as_ref(), specs, self.all_clusters, unless_chosen)?;
        Ok(IndexConfig {
            management: management(self.clusters.management_kubeconfig.as_deref(), self.clusters.context.as_deref())?,
            workload,
            rules: Rules {
                keys: Keys::new(capi_group(&self.capi_group)?),
                template: TemplateRules {
                    default_arch: architecture(&self.scale_zero_default_arch, warnings),
                    additional_sync_labels: synced_labels(&self.additional_sync_machine_labels)?,
                    default_overhead: default_overhead(self.default_node_overhead.as_deref())?,
                    learn_extended_resources: self.learn_extended_resources,
                },
                // The prices are read from the file at the start.
                ..Rules::new(scope)
            },
            capi_version: capi_version(self.capi_version.as_deref())?,
            prices: given(self.prices.as_deref()).map(PathBuf::from),
            remember: config_maps(&self.remember_in)?,
        })
    }

    /// Returns the credentials by which Nodes are read; `None` if no flag names any.
    pub(super) fn node_access(&self) -> Result<Option<NodeAccess>, UsageError> {
        let Some(text) = given(self.clusters.workload_nodes.as_deref()) else { return Ok(None) };
        text.parse().map(Some).map_err(|error| wrong("--workload-nodes", text, error))
    }

    fn workload(&self, cluster: Option<&ClusterRef>) -> Result<WorkloadSource, UsageError> {
        let nodes = self.node_access()?;
        let wrong = |why: &str| {
            let text = self.clusters.workload_nodes.as_deref().unwrap_or_default();
            Err(wrong("--workload-nodes", text, why))
        };
        Ok(match (given(self.clusters.workload_kubeconfig.as_deref()), cluster, nodes) {
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

const CLUSTER: &str = "--cluster";
const DISCOVERY: &str = "--node-group-auto-discovery";
const ALL_CLUSTERS: &str = "--all-clusters";

/// Parses specs separated by space or semicolons, neither of which labels and names contain.
fn specs(values: &[String]) -> Result<Vec<ScopeSpec>, UsageError> {
    values
        .iter()
        .flat_map(|value| value.split(|c: char| c.is_whitespace() || c == ';'))
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().map_err(|error| wrong(DISCOVERY, text, error)))
        .collect()
}

fn scope(
    cluster: Option<&ClusterRef>,
    specs: Vec<ScopeSpec>,
    all: bool,
    unless_chosen: Option<Scope>,
) -> Result<Scope, UsageError> {
    let conflict = |first, second| Err(UsageError::Conflict(first, second));
    match (cluster, specs.is_empty(), all) {
        (Some(_), _, true) => conflict(CLUSTER, ALL_CLUSTERS),
        (Some(_), false, false) => conflict(CLUSTER, DISCOVERY),
        (None, false, true) => conflict(DISCOVERY, ALL_CLUSTERS),
        (Some(cluster), true, false) => Ok(Scope::Specs(vec![ScopeSpec::cluster(cluster.namespace(), cluster.name())])),
        (None, false, false) => Ok(Scope::Specs(specs)),
        (None, true, true) => Ok(Scope::All),
        (None, true, false) => unless_chosen.ok_or(UsageError::NoScope),
    }
}

/// Parses the names of ConfigMaps, at most one of each namespace.
fn config_maps(values: &[String]) -> Result<Vec<ObjectKey>, UsageError> {
    const FLAG: &str = "--remember-in";
    let mut known = BTreeMap::new();
    for text in values.iter().flat_map(|value| value.split_whitespace()) {
        let named = text.parse::<ClusterRef>().map_err(|_| wrong(FLAG, text, "it has to be NAMESPACE/NAME"))?;
        if known.insert(named.namespace().to_owned(), named.name().to_owned()).is_some() {
            return Err(wrong(FLAG, text, "its namespace has one already"));
        }
    }
    Ok(known.into_iter().map(|(namespace, name)| ObjectKey::new(namespace.as_str(), name.as_str())).collect())
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
        .map(|text| Regex::new(text).map_err(|error| wrong("--additional-sync-machine-labels", text, error)))
        .collect()
}

fn default_overhead(text: Option<&str>) -> Result<ResourceList, UsageError> {
    let text = given(text).unwrap_or_default();
    resource_list::parse_all(text).map_err(|error| wrong(TemplateRules::DEFAULT_OVERHEAD_FLAG, text, error))
}
