//! The flags of a fleet, as typed, and their meaning: which Clusters are served, and to whom. A fleet excludes all
//! that is about one workload cluster, and clients without certificates.

use std::collections::BTreeSet;

use clap::Args;
use rules::Scope;

use crate::cli::{
    IndexArgs, UsageError, help,
    usage::{given, wrong},
    values::parse_bool,
};
use app::{Config, FleetConfig};
use connect::ClusterRef;
use index::GroupSeries;
use service::listen::{ClientFiles, GrpcAddress};

/// The flags of a fleet, as typed.
#[derive(Args, Clone, Debug)]
pub struct FleetArgs {
    /// Serve every Cluster with matching labels, such as autoscaler=fleet, to its own Cluster Autoscaler
    #[arg(long, env = "CAPI_AUTOSCALER_FLEET_SELECTOR", value_name = "LABELS", help_heading = help::FLEET)]
    pub fleet_selector: Option<String>,

    /// Only Clusters in these namespaces. Repeatable, or separated by spaces
    #[arg(long, env = "CAPI_AUTOSCALER_FLEET_NAMESPACES", value_name = "NAMESPACE", help_heading = help::FLEET)]
    pub fleet_namespaces: Vec<String>,

    /// Trust domain of client certificates, whose URI is spiffe://DOMAIN/ns/NAMESPACE/cluster/NAME
    #[arg(long, env = "CAPI_AUTOSCALER_FLEET_TRUST_DOMAIN", value_name = "DOMAIN", help_heading = help::FLEET)]
    pub fleet_trust_domain: Option<String>,

    /// Export metrics per node group, of all Clusters
    #[arg(long, env = "CAPI_AUTOSCALER_FLEET_GROUP_METRICS", value_parser = parse_bool, help_heading = help::FLEET, hide_short_help = true)]
    pub fleet_group_metrics: bool,
}

/// The choice of a fleet.
pub(super) struct Fleet {
    config: FleetConfig,
    group_metrics: bool,
}

impl Fleet {
    /// Returns the fleet that the flags choose; `None` if they choose none.
    pub(super) fn of(args: &FleetArgs, index: &IndexArgs) -> Result<Option<Self>, UsageError> {
        let namespaces: BTreeSet<_> =
            args.fleet_namespaces.iter().flat_map(|value| value.split_whitespace()).map(str::to_owned).collect();
        let domain = given(args.fleet_trust_domain.as_deref());
        let Some(selector) = given(args.fleet_selector.as_deref()) else {
            let needs = |given, why| UsageError::Needs { given, other: "--fleet-selector", why };
            let why = "it is about the Clusters that the selector matches";
            if !namespaces.is_empty() {
                return Err(needs("--fleet-namespaces", why));
            }
            if domain.is_some() {
                return Err(needs("--fleet-trust-domain", why));
            }
            if args.fleet_group_metrics {
                let why = "the metrics of one cluster have series per node group already";
                return Err(needs("--fleet-group-metrics", why));
            }
            return Ok(None);
        };
        check_alone(index)?;
        let selector = selector.parse().map_err(|error| wrong("--fleet-selector", selector, error))?;
        for namespace in &namespaces {
            ClusterRef::new(namespace, "any").map_err(|error| wrong("--fleet-namespaces", namespace, error))?;
        }
        let domain = domain.ok_or(UsageError::Needs {
            given: "--fleet-selector",
            other: "--fleet-trust-domain",
            why: "clients are known by their certificates",
        })?;
        let trust_domain = domain.parse().map_err(|error| wrong("--fleet-trust-domain", domain, error))?;
        let namespaces = Some(namespaces).filter(|names| !names.is_empty());
        let nodes = index.node_access()?.unwrap_or_default();
        let config = FleetConfig { selector, namespaces, trust_domain, nodes };
        Ok(Some(Self { config, group_metrics: args.fleet_group_metrics }))
    }

    /// Checks that a Cluster may be one of the fleet by its namespace.
    pub(super) fn check_namespace_of(&self, cluster: &str) -> Result<(), UsageError> {
        let Some(namespaces) = &self.config.namespaces else { return Ok(()) };
        if cluster.split_once('/').is_some_and(|(namespace, _)| namespaces.contains(namespace)) {
            return Ok(());
        }
        let names = namespaces.iter().map(String::as_str).collect::<Vec<_>>().join(" ");
        Err(wrong(
            "--fleet-namespaces",
            &names,
            format!("Cluster {cluster} is in none of these, so the fleet doesn't serve it"),
        ))
    }

    /// The scope of the rules, which each Cluster replaces by itself.
    pub(super) fn scope() -> Scope {
        Scope::Specs(Vec::new())
    }

    /// Returns the configuration with the fleet.
    pub(super) fn config(self, common: Config) -> Result<Config, UsageError> {
        let has_authority =
            matches!(common.tls.as_ref().map(|files| &files.clients), Some(ClientFiles::Authority { .. }));
        if !has_authority || matches!(common.listen, GrpcAddress::Unix(_)) {
            let why = "a fleet knows its clients by their certificates: give an IP address and a port, --tls-cert-file, \
                       --tls-key-file and --tls-client-ca-file";
            return Err(wrong(Config::LISTEN_FLAG, &common.listen.to_string(), why));
        }
        if common.group_series == GroupSeries::SumsOnly {
            let why = "with --fleet-selector no node group has series of its own unless --fleet-group-metrics is given: \
                       leave this flag out";
            return Err(wrong("--no-group-metrics", "true", why));
        }
        let group_series = if self.group_metrics { GroupSeries::Each } else { GroupSeries::SumsOnly };
        Ok(Config { fleet: Some(self.config), group_series, ..common })
    }
}

/// Checks that no flag chooses a single workload cluster.
fn check_alone(index: &IndexArgs) -> Result<(), UsageError> {
    let others = [
        ("--cluster", given(index.cluster.as_deref()).is_some()),
        ("--node-group-auto-discovery", index.node_group_auto_discovery.iter().any(|spec| !spec.trim().is_empty())),
        ("--all-clusters", index.all_clusters),
    ];
    if let Some((second, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
        return Err(UsageError::Conflict("--fleet-selector", second));
    }
    match given(index.clusters.workload_kubeconfig.as_deref()) {
        None => Ok(()),
        Some(file) => Err(wrong(
            "--workload-kubeconfig",
            file,
            "each workload cluster of a fleet is reached by the Secret of its Cluster: see --workload-nodes",
        )),
    }
}

#[cfg(test)]
mod tests;
