//! Tests of `watch` as a whole, against the sandbox's API server.

mod changing;
mod ending;
mod lookup;
mod starting;

use std::{
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use clap::Parser as _;
use sandbox::{
    api::{Api, DeleteOptions, Resource},
    clock::Clock,
    faults::Fault,
    http::ApiServer,
};
use serde_json::{Value, json};
use shared_informer::Settings;
use tempfile::TempDir;
use tokio::sync::watch;

use super::{Watch, WatchConfig};
use crate::cli::{Cli, Command, UsageError};
use change_stream::{notify, watch::Tempo};
use service::listen::Shutdown;

/// Longer than any test should take.
const PATIENCE: Duration = Duration::from_secs(20);

fn config(flags: &[&str]) -> Result<WatchConfig, UsageError> {
    let cli = Cli::try_parse_from(["capi-autoscaler-provider", "watch"].iter().chain(flags)).unwrap();
    let Command::Watch(args) = cli.command else { panic!("it isn't watch") };
    WatchConfig::try_from(*args)
}

fn quick() -> Tempo {
    let brief = Duration::from_millis(20);
    Tempo {
        informers: Settings { backoff_min: brief, backoff_max: brief, ..Settings::default() },
        ask: brief,
        notify: notify::Pace {
            gather: Duration::ZERO,
            interval: Duration::ZERO,
            backoff: brief,
            ..notify::Pace::default()
        },
    }
}

#[derive(Clone)]
struct Printed(Arc<watch::Sender<String>>);

impl Default for Printed {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(String::new())))
    }
}

impl Write for Printed {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.send_modify(|printed| printed.push_str(str::from_utf8(text).unwrap()));
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Printed {
    /// Waits for this many lines, and returns them.
    async fn lines(&self, count: usize) -> Vec<String> {
        let mut printed = self.0.subscribe();
        let enough = printed.wait_for(|printed| printed.lines().count() >= count);
        let printed = tokio::time::timeout(PATIENCE, enough).await;
        let printed = printed.unwrap_or_else(|_| panic!("{count} lines, not {:?}", self.0.borrow())).unwrap();
        printed.lines().map(str::to_owned).collect()
    }

    async fn json(&self, count: usize) -> Vec<Value> {
        self.lines(count).await.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Waits until the handlers have received all first lists: changes before that are merged into them.
async fn all_reported(watch: &Watch) {
    watch.stream.factory().wait_for_sync(PATIENCE).await.unwrap();
    let is_reported =
        || watch.stream.factory().statuses().iter().flat_map(|it| &it.handlers).all(|handler| handler.synced);
    let reported = async {
        while !is_reported() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reported).await.unwrap();
}

/// A running watch of a fake API server, in JSON unless the flags say otherwise.
struct Scene {
    watch: Watch,
    printed: Printed,
}

impl Scene {
    async fn start(fake: &Fake, flags: &[&str]) -> Self {
        let printed = Printed::default();
        let watch = begin(fake, flags, printed.clone()).await.unwrap();
        let scene = Self { watch, printed };
        // Changes from here on aren't part of a first list.
        for informer in scene.watch.stream.factory().statuses() {
            assert!(!informer.stopped);
        }
        all_reported(&scene.watch).await;
        scene
    }

    async fn end(self) -> anyhow::Result<()> {
        let shutdown = Shutdown::new();
        shutdown.request();
        self.watch.finish(&shutdown).await
    }
}

async fn begin(fake: &Fake, flags: &[&str], out: impl Write + Send + 'static) -> anyhow::Result<Watch> {
    let kubeconfig = fake.kubeconfig();
    let own = ["-o", "json", "--management-kubeconfig", &kubeconfig];
    let config = config(&[&own[..if flags.contains(&"-o") { 0 } else { 2 }], &own[2..], flags].concat()).unwrap();
    Watch::start(config, out, quick()).await
}

/// Returns the error of the start.
async fn refusal(fake: &Fake, flags: &[&str]) -> String {
    match begin(fake, flags, Printed::default()).await {
        Ok(_) => panic!("it starts"),
        Err(error) => format!("{error:#}"),
    }
}

/// Returns type, kind and name of each line.
fn shorts(lines: &[Value]) -> Vec<String> {
    let text = |line: &Value, field: &str| line[field].as_str().unwrap().to_owned();
    lines.iter().map(|line| format!("{} {} {}", text(line, "type"), text(line, "kind"), text(line, "name"))).collect()
}

const CAPI: &str = "cluster.x-k8s.io";

/// The sandbox's API server, with the kinds and objects of a test, and refusals.
struct Fake {
    server: ApiServer,
    folder: TempDir,
}

/// Returns the definition of a kind, whose last version is the one that is stored.
fn definition(group: &str, kind: &str, short: &[&str], versions: &[&str]) -> Value {
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
    async fn start(definitions: Vec<Value>) -> Self {
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
    async fn usual() -> Self {
        let capi = |kind, short| definition(CAPI, kind, &[short], &["v1beta2"]);
        Self::start(vec![capi("Cluster", "cl"), capi("Machine", "ma")]).await
    }

    fn kubeconfig(&self) -> String {
        self.folder.path().join("config").display().to_string()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn api(&self) -> &Api {
        self.server.api()
    }

    fn forbid(&self, verb: &str, plural: &str) {
        let message = format!("{plural} is forbidden: User \"u\" cannot {verb} resource");
        let fault = Fault::refuse(403, "Forbidden", &message).on_verb(verb);
        self.server.faults().add(fault.on_path(&format!("/{plural}")).unwrap());
    }

    fn install(&self, definition: Value) {
        self.api().load_values(vec![definition]).unwrap();
    }

    /// Removes a kind of Cluster API with all its objects.
    fn uninstall(&self, plural: &str) {
        let definitions = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let name = format!("{plural}.{CAPI}");
        self.api().delete(&definitions, "", &name, &DeleteOptions::default()).unwrap();
    }

    /// Creates or changes an object, identified by `namespace/name` (or a name).
    #[allow(clippy::needless_pass_by_value, reason = "literals are handed over")]
    fn put(&self, plural: &str, key: &str, content: Value) {
        let (resource, kind) = resource(plural);
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        let mut object = json!({"apiVersion": resource.api_version(), "kind": kind, "metadata": {"name": name}});
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = namespace.into();
        }
        json_patch::merge(&mut object, &content);
        self.api().load_values(vec![object]).unwrap();
    }

    fn delete(&self, plural: &str, key: &str) {
        let (namespace, name) = key.split_once('/').unwrap_or(("", key));
        self.api().delete(&resource(plural).0, namespace, name, &DeleteOptions::default()).unwrap();
    }
}
