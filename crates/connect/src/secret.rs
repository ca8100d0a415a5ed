//! The kubeconfig in a Secret, key `value`, as Cluster API keeps it.

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, config::Kubeconfig};

use super::{ConnectError, SecretRef, error::kubeconfig_reason, inline};
use crate::expansion;

/// The key of the Secret that holds the kubeconfig (contract, section 5).
const KEY: &str = "value";
/// The maximum that aliases may add to a kubeconfig, in values and bytes of texts. None needs any, but a few lines in
/// a Secret must not be able to fill this program's memory.
const MOST_ADDED: usize = 100_000;
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
    let found = secrets.get(secret.name()).await.map_err(|error| request_error(secret, error))?;
    let value = found.data.and_then(|mut data| data.remove(KEY));
    let Some(value) = value else {
        return Err(ConnectError::SecretWithoutValue { secret: secret.clone() });
    };
    parse(secret, &value.0)
}

fn request_error(secret: &SecretRef, error: kube::Error) -> ConnectError {
    let secret = secret.clone();
    match &error {
        kube::Error::Api(status) if status.code == 404 => ConnectError::SecretMissing { secret },
        kube::Error::Api(status) if status.code == 403 => {
            ConnectError::SecretForbidden { secret, reason: status.message.clone() }
        }
        _ => ConnectError::SecretUnreadable { secret, error: Box::new(error) },
    }
}

fn parse(secret: &SecretRef, value: &[u8]) -> Result<Kubeconfig, ConnectError> {
    let invalid = |reason: String| ConnectError::SecretInvalid { secret: secret.clone(), reason };
    let text = str::from_utf8(value).map_err(|error| invalid(format!("not UTF-8 text: {error}")))?;
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > MOST_BRACKETS {
        return Err(invalid(format!(
            "not a kubeconfig: it has more than {MOST_BRACKETS} lists and objects in brackets"
        )));
    }
    expansion::check(text, MOST_ADDED)
        .map_err(|_| invalid("not a kubeconfig in YAML, or one whose aliases stand for too much".to_owned()))?;
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|error| invalid(kubeconfig_reason(&error)))?;
    inline::check(&kubeconfig).map_err(|refused| ConnectError::SecretRefused {
        secret: secret.clone(),
        field: refused.field,
        why: refused.why,
        remedy: refused.remedy,
    })?;
    Ok(kubeconfig)
}
