//! Discovery of the served resources: Cluster API's own kinds in their preferred version, and the resource of an
//! infrastructure template's kind. This crate must never guess: a kind that discovery doesn't list isn't served.

use arcstr::ArcStr;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::{Client, core::ApiResource};
use rules::capi::{DEFAULT_GROUP, KindRef, ScalableKind};
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use super::cause;

const MACHINE_POOL: &str = "MachinePool";

/// The resources of Cluster API's group. All have the same version, except perhaps MachinePool. Other groups that
/// serve MachineSets and Machines, such as OpenShift's `machine.openshift.io`, may have neither Clusters nor
/// MachineDeployments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoreResources {
    /// Cluster, which is always present in Cluster API's own group.
    pub cluster: Option<ApiResource>,
    /// MachineDeployment, which is always present in Cluster API's own group.
    pub machine_deployment: Option<ApiResource>,
    /// MachineSet.
    pub machine_set: ApiResource,
    /// Machine.
    pub machine: ApiResource,
    /// MachinePool, which may not be installed.
    pub machine_pool: Option<ApiResource>,
}

impl CoreResources {
    /// Returns the resource of a kind that can be a node group, if it is served.
    pub fn scalable(&self, kind: ScalableKind) -> Option<&ApiResource> {
        match kind {
            ScalableKind::MachineDeployment => self.machine_deployment.as_ref(),
            ScalableKind::MachineSet => Some(&self.machine_set),
            ScalableKind::MachinePool => self.machine_pool.as_ref(),
        }
    }

    /// Returns the kinds that this program can read but the API group doesn't serve.
    pub fn missing(&self) -> Vec<&'static str> {
        let optional = [
            ("Cluster", &self.cluster),
            ("MachineDeployment", &self.machine_deployment),
            (MACHINE_POOL, &self.machine_pool),
        ];
        optional.into_iter().filter(|(_, resource)| resource.is_none()).map(|(kind, _)| kind).collect()
    }

    /// Returns the group and version of all resources, except perhaps MachinePool's.
    pub fn api_version(&self) -> &str {
        &self.machine_set.api_version
    }
}

/// The reason for which a kind can't be read.
#[derive(Debug, Error)]
pub enum LookupError {
    /// The API server doesn't serve it. The text names the group, version or kind, and the remedy.
    #[error("{0}")]
    NotServed(String),
    /// Discovery itself failed.
    #[error("can't ask the API server which kinds it serves: {0}")]
    Api(Arc<kube::Error>),
}

impl LookupError {
    fn no_group(group: &str) -> Self {
        Self::NotServed(format!(
            "the API server doesn't serve the API group {group}: install its CustomResourceDefinitions, or set CAPI_GROUP \
             if Cluster API is served under another group"
        ))
    }

    fn no_kind(kind: &str, group: &str) -> Self {
        Self::NotServed(format!(
            "the API server serves no kind {kind} in the API group {group}: install its CustomResourceDefinition"
        ))
    }

    /// Returns the reason, or the cause of a request that failed, in one line.
    pub fn reason(&self) -> String {
        match self {
            Self::NotServed(why) => why.clone(),
            Self::Api(error) => cause(error),
        }
    }
}

impl From<kube::Error> for LookupError {
    fn from(error: kube::Error) -> Self {
        Self::Api(Arc::new(error))
    }
}

/// Finds the resources of Cluster API's own kinds, in `version` or else in the preferred one. MachinePool is looked
/// up in the other versions as well, unless `version` is set: its definition may be upgraded before the others or
/// after them, and its node groups must not vanish meanwhile.
///
/// # Errors
/// When the group, the version or one of the kinds that every installation has isn't served, or the API server
/// doesn't answer.
pub async fn discover_core(client: &Client, group: &str, version: Option<&str>) -> Result<CoreResources, LookupError> {
    let found = find_group(client, group).await?;
    let is_named = version.is_some();
    let version = match version {
        None => preferred(&found),
        Some(version) if found.versions.iter().any(|served| served.version == version) => version.to_owned(),
        Some(version) => {
            let served: Vec<_> = found.versions.iter().map(|served| served.version.as_str()).collect();
            return Err(LookupError::NotServed(format!(
                "the API server serves {group} in the versions {}, not in {version}: correct or unset CAPI_VERSION",
                served.join(", ")
            )));
        }
    };
    let resources = in_time(client.list_api_group_resources(&format!("{group}/{version}"))).await?;
    let find = |kind: &str| resource_of(&resources, group, &version, kind);
    let machine_pool = match find(MACHINE_POOL) {
        None if !is_named => find_elsewhere(client, &found, &version, MACHINE_POOL).await?,
        found => found,
    };
    let need = |kind: &str| find(kind).ok_or_else(|| LookupError::no_kind(kind, group));
    // If Cluster API's own group lacks one of these kinds, its installation or upgrade is incomplete. Its node groups
    // must not vanish in that case.
    let expect = |kind: &str| if group == DEFAULT_GROUP { need(kind).map(Some) } else { Ok(find(kind)) };
    Ok(CoreResources {
        cluster: expect("Cluster")?,
        machine_deployment: expect("MachineDeployment")?,
        machine_set: need("MachineSet")?,
        machine: need("Machine")?,
        machine_pool,
    })
}

