//! The flags of [`IndexArgs`] as typed configuration, validated together, in the types of the modules below.
//! Nothing may be read or opened here.

use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use app::IndexConfig;
use clap::Args;
use cluster::{Fleet, FleetOptions, WorkloadCluster};
use connect::{Clients, ClusterRef, NodeAccess, WorkloadSource};
use index::Index;
use regex::Regex;
use rules::{
    Architecture, CapacityWords, ErrorRules, ResourceList, Rules, Scope, ScopeSpec, TemplateRules,
    capi::{DEFAULT_GROUP, Keys, ObjectKey},
    resource_list,
};
use service::listen::{Check, CheckState};
use shared_informer::Spawner;
use tokio::{runtime::Handle, time::sleep};

use super::{
    UsageError, help,
    printing::{Flag, given},
    values::{capi_group, capi_version, management, parse_bool, source},
};

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
            management: management(self.management_kubeconfig.as_deref(), self.context.as_deref())?,
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

// The flags that determine the index: the clusters, the node groups, and the operator's rules for all of them. Every
// subcommand that has an index takes these flags, so that all indexes are the same.

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

    /// YAML file with prices for the price expander. Annotations win
    #[arg(long, env = "CAPI_AUTOSCALER_PRICES", value_name = "FILE", help_heading = help::TEMPLATES, hide_short_help = true)]
    pub prices: Option<String>,
}

// Reads clusters for commands that run once, with the same lists and projections as a server. It must never write, nor
// leave anything running.

/// The names of the check of Clusters, and of the one of all kinds while one cause stops them.
const API_SERVER: &str = "management/api-server";
const CLUSTERS: &str = "management/clusters";
/// The prefix of an informer's reason if a permission is missing.
pub(super) const FORBIDDEN: &str = "forbidden:";
/// The interval at which the checks are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An index that is being filled from the clusters.
pub(super) struct LiveIndex {
    fleet: Fleet,
    cluster: WorkloadCluster,
}

impl LiveIndex {
    /// Starts to read the clusters.
    pub(super) fn start(clients: Clients, config: IndexConfig, patience: Duration) -> Self {
        let options = FleetOptions::of_one(config.rules, patience);
        let options = FleetOptions { capi_version: config.capi_version, ..options };
        let tasks = Spawner::from(Handle::current());
        let (fleet, cluster) = Fleet::start_one(clients, config.workload, options, &tasks);
        Self { fleet, cluster }
    }

    /// Waits until all checks for which `is_waited_for` returns true are ready. Returns false if they aren't at the
    /// deadline.
    pub(super) async fn wait(&self, until: Instant, is_waited_for: impl Fn(&Check) -> bool) -> bool {
        loop {
            let is_there = |check: &Check| check.is_ready() || !is_waited_for(check);
            if self.cluster.checks().iter().all(is_there) && self.index().has_settled() {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until the Clusters are read, or can't be. Returns them if they are.
    pub(super) async fn clusters(&self) -> Option<BTreeSet<ObjectKey>> {
        loop {
            let check = self.cluster.checks().into_iter().find(|check| [API_SERVER, CLUSTERS].contains(&&*check.name));
            match check.map(|check| (check.state, check.reason)) {
                Some((CheckState::Ready, None)) => return Some(self.index().clusters()),
                Some((CheckState::Pending, Some(why))) if !why.starts_with(FORBIDDEN) => sleep(POLL_INTERVAL).await,
                // They are forbidden, or aren't served.
                _ => return None,
            }
        }
    }

    /// Returns the only Cluster whose groups are in the scope, if it is one that is named.
    pub(super) fn cluster_in_scope(&self) -> Option<ObjectKey> {
        self.cluster.cluster_in_scope()
    }

    pub(super) fn index(&self) -> &Index {
        self.cluster.index()
    }

    /// Returns the names of the checks that aren't ready, with the reason.
    pub(super) fn unready_checks(&self) -> Vec<(String, String)> {
        let checks = self.cluster.checks();
        let missing = checks.into_iter().filter(|check| check.state != CheckState::Ready);
        missing.map(|check| (check.name, check.reason.unwrap_or_default())).collect()
    }

    /// Ends everything that was started.
    pub(super) async fn end(self) {
        self.fleet.shutdown().await;
    }
}
