//! Many workload clusters behind one management cluster, each with an API of its own, for programs that serve them all.
//! Clusters of different namespaces have the same names, and so have their node groups: nothing but the namespace keeps
//! them apart.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    api::{Api, Resource, Selection},
    clock::Clock,
    define_cluster_api,
    engine::{WorkloadApis, Workloads},
    faults::{Effect, Fault, WatchFault},
    fleet::{self, Fleet, Variation},
    http::{ApiServer, ApiServers, ServedApi, ServerSettings},
    sandbox::{Simulation, UNWRITTEN, kubeconfig_secret, serve},
    settings::Settings,
};

const IN_NAMESPACE: usize = 10;
/// The delay of each answer of a slow API.
const SLOW: Duration = Duration::from_secs(2);
/// The number of annotations on each Node of a hostile API, and the length of their values.
const ANNOTATIONS: (usize, usize) = (1_000, 100);

/// The options of a sandbox with many Clusters.
#[derive(Clone, Debug)]
pub struct ClustersOptions {
    /// The times, and the contract version in which objects are stored.
    pub settings: Settings,
    /// The clock of all APIs and of the controllers.
    pub clock: Clock,
    /// The address of the management cluster's API.
    pub management: SocketAddr,
    /// The number of Clusters: `team-000/c0`, `team-000/c1` and so on, ten in each namespace.
    pub clusters: usize,
    /// The number of Machines of each, in one MachineDeployment; all are Running, with a Node that is Ready.
    pub machines: usize,
    /// A label of each Cluster.
    pub label: (String, String),
    /// True to run the controllers. Without them nothing but the user changes objects.
    pub controllers: bool,
}

/// A way in which a workload cluster's API fails.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ailment {
    /// Connections are cut.
    Dead,
    /// The Nodes claim to be those of another Cluster's Machines, are large, and come twice in watches.
    Hostile,
    /// Requests are taken and not answered.
    Silent,
    /// Answers take long.
    Slow,
}

impl Ailment {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Dead, Self::Hostile, Self::Silent, Self::Slow];
}

/// One of the Clusters.
#[derive(Clone, Debug)]
pub struct ClusterOf {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The API of its workload cluster.
    pub workload: ServedApi,
}

/// A running sandbox with many Clusters. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Clusters {
    management: ApiServer,
    workloads: ApiServers,
    all: Vec<ClusterOf>,
    simulation: Option<Simulation>,
    folder: TempDir,
}

impl Clusters {
    /// Starts all APIs and the controllers. The Secret `<cluster>-kubeconfig` of each Cluster refers to its workload
    /// API.
    pub async fn start(options: ClustersOptions) -> anyhow::Result<Self> {
        let ClustersOptions { settings, clock, management, clusters, machines, label, controllers } = options;
        let management = serve("management", Api::new(clock.clone()), management).await?;
        let any = ServerSettings::default();
        let workloads = ApiServers::start(any).await.context("can't serve the workload clusters' APIs")?;
        define_cluster_api(management.api(), settings.contract)?;
        fleet::define_templates(management.api())?;
        let (mut built, mut apis, mut uids) = (Vec::with_capacity(clusters), WorkloadApis::new(), 0);
        for number in 0..clusters {
            let namespace = format!("team-{:03}", number / IN_NAMESPACE);
            let name = format!("c{}", number % IN_NAMESPACE);
            let workload = workloads.add((&namespace, &name), Api::new(clock.clone()));
            let fleet = Fleet { groups: 1, machines, namespace: namespace.clone(), cluster: name.clone() };
            let variation = Variation { prefix: format!("{name}-"), label: Some(label.clone()), uids };
            uids = fleet.load(management.api(), workload.api(), settings.contract, &variation)?;
            let secret = kubeconfig_secret(&namespace, &name, &workload.kubeconfig());
            management.api().load_values(vec![secret])?;
            apis.insert((namespace.clone(), name.clone()), workload.api().clone());
            built.push(ClusterOf { namespace, name, workload });
        }
        let workload_apis = Workloads::OfClusters(Arc::new(apis));
        let simulation = controllers.then(|| Simulation::start(management.api(), workload_apis, clock, settings));
        let folder = tempfile::Builder::new().prefix("sandbox-").tempdir().context(UNWRITTEN)?;
        let started = Self { management, workloads, all: built, simulation, folder };
        started.management.write_kubeconfig(started.management_kubeconfig()).context(UNWRITTEN)?;
        Ok(started)
    }

    /// Returns the management cluster.
    pub fn management(&self) -> &ApiServer {
        &self.management
    }

    /// Returns the Clusters.
    pub fn clusters(&self) -> &[ClusterOf] {
        &self.all
    }

    /// Returns the controllers, if they run.
    pub fn simulation(&self) -> Option<&Simulation> {
        self.simulation.as_ref()
    }

