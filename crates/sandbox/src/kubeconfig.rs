//! Kubeconfigs for a server of the sandbox: a loopback address, and a token that the server ignores.

use serde_json::json;

/// Returns a kubeconfig as YAML.
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
    // JSON is valid YAML, in case the conversion should fail.
    serde_yaml::to_string(&config).unwrap_or_else(|_| config.to_string())
}
