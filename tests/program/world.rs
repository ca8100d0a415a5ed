//! The whole program in-process on a sandbox whose clock the test drives, and the objects of a group.

use std::{sync::Arc, time::Duration};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use jiff::Timestamp;
use proto::{ExternalGrpcNode, cloud_provider_client::CloudProviderClient};
use sandbox::{
    BEHAVIOUR_LABEL, Sandbox, SandboxOptions,
    api::{PatchKind, Resource, Selection, Subresource},
    clock::Clock,
};
use serde_json::{Value, json};
use service::listen::Shutdown;
use testkit::{get, until};
use tokio::sync::OnceCell;
use tonic::transport::{Channel, Endpoint};

/// The start of the clusters' clock, as a time before now.
const BEFORE: Duration = Duration::from_secs(3 * 3600);

/// The program, the clusters that it runs on, and their clock.
pub(crate) struct World {
    sandbox: Sandbox,
    pub(crate) server: App,
    clock: Clock,
    shutdown: Shutdown,
    channel: OnceCell<Channel>,
}

impl World {
    /// Starts the program on these objects, and waits until it is in sync. Flags that aren't given have free ports.
    pub(crate) async fn start(manifests: Vec<Value>, flags: &[&str]) -> Self {
        let clock = Clock::driven(Timestamp::now().checked_sub(BEFORE).unwrap());
        let options = SandboxOptions { manifests, clock: clock.clone(), ..SandboxOptions::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let kubeconfig = format!("--management-kubeconfig={}", sandbox.management_kubeconfig().display());
        let own = ["x", "serve", "--cluster=team-a/prod", &kubeconfig];
        let ports = ["--listen=", "--http-listen=", "--admin-listen="];
        let ports = ports.iter().filter(|port| !flags.iter().any(|flag| flag.starts_with(**port)));
        let ports: Vec<_> = ports.map(|port| format!("{port}127.0.0.1:0")).collect();
        let all = own.into_iter().chain(ports.iter().map(String::as_str)).chain(flags.iter().copied());
        let Command::Serve(args) = Cli::try_parse_from(all).unwrap().command else { panic!("serve was asked for") };
        let shutdown = Shutdown::new();
        let config = Config::try_from(*args).unwrap();
        let server = App::start(config, shutdown.clone()).await.unwrap();
        let http = server.http_address().to_string();
        until("in sync", async || (get(&http, "/readyz").await.0 == 200).then_some(())).await;
        Self { sandbox, server, clock, shutdown, channel: OnceCell::new() }
    }

    pub(crate) async fn stop(self) {
        self.shutdown.request();
        self.server.finish().await.unwrap();
        self.sandbox.stop().await;
    }

    pub(crate) async fn client(&self) -> CloudProviderClient<Channel> {
        let connect = async || {
            let endpoint = Endpoint::from_shared(format!("http://{}", self.server.grpc_address())).unwrap();
            endpoint.connect().await.unwrap()
        };
        CloudProviderClient::new(self.channel.get_or_init(connect).await.clone())
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

    /// Returns the Nodes as Cluster Autoscaler sends them.
    pub(crate) fn nodes(&self) -> Vec<ExternalGrpcNode> {
        let nodes = self.sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
        let node = |node: &Arc<Value>| ExternalGrpcNode {
            provider_id: node["spec"]["providerID"].as_str().unwrap().to_owned(),
            name: name(node),
            ..ExternalGrpcNode::default()
        };
        nodes.iter().map(node).collect()
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
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
