//! Checks of the clusters: reachability, versions, the resources of Cluster API, and that a fleet serves a Cluster.

use std::time::Instant;

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use rules::{
    LabelSelector,
    capi::{KindRef, ObjectKey},
};

use super::needed_rights::Side;
use super::report::{CheckId, Findings};
use app::Config;
use connect::discovery::{CoreResources, Discovered, LookupError, discover_core};
use connect::{Clients, ConnectError, WorkloadSource, cause};

/// The versions of Cluster API's group whose fields are known.
const KNOWN_VERSIONS: [&str; 2] = ["v1beta2", "v1beta1"];

/// The clusters that were reached.
#[derive(Default)]
pub(super) struct Clusters {
    /// Clients of the management cluster, if it answers.
    pub(super) management: Option<Clients>,
    /// The resources of Cluster API as it is served there.
    pub(super) core: Option<CoreResources>,
    /// Clients of the workload cluster, if it answers.
    pub(super) workload: Option<Clients>,
}

impl Clusters {
    /// Connects to the clusters.
    pub(super) async fn reach(findings: &mut Findings, serve: &Config, until: Instant) -> Self {
        let mut clusters = Self::default();
        let (check, source) = (CheckId::ManagementCluster, serve.management.to_string());
        match serve.management.connect().await {
            Err(error) => findings.error(check, "", error.to_string(), ""),
            Ok(clients) => match version(&clients.writes, until).await {
                Ok(version) => {
                    findings.ok(check, "", format!("Kubernetes {version}, by {source}"));
                    clusters.management = Some(clients);
                }
                Err(why) => findings.error(check, source, why, REACH),
            },
        }
        if let Some(management) = &clusters.management {
            clusters.core = cluster_api(findings, management, serve, until).await;
        } else {
            findings.skip(CheckId::ClusterApi, "the management cluster isn't reached");
        }
        clusters.workload = workload(findings, clusters.management.as_ref(), &serve.workload, until).await;
        clusters
    }

    /// Returns the clients of a cluster, if it answers.
    pub(super) fn of(&self, side: Side) -> Option<&Clients> {
        match side {
            Side::Management => self.management.as_ref(),
            Side::Workload => self.workload.as_ref(),
        }
    }
}

/// The losses without Nodes.
const WITHOUT_NODES: &str = "none, by --workload-nodes=none: no resources and labels are learned from real Nodes, a \
                             Machine has joined by its nodeRef alone, and one whose providerID only its Node has is \
                             never recognized";

const REACH: &str = "check the server address, network policies and proxies, and that the credentials are still good";

async fn workload(
    findings: &mut Findings,
    management: Option<&Clients>,
    source: &WorkloadSource,
    until: Instant,
) -> Option<Clients> {
    let check = CheckId::WorkloadCluster;
    let connected = match (source, management) {
        (WorkloadSource::Management, Some(management)) => {
            findings.ok(check, "", "the management cluster itself");
            return Some(management.clone());
        }
        (WorkloadSource::Management, None) => {
            findings.skip(check, "it is the management cluster, which isn't reached");
            return None;
        }
        (WorkloadSource::None, _) => {
            findings.ok(check, "", WITHOUT_NODES);
            return None;
        }
        (WorkloadSource::Secret(_) | WorkloadSource::Made(..), None) => {
            findings.skip(check, format!("{source} is in the management cluster, which isn't reached"));
            return None;
        }
        (WorkloadSource::Secret(_) | WorkloadSource::Made(..), Some(management)) => {
            within(until, source.connect(management)).await
        }
        (WorkloadSource::Own(own), _) => Ok(own.connect().await),
    };
    let clients = match connected {
        Ok(Ok(clients)) => clients,
        Ok(Err(error)) => {
            // A broken Secret names its remedy; a failed request doesn't.
            let remedy = if let ConnectError::SecretUnreadable(_) = error { REACH } else { "" };
            findings.error(check, "", error.to_string(), remedy);
            return None;
        }
        Err(why) => {
            findings.error(check, source.to_string(), why, REACH);
            return None;
        }
    };
    match version(&clients.writes, until).await {
        Ok(version) => {
            findings.ok(check, "", format!("Kubernetes {version}, by {source}"));
            Some(clients)
        }
        Err(why) => {
            findings.error(check, source.to_string(), why, REACH);
            None
        }
    }
}

async fn version(client: &Client, until: Instant) -> Result<String, String> {
    match within(until, client.apiserver_version()).await? {
        Ok(info) => Ok(info.git_version),
        Err(error) => Err(format!("it doesn't answer: {}", cause(&error))),
    }
}

