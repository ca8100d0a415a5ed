//! The flags of `check`, as typed. Their help texts here are their documentation.

use clap::{Args, ValueEnum};

use crate::cli::{Color, ServeArgs, help};

/// The flags of `check`, as typed.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", default_value = "text", help_heading = help::OUTPUT)]
    pub output: CheckOutput,

    /// Show every check, not only a line per group, warnings and errors
    #[arg(long, short, help_heading = help::OUTPUT)]
    pub verbose: bool,

    /// Colour the output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, value_name = "WHEN", default_value = "auto", help_heading = help::OUTPUT, hide_short_help = true)]
    pub color: Color,

    /// How long the whole run may take
    #[arg(long, value_name = "DURATION", default_value = DEFAULT_TIMEOUT, help_heading = help::OUTPUT, hide_short_help = true)]
    pub timeout: String,

    /// Host in Cluster Autoscaler's --cloud-config, which the server's certificate must be valid for
    #[arg(long, value_name = "HOST", help_heading = help::GRPC)]
    pub server_name: Option<String>,

    /// Exit with 1 for warnings too
    #[arg(long, help_heading = help::OUTPUT)]
    pub strict: bool,

    /// The flags with which serve would be called.
    #[command(flatten)]
    pub serve: ServeArgs,
}

const DEFAULT_TIMEOUT: &str = "30s";

/// The format of the output.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub enum CheckOutput {
    /// For people: a line for each group of checks.
    Text,
    /// One JSON object.
    Json,
    /// The same as YAML.
    Yaml,
}
