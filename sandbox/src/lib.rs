//! A Kubernetes API in memory, over HTTP on loopback, with simulated Cluster API controllers, faults on demand and a
//! log of requests. For demonstrations, tests and measurements: it must never be part of the shipped binary, and must
//! use nothing of the program that is tested against it, so that no mistake is made twice.

pub mod api;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod faults;
pub mod http;
pub mod kubeconfig;
pub mod requests;
