//! The fields that the kubeconfig in a Secret may have. Without this check, anybody who may write Secrets in a
//! Cluster's namespace could run programs and read files with this program's rights (`exec`, file paths), or have its
//! requests answered by an unverified server. So a Secret must hold its credentials inline, and unknown fields are
//! refused.
//!
//! The code destructures every struct without `..`, so a field that a newer kube adds breaks the build until the code
//! handles it.

use std::net::IpAddr;

use http::{Uri, uri::Scheme};
use kube::config::{AuthInfo, Cluster, Kubeconfig};

/// A field that a Secret may not set.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Refused {
    /// The path of the field.
    pub(super) field: String,
    /// The effect that it would have.
    pub(super) why: &'static str,
    /// The setting to use instead.
    pub(super) remedy: &'static str,
}

const RUNS: &str = "which would run a program with this program's rights";
const READS: &str = "which would read a file with this program's rights";
const UNKNOWN: &str = "which is not known here";

/// Checks all entries, not only those of the current context, and fails with the first field that a Secret may not
/// set.
pub(super) fn check(kubeconfig: &Kubeconfig) -> Result<(), Refused> {
    for named in &kubeconfig.clusters {
        if let Some(cluster) = &named.cluster {
            check_cluster(cluster).map_err(|refused| refused.within("clusters", &named.name, "cluster"))?;
        }
    }
    for named in &kubeconfig.auth_infos {
        if let Some(user) = &named.auth_info {
            check_user(user).map_err(|refused| refused.within("users", &named.name, "user"))?;
        }
    }
    Ok(())
}

impl Refused {
    fn new(field: impl Into<String>, why: &'static str, remedy: &'static str) -> Self {
        Self { field: field.into(), why, remedy }
    }

    fn within(self, list: &str, name: &str, key: &str) -> Self {
        Self { field: format!("{list}[{name}].{key}.{}", self.field), ..self }
    }
}

fn check_cluster(cluster: &Cluster) -> Result<(), Refused> {
    let Cluster {
        server,
        insecure_skip_tls_verify,
        certificate_authority,
        certificate_authority_data: _,
        proxy_url,
        disable_compression: _,
        tls_server_name: _,
        extensions: _,
        other,
    } = cluster;
    if is_set(certificate_authority.as_ref()) {
        return Err(Refused::new(
            "certificate-authority",
            READS,
            "put the certificate into certificate-authority-data",
        ));
    }
    if *insecure_skip_tls_verify == Some(true) {
        return Err(Refused::new(
            "insecure-skip-tls-verify",
            "which would hand its credentials to whoever answers",
            "put the server's authority into certificate-authority-data",
        ));
    }
    if is_set(proxy_url.as_ref()) {
        return Err(Refused::new(
            "proxy-url",
            "which would lead requests through a proxy of its choice",
            "set HTTPS_PROXY for this program",
        ));
    }
    if server.as_deref().is_some_and(is_plain_and_remote) {
        return Err(Refused::new("server", "an address without TLS that isn't loopback", "use an https:// address"));
    }
    known(other.keys())
}

fn check_user(user: &AuthInfo) -> Result<(), Refused> {
    let AuthInfo {
        username: _,
        password: _,
        token: _,
        token_file,
        client_certificate,
        client_certificate_data: _,
        client_key,
        client_key_data: _,
        impersonate: _,
        impersonate_uid: _,
        impersonate_groups: _,
        impersonate_user_extra: _,
        extensions: _,
        auth_provider,
        exec,
        other,
    } = user;
    if exec.is_some() {
        return Err(Refused::new("exec", RUNS, "put a client certificate or a token into the Secret"));
    }
    if auth_provider.is_some() {
        return Err(Refused::new("auth-provider", RUNS, "put a client certificate or a token into the Secret"));
    }
    if is_set(token_file.as_ref()) {
        return Err(Refused::new("tokenFile", READS, "put the token into token"));
    }
    if is_set(client_certificate.as_ref()) {
        return Err(Refused::new("client-certificate", READS, "put the certificate into client-certificate-data"));
    }
    if is_set(client_key.as_ref()) {
        return Err(Refused::new("client-key", READS, "put the key into client-key-data"));
    }
    known(other.keys())
}

/// Refuses fields that kube doesn't know: one could be a misspelled connection setting.
fn known<'a>(mut others: impl Iterator<Item = &'a String>) -> Result<(), Refused> {
    others.next().map_or(Ok(()), |key| Err(Refused::new(key, UNKNOWN, "correct or remove it")))
}

/// Returns true if the value isn't empty: kubectl treats an empty path as unset.
fn is_set(value: Option<&String>) -> bool {
    value.is_some_and(|value| !value.is_empty())
}

/// Returns true if requests to this address would carry credentials over a network in plain text. An address that
/// doesn't parse is refused elsewhere, with its own message.
fn is_plain_and_remote(server: &str) -> bool {
    let Ok(uri) = server.parse::<Uri>() else { return false };
    if uri.scheme() == Some(&Scheme::HTTPS) {
        return false;
    }
    let host = uri.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    !address.map_or(host == "localhost", |address| address.is_loopback())
}
