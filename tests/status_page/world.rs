//! The whole program in-process on a sandbox, with the status page, a captured log, and the commands that a person
//! runs.

use std::{
    io::{self, Write},
    process::Command as Process,
    sync::Arc,
    time::Duration,
};

use capi_autoscaler_provider::{
    app::{App, Config},
    cli::{Cli, Command},
    proto::{self, ExternalGrpcNode, cloud_provider_client::CloudProviderClient},
    server::Shutdown,
};
use clap::Parser as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use sandbox::{
    BEHAVIOUR_LABEL, Sandbox, SandboxOptions,
    api::{PatchKind, Resource, Selection, Subresource},
    clock::Clock,
    fleet::Fleet,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use tonic::transport::Channel;

/// Longer than anything here takes on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The start of the clusters' clock, as a time before now.
const BEFORE: Duration = Duration::from_secs(3 * 3600);
const PROGRAM: &str = env!("CARGO_BIN_EXE_capi-autoscaler-provider");

/// The program, the clusters that it runs on, and their clock.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    pub(crate) server: App,
    pub(crate) clock: Clock,
    shutdown: Shutdown,
}

/// Polls until `look` returns a value.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let waited = tokio::time::timeout(PATIENCE, async {
        loop {
            match look().await {
                Some(found) => return found,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    });
    waited.await.unwrap_or_else(|_| panic!("in vain: {what}"))
}

impl World {
    /// Starts the program on these objects, and waits until it is in sync.
    pub(crate) async fn start(manifests: Vec<Value>, flags: &[&str]) -> Self {
        Self::start_with(manifests, flags, |_| {}).await
    }

    /// Starts the program on a fleet of groups with Machines, and nothing else.
    pub(crate) async fn of_fleet(groups: usize, machines: usize) -> Self {
        let (namespace, cluster) = ("team-a".to_owned(), "prod".to_owned());
        let fleet = Fleet { groups, machines, namespace, cluster };
        Self::of(SandboxOptions { fleet: Some(fleet), ..SandboxOptions::default() }, &[], |_| {}).await
    }

    /// The same, with faults of the clusters that exist before the program.
    pub(crate) async fn start_with(manifests: Vec<Value>, flags: &[&str], prepare: impl FnOnce(&Sandbox)) -> Self {
        Self::of(SandboxOptions { manifests, ..SandboxOptions::default() }, flags, prepare).await
    }