async fn cluster_api(
    findings: &mut Findings,
    management: &Clients,
    serve: &Config,
    until: Instant,
) -> Option<CoreResources> {
    let (check, group) = (CheckId::ClusterApi, &serve.rules.keys.group);
    let wanted = serve.capi_version.as_deref();
    let found = within(until, discover_core(&management.writes, group, wanted)).await;
    let core = match found {
        Ok(Ok(core)) => core,
        Ok(Err(error @ LookupError::Api(_))) => {
            findings.error(check, "", error.to_string(), "let this program's user read /apis (system:discovery)");
            return None;
        }
        Ok(Err(error)) => {
            findings.error(check, "", error.to_string(), "");
            return None;
        }
        Err(why) => {
            findings.error(check, "discovery", why, REACH);
            return None;
        }
    };
    let version = &core.machine_set.version;
    let served = served_versions(&management.writes, group, until).await;
    let missing = core.missing();
    let without = if missing.is_empty() { String::new() } else { format!(", without {}", missing.join(", ")) };
    let message = format!("{} is read; served are {served}{without}", core.api_version());
    if KNOWN_VERSIONS.contains(&version.as_str()) {
        findings.ok(check, "", message);
    } else {
        let remedy = format!("name one of {} by --capi-version", KNOWN_VERSIONS.join(" and "));
        findings.warn(check, "", format!("{message}; it isn't a version that is known here"), &remedy);
    }
    Some(core)
}

async fn served_versions(client: &Client, group: &str, until: Instant) -> String {
    let Ok(Ok(groups)) = within(until, client.list_api_groups()).await else { return "unknown versions".to_owned() };
    let found = groups.groups.into_iter().find(|served| served.name == group);
    let versions = found.into_iter().flat_map(|served| served.versions).map(|served| served.version);
    versions.collect::<Vec<_>>().join(", ")
}

/// Returns group and plural of the kinds that are served.
pub(super) async fn template_resources(
    management: &Clients,
    kinds: &[KindRef],
    until: Instant,
) -> Vec<(String, String)> {
    let client = &management.writes;
    let Ok(Ok(mut discovered)) = within(until, Discovered::ask(client)).await else { return Vec::new() };
    // A kind for which no answer came in time counts as not served.
    let _ = within(until, discovered.ask_for(client, kinds.iter().map(|kind| kind.group.clone()).collect())).await;
    let resources = kinds.iter().filter_map(|kind| discovered.resource(kind).ok());
    resources.map(|resource| (resource.group, resource.plural)).collect()
}

/// Compares the labels of a Cluster with the selector of its fleet. A Cluster that isn't there is reported with the
/// scope.
pub(super) async fn judge_labels(
    findings: &mut Findings,
    (management, core): (&Clients, &CoreResources),
    (cluster, selector): (&ObjectKey, &LabelSelector),
    until: Instant,
) {
    let (check, subject) = (CheckId::Scope, format!("Cluster {cluster}"));
    let Some(resource) = &core.cluster else {
        findings.skip(check, format!("{subject}: its labels, since no Clusters are served"));
        return;
    };
    // The fleet lists Clusters, and may not get one.
    let api: Api<DynamicObject> = Api::namespaced_with(management.writes.clone(), &cluster.namespace, resource);
    let named = ListParams::default().fields(&format!("metadata.name={}", cluster.name));
    let found = match within(until, api.list(&named)).await {
        Ok(Ok(found)) => found.items.into_iter().next(),
        Ok(Err(error)) => return findings.skip(check, format!("{subject}: its labels: {}", cause(&error))),
        Err(why) => return findings.skip(check, format!("{subject}: its labels: {why}")),
    };
    match found {
        None => {}
        Some(found) if selector.selects(&found.metadata.labels.clone().unwrap_or_default()) => {
            findings.ok(check, subject, format!("its labels match --fleet-selector {selector}"));
        }
        Some(_) => findings.error(
            check,
            subject,
            format!("its labels don't match --fleet-selector {selector}: its autoscaler is denied every call"),
            "label the Cluster",
        ),
    }
}

/// Returns the result of `future`, or an error at the deadline.
pub(super) async fn within<T>(until: Instant, future: impl Future<Output = T>) -> Result<T, String> {
    let come = tokio::time::timeout_at(until.into(), future).await;
    come.map_err(|_| "no answer came within --timeout".to_owned())
}
