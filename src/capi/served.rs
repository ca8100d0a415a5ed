//! Which resources the API server serves: Cluster API's own kinds in their preferred version, and the
//! resource of an infrastructure template's kind. Nothing is guessed: a kind that discovery doesn't show
//! isn't served.

use arcstr::ArcStr;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use kube::{Client, core::ApiResource};
use thiserror::Error;

use super::{DEFAULT_GROUP, InfrastructureRef, ScalableKind};

/// A group and a kind, whatever its version.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct KindRef {
    /// The API group.
    pub group: ArcStr,
    /// The kind.
    pub kind: ArcStr,
}

impl fmt::Display for KindRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.group)
    }
}

impl From<&InfrastructureRef> for KindRef {
    fn from(reference: &InfrastructureRef) -> Self {
        Self { group: reference.group.clone(), kind: reference.kind.clone() }
    }
}

/// The resources of Cluster API's group, all of one version. Other groups that serve MachineSets and Machines, such as
/// OpenShift's `machine.openshift.io`, may have neither Clusters nor MachineDeployments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CoreResources {
    /// Cluster, which is always there in Cluster API's own group.
    pub cluster: Option<ApiResource>,
    /// MachineDeployment, which is always there in Cluster API's own group.
    pub machine_deployment: Option<ApiResource>,
    /// MachineSet.
    pub machine_set: ApiResource,
    /// Machine.
    pub machine: ApiResource,
    /// MachinePool, which may not be installed.
    pub machine_pool: Option<ApiResource>,
}

impl CoreResources {
    /// The resource of a kind that can be a node group, where it is served.
    #[must_use]
    pub fn scalable(&self, kind: ScalableKind) -> Option<&ApiResource> {
        match kind {
            ScalableKind::MachineDeployment => self.machine_deployment.as_ref(),
            ScalableKind::MachineSet => Some(&self.machine_set),
            ScalableKind::MachinePool => self.machine_pool.as_ref(),
        }
    }

    /// The kinds that would be read and that the group doesn't serve.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let optional = [
            ("Cluster", &self.cluster),
            ("MachineDeployment", &self.machine_deployment),
            ("MachinePool", &self.machine_pool),
        ];
        optional.into_iter().filter(|(_, resource)| resource.is_none()).map(|(kind, _)| kind).collect()
    }

    /// The group and version of all of them.
    #[must_use]
    pub fn api_version(&self) -> &str {
        &self.machine_set.api_version
    }
}

/// Why a kind can't be read.
#[derive(Debug, Error)]
pub enum LookupError {
    /// No such API group.
    #[error(
        "the API server doesn't serve the API group {group}: install its CustomResourceDefinitions, or name \
         another group by CAPI_GROUP where Cluster API itself is meant"
    )]
    NoGroup {
        /// The group asked for.
        group: String,
    },
    /// The group has no such version.
    #[error("the API server serves {group} in the versions {served}, not in {version}: correct or unset CAPI_VERSION")]
    NoVersion {
        /// The group asked for.
        group: String,
        /// The version asked for.
        version: String,
        /// Those there are, separated by commas.
        served: String,
    },
    /// The group has no such kind.
    #[error("the API server serves no kind {kind} in the API group {group}: install its CustomResourceDefinition")]
    NoKind {
        /// The group asked for.
        group: String,
        /// The kind asked for.
        kind: String,
    },
    /// Discovery itself failed.
    #[error("can't ask the API server which kinds it serves: {0}")]
    Api(#[from] kube::Error),
}

/// The resources of Cluster API's own kinds, in `version` or else in the preferred one.
///
/// # Errors
/// When the group, the version or one of the kinds that every installation has isn't served, or the API
/// server doesn't answer.
pub async fn discover_core(client: &Client, group: &str, version: Option<&str>) -> Result<CoreResources, LookupError> {
    let found = find_group(client, group).await?;
    let version = match version {
        None => preferred(&found),
        Some(version) if found.versions.iter().any(|served| served.version == version) => version.to_owned(),
        Some(version) => {
            let served: Vec<_> = found.versions.into_iter().map(|served| served.version).collect();
            return Err(LookupError::NoVersion {
                group: group.to_owned(),
                version: version.to_owned(),
                served: served.join(", "),
            });
        }
    };
    let resources = client.list_api_group_resources(&format!("{group}/{version}")).await?;
    let find = |kind: &str| resource_of(&resources, group, &version, kind);
    let need =
        |kind: &str| find(kind).ok_or_else(|| LookupError::NoKind { group: group.to_owned(), kind: kind.to_owned() });
    // Without one of them Cluster API's own group is half installed or upgraded: its node groups must not vanish for that.
    let expect = |kind: &str| if group == DEFAULT_GROUP { need(kind).map(Some) } else { Ok(find(kind)) };
    Ok(CoreResources {
        cluster: expect("Cluster")?,
        machine_deployment: expect("MachineDeployment")?,
        machine_set: need("MachineSet")?,
        machine: need("Machine")?,
        machine_pool: find("MachinePool"),
    })
}

/// The resource of a kind: in its group's preferred version, else in another that has it.
///
/// # Errors
/// When the group or the kind isn't served, or the API server doesn't answer.
pub async fn lookup(client: &Client, kind: &KindRef) -> Result<ApiResource, LookupError> {
    let found = find_group(client, &kind.group).await?;
    let preferred = preferred(&found);
    let others = found.versions.into_iter().map(|served| served.version).filter(|version| *version != preferred);
    for version in std::iter::once(preferred.clone()).chain(others) {
        let resources = client.list_api_group_resources(&format!("{}/{version}", kind.group)).await?;
        if let Some(resource) = resource_of(&resources, &kind.group, &version, &kind.kind) {
            return Ok(resource);
        }
    }
    Err(LookupError::NoKind { group: kind.group.to_string(), kind: kind.kind.to_string() })
}

async fn find_group(client: &Client, group: &str) -> Result<APIGroup, LookupError> {
    let groups = client.list_api_groups().await?;
    groups
        .groups
        .into_iter()
        .find(|served| served.name == group)
        .ok_or_else(|| LookupError::NoGroup { group: group.to_owned() })
}

/// The preferred version; a group always has at least one.
fn preferred(group: &APIGroup) -> String {
    group
        .preferred_version
        .as_ref()
        .or_else(|| group.versions.first())
        .map(|version| version.version.clone())
        .unwrap_or_default()
}

/// The main resource of a kind, not one of its subresources (`plural/status`).
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
