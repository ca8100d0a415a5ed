//! A group in a sandbox, served by two processes.

use std::{
    collections::BTreeSet,
    fmt::{Debug, Write as _},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use capi_autoscaler_provider::proto::{self, ExternalGrpcNode};
use futures::future::join_all;
use sandbox::{
    Sandbox, SandboxOptions, Settings, Times,
    api::{PatchKind, Resource, Selection, Subresource},
    faults::Faults,
    requests::Requests,
};
use serde_json::{Value, json};
use tonic::{Code, Status};

use crate::copy::Copy;

const GROUP: &str = "MachineDeployment/team-a/workers";
const LOG: &str = "capi-autoscaler-provider.io/deleting";
const MARK: &str = "cluster.x-k8s.io/delete-machine";
const PATIENCE: Duration = Duration::from_secs(60);

/// The split of the named Nodes into calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asking {
    /// In one call.
    Together,
    /// Each in a call of its own, concurrently.
    EachByItself,
    /// In two concurrent calls.
    InTwoParts,
}

impl Asking {
    fn calls(self, nodes: &[ExternalGrpcNode]) -> impl Iterator<Item = &[ExternalGrpcNode]> {
        nodes.chunks(match self {
            Self::Together => nodes.len(),
            Self::EachByItself => 1,
            Self::InTwoParts => nodes.len().div_ceil(2),
        })
    }
}

/// The group at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct State {
    size: i64,
    machines: BTreeSet<String>,
}

impl State {
    pub(crate) fn without(&self, gone: &[String]) -> Self {
        let mut state = self.clone();
        for name in gone {
            assert!(state.machines.remove(name), "{name} wasn't there");
        }
        state.size -= i64::try_from(gone.len()).unwrap();
        state
    }
}

pub(crate) struct World {
    sandbox: Sandbox,
    kubeconfig: PathBuf,
    copies: [Option<Copy>; 2],
}