    async fn of(options: SandboxOptions, flags: &[&str], prepare: impl FnOnce(&Sandbox)) -> Self {
        let clock = Clock::driven(Timestamp::now().checked_sub(BEFORE).unwrap());
        let sandbox = Sandbox::start(SandboxOptions { clock: clock.clone(), ..options }).await.unwrap();
        prepare(&sandbox);
        let kubeconfig = format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display());
        let own = [
            "x",
            "serve",
            "--cluster=team-a/prod",
            "--listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--admin-listen=127.0.0.1:0",
            &kubeconfig,
        ];
        let all = own.into_iter().chain(flags.iter().copied());
        let Command::Serve(args) = Cli::try_parse_from(all).unwrap().command else { panic!("serve was asked for") };
        let shutdown = Shutdown::new();
        let server = App::start(Config::try_from(*args).unwrap(), shutdown.clone()).await.unwrap();
        let world = Self { sandbox, server, clock, shutdown };
        until("in sync", async || (world.readiness().await == 200).then_some(())).await;
        world
    }

    pub(crate) async fn stop(self) {
        self.shutdown.request();
        self.server.finish().await.unwrap();
        self.sandbox.stop().await;
    }

    async fn readiness(&self) -> u16 {
        get(&self.server.http_address().to_string(), "/readyz").await.0
    }

    pub(crate) async fn client(&self) -> CloudProviderClient<Channel> {
        CloudProviderClient::connect(format!("http://{}", self.server.grpc_address())).await.unwrap()
    }

    pub(crate) async fn refresh(&self) {
        self.client().await.refresh(proto::RefreshRequest {}).await.unwrap();
    }

    /// Lets the controllers work for this long.
    pub(crate) async fn pass(&self, seconds: u64) {
        self.sandbox.simulation().settle().await;
        for _ in 0..seconds {
            self.clock.advance(Duration::from_secs(1));
            self.sandbox.simulation().settle().await;
        }
    }

    /// Changes an object as another user.
    pub(crate) fn change(&self, plural: &'static str, name: &str, patch: Value) {
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", plural);
        let api = self.sandbox.management().api();
        api.patch(&resource, "team-a", name, PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    /// Returns the Nodes of a group as Cluster Autoscaler sends them.
    pub(crate) fn nodes(&self, group: &str) -> Vec<ExternalGrpcNode> {
        let nodes = self.sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
        let node = |node: &Arc<Value>| ExternalGrpcNode {
            provider_id: node["spec"]["providerID"].as_str().unwrap().to_owned(),
            name: node["metadata"]["name"].as_str().unwrap().to_owned(),
            ..ExternalGrpcNode::default()
        };
        nodes.iter().map(node).filter(|node| node.name.starts_with(group)).collect()
    }

    /// Returns a page as HTML.
    pub(crate) async fn page(&self, path: &str) -> String {
        let (status, body) = get(&self.admin(), path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    pub(crate) fn admin(&self) -> String {
        self.server.admin_address().unwrap().to_string()
    }

    /// Returns the page of a MachineDeployment as text.
    pub(crate) async fn page_of(&self, name: &str) -> String {
        text_of(&self.page(&format!("/groups/MachineDeployment/team-a/{name}")).await)
    }

    pub(crate) async fn metrics(&self) -> String {
        get(&self.server.http_address().to_string(), "/metrics").await.1
    }

    /// Returns the output of `groups` on the running server.
    pub(crate) async fn groups(&self) -> String {
        let server = format!("--server=http://{}", self.admin());
        said(vec!["groups".to_owned(), server, "--all".to_owned()]).await
    }

    /// Returns the output of `explain` on the clusters.
    pub(crate) async fn explain(&self, name: &str) -> String {
        let kubeconfig = format!("--management-kubeconfig={}", self.sandbox.management_kubeconfig().display());
        let id = format!("MachineDeployment/team-a/{name}");
        let flags = ["explain".to_owned(), id, "--cluster=team-a/prod".to_owned(), kubeconfig];
        said(flags.into()).await
    }

    /// Returns the reason and note of the Events on a MachineDeployment.
    pub(crate) fn events(&self, name: &str) -> Vec<String> {
        let events = Resource::new("events.k8s.io", "v1", "events");
        let events = self.sandbox.management().api().list(&events, &Selection::default()).unwrap();
        let of_it = events.iter().filter(|event| event["regarding"]["name"] == name);
        of_it.map(|it| format!("{}: {}", it["reason"].as_str().unwrap(), it["note"].as_str().unwrap())).collect()
    }
}

/// Returns the output of a command of the program, whatever its exit code.
async fn said(flags: Vec<String>) -> String {
    let run = move || Process::new(PROGRAM).args(flags).env("NO_COLOR", "1").output().unwrap();
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Returns the status and body of a GET request.
pub(crate) async fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Returns the text of a page as a reader sees it: without markup, with single spaces.
pub(crate) fn text_of(html: &str) -> String {
    let mut text = String::new();
    for part in html.split('<') {
        let (tag, rest) = part.split_once('>').unwrap_or(("", part));
        // A possible line break is not a space.
        if tag != "wbr" {
            text.push(' ');
        }
        text.push_str(rest);
    }
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&amp;", "&")];
    let plain = entities.into_iter().fold(text, |text, (entity, plain)| text.replace(entity, plain));
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The captured log of the program.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures everything that is logged in this process from now on.
    pub(crate) fn keep() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        subscriber.with_max_level(tracing::Level::INFO).init();
        log
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock()).into_owned()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn cluster() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": { "name": "prod", "namespace": "team-a" },
        "spec": {},
    })
}

/// Returns a group of this size that scales from zero by its annotations, with further annotations.
pub(crate) fn deployment(name: &str, replicas: i64, annotations: impl Into<Value>) -> Value {
    let mut value = json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {
            "name": name,
            "namespace": "team-a",
            "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "10",
                "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
                "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
            },
        },
        "spec": {
            "clusterName": "prod",
            "replicas": replicas,
            "template": { "metadata": { "labels": {} }, "spec": { "clusterName": "prod", "version": "v1.35.0" } },
        },
    });
    let annotations: Value = annotations.into();
    json_patch::merge(&mut value, &json!({ "metadata": { "annotations": annotations } }));
    value
}

/// Sets the behaviour of its Machines.
pub(crate) fn behaving(mut deployment: Value, behaviour: &str) -> Value {
    deployment["spec"]["template"]["metadata"]["labels"][BEHAVIOUR_LABEL] = behaviour.into();
    deployment
}

/// Removes the capacity annotations, and sets the kind of its infrastructure template.
pub(crate) fn of_template(mut deployment: Value, kind: &str) -> Value {
    deployment["metadata"]["annotations"].as_object_mut().unwrap().retain(|key, _| !key.starts_with("capacity."));
    deployment["spec"]["template"]["spec"]["infrastructureRef"] =
        json!({ "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": deployment["metadata"]["name"] });
    deployment
}

/// Returns an infrastructure template that publishes its capacity.
pub(crate) fn template(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": { "name": name, "namespace": "team-a" },
        "spec": { "template": { "spec": {} } },
        "status": {
            "capacity": { "cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "1" },
            "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux" },
        },
    })
}