    /// Returns the folder of its files, which is removed with it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of the management cluster's kubeconfig.
    pub fn management_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("management.kubeconfig")
    }

    /// Lets the API of a workload cluster fail. The Nodes of a hostile one claim to be those of `victim`.
    pub fn ail(&self, cluster: &ClusterOf, ailment: Ailment, victim: &ClusterOf) -> anyhow::Result<()> {
        let faults = cluster.workload.faults();
        match ailment {
            Ailment::Dead => drop(faults.add(Fault::new(Effect::CutBefore))),
            Ailment::Silent => drop(faults.add(Fault::new(Effect::Hold))),
            Ailment::Slow => drop(faults.add(Fault::new(Effect::Delay(SLOW)))),
            Ailment::Hostile => {
                let claimed = victim.nodes().into_iter().map(|node| {
                    let mut node = Arc::unwrap_or_clone(node);
                    let (count, length) = ANNOTATIONS;
                    for number in 0..count {
                        let key = format!("example.com/a{number}");
                        node["metadata"]["annotations"][key] = json!("x".repeat(length));
                    }
                    node
                });
                cluster.workload.api().load_values(claimed.collect())?;
                drop(faults.add(Fault::watch(WatchFault::Duplicate)));
            }
        }
        Ok(())
    }

    /// Ends the controllers and all APIs, and removes the files.
    pub async fn stop(self) {
        let Self { management, workloads, all, simulation, folder } = self;
        drop(all);
        if let Some(simulation) = simulation {
            simulation.end().await;
        }
        management.shutdown().await;
        workloads.shutdown().await;
        // A folder that can't be removed is left to the system.
        drop(folder);
    }
}

impl ClusterOf {
    /// Returns `namespace/name`.
    pub fn text(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Returns the Nodes of its workload cluster.
    pub fn nodes(&self) -> Vec<Arc<Value>> {
        self.workload.api().list(&Resource::core("nodes"), &Selection::default()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::{PatchKind, Subresource},
        settings::Times,
    };

    async fn started(clusters: usize) -> Clusters {
        let options = ClustersOptions {
            settings: Settings { times: Times::ZERO, ..Settings::default() },
            clock: Clock::real(),
            management: SocketAddr::from(([127, 0, 0, 1], 0)),
            clusters,
            machines: 2,
            label: ("autoscaler".to_owned(), "fleet".to_owned()),
            controllers: true,
        };
        Clusters::start(options).await.unwrap()
    }

    fn counts(clusters: &Clusters) -> Vec<usize> {
        clusters.clusters().iter().map(|cluster| cluster.nodes().len()).collect()
    }

    #[tokio::test]
    async fn a_group_that_grows_gets_nodes_in_the_workload_cluster_of_its_own_cluster() {
        let clusters = started(11).await;
        let before = clusters.management().api().revision();
        clusters.simulation().unwrap().settle().await;
        assert_eq!(clusters.management().api().revision(), before, "the controllers find nothing to do");
        let groups = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
        let grown = clusters.management().api().patch(
            &groups,
            "team-001",
            "c0-group-0000",
            PatchKind::Merge,
            Subresource::Main,
            json!({"spec": {"replicas": 5}}),
        );
        grown.unwrap();
        clusters.simulation().unwrap().settle().await;
        assert_eq!(counts(&clusters), [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 5]);
        clusters.stop().await;
    }

    async fn nodes(cluster: &ClusterOf) -> Result<Vec<Value>, kube::Error> {
        let url = cluster.workload.url().parse().unwrap();
        let mut config = kube::Config::new(url);
        config.default_retry = false;
        let client = kube::Client::try_from(config).unwrap();
        let request = http::Request::get("/api/v1/nodes").body(Vec::new()).unwrap();
        let list: Value = client.request(request).await?;
        Ok(list["items"].as_array().unwrap().clone())
    }

    fn machines(nodes: &[Value]) -> Vec<&str> {
        nodes.iter().filter_map(|node| node["spec"]["providerID"].as_str()).collect()
    }

    #[tokio::test]
    async fn each_workload_cluster_has_a_path_and_fails_by_itself() {
        let clusters = started(11).await;
        let [first, others @ ..] = clusters.clusters() else { panic!("there is none") };
        let (second, namesake) = (&others[0], &others[9]);
        let [of_first, of_namesake] = [nodes(first).await.unwrap(), nodes(namesake).await.unwrap()];
        assert_eq!((of_first.len(), first.workload.requests().all().len()), (2, 1));
        assert!(machines(&of_first).iter().all(|id| id.starts_with("sandbox:///team-000/c0-")), "{of_first:?}");
        assert!(machines(&of_namesake).iter().all(|id| id.starts_with("sandbox:///team-001/c0-")), "{of_namesake:?}");

        clusters.ail(first, Ailment::Dead, second).unwrap();
        assert!(nodes(first).await.is_err());
        assert_eq!(nodes(second).await.unwrap().len(), 2);
        clusters.ail(namesake, Ailment::Hostile, first).unwrap();
        let shown = nodes(namesake).await.unwrap();
        let claimed = machines(&shown).into_iter().filter(|id| id.starts_with("sandbox:///team-000/c0-")).count();
        assert_eq!((claimed, shown.len()), (2, 4), "{shown:?}");
        clusters.stop().await;
    }
}