/// Returns the resource of a kind in another version of its group.
async fn find_elsewhere(
    client: &Client,
    group: &APIGroup,
    version: &str,
    kind: &str,
) -> Result<Option<ApiResource>, LookupError> {
    for other in group.versions.iter().map(|served| &served.version).filter(|other| *other != version) {
        let resources = in_time(client.list_api_group_resources(&format!("{}/{other}", group.name))).await?;
        if let Some(found) = resource_of(&resources, &group.name, other, kind) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// The time limit for all answers about one API group. An answer that never ends must not block the lookups of other
/// groups.
const ANSWERS: Duration = Duration::from_secs(10);

async fn in_time<T>(answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    until(Instant::now() + ANSWERS, answer).await
}

async fn until<T>(end: Instant, answer: impl Future<Output = Result<T, kube::Error>>) -> Result<T, kube::Error> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no end of the answer in {} s", ANSWERS.as_secs()));
    timeout_at(end, answer).await.unwrap_or_else(|_| Err(kube::Error::Service(late().into())))
}

/// The maximum number of API groups that are queried concurrently.
const GROUPS_AT_ONCE: usize = 8;

/// The API groups that a server serves, and the resources of the groups that were queried. All lookups share them,
/// and a group that isn't served costs no request.
#[derive(Debug)]
pub struct Discovered {
    groups: BTreeMap<String, APIGroup>,
    resources: BTreeMap<String, Versions>,
}

impl Discovered {
    /// Queries the served groups.
    ///
    /// # Errors
    /// When the API server doesn't answer.
    pub async fn ask(client: &Client) -> Result<Self, LookupError> {
        let groups = in_time(client.list_api_groups()).await?.groups;
        let groups = groups.into_iter().map(|group| (group.name.clone(), group)).collect();
        Ok(Self { groups, resources: BTreeMap::new() })
    }

    /// Queries the resources of these groups, each group once. If the query of a group fails, its error is kept.
    pub async fn ask_for(&mut self, client: &Client, groups: BTreeSet<ArcStr>) {
        let unknown = groups.into_iter().filter(|name| !self.resources.contains_key(name.as_str()));
        let unknown: Vec<_> = unknown.filter_map(|name| self.groups.get(name.as_str()).cloned()).collect();
        let client = client.clone();
        let asked = unknown.into_iter().map(|group| list(client.clone(), group));
        let found: Vec<_> = stream::iter(asked).buffer_unordered(GROUPS_AT_ONCE).collect().await;
        self.resources.extend(found);
    }

    /// Returns the resource of a kind: in its group's preferred version, else in another that has it.
    ///
    /// # Errors
    /// When the group or the kind isn't served, or its group's resources weren't queried or the query failed.
    pub fn resource(&self, kind: &KindRef) -> Result<ApiResource, LookupError> {
        if !self.groups.contains_key(kind.group.as_str()) {
            return Err(LookupError::no_group(&kind.group));
        }
        let versions = self.resources.get(kind.group.as_str()).map(Vec::as_slice).unwrap_or_default();
        let of = |(version, list): &(String, Result<_, _>)| {
            resource_of(list.as_ref().ok()?, &kind.group, version, &kind.kind)
        };
        if let Some(found) = versions.iter().find_map(of) {
            return Ok(found);
        }
        // The kind may be in the version whose query failed.
        let failed = versions.iter().find_map(|(_, list)| list.as_ref().err());
        let none = || LookupError::no_kind(&kind.kind, &kind.group);
        Err(failed.map_or_else(none, |error| LookupError::Api(Arc::clone(error))))
    }
}

/// The resources of each version of a group, the preferred version first.
type Versions = Vec<(String, Result<APIResourceList, Arc<kube::Error>>)>;

/// Queries the resources of each version of a group, and returns them with the group's name.
async fn list(client: Client, group: APIGroup) -> (String, Versions) {
    let preferred = preferred(&group);
    let others = group.versions.iter().map(|served| &served.version).filter(|version| **version != preferred);
    let (mut versions, end) = (Vec::new(), Instant::now() + ANSWERS);
    for version in std::iter::once(&preferred).chain(others) {
        let resources = until(end, client.list_api_group_resources(&format!("{}/{version}", group.name))).await;
        versions.push((version.clone(), resources.map_err(Arc::new)));
    }
    (group.name, versions)
}

async fn find_group(client: &Client, group: &str) -> Result<APIGroup, LookupError> {
    let groups = in_time(client.list_api_groups()).await?;
    let found = groups.groups.into_iter().find(|served| served.name == group);
    found.ok_or_else(|| LookupError::no_group(group))
}

/// Returns the preferred version; a group always has at least one.
fn preferred(group: &APIGroup) -> String {
    group
        .preferred_version
        .as_ref()
        .or_else(|| group.versions.first())
        .map(|version| version.version.clone())
        .unwrap_or_default()
}

/// Returns the main resource of a kind, not one of its subresources (`plural/status`).
fn resource_of(resources: &APIResourceList, group: &str, version: &str, kind: &str) -> Option<ApiResource> {
    let resource = resources.resources.iter().find(|resource| resource.kind == kind && !resource.name.contains('/'))?;
    Some(ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: format!("{group}/{version}"),
        kind: kind.to_owned(),
        plural: resource.name.clone(),
    })
}
