//! Harness of the end-to-end tests.
//!
//! It builds and runs real components (etcd, kube-apiserver and the program's own binary), creates Cluster API objects
//! on the API server, and calls the program as Cluster Autoscaler does, over gRPC. It may rely on the program's
//! promises, and must use none of its code but the wire types, since a mistake in shared code would be on both sides of
//! a call. Only `informer` runs a module of the program in this process, to check its promises on a real API server.

pub mod approver_policy;
pub mod authority;
pub mod autoscaling;
pub mod capd;
pub mod cluster_api;
pub mod conformance;
pub mod control_plane;
pub mod controllers;
pub mod crds;
pub mod existing;
pub mod fixtures;
pub mod fleet;
pub mod go;
pub mod granted;
pub mod helm;
pub mod images;
pub mod informer;
pub mod infrastructure;
pub mod installed;
pub mod kubectl;
pub mod machines;
pub mod nodes;
pub mod objects;
pub mod pool;
pub mod process;
pub mod program;
pub mod promtool;
pub mod provider;
pub mod proxy;
pub mod runner;
pub mod suite;
pub mod users;
pub mod webhook;
pub mod world;

pub use proto;
pub use testkit::attempt as wait;
