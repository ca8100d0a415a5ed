//! The configuration of `explain`, in the types of the modules below. Nothing may be read or opened here.

use std::time::Duration;

use rules::{Scope, ScopeSpec};

use super::{ExplainArgs, Output, manifests::ManifestSource, select::Selection};
use crate::cli::{
    Color, UsageError,
    usage::given,
    values::{duration, is_dns},
};
use app::IndexConfig;

#[derive(Clone, Debug)]
pub(in crate::cli) struct ExplainConfig {
    pub(super) selection: Selection,
    /// The sources that replace the clusters, if there are any.
    pub(super) manifests: Vec<ManifestSource>,
    pub(super) output: Output,
    pub(super) color: Color,
    pub(super) timeout: Duration,
    pub(super) index: IndexConfig,
    pub(super) warnings: Vec<String>,
}

impl TryFrom<ExplainArgs> for ExplainConfig {
    type Error = UsageError;

    fn try_from(args: ExplainArgs) -> Result<Self, UsageError> {
        let wrong = |flag, value: &str, reason: &str| UsageError::Flag {
            flag,
            value: value.to_owned(),
            reason: reason.to_owned(),
        };
        let namespace = given(args.namespace.as_deref()).map(str::to_owned);
        if let Some(name) = namespace.as_deref().filter(|name| !is_dns(name) || name.contains('.')) {
            return Err(wrong("--namespace", name, "a namespace has at most 63 lower-case letters, digits and dashes"));
        }
        let manifests: Vec<_> = args.manifests.iter().map(|source| ManifestSource::from(source.as_str())).collect();
        let stdin = manifests.iter().filter(|source| **source == ManifestSource::Stdin).count();
        if stdin > 1 {
            return Err(wrong("--manifests", "-", "standard input can be read only once"));
        }
        let selection = Selection { ids: args.ids, namespace, all: args.all };
        let mut warnings = Vec::new();
        let scope = if manifests.is_empty() { scope(&selection) } else { Scope::All };
        Ok(Self {
            index: args.index.config(Some(scope), &mut warnings)?,
            timeout: duration(&args.timeout).map_err(|reason| wrong("--timeout", &args.timeout, &reason))?,
            selection,
            manifests,
            output: args.output,
            color: args.color,
            warnings,
        })
    }
}

/// Returns the scope if the flags choose none: everything, in the namespaces that are asked for. Other namespaces
/// aren't read, since the permissions may be limited to one.
fn scope(selection: &Selection) -> Scope {
    let spec = |namespace| ScopeSpec { namespace: Some(namespace), ..ScopeSpec::default() };
    selection.only_namespaces().map_or(Scope::All, |names| Scope::Specs(names.into_iter().map(spec).collect()))
}
