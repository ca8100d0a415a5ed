//! The API server's users and their rights: an administrator for the tests, and users with no more than the rights of
//! `examples/rbac.yaml`.

use anyhow::Result;
use serde_json::{Value, json};

use crate::{
    crds::{LATE_TEMPLATE_KIND, TEMPLATE_KIND},
    helm,
    objects::{CAPI_GROUP, Contract, INFRASTRUCTURE_GROUP, Place},
};

/// The documented roles of the program.
const EXAMPLE: &str = include_str!("../../examples/rbac.yaml");

const RBAC: &str = "rbac.authorization.k8s.io";

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
    pub fn administrator() -> Self {
        Self { name: "administrator".to_owned() }
    }

    /// Returns a user with the program's rights. Each scenario has one of its own, so that the audit log distinguishes
    /// them.
    pub fn provider(number: usize) -> Self {
        Self { name: format!("provider-{number}") }
    }

    pub(crate) fn token(&self) -> String {
        format!("token-of-{}", self.name)
    }

    /// Returns a kubeconfig with inline data, like Cluster API's.
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

/// Returns the role of the program's users, with the rules of the example, and its binding. The example's objects with a
/// name are granted one by one, such as Secrets by [`may_read_secret`]. No bootstrap template is read, unless Nodes are
/// remembered.
pub fn rules(contract: Contract) -> Result<[Value; 2]> {
    // ForbiddenMachineTemplate is omitted on purpose.
    let templates = [TEMPLATE_KIND, LATE_TEMPLATE_KIND, "LoopbackMachineTemplate"]
        .map(|kind| Place::of(kind, Contract::V1Beta2).resource.plural);
    let mut rules = Vec::new();
    for object in helm::objects(EXAMPLE)? {
        for mut rule in object["rules"].as_array().cloned().unwrap_or_default() {
            if rule["resourceNames"].is_array() || rule["apiGroups"] == json!(["bootstrap.cluster.x-k8s.io"]) {
                continue;
            }
            if rule["apiGroups"] == json!([INFRASTRUCTURE_GROUP]) {
                rule["resources"] = json!(templates);
            } else if rule["apiGroups"] == json!([CAPI_GROUP]) {
                rule["apiGroups"] = json!([contract.group()]);
            }
            rules.push(rule);
        }
    }
    let role = json!({ "kind": "ClusterRole", "metadata": { "name": GROUP }, "rules": rules });
    Ok([role, binding(GROUP, ("ClusterRole", GROUP), ("Group", GROUP))])
}

/// Returns a binding that gives a user the same rights.
pub fn bind_role(user: &User) -> Value {
    bind(user, &user.name, ("ClusterRole", GROUP))
}

/// Returns a binding of a user to a role, by its kind and name.
pub fn bind(user: &User, name: &str, role: (&str, &str)) -> Value {
    binding(name, role, ("User", &user.name))
}

/// Returns a Role or ClusterRole with one rule, and its binding to a user under the same name.
pub fn grant(user: &User, kind: &str, name: &str, rule: &Value) -> [Value; 2] {
    let granting = json!({ "kind": kind, "metadata": { "name": name }, "rules": [rule] });
    [granting, bind(user, name, (kind, name))]
}

/// Returns a Role by which a user may read one Secret, and its binding.
pub fn may_read_secret(user: &User, secret: &str) -> [Value; 2] {
    let rule = json!({ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"] });
    grant(user, "Role", secret, &rule)
}

fn binding(name: &str, (kind, role): (&str, &str), (subject_kind, subject): (&str, &str)) -> Value {
    json!({
        "kind": format!("{kind}Binding"),
        "metadata": { "name": name },
        "roleRef": { "apiGroup": RBAC, "kind": kind, "name": role },
        "subjects": [{ "apiGroup": RBAC, "kind": subject_kind, "name": subject }],
    })
}

/// Returns the Secret in which Cluster API keeps a Cluster's kubeconfig.
pub fn kubeconfig_secret(cluster: &str, kubeconfig: &str) -> Value {
    json!({
        "kind": "Secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"),
            "labels": { "cluster.x-k8s.io/cluster-name": cluster },
        },
        "type": "cluster.x-k8s.io/secret",
        "data": { "value": base64(kubeconfig.as_bytes()) },
    })
}

/// Encodes bytes as standard base64 with padding.
pub fn base64(bytes: &[u8]) -> String {
    // A ByteString is encoded as base64 in JSON.
    let encoded = json!(k8s_openapi::ByteString(bytes.to_vec()));
    encoded.as_str().unwrap_or_default().to_owned()
}
