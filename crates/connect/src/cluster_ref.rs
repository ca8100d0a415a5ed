//! The name of a Cluster as people give it: `NAMESPACE/NAME`.

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
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The name of the Cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

pub(super) fn is_name(text: &str, longest: usize, dots: bool) -> bool {
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
