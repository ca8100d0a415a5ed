//! A group of Machines in a sandbox, with one or more copies of the whole program in-process, and calls to them. It
//! must not know how a command does its work: only the state before and afterwards.

use std::{collections::BTreeSet, fmt::Write as _, path::Path, sync::Arc, time::Duration};

use app::{App, Config};
use capi_autoscaler_provider::cli::{Cli, Command};
use clap::Parser as _;
use proto::{ExternalGrpcNode, cloud_provider_client::CloudProviderClient};
use sandbox::{
    Sandbox, SandboxOptions, Settings, Times,
    api::{PatchKind, Resource, Selection, Subresource},
};
use serde_json::{Value, json};
use service::listen::Shutdown;
use testkit::{Wait, until};
use tonic::{Status, transport::Channel};

/// The group.
pub(crate) const GROUP: &str = "MachineDeployment/team-a/workers";

/// The initial state of a world.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// The number of copies of the program.
    pub(crate) copies: usize,
    /// The number of Machines, each with its Node.
    pub(crate) machines: usize,
}

impl Default for Start {
    fn default() -> Self {
        Self { copies: 1, machines: 6 }
    }
}

/// A running copy of the program.
pub(crate) struct Copy {
    server: App,
    shutdown: Shutdown,
    client: CloudProviderClient<Channel>,
}

impl Copy {
    async fn end(self) {
        self.shutdown.request();
        self.server.finish().await.unwrap();
    }
}

/// The sandbox, and the copies that run on it.
pub(crate) struct World {
    pub(crate) sandbox: Sandbox,
    copies: Vec<Copy>,
}

/// The group at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct State {
    /// spec.replicas.
    pub(crate) size: i64,
    /// The names of its Machines.
    pub(crate) machines: BTreeSet<String>,
}

impl State {
    /// Returns this state without these Machines, and with a size that is lower by their number.
    pub(crate) fn without(&self, gone: &[String]) -> Self {
        let mut state = self.clone();
        for name in gone {
            assert!(state.machines.remove(name), "{name} wasn't there");
        }
        state.size -= i64::try_from(gone.len()).unwrap();
        state
    }
}

fn cluster() -> Value {
    json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": { "name": "prod", "namespace": "team-a" },
        "spec": {},
    })
}

fn workers(start: Start) -> Value {
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
            "replicas": start.machines,
            "template": {
                "spec": { "clusterName": "prod", "version": "v1.35.0" },
            },
        },
    })
}

/// Returns a kind of the management cluster.
pub(crate) fn resource(plural: &'static str) -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", plural)
}

impl World {
    pub(crate) async fn start(start: Start) -> Self {
        let options = SandboxOptions {
            settings: Settings { times: Times::ZERO, ..Settings::default() },
            manifests: vec![cluster(), workers(start)],
            ..SandboxOptions::default()
        };
        let sandbox = Sandbox::start(options).await.unwrap();
        let kubeconfig = sandbox.management_kubeconfig();
        let mut world = Self { sandbox, copies: Vec::new() };
        for _ in 0..start.copies {
            world.add_copy_by(&kubeconfig).await;
        }
        world
    }

    /// Starts another copy that uses this kubeconfig of the management cluster, and returns its number.
    pub(crate) async fn add_copy_by(&mut self, kubeconfig: &Path) -> usize {
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
        self.copies.push(Copy { server, shutdown, client });
        self.copies.len() - 1
    }

    pub(crate) async fn stop(self) {
        for copy in self.copies {
            copy.end().await;
        }
        self.sandbox.stop().await;
    }

    pub(crate) fn client(&self, copy: usize) -> CloudProviderClient<Channel> {
        self.copies[copy].client.clone()
    }

    /// Returns the objects of a kind.
    pub(crate) fn objects(&self, plural: &'static str) -> Vec<Arc<Value>> {
        self.sandbox.management().api().list(&resource(plural), &Selection::default()).unwrap()
    }