impl World {
    pub(crate) async fn start() -> Self {
        let cluster = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster",
            "metadata": { "name": "prod", "namespace": "team-a" }, "spec": {},
        });
        let workers = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
            "metadata": {
                "name": "workers", "namespace": "team-a",
                "annotations": {
                    "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "1000",
                    "capacity.cluster-autoscaler.kubernetes.io/cpu": "4",
                    "capacity.cluster-autoscaler.kubernetes.io/memory": "16Gi",
                },
            },
            "spec": {
                "clusterName": "prod", "replicas": 0,
                "template": { "spec": { "clusterName": "prod", "version": "v1.35.0" } },
            },
        });
        let settings = Settings { times: Times::ZERO, ..Settings::default() };
        let options = SandboxOptions { settings, manifests: vec![cluster, workers], ..SandboxOptions::default() };
        let sandbox = Sandbox::start(options).await.unwrap();
        let kubeconfig = sandbox.management_kubeconfig();
        let (first, second) = tokio::join!(Copy::start(&kubeconfig), Copy::start(&kubeconfig));
        Self { sandbox, kubeconfig, copies: [Some(first), Some(second)] }
    }

    pub(crate) async fn stop(self) {
        drop(self.copies);
        self.sandbox.stop().await;
    }

    pub(crate) fn faults(&self) -> &Faults {
        self.sandbox.management().faults()
    }

    pub(crate) fn requests(&self) -> &Requests {
        self.sandbox.management().requests()
    }

    pub(crate) fn kill(&mut self, copy: usize) {
        self.copies[copy].take().unwrap().kill();
    }

    pub(crate) async fn start_copy(&mut self, copy: usize) {
        self.copies[copy] = Some(Copy::start(&self.kubeconfig).await);
    }

    fn client(&self, copy: usize) -> proto::cloud_provider_client::CloudProviderClient<tonic::transport::Channel> {
        self.copies[copy].as_ref().unwrap().client.clone()
    }

    fn objects(&self, plural: &'static str) -> Vec<Arc<Value>> {
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", plural);
        self.sandbox.management().api().list(&resource, &Selection::default()).unwrap()
    }

    pub(crate) fn nodes(&self) -> Vec<ExternalGrpcNode> {
        let nodes = self.sandbox.workload().api().list(&Resource::core("nodes"), &Selection::default()).unwrap();
        let as_sent = |node: &Arc<Value>| ExternalGrpcNode {
            provider_id: node["spec"]["providerID"].as_str().unwrap().to_owned(),
            name: name(node),
            ..ExternalGrpcNode::default()
        };
        nodes.iter().map(as_sent).collect()
    }

    /// Scales the group to this number of Machines, and waits until both copies know them.
    pub(crate) async fn fill(&self, machines: usize, terminate: Duration) -> State {
        self.sandbox.simulation().set_times(Times { terminate, ..Times::ZERO });
        let resource = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
        let patch = json!({ "spec": { "replicas": machines } });
        let api = self.sandbox.management().api();
        api.patch(&resource, "team-a", "workers", PatchKind::Merge, Subresource::Main, patch).unwrap();
        let state = self.rest(&"filling").await;
        for copy in 0..2 {
            for node in self.nodes() {
                let request = proto::NodeGroupForNodeRequest { node: Some(node) };
                let knows = async || {
                    let answer = self.client(copy).node_group_for_node(request.clone()).await.unwrap();
                    answer.into_inner().node_group.is_some_and(|group| group.id == GROUP)
                };
                self.until(&"all Nodes are known", knows).await;
            }
        }
        state
    }

    /// Calls DeleteNodes of a copy, and ignores the answer.
    pub(crate) async fn ask(&self, copy: usize, nodes: &[ExternalGrpcNode], asking: Asking) {
        join_all(asking.calls(nodes).map(|nodes| self.delete(copy, nodes))).await;
    }

    async fn delete(&self, copy: usize, nodes: &[ExternalGrpcNode]) -> Result<(), Status> {
        let request = proto::NodeGroupDeleteNodesRequest { id: GROUP.to_owned(), nodes: nodes.to_vec() };
        let mut request = tonic::Request::new(request);
        request.set_timeout(Duration::from_secs(5));
        self.client(copy).node_group_delete_nodes(request).await.map(drop)
    }

    /// Names the existing ones of these Nodes again, since a deleted Node is in no list. Obeys an answer that asks for
    /// a retry.
    pub(crate) async fn repeat(&self, copy: usize, named: &[ExternalGrpcNode]) -> Result<(), Status> {
        let began = Instant::now();
        loop {
            let there: BTreeSet<_> = self.nodes().into_iter().map(|node| node.name).collect();
            let left: Vec<_> = named.iter().filter(|node| there.contains(&node.name)).cloned().collect();
            if left.is_empty() {
                return Ok(());
            }
            match self.delete(copy, &left).await {
                Ok(()) => return Ok(()),
                Err(status) => {
                    let comes_again = matches!(
                        status.code(),
                        Code::Unavailable | Code::Aborted | Code::Cancelled | Code::DeadlineExceeded | Code::NotFound
                    );
                    if !comes_again || began.elapsed() > PATIENCE {
                        return Err(status);
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn until(&self, what: &dyn Debug, is_so: impl AsyncFn() -> bool) {
        let began = Instant::now();
        while !is_so().await {
            assert!(began.elapsed() < PATIENCE, "in vain: {what:?}: {:?}\n{}", self.unrest(), self.describe());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn unrest(&self) -> Option<String> {
        let deployments = self.objects("machinedeployments");
        let log = &deployments[0]["metadata"]["annotations"][LOG];
        if !log.is_null() {
            return Some(format!("the log is {log}"));
        }
        let machines = self.objects("machines");
        for machine in &machines {
            let metadata = &machine["metadata"];
            if !metadata["deletionTimestamp"].is_null() || !metadata["annotations"][MARK].is_null() {
                return Some(format!("{metadata}"));
            }
        }
        let count = json!(machines.len());
        let nodes = self.nodes().len();
        let sizes = deployments.iter().chain(&self.objects("machinesets")).any(|one| one["spec"]["replicas"] != count);
        (sizes || nodes != machines.len()).then(|| format!("sizes differ from {count} Machines and {nodes} Nodes"))
    }

    /// Waits until nothing of a deletion is left.
    pub(crate) async fn rest(&self, round: &dyn Debug) -> State {
        let is_at_rest = async || {
            self.sandbox.simulation().settle().await;
            self.unrest().is_none()
        };
        self.until(round, is_at_rest).await;
        let machines = self.objects("machines").iter().map(|machine| name(machine)).collect();
        State { size: self.objects("machinedeployments")[0]["spec"]["replicas"].as_i64().unwrap(), machines }
    }

    /// Returns the requests to the API server, for a round that fails.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::new();
        let asked = self.requests().all();
        for request in asked.iter().filter(|request| request.method != "GET" || request.path.contains("/machines/")) {
            let body = String::from_utf8_lossy(&request.body);
            writeln!(text, "{} {} {body} => {:?}", request.method, request.path, request.status).unwrap();
        }
        text
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}
