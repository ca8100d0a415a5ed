//! The reads of a Cluster Autoscaler, sequentially on one connection, for the duration of a turn.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use proto::{
    ExternalGrpcNode, NodeGroupForNodeRequest, NodeGroupTargetSizeRequest, NodeGroupsRequest, RefreshRequest,
    cloud_provider_client::CloudProviderClient,
};
use tokio::runtime::{Builder, Runtime};
use tonic::transport::Channel;

use crate::api::{GROUPS, MACHINES, NAMESPACE, node_name, provider_id};

/// The duration of each read, in microseconds.
#[derive(Default)]
pub(crate) struct Times(Vec<f64>);

impl Times {
    /// Returns the duration that this percentage of the reads doesn't exceed.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (sorted.len() as f64 * percent / 100.0) as usize;
        sorted.get(place).or(sorted.last()).copied().expect("there were reads")
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// A client with one connection, on a thread of its own.
pub(crate) struct Reader {
    runtime: Runtime,
    client: CloudProviderClient<Channel>,
    next: usize,
}

impl Reader {
    /// Connects, and calls Refresh and NodeGroups.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let client = runtime.block_on(async {
            let mut client = CloudProviderClient::connect(format!("http://{address}")).await.expect("a connection");
            client.refresh(RefreshRequest {}).await.expect("a Refresh");
            let groups = client.node_groups(NodeGroupsRequest {}).await.expect("node groups").into_inner().node_groups;
            assert_eq!(groups.len(), GROUPS);
            client
        });
        Self { runtime, client, next: 0 }
    }

    /// Reads for the duration of a turn: the group of a Node and the size of a group alternately.
    pub(crate) fn read(&mut self, turn: Duration, times: &mut Times) {
        let ends = Instant::now() + turn;
        while Instant::now() < ends {
            let (group, machine) = (self.next % GROUPS, self.next % MACHINES);
            let id = format!("MachineDeployment/{NAMESPACE}/pool-{group}");
            let began = Instant::now();
            if self.next.is_multiple_of(2) {
                let request = NodeGroupTargetSizeRequest { id };
                let answer = self.runtime.block_on(self.client.node_group_target_size(request)).expect("a size");
                assert_eq!(answer.into_inner().target_size as usize, MACHINES);
            } else {
                let (name, provider_id) = (node_name(group, machine), provider_id(group, machine));
                let node = ExternalGrpcNode { name, provider_id, ..ExternalGrpcNode::default() };
                let request = NodeGroupForNodeRequest { node: Some(node) };
                let answer = self.runtime.block_on(self.client.node_group_for_node(request)).expect("a group");
                assert_eq!(answer.into_inner().node_group.expect("a group").id, id);
            }
            times.0.push(began.elapsed().as_secs_f64() * 1e6);
            self.next += 1;
        }
    }
}
