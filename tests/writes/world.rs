//! A group of Machines in a sandbox, with the whole program in-process, and calls to it. It must not know how a command
//! does its work: only the state before and afterwards.

use std::{fmt::Write as _, path::Path, sync::Arc, time::Duration};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use proto::{ExternalGrpcNode, cloud_provider_client::CloudProviderClient};
use sandbox::{
    Sandbox, SandboxOptions, Settings, Times,
    api::{Resource, Selection},
};
use serde_json::{Value, json};
use service::listen::Shutdown;
use testkit::{Wait, until};
use tonic::{Status, transport::Channel};

/// The group.
const GROUP: &str = "MachineDeployment/team-a/workers";

/// The sandbox, and the program that runs on it.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    program: Option<Running>,
}

struct Running {
    server: App,
    shutdown: Shutdown,
    client: CloudProviderClient<Channel>,
}

fn cluster() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": { "name": "prod", "namespace": "team-a" },
        "spec": {},
    })
}

fn workers(machines: usize) -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "MachineDeployment",
        "metadata": {
            "name": "workers",
            "namespace": "team-a",
            "annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "1000",
                "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
                "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
            },
        },
        "spec": {
            "clusterName": "prod",
            "replicas": machines,
            "template": {
                "spec": { "clusterName": "prod", "version": "v1.35.0" },
            },
        },
    })
}

impl World {
    /// Starts the program on a group of this number of Machines, each with its Node.
    pub(crate) async fn start(machines: usize) -> Self {
        let mut world = Self::without_program(machines).await;
        let kubeconfig = world.sandbox.management_kubeconfig();
        world.start_program(&kubeconfig).await;
        world
    }

    pub(crate) async fn without_program(machines: usize) -> Self {
        let options = SandboxOptions {
            settings: Settings { times: Times::ZERO, ..Settings::default() },
            manifests: vec![cluster(), workers(machines)],
            ..SandboxOptions::default()
        };
        Self { sandbox: Sandbox::start(options).await.unwrap(), program: None }
    }

    /// Starts the program with this kubeconfig of the management cluster.
    pub(crate) async fn start_program(&mut self, kubeconfig: &Path) {
        let kubeconfig = format!("--management-kubeconfig={}", kubeconfig.display());
        let flags = [
            "x",
            "serve",
            "--cluster=team-a/prod",
            "--listen=127.0.0.1:0",
            "--http-listen=127.0.0.1:0",
            "--admin-listen=none",
            &kubeconfig,
        ];
        let Command::Serve(args) = Cli::try_parse_from(flags).unwrap().command else { panic!("serve was asked for") };
        let shutdown = Shutdown::new();
        let config = Config::try_from(*args).unwrap();
        let server = App::start(config, shutdown.clone()).await.unwrap();
        let client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
        let in_sync = async || client.clone().refresh(proto::RefreshRequest {}).await.ok();
        until("in sync", in_sync).await;
        self.program = Some(Running { server, shutdown, client });
    }

    pub(crate) async fn stop(self) {
        if let Some(Running { server, shutdown, .. }) = self.program {
            shutdown.request();
            server.finish().await.unwrap();
        }
        self.sandbox.stop().await;
    }

    fn client(&self) -> CloudProviderClient<Channel> {
        self.program.as_ref().unwrap().client.clone()
    }

    /// Returns the objects of a kind.
    fn objects(&self, plural: &'static str) -> Vec<Arc<Value>> {
        self.sandbox
            .management()
            .api()
            .list(&Resource::new("cluster.x-k8s.io", "v1beta2", plural), &Selection::default())
            .unwrap()
    }

    /// Returns the Nodes as Cluster Autoscaler sends them, by name.
    pub(crate) fn nodes(&self) -> Vec<ExternalGrpcNode> {
        let nodes = self.sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
        nodes.iter().map(|node| as_sent(node)).collect()
    }

    /// Waits until the program knows all existing Nodes as the group's.
    pub(crate) async fn until_known(&self) {
        let knows_all = async || {
            for node in self.nodes() {
                let request = proto::NodeGroupForNodeRequest { node: Some(node) };
                let group = self.client().node_group_for_node(request).await.unwrap().into_inner().node_group;
                group.filter(|group| group.id == GROUP)?;
            }
            Some(())
        };
        Wait::new("all Nodes are known").showing(&|| self.describe()).value(knows_all).await;
    }

