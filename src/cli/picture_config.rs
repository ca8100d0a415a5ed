//! The flags of [`PictureArgs`] as typed configuration, validated together, in the types of the modules below.
//! Nothing may be read or opened here.

use std::{fmt, path::PathBuf, sync::Arc};

use capi::{DEFAULT_GROUP, Keys};
use nodegroup::{Architecture, ErrorRules, ResourceList, Rules, Scope, ScopeSpec, TemplateRules, resource_list};
use regex::Regex;

use super::{PictureArgs, UsageError};
use crate::connect::{ClusterRef, Source, WorkloadSource};

/// The value of a kubeconfig flag for the Pod's service account.
const IN_CLUSTER: &str = "in-cluster";

/// The clusters and the rules from which the index is built.
#[derive(Clone, Debug)]
pub(super) struct PictureConfig {
    /// The configuration for reaching the management cluster.
    pub(super) management: Source,
    /// The configuration for reaching the workload cluster.
    pub(super) workload: WorkloadSource,
    /// The scope, and the operator's rules for all node groups; without the prices of the file.
    pub(super) rules: Rules,
    /// The version of Cluster API; `None` is the one that the API server prefers.
    pub(super) capi_version: Option<String>,
    /// The price file.
    pub(super) prices: Option<PathBuf>,
}

impl PictureConfig {
    /// Validates the flags. `unless_chosen` is the scope if they choose none; without it, that is an error.
    pub(super) fn judge(
        args: &PictureArgs,
        unless_chosen: Option<Scope>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, UsageError> {
        let cluster = match given(args.cluster.as_deref()) {
            Some(text) => Some(text.parse::<ClusterRef>().map_err(|error| CLUSTER.wrong(text, &error))?),
            None => None,
        };
        let workload = match (given(args.workload_kubeconfig.as_deref()), &cluster) {
            (Some(text), _) => WorkloadSource::Own(source(text)),
            (None, Some(cluster)) => WorkloadSource::Secret(cluster.clone()),
            (None, None) => WorkloadSource::Management,
        };
        let specs = specs(&args.node_group_auto_discovery)?;
        Ok(Self {
            management: given(args.management_kubeconfig.as_deref()).map(source).unwrap_or_default(),
            workload,
            rules: Rules {
                keys: Keys::new(capi_group(&args.capi_group)?),
                scope: scope(cluster.as_ref(), specs, args.all_clusters, unless_chosen)?,
                template: TemplateRules {
                    default_arch: architecture(&args.scale_zero_default_arch, warnings),
                    additional_sync_labels: synced_labels(&args.additional_sync_machine_labels)?,
                    default_overhead: default_overhead(args.default_node_overhead.as_deref())?,
                    learn_extended_resources: args.learn_extended_resources,
                },
                // The prices are read from the file at the start.
                prices: Arc::default(),
                errors: ErrorRules::default(),
            },
            capi_version: capi_version(args.capi_version.as_deref())?,
            prices: given(args.prices.as_deref()).map(PathBuf::from),
        })
    }
}

/// A flag, its environment variable, and the meaning of an empty value.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) variable: &'static str,
    pub(super) default: &'static str,
}

pub(super) const CLUSTER: Flag = Flag { name: "--cluster", variable: "CAPI_AUTOSCALER_CLUSTER", default: "" };
pub(super) const DISCOVERY: Flag =
    Flag { name: "--node-group-auto-discovery", variable: "CAPI_AUTOSCALER_NODE_GROUP_AUTO_DISCOVERY", default: "" };
pub(super) const CAPI_GROUP: Flag = Flag { name: "--capi-group", variable: "CAPI_GROUP", default: DEFAULT_GROUP };
pub(super) const CAPI_VERSION: Flag = Flag { name: "--capi-version", variable: "CAPI_VERSION", default: "" };
pub(super) const SYNCED_LABELS: Flag = Flag {
    name: "--additional-sync-machine-labels",
    variable: "CAPI_AUTOSCALER_ADDITIONAL_SYNC_MACHINE_LABELS",
    default: "",
};
pub(super) const OVERHEAD: Flag =
    Flag { name: TemplateRules::DEFAULT_OVERHEAD_FLAG, variable: "CAPI_AUTOSCALER_DEFAULT_NODE_OVERHEAD", default: "" };
/// The flags whose values are parsed here, for a comparison with the existing flags.
#[cfg(test)]
pub(super) const FLAGS: [Flag; 6] = [CLUSTER, DISCOVERY, CAPI_GROUP, CAPI_VERSION, SYNCED_LABELS, OVERHEAD];
const ALL_CLUSTERS: &str = "--all-clusters";

impl Flag {
    pub(super) fn or_default<'a>(&self, text: &'a str) -> &'a str {
        given(Some(text)).unwrap_or(self.default)
    }

    pub(super) fn wrong(&self, value: &str, reason: &dyn fmt::Display) -> UsageError {
        UsageError::Value {
            flag: self.name,
            variable: self.variable,
            value: value.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Returns a value without surrounding space; `None` if it is empty.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

pub(super) fn source(text: &str) -> Source {
    if text == IN_CLUSTER { Source::InCluster } else { Source::File(PathBuf::from(text)) }
}

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

pub(super) fn capi_group(text: &str) -> Result<&str, UsageError> {
    let text = CAPI_GROUP.or_default(text);
    if is_dns(text) && text.contains('.') {
        return Ok(text);
    }
    Err(CAPI_GROUP.wrong(text, &"it has to be an API group, such as cluster.x-k8s.io"))
}

pub(super) fn capi_version(text: Option<&str>) -> Result<Option<String>, UsageError> {
    match given(text) {
        Some(text) if is_dns(text) && text.starts_with('v') && !text.contains('.') => Ok(Some(text.to_owned())),
        Some(text) => Err(CAPI_VERSION.wrong(text, &"it has to be a version without its group, such as v1beta2")),
        None => Ok(None),
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

pub(super) fn is_dns(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
        })
}
