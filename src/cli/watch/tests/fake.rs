//! The sandbox's API server, with the kinds and objects of a test, and refusals.

use sandbox::{
    api::{Api, DeleteOptions, Resource},
    clock::Clock,
    faults::Fault,
    http::ApiServer,
};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(super) const CAPI: &str = "cluster.x-k8s.io";

pub(super) struct Fake {
    server: ApiServer,
    folder: TempDir,
}

/// Returns the definition of a kind, whose last version is the one that is stored.
pub(super) fn definition(group: &str, kind: &str, short: &[&str], versions: &[&str]) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let version = |name: &&str| {
        json!({
            "name": name, "served": true, "storage": Some(name) == versions.last(),
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List"),
                "shortNames": short,
            },
            "versions": versions.iter().map(version).collect::<Vec<_>>(),
        },
    })
}

/// Returns the resource of a plural, and its kind.
fn resource(plural: &str) -> (Resource, &'static str) {
    let capi = |kind| (Resource::new(CAPI, "v1beta2", plural.to_owned()), kind);
    match plural {
        "clusters" => capi("Cluster"),
        "machines" => capi("Machine"),
        "machinepools" => capi("MachinePool"),
        "nodes" => (Resource::core("nodes"), "Node"),
        "secrets" => (Resource::core("secrets"), "Secret"),
        _ => panic!("{plural} isn't served"),
    }
}

impl Fake {
    /// Starts a server of the core kinds and these.
    pub(super) async fn start(definitions: Vec<Value>) -> Self {
        let api = Api::new(Clock::real());
        let namespaces = ["default", "team-a", "team-b"];
        let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        api.load_values(namespaces.map(namespace).into_iter().chain(definitions).collect()).unwrap();
        let server = ApiServer::start(api).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: c, namespace: team-a}}}}]\n\
             clusters: [{{name: c, cluster: {{server: '{}'}}}}]\n",
            server.url()
        );
        std::fs::write(folder.path().join("config"), kubeconfig).unwrap();
        Self { server, folder }
    }

    /// Starts a server of Cluster API with two of its kinds.
    pub(super) async fn usual() -> Self {
        let capi = |kind, short| definition(CAPI, kind, &[short], &["v1beta2"]);
        Self::start(vec![capi("Cluster", "cl"), capi("Machine", "ma")]).await
    }

    pub(super) fn kubeconfig(&self) -> String {
        self.folder.path().join("config").display().to_string()
    }

    pub(super) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(super) fn api(&self) -> &Api {
        self.server.api()
    }

    pub(super) fn forbid(&self, verb: &str, plural: &str) {
        let message = format!("{plural} is forbidden: User \"u\" cannot {verb} resource");
        let fault = Fault::refuse(403, "Forbidden", &message).on_verb(verb);
        self.server.faults().add(fault.on_path(&format!("/{plural}")).unwrap());
    }

    pub(super) fn install(&self, definition: Value) {
        self.api().load_values(vec![definition]).unwrap();
    }

    /// Removes a kind of Cluster API with all its objects.
    pub(super) fn uninstall(&self, plural: &str) {
        let definitions = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let name = format!("{plural}.{CAPI}");
        self.api().delete(&definitions, "", &name, &DeleteOptions::default()).unwrap();
    }

    /// Creates or changes an object, identified by `namespace/name` (or a name).
    #[allow(clippy::needless_pass_by_value, reason = "literals are handed over")]
    pub(super) fn put(&self, plural: &str, key: &str, content: Value) {
        let (resource, kind) = resource(plural);
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut object = json!({"apiVersion": resource.api_version(), "kind": kind, "metadata": {"name": name}});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        json_patch::merge(&mut object, &content);
        self.api().load_values(vec![object]).unwrap();
    }

    pub(super) fn delete(&self, plural: &str, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.api().delete(&resource(plural).0, namespace, name, &DeleteOptions::default()).unwrap();
    }
}
