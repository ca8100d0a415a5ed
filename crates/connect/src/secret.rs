//! The kubeconfig in a Secret, key `value`, as Cluster API keeps it, and what it may hold. Without these checks, anybody
//! who may write Secrets in a Cluster's namespace could run programs and read files with this program's rights (`exec`,
//! file paths), or have its requests answered by an unverified server. So a Secret must hold its credentials inline, and
//! unknown fields are refused.
//!
//! The code destructures every struct without `..`, so a field that a newer kube adds breaks the build until the code
//! handles it.

use http::{Uri, uri::Scheme};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    config::{AuthInfo, Cluster, Kubeconfig},
};

use super::{ConnectError, SecretRef, cause, error::kubeconfig_reason, is_loopback};

/// The key of the Secret that holds the kubeconfig (contract, section 5).
const KEY: &str = "value";
/// More brackets than a kubeconfig has, in YAML or JSON: the YAML parser's time is quadratic in the number of open
/// brackets.
const MOST_BRACKETS: usize = 1_000;

/// Reads the kubeconfig in a Secret, by one request through the management cluster's client.
///
/// The returned kubeconfig has its credentials inline: nothing in it runs a program or reads a file.
///
/// # Errors
/// When the Secret can't be read, lacks its key, holds no kubeconfig, or holds one with a field that a Secret may not
/// set.
pub(crate) async fn kubeconfig_of_secret(management: &Client, secret: &SecretRef) -> Result<Kubeconfig, ConnectError> {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), secret.namespace());
    let found = secrets.get(secret.name()).await.map_err(|error| request_error(secret, &error))?;
    let value = found.data.and_then(|mut data| data.remove(KEY));
    let Some(value) = value else {
        return Err(ConnectError::Unusable(format!(
            "{secret}: has no key \"value\": Cluster API keeps the kubeconfig there; check who wrote the Secret"
        )));
    };
    parse(secret, &value.0)
}

fn request_error(secret: &SecretRef, error: &kube::Error) -> ConnectError {
    match error {
        kube::Error::Api(status) if status.code == 404 => ConnectError::Unusable(format!(
            "{secret}: not found: check the Cluster's namespace and name, and that its control plane is provisioned, or name \
             a kubeconfig file for the workload cluster"
        )),
        kube::Error::Api(status) if status.code == 403 => ConnectError::Unusable(format!(
            "{secret}: reading it is forbidden: {}: grant this program's user the verb get on this Secret",
            status.message
        )),
        _ => ConnectError::SecretUnreadable(format!("{secret}: can't read it: {}", cause(error))),
    }
}

fn parse(secret: &SecretRef, value: &[u8]) -> Result<Kubeconfig, ConnectError> {
    let invalid = |reason: String| ConnectError::Unusable(format!("{secret}: its kubeconfig can't be used: {reason}"));
    let text = str::from_utf8(value).map_err(|error| invalid(format!("not UTF-8 text: {error}")))?;
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > MOST_BRACKETS {
        return Err(invalid(format!(
            "not a kubeconfig: it has more than {MOST_BRACKETS} lists and objects in brackets"
        )));
    }
    // No kubeconfig needs aliases, and a few lines of them could fill this program's memory.
    if text.contains('&') && text.contains('*') {
        return Err(invalid("it has YAML aliases: write out what they stand for".to_owned()));
    }
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| invalid(kubeconfig_reason(&error)))?;
    check_kubeconfig(&kubeconfig).map_err(|Refused { field, why, remedy }| {
        ConnectError::Unusable(format!(
            "{secret}: its kubeconfig sets {field}, {why}: {remedy}, or name a kubeconfig file of your own for the \
             workload cluster"
        ))
    })?;
    Ok(kubeconfig)
}

/// A field that a Secret may not set.
#[derive(Debug, Eq, PartialEq)]
struct Refused {
    /// The path of the field.
    field: String,
    /// The effect that it would have.
    why: &'static str,
    /// The setting to use instead.
    remedy: &'static str,
}

const RUNS: &str = "which would run a program with this program's rights";
const READS: &str = "which would read a file with this program's rights";
const UNKNOWN: &str = "which is not known here";

/// Checks all entries, not only those of the current context, and fails with the first field that a Secret may not
/// set.
fn check_kubeconfig(kubeconfig: &Kubeconfig) -> Result<(), Refused> {
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
    !is_loopback(uri.host().unwrap_or_default())
}
