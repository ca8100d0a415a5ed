//! The clusters of the bench, and the certificates of their autoscalers.

use std::{fs, future::Future, net::SocketAddr, time::Duration};

use sandbox::{
    Settings, Times,
    api::{PatchKind, Resource, Subresource},
    clock::Clock,
    clusters::{ClusterOf, Clusters, ClustersOptions},
    requests::Request,
};
use serde_json::json;
use tokio::{runtime::Runtime, task::JoinHandle};

use crate::{
    callers::{Plan, autoscalers},
    certificates::{Authority, HOST},
};

/// The label of the Clusters to serve, and its value.
const LABEL: &str = "autoscaler";
const FLEET: &str = "fleet";
pub(crate) const SELECTOR: &str = "autoscaler=fleet";
/// Of ten Clusters, the number of those that may be ill, and aren't measured.
const ILL: usize = 3;

/// Clusters without controllers, which nothing but the bench changes.
pub(crate) struct World<'a> {
    runtime: &'a Runtime,
    clusters: Clusters,
    pub(crate) plan: Plan,
}

/// The number of watches that were opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watches {
    pub(crate) management: usize,
    /// The most for one workload cluster.
    pub(crate) workload: usize,
}

fn is_watch(request: &Request) -> bool {
    request.verb == "watch" && request.status == Some(200)
}

/// Returns true if a Cluster may be ill.
pub(crate) fn may_be_ill(number: usize) -> bool {
    // The first one is needed alive.
    (1..=ILL).contains(&(number % 10))
}

impl<'a> World<'a> {
    pub(crate) fn start(runtime: &'a Runtime, count: usize, machines: usize) -> Self {
        let options = ClustersOptions {
            settings: Settings { times: Times::ZERO, ..Settings::default() },
            clock: Clock::real(),
            management: SocketAddr::from(([127, 0, 0, 1], 0)),
            clusters: count,
            machines,
            label: (LABEL.to_owned(), FLEET.to_owned()),
            controllers: false,
        };
        let clusters = runtime.block_on(Clusters::start(options)).expect("a sandbox");
        // A Machine with another providerID is seen: a Node that names its Machine would stand for it in either form.
        let nameless = json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": null}}});
        for (cluster, node) in
            clusters.clusters().iter().flat_map(|it| it.nodes().into_iter().map(move |node| (it, node)))
        {
            let (api, name) = (cluster.workload.api(), node["metadata"]["name"].as_str().unwrap_or_default());
            let nodes = Resource::core("nodes");
            api.patch(&nodes, "", name, PatchKind::Merge, Subresource::Main, nameless.clone()).expect("a Node");
        }
        let authority = Authority::new().expect("an authority");
        authority.write_server(clusters.folder()).expect("a folder for certificates");
        let callers = autoscalers(clusters.clusters(), &authority, |number| !may_be_ill(number));
        let plan = Plan {
            provider: SocketAddr::from(([127, 0, 0, 1], 0)),
            host: HOST.to_owned(),
            authority: authority.pem.clone(),
            pause: Duration::ZERO,
            report: Duration::ZERO,
            callers: callers.expect("certificates"),
        };
        Self { runtime, clusters, plan }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    pub(crate) fn sandbox(&self) -> &Clusters {
        &self.clusters
    }

    pub(crate) fn clusters(&self) -> &[ClusterOf] {
        self.clusters.clusters()
    }

    /// Writes a plan to a folder of its own, and returns the folder.
    pub(crate) fn write(&self, name: &str, plan: &Plan) -> std::path::PathBuf {
        let folder = self.clusters.folder().join(name);
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join(crate::callers::PLAN), serde_json::to_vec(plan).expect("JSON")).expect("a file");
        folder
    }

    /// Returns true if the Nodes of all Clusters are watched.
    pub(crate) fn all_are_watched(&self) -> bool {
        self.clusters().iter().all(|cluster| cluster.workload.requests().count(is_watch) > 0)
    }

    /// Returns the number of watches that were opened so far.
    pub(crate) fn watches(&self) -> Watches {
        let of_cluster = |cluster: &ClusterOf| cluster.workload.requests().count(is_watch);
        Watches {
            management: self.clusters.management().requests().count(is_watch),
            workload: self.clusters().iter().map(of_cluster).max().unwrap_or_default(),
        }
    }
}
