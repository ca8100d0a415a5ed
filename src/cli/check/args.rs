//! The flags of `check`, as typed. Their help texts here are their documentation.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::{Color, OneCluster, ServeArgs, UsageError, usage::given, values::timeout};
use app::Config;
use rules::LabelSelector;

/// The flags of `check`, as typed.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text")]
    pub output: CheckOutput,

    /// When to colour the text; auto is on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub color: Color,

    /// Time for all of it: a Go duration
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_TIMEOUT)]
    pub timeout: String,

    /// The host that Cluster Autoscaler will connect to, as in address of its --cloud-config, without the port: the
    /// server's certificate must be for it
    #[arg(long, value_name = "HOST")]
    pub server_name: Option<String>,

    /// End with code 1 for warnings too
    #[arg(long)]
    pub strict: bool,

    /// The flags with which serve would be called.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const DEFAULT_TIMEOUT: &str = "30s";

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum CheckOutput {
    /// For people: a line for each check.
    Text,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}

#[derive(Clone, Debug)]
pub(in crate::cli) struct CheckConfig {
    pub(super) output: CheckOutput,
    pub(super) color: Color,
    pub(super) timeout: Duration,
    pub(super) server_name: Option<String>,
    pub(super) strict: bool,
    pub(super) serve: Config,
    /// The selector of the fleet that serves it.
    pub(super) fleet: Option<LabelSelector>,
}

impl TryFrom<CheckArgs> for CheckConfig {
    type Error = UsageError;

    fn try_from(args: CheckArgs) -> Result<Self, UsageError> {
        let timeout = timeout(&args.timeout)?;
        let OneCluster { config, fleet } = OneCluster::try_from(args.serve)?;
        Ok(Self {
            output: args.output,
            color: args.color,
            timeout,
            server_name: given(args.server_name.as_deref()).map(str::to_owned),
            strict: args.strict,
            serve: config,
            fleet,
        })
    }
}
