//! The flags of the sandbox.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// Runs capi-autoscaler-provider on a sandbox: Kubernetes APIs in memory with simulated Cluster API controllers.
/// It shows what the program does, and goes on serving until Ctrl-C.
#[derive(Clone, Debug, Parser)]
#[command(name = "sandbox", max_term_width = 110)]
pub(crate) struct Options {
    /// Load these manifests: a YAML or JSON file, or a folder of them. Repeatable. Default: examples/node-groups
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifests: Vec<PathBuf>,

    /// Also make a fleet of so many MachineDeployments
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) groups: usize,

    /// Serve many Clusters instead, each with a workload cluster and an autoscaler of its own
    #[arg(long, value_name = "N", conflicts_with_all = ["groups", "manifests", "listen_workload"],
          value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) clusters: Option<u16>,

    /// Give each group so many Machines. Default: 10 with --groups, 6 with --clusters
    #[arg(long, value_name = "M")]
    pub(crate) machines: Option<usize>,

    /// Let so many percent of the workload clusters have an API that is dead, silent, slow or hostile
    #[arg(long, value_name = "PERCENT", default_value_t = 0, requires = "clusters",
          value_parser = clap::value_parser!(u8).range(0..=90))]
    pub(crate) ill: u8,

    /// Run this binary of Cluster Autoscaler, 1.33 or later: Pods that wait for a Node make a group grow
    #[arg(long, value_name = "BINARY", conflicts_with_all = ["clusters", "api_only"])]
    pub(crate) autoscaler: Option<PathBuf>,

    /// End after the demonstration
    #[arg(long, conflicts_with = "api_only")]
    pub(crate) once: bool,

    /// Serve the APIs and run the controllers, but not the program: start it yourself with the kubeconfigs
    #[arg(long)]
    pub(crate) api_only: bool,

    /// Address of the management cluster's API
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen_management: SocketAddr,

    /// Address of the workload cluster's API
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen_workload: SocketAddr,

    /// Play the autoscalers that this folder describes, as the process of its own that --clusters starts
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) callers: Option<PathBuf>,
}
