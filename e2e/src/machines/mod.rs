//! A management cluster in Docker with Cluster API, CAPD and the chart, and a workload cluster whose Machines are
//! containers with real kubelets. It needs root, Docker and a network, and must leave nothing behind.

mod autoscaler;
mod management;
mod setup;
mod workload;

pub use self::{
    management::Management,
    setup::{Body, Setup, run},
    workload::{NAMESPACE, Workload},
};
