//! A group in a sandbox, served by two processes.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    path::PathBuf,
    time::{Duration, Instant},
};

use futures::future::join_all;
use proto::ExternalGrpcNode;
use sandbox::{faults::Faults, requests::Requests};
use testkit::{PATIENCE, Wait};
use tonic::{Code, Status};

use super::copy::Copy;
use crate::world::{self, GROUP, Start, State};

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

/// The clusters, without copies in-process, and the processes on them.
pub(crate) struct World {
    group: world::World,
    kubeconfig: PathBuf,
    copies: [Option<Copy>; 2],
}

impl World {
    pub(crate) async fn start() -> Self {
        let group = world::World::start(Start { copies: 0, machines: 0 }).await;
        let kubeconfig = group.sandbox.management_kubeconfig();
        let (first, second) = tokio::join!(Copy::start(&kubeconfig), Copy::start(&kubeconfig));
        Self { group, kubeconfig, copies: [Some(first), Some(second)] }
    }

    pub(crate) async fn stop(self) {
        drop(self.copies);
        self.group.stop().await;
    }

    pub(crate) fn faults(&self) -> &Faults {
        self.group.sandbox.management().faults()
    }

    pub(crate) fn requests(&self) -> &Requests {
        self.group.sandbox.management().requests()
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

    pub(crate) fn nodes(&self) -> Vec<ExternalGrpcNode> {
        self.group.nodes()
    }

    /// Scales the group to this number of Machines, and waits until both copies know them.
    pub(crate) async fn fill(&self, machines: usize) -> State {
        self.group.set_size(i64::try_from(machines).unwrap());
        let state = self.rest(&"filling").await;
        for copy in 0..2 {
            for node in self.nodes() {
                let request = proto::NodeGroupForNodeRequest { node: Some(node) };
                let knows = async || {
                    let answer = self.client(copy).node_group_for_node(request.clone()).await.unwrap();
                    answer.into_inner().node_group.filter(|group| group.id == GROUP)
                };
                Wait::new("all Nodes are known").showing(&|| self.describe()).value(knows).await;
            }
        }
        state
    }

    /// Holds Machines in deletion by another user's hook, or releases them.
    pub(crate) fn hold_in_deletion(&self, names: &[String], holds: bool) {
        for name in names {
            self.group.hold_in_deletion(name, holds);
        }
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

    /// Waits until nothing of a deletion is left, nor a Node without a Machine.
    pub(crate) async fn rest(&self, round: &dyn Debug) -> State {
        let state = || format!("{:?}, {} Nodes\n{}", self.group.unrest(), self.nodes().len(), self.describe());
        let is_at_rest = async || self.group.at_rest().await.filter(|state| state.machines.len() == self.nodes().len());
        Wait::new(&format!("rest after {round:?}")).showing(&state).value(is_at_rest).await
    }

    /// Returns the objects and the requests to the API server, for a round that fails.
    pub(crate) fn describe(&self) -> String {
        self.group.describe()
    }
}
