//! The reasons why a watch can't start.

use connect::ConnectError;
use thiserror::Error;

use super::{catalog::NotFound, rights::Refusal};
use crate::notify::UrlError;

/// The reason why a watch can't start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The management cluster can't be reached.
    #[error("management cluster")]
    Management(#[source] ConnectError),
    /// The workload cluster can't be reached.
    #[error("workload cluster")]
    Workload(#[source] ConnectError),
    /// Discovery failed.
    #[error("can't ask the API server which kinds it serves: {0}")]
    Discovery(String),
    /// A resource isn't served, or can't be watched.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// No kind of Cluster API is served, which are watched by default.
    #[error(
        "the API server serves no kind of Cluster API, not even {0}: name another cluster, or RESOURCEs to watch, or wait for \
         it with --allow-missing"
    )]
    NoKind(String),
    /// A permission or a namespace is missing, or a selector is refused.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A rule for notifications is of a kind that isn't watched.
    #[error(
        "--notify-rules: rule {rule:?}: kind {kind:?} is not among what is watched: name it as a RESOURCE too, or correct it"
    )]
    UnknownKind {
        /// The name of the rule.
        rule: String,
        /// The kind.
        kind: String,
    },
    /// The destination of a rule is unusable.
    #[error("notifications")]
    Notifications(#[source] UrlError),
}
