//! A whole sandbox: a management and a workload cluster as API servers, the controllers between them, and the
//! kubeconfigs for a program to use them.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use anyhow::Context as _;
use futures::future::select_all;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    api::{Api, Resource, Selection},
    clock::Clock,
    controllers::{keys, object::Object},
    define_cluster_api, definitions,
    engine::{Controller, Controllers, Workloads},
    fleet::Fleet,
    http::{ApiServer, ServerSettings},
    settings::{Models, Settings, Times},
};

/// The context of an error while kubeconfigs are written.
pub(crate) const UNWRITTEN: &str = "can't write the kubeconfigs";

/// The options of a sandbox.
#[derive(Clone, Debug)]
pub struct SandboxOptions {
    /// The times, and the contract version in which objects are stored.
    pub settings: Settings,
    /// The clock of both APIs and of the controllers.
    pub clock: Clock,
    /// The address of the management cluster's API.
    pub management: SocketAddr,
    /// The address of the workload cluster's API.
    pub workload: SocketAddr,
    /// The initial objects: Nodes are loaded into the workload cluster, everything else into the management cluster.
    pub manifests: Vec<Value>,
    /// Further initial objects of the workload cluster.
    pub workload_manifests: Vec<Value>,
    /// The initial fleet.
    pub fleet: Option<Fleet>,
    /// True if the Machines that the manifests require exist from the start, whatever the times say.
    pub settled: bool,
}

impl Default for SandboxOptions {
    /// Returns the options of an empty sandbox on free ports of loopback.
    fn default() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            settings: Settings::default(),
            clock: Clock::real(),
            management: any,
            workload: any,
            manifests: Vec::new(),
            workload_manifests: Vec::new(),
            fleet: None,
            settled: true,
        }
    }
}

/// A running sandbox. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Sandbox {
    management: ApiServer,
    workload: ApiServer,
    simulation: Simulation,
    folder: TempDir,
}

impl Sandbox {
    /// Starts both APIs and the controllers. The Secret `<cluster>-kubeconfig` of each Cluster refers to the workload
    /// API.
    pub async fn start(options: SandboxOptions) -> anyhow::Result<Self> {
        let SandboxOptions { settings, clock, management, workload, manifests, workload_manifests, fleet, settled } =
            options;
        let management = serve("management", Api::new(clock.clone()), management).await?;
        let workload = serve("workload", Api::new(clock.clone()), workload).await?;
        define_cluster_api(management.api(), settings.contract)?;
        workload.api().define_workload_kinds();
        management.api().load_values(definitions::of_providers(&manifests))?;
        if let Some(fleet) = &fleet {
            fleet.build(management.api(), workload.api(), settings.contract)?;
        }
        let times = settings.times;
        let first = Settings { times: if settled { Times::ZERO } else { times }, ..settings };
        let simulation = Simulation::start(management.api(), Workloads::Shared(workload.api().clone()), clock, first);
        let (nodes, others): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|object| object.kind() == "Node");
        workload.api().load_values(nodes)?;
        workload.api().load_values(workload_manifests)?;
        management.api().load_values(others)?;
        simulation.settle().await;
        simulation.set_times(times);

        let folder = tempfile::Builder::new().prefix("sandbox-").tempdir().context(UNWRITTEN)?;
        let sandbox = Self { management, workload, simulation, folder };
        sandbox.management.write_kubeconfig(sandbox.management_kubeconfig()).context(UNWRITTEN)?;
        sandbox.workload.write_kubeconfig(sandbox.workload_kubeconfig()).context(UNWRITTEN)?;
        sandbox.management.api().load_values(sandbox.secrets())?;
        Ok(sandbox)
    }

    fn secrets(&self) -> Vec<Value> {
        let kubeconfig = self.workload.kubeconfig();
        let clusters = self.all_clusters().into_iter();
        clusters.map(|(namespace, cluster)| kubeconfig_secret(&namespace, &cluster, &kubeconfig)).collect()
    }

    fn all_clusters(&self) -> Vec<(String, String)> {
        let clusters = Resource::new(keys::GROUP, "v1beta2", "clusters");
        let clusters = self.management.api().list(&clusters, &Selection::default()).unwrap_or_default();
        clusters.iter().map(|cluster| (cluster.namespace().to_owned(), cluster.name().to_owned())).collect()
    }

    /// Returns the Clusters, as `namespace/name`.
    pub fn clusters(&self) -> Vec<String> {
        self.all_clusters().into_iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect()
    }

    /// Returns the management cluster.
    pub fn management(&self) -> &ApiServer {
        &self.management
    }

    /// Returns the workload cluster.
    pub fn workload(&self) -> &ApiServer {
        &self.workload
    }

    /// Returns the controllers.
    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// Returns the path of the management cluster's kubeconfig.
    pub fn management_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("management.kubeconfig")
    }

    /// Returns the path of the workload cluster's kubeconfig.
    pub fn workload_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("workload.kubeconfig")
    }

    /// Ends the controllers and both APIs, and removes the kubeconfigs.
    pub async fn stop(self) {
        let Self { management, workload, simulation, folder } = self;
        simulation.end().await;
        management.shutdown().await;
        workload.shutdown().await;
        // A folder that can't be removed is left to the system.
        drop(folder);
    }
}

