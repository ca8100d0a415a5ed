//! Clients for the management and the workload cluster: where their kubeconfig comes from, how it is followed when it
//! changes, and the time-outs and retries that requests are made with.
//!
//! Building a client makes no request, so an API server that is down stops nobody here. This room knows kube
//! and nothing of Cluster API but the name of its kubeconfig Secret. It must never log or return what a
//! kubeconfig or a Secret holds, and never run a program or open a file that a Secret names.

mod access;
mod bounded;
mod cause;
mod cluster_ref;
mod error;
mod fingerprint;
mod inline;
mod policy;
mod proxy;
mod read_only;
mod secret;
mod source;

#[cfg(test)]
mod tests;

pub use access::Access;
#[cfg(test)]
pub(crate) use bounded::bounded;
pub use cause::cause;
pub use cluster_ref::{ClusterRef, ClusterRefError};
pub use error::ConnectError;
pub use policy::{Clients, Policy, USER_AGENT};
pub use proxy::{Connector, Proxies, WrongProxy};
pub use secret::kubeconfig_of_secret;
pub use source::{Source, WorkloadSource};
