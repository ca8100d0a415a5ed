//! Clients for the management and the workload cluster: the sources of their configuration, its rotation, and the
//! timeouts of requests. Building a client makes no request, except to read a kubeconfig Secret, so it works while an
//! API server is down. This crate knows kube, and of Cluster API only the name of that Secret. It must never log or
//! return the content of a kubeconfig or Secret, and never run a program or open a file that a Secret names.

mod access;
mod bounded;
mod cause;
mod client_maker;
mod cluster_ref;
mod error;
pub mod expansion;
mod fingerprint;
mod inline;
mod node_access;
mod pace;
mod policy;
mod proxy;
mod read_only;
mod secret;
mod secret_ref;
mod source;
mod tls_error;

#[cfg(test)]
mod tests;

pub use access::Access;
pub use bounded::{Bounded, bounded};
pub use cause::cause;
pub use client_maker::ClientMaker;
pub use cluster_ref::{ClusterRef, ClusterRefError};
pub use error::ConnectError;
pub use node_access::NodeAccess;
pub use pace::{Pace, Place};
pub use policy::{Clients, Policy, USER_AGENT};
pub use proxy::{Connector, Proxies, WrongProxy};
pub use secret_ref::{SecretName, SecretNameError, SecretRef};
pub use source::{Source, WorkloadSource};
