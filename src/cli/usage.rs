//! Wrong calls: the error that each subcommand reports, and the flags that it names. Nothing may be parsed here.

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
    #[error("{flag} (or {variable}): {value:?} can't be used: {reason}")]
    Value {
        /// The flag.
        flag: &'static str,
        /// Its environment variable.
        variable: &'static str,
        /// The value as given.
        value: String,
        /// The reason why it can't be used.
        reason: String,
    },
    /// Two flags exclude each other.
    #[error(
        "{first} and {second} exclude each other, each chooses the node groups to serve: give only one (environment \
             variables count too)"
    )]
    Conflict {
        /// One flag.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
    /// A flag is useless without another.
    #[error("{given} needs {other} (or {variable}): {why}")]
    Needs {
        /// The flag that was given.
        given: &'static str,
        /// The one that is missing.
        other: &'static str,
        /// Its environment variable.
        variable: &'static str,
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

/// A flag, its environment variable, and the meaning of an empty value.
pub(super) struct Flag {
    pub(super) name: &'static str,
    pub(super) variable: &'static str,
    pub(super) default: &'static str,
}

impl Flag {
    pub(super) fn or_default<'a>(&self, text: &'a str) -> &'a str {
        given(Some(text)).unwrap_or(self.default)
    }

    pub(super) fn wrong(&self, value: &str, reason: &dyn fmt::Display) -> UsageError {
        UsageError::Value {
            flag: self.name,
            variable: self.variable,
            value: value.to_owned(),
            reason: reason.to_string(),
        }
    }
}

/// Returns a value without surrounding space; `None` if it is empty.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}
