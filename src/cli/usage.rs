//! Wrong calls: the error that each subcommand reports, with the flag, its variable and the remedy.

use std::fmt;

use thiserror::Error;

/// A wrong call. Each message names the flag and the remedy.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum UsageError {
    /// The value of a flag without a variable is invalid.
    #[error("{flag}: {value:?} can't be used: {reason}")]
    Flag {
        /// The flag.
        flag: &'static str,
        /// The value as given.
        value: String,
        /// The reason why it can't be used.
        reason: String,
    },
    /// The value of a flag is invalid.
    #[error("{flag} (or {}): {value:?} can't be used: {reason}", variable(flag))]
    Value {
        /// The flag.
        flag: &'static str,
        /// The value as given.
        value: String,
        /// The reason why it can't be used.
        reason: String,
    },
    /// Two flags exclude each other.
    #[error(
        "{0} and {1} exclude each other, each chooses the node groups to serve: give only one (environment variables count \
         too)"
    )]
    Conflict(&'static str, &'static str),
    /// A flag is useless without another.
    #[error("{given} needs {other} (or {}): {why}", variable(other))]
    Needs {
        /// The flag that was given.
        given: &'static str,
        /// The one that is missing.
        other: &'static str,
        /// The reason why it is needed.
        why: &'static str,
    },
    /// A wrong call of `watch`.
    #[error("{0}")]
    Watch(String),
    /// No scope is chosen.
    #[error(
        "no scope is chosen, and without one the node groups of all Clusters would be scaled. Choose one:\n  \
         --cluster NAMESPACE/NAME\n      one Cluster; its workload cluster is reached by the Secret NAME-kubeconfig\n  \
         --node-group-auto-discovery clusterapi:namespace=NS,clusterName=NAME,label=value\n      what matches, as the \
         in-tree provider takes it\n  \
         --all-clusters\n      all there are, on purpose"
    )]
    NoScope,
}

/// Returns the environment variable of a flag.
pub(super) fn variable(flag: &str) -> String {
    match flag {
        // Cluster Autoscaler's own names.
        "--capi-group" => "CAPI_GROUP".to_owned(),
        "--capi-version" => "CAPI_VERSION".to_owned(),
        "--scale-zero-default-arch" => "CAPI_SCALE_ZERO_DEFAULT_ARCH".to_owned(),
        // OpenTelemetry's own name.
        "--otlp-endpoint" => "OTEL_EXPORTER_OTLP_ENDPOINT".to_owned(),
        flag => format!("CAPI_AUTOSCALER_{}", flag.trim_start_matches('-').to_uppercase().replace('-', "_")),
    }
}

/// Returns the error of a flag, which has a variable, with a value that can't be used.
pub(super) fn wrong(flag: &'static str, value: &str, reason: impl fmt::Display) -> UsageError {
    UsageError::Value { flag, value: value.to_owned(), reason: reason.to_string() }
}

/// Returns a value without surrounding space; `None` if it is empty.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

/// Returns a value without surrounding space, or the default if it is empty.
pub(super) fn given_or<'a>(text: &'a str, default: &'a str) -> &'a str {
    given(Some(text)).unwrap_or(default)
}