    /// Returns the Nodes as Cluster Autoscaler sends them, by name.
    pub(crate) fn nodes(&self) -> Vec<ExternalGrpcNode> {
        let nodes = self.sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
        nodes.iter().map(|node| as_sent(node)).collect()
    }

    /// Waits until a copy knows all existing Nodes as the group's.
    pub(crate) async fn until_known(&self, copy: usize) {
        let knows_all = async || {
            for node in self.nodes() {
                let request = proto::NodeGroupForNodeRequest { node: Some(node) };
                let group = self.client(copy).node_group_for_node(request).await.unwrap().into_inner().node_group;
                group.filter(|group| group.id == GROUP)?;
            }
            Some(())
        };
        Wait::new("all Nodes are known").showing(&|| self.describe()).value(knows_all).await;
    }

    pub(crate) async fn delete(
        &self,
        copy: usize,
        nodes: Vec<ExternalGrpcNode>,
        deadline: Duration,
    ) -> Result<(), Status> {
        let request = proto::NodeGroupDeleteNodesRequest { id: GROUP.to_owned(), nodes };
        self.client(copy).node_group_delete_nodes(within(request, deadline)).await.map(drop)
    }

    pub(crate) async fn increase(&self, copy: usize, delta: i32, deadline: Duration) -> Result<(), Status> {
        let request = proto::NodeGroupIncreaseSizeRequest { id: GROUP.to_owned(), delta };
        self.client(copy).node_group_increase_size(within(request, deadline)).await.map(drop)
    }

    /// Waits until a copy shows `size` instances, each of them a Machine and none a replica without one.
    pub(crate) async fn until_machines_known(&self, copy: usize, size: i64) {
        let request = proto::NodeGroupNodesRequest { id: GROUP.to_owned() };
        let knows_all = async || {
            let instances = self.client(copy).node_group_nodes(request.clone()).await.unwrap().into_inner().instances;
            let machines = instances.iter().filter(|instance| !instance.id.contains("replica-")).count();
            (i64::try_from(machines) == Ok(size)).then_some(())
        };
        Wait::new("all Machines are known").showing(&|| self.describe()).value(knows_all).await;
    }

    /// Sets the size as another user.
    pub(crate) fn set_size(&self, size: i64) {
        let patch = json!({ "spec": { "replicas": size } });
        let api = self.sandbox.management().api();
        let deployments = resource("machinedeployments");
        api.patch(&deployments, "team-a", "workers", PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    /// Holds a Machine in deletion by another user's hook, or releases it.
    pub(crate) fn hold_in_deletion(&self, name: &str, holds: bool) {
        let value = holds.then_some("");
        let annotations = json!({ "pre-drain.delete.hook.machine.cluster.x-k8s.io/held": value });
        let patch = json!({ "metadata": { "annotations": annotations } });
        let api = self.sandbox.management().api();
        api.patch(&resource("machines"), "team-a", name, PatchKind::Merge, Subresource::Main, patch).unwrap();
    }

    /// Returns the current state of the group.
    pub(crate) fn now(&self) -> State {
        State { size: self.size(), machines: self.objects("machines").iter().map(|machine| name(machine)).collect() }
    }

    fn size(&self) -> i64 {
        self.objects("machinedeployments")[0]["spec"]["replicas"].as_i64().unwrap()
    }

    /// Returns the reason for which the group isn't at rest, or `None` if it is.
    pub(crate) fn unrest(&self) -> Option<String> {
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
    pub(crate) async fn rest(&self) -> State {
        let state = || format!("{:?}\n{}", self.unrest(), self.describe());
        Wait::new("rest").showing(&state).value(async || self.at_rest().await).await
    }

    /// Lets the controllers become idle. Returns the state if nothing of a deletion is left.
    pub(crate) async fn at_rest(&self) -> Option<State> {
        self.sandbox.simulation().settle().await;
        self.unrest().is_none().then(|| self.now())
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
