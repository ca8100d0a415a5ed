//! The connection to one workload cluster, and its Nodes, which feed its index. A workload cluster that can't be
//! reached must never hold up anything else.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1 as core;
use kube::core::ApiResource;
use parking_lot::Mutex;
use rules::capi::Node;
use shared_informer::{Factory, Namespaces, Settings, Spawner, Status};
use tokio::time::timeout;

use super::{
    core_kinds::LOG,
    follow::{Followed, KindHealth},
    management::Management,
    node_drivers,
};
use connect::{Pace, WorkloadSource};
use index::Index;

/// The name of the Nodes among the kinds that must be in sync.
pub(super) const NODES: &str = "workload/nodes";

/// The time for which a cluster that has been connected keeps its place among those that connect, until its Nodes are
/// listed. A cluster that never answers must not keep it for long.
const FIRST_LIST: Duration = Duration::from_secs(3);

/// The Nodes of a workload cluster.
pub(super) struct WorkloadNodes {
    index: Arc<Index>,
    source: WorkloadSource,
    pace: Pace,
    informers: Settings,
    spawner: Spawner,
    connection: Mutex<Connection>,
}

/// The informers of a workload cluster.
struct Connected {
    factory: Factory,
    nodes: Arc<Followed<Node>>,
}

/// The connection to the workload cluster.
enum Connection {
    Pending(String),
    Connected(Box<Connected>),
}

impl WorkloadNodes {
    /// Returns the Nodes of the cluster that `source` leads to, which [`WorkloadNodes::follow`] follows into `index`.
    pub(super) fn new(
        index: Arc<Index>,
        source: WorkloadSource,
        pace: Pace,
        informers: Settings,
        spawner: Spawner,
    ) -> Self {
        let connection = Mutex::new(Connection::Pending("not connected yet".to_owned()));
        Self { index, source, pace, informers, spawner, connection }
    }

    /// Returns true if the Nodes aren't read, on purpose.
    pub(super) fn are_off(&self) -> bool {
        matches!(self.source, WorkloadSource::None)
    }

    /// Lets it connect before clusters that no autoscaler waits for.
    pub(super) fn hurry(&self) {
        self.pace.hurry();
    }

    /// Connects to the workload cluster, follows its Nodes, and then its configuration.
    pub(super) async fn follow(&self, management: &Management) {
        if self.are_off() {
            return;
        }
        // Its future is large and not needed afterwards; a fleet has a thousand of these tasks.
        let (access, place) = Box::pin(self.source.access_in_time(management.clients(), &self.pace, |error| {
            let why = error.to_string();
            let known = std::mem::replace(&mut *self.connection.lock(), Connection::Pending(why.clone()));
            // The reason is logged once per change, not per attempt.
            if !matches!(known, Connection::Pending(known) if known == why) {
                tracing::warn!(target: LOG, "can't connect to the workload cluster yet: {why}");
            }
        }))
        .await;
        // Nodes and Machines contain the same names, so they share an interner.
        let texts = Arc::clone(&management.context().interner);
        let clients = access.clone();
        let factory = Factory::with_clients(move || clients.watches(), self.spawner.clone(), self.informers.clone());
        let factory = factory.with_texts(texts);
        let nodes = Arc::new(Followed::start(
            &factory,
            ApiResource::erase::<core::Node>(&()),
            Namespaces::All,
            Node::projection(management.context()),
            (&self.index, ()),
            None,
        ));
        let connected = Connected { factory, nodes: Arc::clone(&nodes) };
        *self.connection.lock() = Connection::Connected(Box::new(connected));
        let in_sync = || self.health().is_ok_and(|nodes| nodes.synced && nodes.broken(&BTreeSet::new()).is_none());
        let looking = node_drivers::follow(&self.index, &access);
        let following = access.follow_workload(&self.source, management.clients(), &self.pace, in_sync);
        let following = async { tokio::join!(following, looking) };
        if !place.is_shared() {
            following.await;
            return;
        }
        let listing = async move {
            // The Nodes are followed on whether they come in time or not.
            let _ = timeout(FIRST_LIST, nodes.synced()).await;
            drop((nodes, place));
        };
        tokio::join!(listing, following);
    }

    /// Returns the health of the Nodes, or the reason for which they aren't followed yet, unless they
    /// [are off](WorkloadNodes::are_off).
    pub(super) fn health(&self) -> Result<KindHealth, String> {
        match &*self.connection.lock() {
            Connection::Pending(why) => Err(why.clone()),
            Connection::Connected(connected) => Ok(connected.nodes.health()),
        }
    }

    pub(super) fn informers(&self) -> Vec<Status> {
        match &*self.connection.lock() {
            Connection::Pending(_) => Vec::new(),
            Connection::Connected(connected) => connected.factory.statuses(),
        }
    }

    /// Disconnects, and waits for the informers' tasks. The Nodes stay in the index.
    pub(super) async fn shutdown(&self) {
        let connection = std::mem::replace(&mut *self.connection.lock(), Connection::Pending("shut down".to_owned()));
        if let Connection::Connected(connected) = connection {
            connected.factory.shutdown().await;
        }
    }
}
