//! Errors of connecting. Each message names the object, the cause and the remedy, and must never contain content of a
//! kubeconfig. The YAML parser's messages quote the faulty line, so only their position is kept.

use std::{io, path::PathBuf};

use kube::config::KubeconfigError;
use thiserror::Error;

use super::{SecretRef, WrongProxy, cause};

/// The reason why a client can't connect to a cluster.
#[derive(Debug, Error)]
pub enum ConnectError {
    /// A kubeconfig file that can't be opened.
    #[error("kubeconfig file {}: can't read it: {error}: give the path of a file that this program may read", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// A kubeconfig file that can't be used.
    #[error("kubeconfig file {}: {reason}: try it with kubectl --kubeconfig", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Its defect.
        reason: String,
    },
    /// This program runs in no Pod and has no kubeconfig.
    #[error(
        "no kubeconfig given, and none found: {reason}: run in a Pod with a service account, set KUBECONFIG, or name a \
         kubeconfig file (--management-kubeconfig)"
    )]
    NoDefault {
        /// The reason why the default locations have no kubeconfig.
        reason: String,
    },
    /// The service account of the Pod can't be used.
    #[error(
        "in-cluster configuration: {reason}: mount the service account's token (automountServiceAccountToken), or name a \
         kubeconfig file"
    )]
    InCluster {
        /// The missing part.
        reason: String,
    },
    /// A proxy that can't be used.
    #[error("{origin}: {error}")]
    Proxy {
        /// Where the kubeconfig comes from.
        origin: String,
        /// The proxy's variable and the defect.
        error: WrongProxy,
    },
    /// Key, certificates or credentials that no client can be built from.
    #[error("{origin}: can't build a client from it: {reason}: check its certificates, key and credentials")]
    Client {
        /// Where the kubeconfig comes from.
        origin: String,
        /// The defect.
        reason: String,
    },
    /// There is no workload cluster, on purpose.
    #[error("no Nodes are read, by --workload-nodes=none")]
    NoNodes,
    /// The Secret doesn't exist.
    #[error(
        "{secret}: not found: check the Cluster's namespace and name, and that its control plane is provisioned, or \
         name a kubeconfig file for the workload cluster"
    )]
    SecretMissing {
        /// The Secret.
        secret: SecretRef,
    },
    /// The Secret may not be read.
    #[error("{secret}: reading it is forbidden: {reason}: grant this program's user the verb get on this Secret")]
    SecretForbidden {
        /// The Secret.
        secret: SecretRef,
        /// The API server's message.
        reason: String,
    },
    /// The Secret couldn't be read for another reason.
    #[error("{secret}: can't read it: {}", cause(error))]
    SecretUnreadable {
        /// The Secret.
        secret: SecretRef,
        /// The request's error.
        error: Box<kube::Error>,
    },
    /// The Secret has no key `value`.
    #[error("{secret}: has no key \"value\": Cluster API keeps the kubeconfig there; check who wrote the Secret")]
    SecretWithoutValue {
        /// The Secret.
        secret: SecretRef,
    },
    /// The content of the Secret can't be used.
    #[error("{secret}: its kubeconfig can't be used: {reason}")]
    SecretInvalid {
        /// The Secret.
        secret: SecretRef,
        /// Its defect.
        reason: String,
    },
    /// The Secret sets a field that a Secret may not set.
    #[error(
        "{secret}: its kubeconfig sets {field}, {why}: {remedy}, or name a kubeconfig file of your own for the workload \
         cluster"
    )]
    SecretRefused {
        /// The Secret.
        secret: SecretRef,
        /// The path of the field in the kubeconfig, without its value.
        field: String,
        /// The effect that the field would have.
        why: &'static str,
        /// The setting to use instead.
        remedy: &'static str,
    },
}

/// Returns the defect of a kubeconfig, without any of its content.
pub(super) fn kubeconfig_reason(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(parse) => match parse.location() {
            Some(at) => format!("not a kubeconfig in YAML (line {}, column {})", at.line(), at.column()),
            None => "not a kubeconfig in YAML".to_owned(),
        },
        KubeconfigError::CurrentContextNotSet => "it has no current-context".to_owned(),
        KubeconfigError::LoadContext(name) => format!("its current-context {name:?} is not among its contexts"),
        KubeconfigError::LoadClusterOfContext(name) => format!("its cluster {name:?} is not among its clusters"),
        KubeconfigError::MissingClusterUrl => "its cluster has no server".to_owned(),
        other => cause::chain(other),
    }
}
