//! Harness of the end-to-end tests.
//!
//! It builds and runs real components (etcd, kube-apiserver and the program's own binary), fills the API server with Cluster API objects,
//! and drives the program as Cluster Autoscaler does: over gRPC. It knows what the program promises, and must not use the program's
//! own code for anything but the wire types: a mistake there would then be in the question and in the answer. Only `informer` runs a room
//! of the program in this process, to look at what it promises on a real API server.

pub mod audit;
pub mod autoscaling;
pub mod capd;
pub mod cluster_api;
pub mod conformance;
pub mod control_plane;
pub mod controllers;
pub mod crds;
pub mod existing;
pub mod fixtures;
pub mod go;
pub mod granted;
pub mod helm;
pub mod informer;
pub mod infrastructure;
pub mod installed;
pub mod kubectl;
pub mod machine_api;
pub mod objects;
pub mod pool;
pub mod ports;
pub mod process;
pub mod program;
pub mod promtool;
pub mod provider;
pub mod proxy;
pub mod suite;
pub mod users;
pub mod wait;
pub mod webhook;
pub mod world;

pub use capi_autoscaler_provider::proto;
