//! A cloud provider for the Kubernetes Cluster Autoscaler that scales Cluster API's node groups over the
//! `externalgrpc` protocol and answers every read from memory. [`cli`] also has read-only commands: `groups` prints
//! the node groups of a running server, `explain` shows the answers for node groups and the sources of their values,
//! and `watch` shows the changes in a cluster.
//!
//! This crate is the command line; [`app`] joins the crates that `docs/design/architecture.md` shows with the flow of
//! data through them.

pub mod cli;
