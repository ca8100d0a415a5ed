//! Values that flags of several subcommands take. Nothing may be read or opened here.

use std::{path::PathBuf, time::Duration};

use rules::GoDuration;
use rules::capi::DEFAULT_GROUP;

use super::usage::{UsageError, given, given_or, wrong};
use connect::Source;

/// The value of a kubeconfig flag for the Pod's service account.
const IN_CLUSTER: &str = "in-cluster";

/// Parses a boolean as environment variables spell it; a typing error is neither true nor false.
pub(super) fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "" | "false" | "0" | "no" | "off" => Ok(false),
        _ => Err("use true or false".to_owned()),
    }
}

/// Parses a Go duration that is longer than 0.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span: GoDuration = text.parse().map_err(|error| format!("{error}"))?;
    match u64::try_from(span.as_nanos()) {
        Ok(nanos) if nanos > 0 => Ok(Duration::from_nanos(nanos)),
        _ => Err("it has to be longer than 0".to_owned()),
    }
}

/// Parses the value of `--timeout`.
pub(super) fn timeout(text: &str) -> Result<Duration, UsageError> {
    duration(text).map_err(|reason| UsageError::Flag { flag: "--timeout", value: text.to_owned(), reason })
}

/// Returns the source of the management cluster's clients, by its kubeconfig and the context if one is named.
pub(super) fn management(kubeconfig: Option<&str>, context: Option<&str>) -> Result<Source, UsageError> {
    let kubeconfig = given(kubeconfig);
    match given(context) {
        None => Ok(kubeconfig.map(source).unwrap_or_default()),
        Some(name) if kubeconfig == Some(IN_CLUSTER) => Err(wrong(
            "--context",
            name,
            "a service account has no contexts: leave out --management-kubeconfig in-cluster",
        )),
        Some(name) => Ok(Source::Context { file: kubeconfig.map(PathBuf::from), name: name.to_owned() }),
    }
}

pub(super) fn source(text: &str) -> Source {
    if text == IN_CLUSTER { Source::InCluster } else { Source::File(PathBuf::from(text)) }
}

pub(super) fn capi_group(text: &str) -> Result<&str, UsageError> {
    let text = given_or(text, DEFAULT_GROUP);
    if is_dns(text) && text.contains('.') {
        return Ok(text);
    }
    Err(wrong("--capi-group", text, "it has to be an API group, such as cluster.x-k8s.io"))
}

pub(super) fn capi_version(text: Option<&str>) -> Result<Option<String>, UsageError> {
    match given(text) {
        Some(text) if is_dns(text) && text.starts_with('v') && !text.contains('.') => Ok(Some(text.to_owned())),
        Some(text) => Err(wrong("--capi-version", text, "it has to be a version without its group, such as v1beta2")),
        None => Ok(None),
    }
}

/// The rule of [`is_namespace`], for people.
pub(super) const NAMESPACE: &str = "a namespace has at most 63 lower-case letters, digits and dashes";

pub(super) fn is_namespace(text: &str) -> bool {
    is_dns(text) && !text.contains('.') && text.len() <= 63
}

fn is_dns(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= 253
        && text.split('.').all(|label| {
            !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-')
        })
}
