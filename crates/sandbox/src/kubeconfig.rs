//! Kubeconfigs for a server of the sandbox: an address on loopback, and a token that it doesn't look at.

use serde_json::json;

/// A kubeconfig, as YAML.
#[must_use]
pub fn kubeconfig(url: &str) -> String {
    let name = "sandbox";
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": name}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    });
    // JSON is YAML; a mapping of texts always has a YAML form of its own.
    serde_yaml::to_string(&config).unwrap_or_else(|_| config.to_string())
}
