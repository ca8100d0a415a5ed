//! The flags of the sandbox.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;

/// Runs capi-autoscaler-provider on a sandbox: two Kubernetes APIs in memory with simulated Cluster API controllers.
/// It shows what the program does, and goes on serving until Ctrl-C.
#[derive(Clone, Debug, Parser)]
#[command(name = "sandbox", max_term_width = 110)]
pub(crate) struct Options {
    /// Load these manifests: a YAML file, or a folder of them. Repeatable. Default: examples/node-groups
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifests: Vec<PathBuf>,

    /// Also make a fleet of so many MachineDeployments
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) groups: usize,

    /// How many Machines each group of the fleet has
    #[arg(long, value_name = "M", default_value_t = 10, requires = "groups")]
    pub(crate) machines: usize,

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
}
