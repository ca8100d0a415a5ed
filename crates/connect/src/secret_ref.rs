//! The names of the Secrets that hold kubeconfigs of workload clusters. Each lies in its Cluster's namespace; nothing
//! here may lead to another one.

use std::{fmt, str::FromStr};

use thiserror::Error;

use super::{ClusterRef, cluster_ref::is_name};

/// The text that stands for the Cluster's name.
const CLUSTER: &str = "{cluster}";

/// The name of a Secret, by the name of its Cluster: `{cluster}-kubeconfig`, where Cluster API keeps the kubeconfig
/// (contract, section 5), unless another one is given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretName {
    before: String,
    after: String,
}

/// The error of a text that isn't such a name.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error(
    "it has to be the name of a Secret in which {CLUSTER} stands once for the Cluster's name, such as \
     {CLUSTER}-kubeconfig, or none"
)]
pub struct SecretNameError;

impl Default for SecretName {
    fn default() -> Self {
        Self { before: String::new(), after: "-kubeconfig".to_owned() }
    }
}

impl FromStr for SecretName {
    type Err = SecretNameError;

    fn from_str(text: &str) -> Result<Self, SecretNameError> {
        // Without the Cluster's name, the Clusters of a namespace would share a Secret.
        let (before, after) = text.split_once(CLUSTER).ok_or(SecretNameError)?;
        let is_one = is_name(&format!("{before}a{after}"), 253, true);
        if is_one { Ok(Self { before: before.to_owned(), after: after.to_owned() }) } else { Err(SecretNameError) }
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{CLUSTER}{}", self.before, self.after)
    }
}

impl SecretName {
    /// Returns the Secret of a Cluster, in the Cluster's namespace.
    #[must_use]
    pub fn of(&self, cluster: &ClusterRef) -> SecretRef {
        SecretRef {
            namespace: cluster.namespace().to_owned(),
            name: format!("{}{}{}", self.before, cluster.name(), self.after),
        }
    }
}

/// A Secret with the kubeconfig of a workload cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecretRef {
    namespace: String,
    name: String,
}

impl SecretRef {
    /// Returns the Secret in which Cluster API keeps a Cluster's kubeconfig.
    #[must_use]
    pub fn of(cluster: &ClusterRef) -> Self {
        SecretName::default().of(cluster)
    }

    /// Returns its namespace, which is the Cluster's.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}", self.namespace, self.name)
    }
}
