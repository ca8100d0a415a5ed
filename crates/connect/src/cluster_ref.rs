//! The names of a Cluster, as people give it, and of the Secrets that hold the kubeconfigs of workload clusters. Each lies
//! in its Cluster's namespace; nothing here may lead to another one.

use std::{fmt, str::FromStr};

use thiserror::Error;

/// A Cluster by namespace and name; both are valid Kubernetes names.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ClusterRef {
    namespace: String,
    name: String,
}

/// The reason why a text isn't the name of a Cluster.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum ClusterRefError {
    /// The text doesn't have two parts.
    #[error("{0:?} is not NAMESPACE/NAME: give the Cluster's namespace and name, for example team-a/prod")]
    Form(String),
    /// A part isn't a valid Kubernetes name.
    #[error(
        "{0:?} can't be the name of a Kubernetes object: a name has lower-case letters, digits, '-' and '.', and \
         starts and ends with a letter or digit"
    )]
    Name(String),
}

impl ClusterRef {
    /// Creates the name of a Cluster from its parts.
    ///
    /// # Errors
    /// When a part can't be the name of a Kubernetes object.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Result<Self, ClusterRefError> {
        let (namespace, name) = (namespace.into(), name.into());
        for (part, longest, dots) in [(&namespace, 63, false), (&name, 253, true)] {
            if !is_name(part, longest, dots) {
                return Err(ClusterRefError::Name(part.clone()));
            }
        }
        Ok(Self { namespace, name })
    }

    /// The namespace of the Cluster and of its Secret.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the Cluster.
    pub fn name(&self) -> &str {
        &self.name
    }
}

fn is_name(text: &str, longest: usize, dots: bool) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    bytes.len() <= longest
        && bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-' || (dots && *byte == b'.'))
}

impl FromStr for ClusterRef {
    type Err = ClusterRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            Some((namespace, name)) if !name.contains('/') && !namespace.is_empty() && !name.is_empty() => {
                Self::new(namespace, name)
            }
            _ => Err(ClusterRefError::Form(text.to_owned())),
        }
    }
}

impl fmt::Display for ClusterRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

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
    pub fn of(cluster: &ClusterRef) -> Self {
        SecretName::default().of(cluster)
    }

    /// Returns its namespace, which is the Cluster's.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret {}/{}", self.namespace, self.name)
    }
}
