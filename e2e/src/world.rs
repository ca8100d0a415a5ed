//! The resources of one scenario: a namespace, a cluster's name, a user, and the programs that it runs.

use std::{fs, path::PathBuf, sync::Arc};

use anyhow::Result;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::{
    control_plane::ControlPlane,
    objects::Objects,
    program::Programs,
    provider::Provider,
    proxy::Proxy,
    users::{self, User},
};

/// The environment of one scenario.
pub struct World {
    /// The API server, which other scenarios may use concurrently.
    pub plane: Arc<ControlPlane>,
    /// A namespace of its own.
    pub namespace: String,
    /// The name of its workload cluster, which is part of the names of its Nodes.
    pub cluster: String,
    /// The user as which the program acts.
    pub user: User,
    /// Access to its objects.
    pub objects: Objects,
    programs: Programs,
    cluster_object: OnceCell<()>,
}

impl World {
    /// Creates a namespace on an API server.
    pub async fn new(plane: Arc<ControlPlane>, program: PathBuf) -> Result<Self> {
        let number = plane.next_scenario();
        let namespace = format!("team-{number}");
        let directory = plane.directory().join(&namespace);
        fs::create_dir(&directory)?;
        let objects = plane.objects(&namespace);
        let world = Self {
            namespace,
            cluster: format!("stage{number}"),
            user: User::provider(number),
            objects,
            programs: Programs::new(program, directory),
            cluster_object: OnceCell::new(),
            plane,
        };
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": world.namespace } });
        world.objects.create(namespace).await?;
        Ok(world)
    }

    /// Returns the flag that limits the program to the scenario's namespace.
    pub fn scope(&self) -> String {
        format!("--node-group-auto-discovery=clusterapi:namespace={}", self.namespace)
    }

    /// Returns the flag that limits the program to the scenario's Cluster.
    pub fn only_cluster(&self) -> String {
        format!("--cluster={}/{}", self.namespace, self.cluster)
    }

    /// Starts the program for the scenario's namespace, with both kubeconfigs, and waits until it is ready.
    pub async fn serve(&self) -> Result<Provider> {
        let workload = format!("--workload-kubeconfig={}", self.kubeconfig()?.display());
        let mut provider = self.spawn_bare(&[&self.scope(), &workload], &[])?;
        provider.ready().await?;
        Ok(provider)
    }

    /// The same as `serve`, with a proxy to the management cluster that can hold back watches.
    pub async fn serve_through(&self, proxy: &Proxy) -> Result<Provider> {
        let workload = format!("--workload-kubeconfig={}", self.kubeconfig()?.display());
        let through = self.programs.directory().join("kubeconfig-through");
        fs::write(&through, self.plane.kubeconfig_through(proxy, &self.user).to_string())?;
        let mut provider = self.programs.launch(&through, &[&self.scope(), &workload], &[])?;
        provider.ready().await?;
        Ok(provider)
    }

    /// Starts the program with addresses, the management kubeconfig and only these flags and environment variables.
    pub fn spawn_bare(&self, flags: &[&str], environment: &[(&str, &str)]) -> Result<Provider> {
        self.programs.launch(&self.kubeconfig()?, flags, environment)
    }

    /// Runs `check` with the management kubeconfig and only these flags and environment variables.
    pub fn check(&self, flags: &[&str], environment: &[(&str, &str)]) -> Result<(Option<i32>, Value)> {
        self.programs.report("check", &self.kubeconfig()?, flags, environment)
    }

    /// Writes the kubeconfig of the scenario's user to a file.
    fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.programs.directory().join("kubeconfig");
        fs::write(&path, self.plane.kubeconfig(&self.user).to_string())?;
        Ok(path)
    }

    /// Creates the Secret in which Cluster API keeps a cluster's kubeconfig, and lets the scenario's user read it.
    pub async fn share_kubeconfig(&self, kubeconfig: &Value) -> Result<()> {
        let name = format!("{}-kubeconfig", self.cluster);
        let secret = users::kubeconfig_secret(&self.cluster, &kubeconfig.to_string());
        for object in users::may_read_secret(&self.user, &name).into_iter().chain([secret]) {
            self.objects.create(object).await?;
        }
        Ok(())
    }

    /// Creates the scenario's Cluster, unless it exists.
    pub async fn create_cluster(&self) -> Result<()> {
        let cluster = json!({
            "kind": "Cluster",
            "metadata": { "name": self.cluster },
            "spec": { "clusterNetwork": { "serviceDomain": "cluster.local" } },
        });
        let create = || async { self.objects.create(cluster).await.map(drop) };
        self.cluster_object.get_or_try_init(create).await?;
        Ok(())
    }

    /// Records that other objects included the scenario's Cluster.
    pub(crate) fn has_cluster(&self) {
        // It may be recorded already.
        let _ = self.cluster_object.set(());
    }

    /// Creates another namespace, cluster name and user on the same API server. The logs of its programs appear with
    /// this scenario's.
    pub async fn neighbour(&self) -> Result<Self> {
        let mut neighbour = Self::new(Arc::clone(&self.plane), self.programs.program().to_owned()).await?;
        neighbour.programs.share_logs(&self.programs);
        Ok(neighbour)
    }

    /// Returns the end of the logs of the scenario's programs, for a report of its failure.
    pub fn log_tails(&self) -> String {
        self.programs.log_tails()
    }
}
