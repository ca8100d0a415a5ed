//! The flags.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use super::calls::{CaVersion, Empty, Style};

/// Play the loop of a Cluster Autoscaler that has nothing to do against a provider, and time each call
#[derive(Clone, Debug, Parser)]
#[command(name = "autoscaler_loop", max_term_width = 110)]
pub(crate) struct Args {
    /// Where the provider serves gRPC, without TLS
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8086")]
    pub(crate) address: String,

    /// Make up this many Nodes: first those of the groups' running instances, then some of no group. Default: as many
    /// as there are running instances
    #[arg(long, value_name = "N", conflicts_with = "kubeconfig")]
    pub(crate) nodes: Option<usize>,

    /// Take the Nodes of the cluster that this kubeconfig file leads to
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// How many loops to play
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) loops: usize,

    /// The Cluster Autoscaler to play: 1.33 and 1.34 ask for 4 options of each Node, later ones for 6; 1.33 sends the
    /// old fields, 1.34 (from 1.34.2 on) both, later ones the new fields
    #[arg(long, value_name = "VERSION", default_value = "1.36")]
    pub(crate) ca_version: CaVersion,

    /// The empty call to compare with. Refresh lets the provider do its work, GPULabel none at all
    #[arg(long, value_name = "RPC", default_value = "refresh")]
    pub(crate) empty: Empty,

    /// How many calls of the loop to make before as many empty ones
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) block: usize,

    /// How many empty calls to make after each block, at most as many as the block has. Default: as many; fewer save
    /// time where the ratio needn't be exact
    #[arg(long, value_name = "N")]
    pub(crate) empty_calls: Option<usize>,

    /// How to print
    #[arg(long, short, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: Output,
}

/// How to print.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
}

impl From<&Args> for Style {
    fn from(args: &Args) -> Self {
        let block = args.block.max(1);
        let empty_calls = args.empty_calls.unwrap_or(block);
        Self { version: args.ca_version, empty: args.empty, block, empty_calls }
    }
}
