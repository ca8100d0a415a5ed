//! The API server's users and their rights: an administrator for the tests, and users with no more than the program's
//! documented rights.

use serde_json::{Value, json};

use crate::crds::LATE_TEMPLATE_KIND;
use crate::objects::{Contract, INFRASTRUCTURE_GROUP, Place};

/// The number of scenarios that can run against one API server.
const USERS: usize = 200;
const GROUP: &str = "capi-autoscaler-providers";

/// A user known to the API server by its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name, as in the API server's audit log.
    pub name: String,
}

impl User {
    /// Returns the administrator, who may do everything.
    #[must_use]
    pub fn administrator() -> Self {
        Self { name: "administrator".to_owned() }
    }

    /// Returns a user with the program's rights. Each scenario has one of its own, so that the audit log distinguishes
    /// them.
    #[must_use]
    pub fn provider(number: usize) -> Self {
        Self { name: format!("provider-{number}") }
    }

    pub(crate) fn token(&self) -> String {
        format!("token-of-{}", self.name)
    }

    /// Returns a kubeconfig with inline data, like Cluster API's.
    #[must_use]
    pub fn kubeconfig(&self, server: &str, authority: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": self.name } }],
            "clusters": [{ "name": "e2e", "cluster": { "server": server, "certificate-authority-data": base64(authority.as_bytes()) } }],
            "users": [{ "name": self.name, "user": { "token": self.token() } }],
        })
    }
}

/// Returns a kubeconfig without credentials.
#[must_use]
pub fn plain_kubeconfig(server: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "none" } }],
        "clusters": [{ "name": "e2e", "cluster": { "server": server } }],
        "users": [{ "name": "none", "user": {} }],
    })
}

/// Returns the API server's token file.
#[must_use]
pub fn token_file() -> String {
    let mut lines = line(&User::administrator(), "system:masters");
    for number in 0..USERS {
        lines += &line(&User::provider(number), GROUP);
    }
    lines
}

fn line(user: &User, group: &str) -> String {
    format!("{},{},{},\"{group}\"\n", user.token(), user.name, user.name)
}

/// Returns the RBAC rules that the program needs, and no others. Secrets are granted one by one, see
/// `World::share_kubeconfig`.
#[must_use]
pub fn rules(contract: Contract) -> Vec<Value> {
    let group = contract.group();
    // ForbiddenMachineTemplate is omitted on purpose.
    let templates = ["DevMachineTemplate", "OxMachineTemplate", "LoopbackMachineTemplate", LATE_TEMPLATE_KIND]
        .map(|kind| Place::of(kind, Contract::V1Beta2).resource.plural);
    let read = ["list", "watch"];
    let role = json!({
        "kind": "ClusterRole",
        "metadata": { "name": GROUP },
        "rules": [
            {
                "apiGroups": [group],
                "resources": ["clusters", "machinedeployments", "machinesets", "machines", "machinepools"],
                "verbs": read,
            },
            { "apiGroups": [INFRASTRUCTURE_GROUP], "resources": templates, "verbs": read },
            { "apiGroups": [""], "resources": ["nodes"], "verbs": read },
            {
                "apiGroups": [group],
                "resources": ["machinedeployments/scale", "machinesets/scale", "machinepools/scale"],
                "verbs": ["patch"],
            },
            {
                "apiGroups": [group],
                "resources": ["machinedeployments", "machinesets", "machinepools"],
                "verbs": ["get"],
            },
            { "apiGroups": [group], "resources": ["machines"], "verbs": ["get", "patch", "delete"] },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
        ],
    });
    vec![role, binding(GROUP, "Group", GROUP)]
}

/// Returns a binding that gives a user the same rights.
#[must_use]
pub fn bind_role(user: &User) -> Value {
    binding(&user.name, "User", &user.name)
}

fn binding(name: &str, kind: &str, subject: &str) -> Value {
    json!({
        "kind": "ClusterRoleBinding",
        "metadata": { "name": name },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": GROUP },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": subject }],
    })
}

/// Encodes bytes as standard base64 with padding.
#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    // A ByteString is encoded as base64 in JSON.
    let encoded = json!(k8s_openapi::ByteString(bytes.to_vec()));
    encoded.as_str().unwrap_or_default().to_owned()
}
