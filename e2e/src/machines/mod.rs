//! A management cluster in Docker with Cluster API, CAPD and the chart, and a workload cluster whose Machines are
//! containers with real kubelets. It needs root, Docker and a network, and must leave nothing behind.

mod autoscaler;
mod management;
mod scene;
mod workload;

pub use self::{
    management::Management,
    scene::{Play, Scene, run},
    workload::{NAMESPACE, Workload},
};