pub(crate) fn kubeconfig_secret(namespace: &str, cluster: &str, kubeconfig: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": format!("{cluster}-kubeconfig"),
            "namespace": namespace,
            "labels": { keys::CLUSTER_NAME: cluster },
        },
        "type": "cluster.x-k8s.io/secret",
        "stringData": { "value": kubeconfig },
    })
}

pub(crate) async fn serve(cluster: &'static str, api: Api, address: SocketAddr) -> anyhow::Result<ApiServer> {
    let settings = ServerSettings { address, ..ServerSettings::default() };
    let served = ApiServer::start_with(api, settings).await;
    served.with_context(|| format!("can't serve the {cluster} cluster's API on {address}"))
}

/// The number of rounds of steps that are taken before the task yields.
const SLICE: usize = 32;

#[derive(Debug)]
enum Command {
    /// Answer when nothing is left to do.
    Settle(oneshot::Sender<()>),
    /// Use these times from now on.
    Times(Times),
    /// Make Nodes of these models from now on.
    Models(Models),
    End,
}

/// The running controllers, which end when this is dropped.
#[derive(Debug)]
pub struct Simulation(mpsc::UnboundedSender<Command>);

impl Simulation {
    /// Starts the controllers of `management`, which must have Cluster API's kinds. They take its objects as settled, and
    /// reconcile them only when they change.
    pub(crate) fn start(management: &Api, workloads: Workloads, clock: Clock, settings: Settings) -> Self {
        let controllers = Controllers::live(management, workloads, clock.clone(), settings);
        let (commands, asked) = mpsc::unbounded_channel();
        tokio::spawn(follow(controllers, clock, asked));
        Self(commands)
    }

    /// Waits until nothing is left to do at the present time, including everything written before this call.
    pub async fn settle(&self) {
        let (done, is_done) = oneshot::channel();
        if self.0.send(Command::Settle(done)).is_ok() {
            // Without an answer the simulation has ended, and there is nothing left to do.
            let _ = is_done.await;
        }
    }

    /// Changes the durations of all steps whose wait hasn't begun yet.
    pub fn set_times(&self, times: Times) {
        // A simulation that has ended needs no times.
        let _ = self.0.send(Command::Times(times));
    }

    /// Changes what new Nodes are like. Machines that have waited for a model become Nodes.
    pub fn set_models(&self, models: Models) {
        // A simulation that has ended makes no Nodes.
        let _ = self.0.send(Command::Models(models));
    }

    /// Ends the controllers, and waits until they have ended.
    pub async fn end(&self) {
        // It may have ended already.
        let _ = self.0.send(Command::End);
        self.settle().await;
    }
}

async fn follow(mut controllers: Controllers, clock: Clock, mut commands: mpsc::UnboundedReceiver<Command>) {
    let mut changes = controllers.subscribe();
    let mut waiting: Vec<oneshot::Sender<()>> = Vec::new();
    loop {
        for changes in &mut changes {
            changes.borrow_and_update();
        }
        if !controllers.settle(SLICE) {
            tokio::task::yield_now().await;
            continue;
        }
        for one in waiting.drain(..) {
            // The caller may have gone away.
            let _ = one.send(());
        }
        let next = Controller::ALL.into_iter().filter_map(|controller| controllers.next(controller)).min();
        let due = async {
            match next {
                Some(time) => clock.wait_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            command = commands.recv() => match command {
                Some(Command::Settle(done)) => waiting.push(done),
                Some(Command::Times(times)) => controllers.set_times(times),
                Some(Command::Models(models)) => controllers.set_models(models),
                Some(Command::End) | None => return,
            },
            is_served = any_changed(&mut changes) => if !is_served { return },
            () = due => {}
        }
    }
}

/// Waits for a change of any of these; returns false if one of them has ended.
async fn any_changed(all: &mut [watch::Receiver<u64>]) -> bool {
    let (changed, ..) = select_all(all.iter_mut().map(|one| Box::pin(one.changed()))).await;
    changed.is_ok()
}