    pub(crate) async fn delete(&self, nodes: Vec<ExternalGrpcNode>, deadline: Duration) -> Result<(), Status> {
        let request = proto::NodeGroupDeleteNodesRequest { id: GROUP.to_owned(), nodes };
        self.client().node_group_delete_nodes(within(request, deadline)).await.map(drop)
    }

    pub(crate) async fn increase(&self, delta: i32, deadline: Duration) -> Result<(), Status> {
        let request = proto::NodeGroupIncreaseSizeRequest { id: GROUP.to_owned(), delta };
        self.client().node_group_increase_size(within(request, deadline)).await.map(drop)
    }

    /// Waits until the program shows `size` instances, each of them a Machine and none a replica without one.
    pub(crate) async fn until_machines_known(&self, size: i64) {
        let request = proto::NodeGroupNodesRequest { id: GROUP.to_owned() };
        let knows_all = async || {
            let instances = self.client().node_group_nodes(request.clone()).await.unwrap().into_inner().instances;
            let machines = instances.iter().filter(|instance| !instance.id.contains("replica-")).count();
            (i64::try_from(machines) == Ok(size)).then_some(())
        };
        Wait::new("all Machines are known").showing(&|| self.describe()).value(knows_all).await;
    }

    /// Returns the spec.replicas of the group.
    pub(crate) fn size(&self) -> i64 {
        self.objects("machinedeployments")[0]["spec"]["replicas"].as_i64().unwrap()
    }

    /// Returns the reason for which the group isn't at rest, or `None` if it is.
    fn unrest(&self) -> Option<String> {
        let deployments = self.objects("machinedeployments");
        let machines = self.objects("machines");
        for machine in &machines {
            let metadata = &machine["metadata"];
            if !metadata["deletionTimestamp"].is_null() {
                return Some(format!("{} is being deleted", name(machine)));
            }
        }
        let sizes: Vec<_> =
            deployments.iter().chain(&self.objects("machinesets")).map(|one| one["spec"]["replicas"].clone()).collect();
        let count = json!(machines.len());
        sizes.iter().any(|size| *size != count).then(|| format!("sizes are {sizes:?} and Machines {count}"))
    }

    /// Waits until the controllers are idle, and nothing of a deletion is left.
    pub(crate) async fn rest(&self) {
        let state = || format!("{:?}\n{}", self.unrest(), self.describe());
        let at_rest = async || {
            self.sandbox.simulation().settle().await;
            self.unrest().is_none().then_some(())
        };
        Wait::new("rest").showing(&state).value(at_rest).await;
    }

    /// Describes the objects and the requests to the API server, for a test that fails.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        for kind in ["machinedeployments", "machinesets", "machines"] {
            for object in self.objects(kind) {
                let (metadata, spec) = (&object["metadata"], &object["spec"]);
                writeln!(
                    text,
                    "{kind} {} {} generation {} observed {} replicas {} deleted {}",
                    metadata["name"],
                    metadata["uid"],
                    metadata["generation"],
                    object["status"]["observedGeneration"],
                    spec["replicas"],
                    metadata["deletionTimestamp"],
                )
                .unwrap();
            }
        }
        let asked = self.sandbox.management().requests().all();
        for request in asked.iter().filter(|request| is_of_a_command(request)) {
            let body = String::from_utf8_lossy(&request.body);
            writeln!(text, "{} {} {body} => {:?}", request.method, request.path, request.status).unwrap();
        }
        text
    }
}

/// Returns true if a request is part of a command or its completion: no watch, no first list, no Event.
pub(crate) fn is_of_a_command(request: &sandbox::requests::Request) -> bool {
    let is_about_one = matches!(request.verb, "get" | "patch" | "delete" | "update" | "create");
    is_about_one
        && request.path.contains("/namespaces/")
        && !request.path.contains("/events")
        && !request.path.contains("/secrets/")
}

fn as_sent(node: &Value) -> ExternalGrpcNode {
    ExternalGrpcNode {
        provider_id: node["spec"]["providerID"].as_str().unwrap().to_owned(),
        name: name(node),
        ..ExternalGrpcNode::default()
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

fn within<T>(request: T, deadline: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(deadline);
    request
}
