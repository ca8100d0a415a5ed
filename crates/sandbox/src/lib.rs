//! A Kubernetes API in memory, over HTTP on loopback, with simulated Cluster API controllers, fault injection and a log
//! of requests. It is for demonstrations, tests and measurements: it must never be part of the shipped binary, and must
//! use nothing of the program that is tested against it, so that no mistake is made twice.

pub mod api;
pub mod autoscaler;
pub mod clock;
pub mod clusters;
mod controllers;
mod definitions;
pub mod engine;
pub mod faults;
pub mod fleet;
pub mod http;
pub mod kubeconfig;
pub mod recorded;
pub mod requests;
mod sandbox;
mod settings;

pub use api::{link_owners, manifests_in, read_manifests};
pub use controllers::{
    CapiVersion,
    object::{Object, controlled_by, suffix},
};
pub use definitions::define_cluster_api;
pub use sandbox::{Sandbox, SandboxOptions, Simulation};
pub use settings::{BEHAVIOUR_LABEL, Behaviour, Contract, GroupKey, Model, Models, Settings, Times};
