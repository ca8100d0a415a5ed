//! Clients for the management and the workload cluster: the sources of their configuration, its rotation, and the
//! timeouts of requests. Building a client makes no request, except to read a kubeconfig Secret, so it works while an
//! API server is down. [`discovery`] finds the versions that an API server serves. This crate must never log or
//! return the content of a kubeconfig or Secret, and never run a program or open a file that a Secret names.

mod client;
mod cluster_ref;
pub mod discovery;
mod error;
mod pace;
mod proxy;
mod rotation;
mod secret;
mod source;

#[cfg(test)]
mod tests;

pub use client::{Bounded, Clients, Policy, USER_AGENT, bounded};
pub use cluster_ref::{ClusterRef, ClusterRefError, SecretName, SecretNameError, SecretRef};
pub use error::{ConnectError, cause};
pub use pace::{Pace, Place};
pub use proxy::{Connector, Proxies, WrongProxy, is_loopback};
pub use rotation::Access;
pub use source::{ClientMaker, NodeAccess, Source, WorkloadSource};
