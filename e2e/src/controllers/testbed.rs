//! The resources of one scenario: a Cluster in a namespace of its own, with any of the controllers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use kube::{Client, config::Kubeconfig};
use sandbox::{Sandbox, SandboxOptions};
use serde_json::{Value, json};

use crate::{
    autoscaling::Autoscaler,
    capd,
    cluster_api::Environment,
    control_plane::ControlPlane,
    existing::{self, Clusters, Tenant},
    infrastructure,
    objects::{self, Contract, INFRASTRUCTURE_GROUP, Objects},
    process::{tail, text},
    program::Programs,
    provider::Provider,
    users::{self, User},
    wait::every,
};
pub use crate::{
    cluster_api::{POLL_INTERVAL, TIMEOUT},
    controllers::groups::NODE_POOL,
};

/// The controllers in use.
pub enum Controllers {
    /// Cluster API's.
    Real(Arc<Environment>),
    /// The sandbox's.
    Simulated(Box<Sandbox>),
    /// Cluster API's, with CAPD's machines in memory.
    InMemory(Arc<capd::Environment>),
    /// Those of existing clusters.
    Existing(Box<Tenant>),
}

impl Controllers {
    /// Returns the scenario's part of existing clusters.
    fn tenant(&self) -> Option<&Tenant> {
        match self {
            Self::Existing(tenant) => Some(tenant),
            Self::Real(_) | Self::Simulated(_) | Self::InMemory(_) => None,
        }
    }

    /// Returns the log files of shared processes, by name.
    fn logs(&self) -> Vec<(&'static str, &Path)> {
        match self {
            Self::Real(environment) => environment.logs().to_vec(),
            Self::Simulated(_) | Self::Existing(_) => Vec::new(),
            Self::InMemory(environment) => environment.logs(),
        }
    }
}

/// The name of the ConfigMap that remembers Nodes.
pub const REMEMBERED: &str = "remembered-nodes";

/// The environment of one scenario.
pub struct Testbed {
    /// The controllers in use.
    pub controllers: Controllers,
    /// The Cluster's namespace.
    pub namespace: String,
    /// The Cluster's name.
    pub cluster: String,
    /// Objects of its namespace in the management cluster.
    pub objects: Objects,
    /// Nodes, and the Pods of the namespace of the same name in the workload cluster.
    pub workload: Objects,
    /// The autoscaler, in scenarios that have one.
    pub autoscaler: Option<Autoscaler>,
    user: User,
    programs: Programs,
}

impl Testbed {
    /// Creates a testbed on real components that other scenarios share.
    pub async fn real(environment: Arc<Environment>, program: PathBuf, logs: PathBuf) -> Result<Self> {
        let number = environment.management.next_scenario();
        let namespace = format!("team-{number}");
        let testbed = Self {
            cluster: format!("stage{number}"),
            objects: environment.management.objects(&namespace),
            workload: environment.workload.objects(&namespace),
            user: User::provider(number),
            programs: Programs::new(program, logs),
            autoscaler: None,
            namespace,
            controllers: Controllers::Real(environment),
        };
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": testbed.namespace } });
        testbed.workload.create(namespace).await?;
        testbed.begin().await
    }

    /// Creates a testbed with an in-memory Cluster of its own.
    pub async fn in_memory(environment: Arc<capd::Environment>, program: PathBuf, logs: PathBuf) -> Result<Self> {
        let number = environment.management.next_scenario();
        let (namespace, cluster) = (format!("team-{number}"), format!("stage{number}"));
        let objects = environment.objects(&namespace);
        objects.create(json!({ "kind": "Namespace", "metadata": { "name": namespace } })).await?;
        let workload = environment.create_cluster(&objects, &cluster).await?;
        let testbed = Self {
            workload: Objects::new(workload, Contract::V1Beta2, &namespace),
            autoscaler: None,
            user: User::provider(number),
            programs: Programs::new(program, logs),
            namespace,
            cluster,
            objects,
            controllers: Controllers::InMemory(environment),
        };
        testbed.cluster_is_up(&testbed.cluster).await?;
        Ok(testbed)
    }

    /// Creates a testbed in an existing Cluster. `leave` removes all its objects.
    pub async fn existing(clusters: &Clusters, number: usize, program: PathBuf, logs: PathBuf) -> Result<Self> {
        let tenant = Tenant::start(clusters, number).await?;
        Ok(Self {
            namespace: clusters.namespace.clone(),
            cluster: clusters.cluster.clone(),
            objects: tenant.objects.clone(),
            workload: tenant.workload.clone(),
            autoscaler: None,
            user: User::administrator(),
            programs: Programs::new(program, logs),
            controllers: Controllers::Existing(Box::new(tenant)),
        })
    }

    /// Dumps the last state of its objects in existing clusters, and then removes them.
    pub async fn leave(&self) -> Result<()> {
        let Some(tenant) = self.tenant() else { return Ok(()) };
        let written = tenant.dump_objects(self.programs.directory()).await;
        tenant.leave().await.and(written)
    }

    /// Returns the scenario's part of existing clusters.
    pub(super) fn tenant(&self) -> Option<&Tenant> {
        self.controllers.tenant()
    }

    /// Returns true with the sandbox's controllers.
    pub fn is_simulated(&self) -> bool {
        matches!(self.controllers, Controllers::Simulated(_))
    }

    /// Returns true in existing clusters, whose machines may be real.
    pub fn is_existing(&self) -> bool {
        self.tenant().is_some()
    }

    /// Returns the time within which idle controllers and machines react here.
    pub fn timeout(&self) -> Duration {
        if self.is_existing() { existing::TIMEOUT } else { TIMEOUT }
    }

    /// Returns the label value that distinguishes the scenario's Nodes and Pods in its workload cluster.
    pub fn mark(&self) -> &str {
        self.tenant().map_or(&self.namespace, |tenant| &tenant.mark)
    }

    /// Returns a CPU quantity for a scenario whose biggest Nodes have `of` CPUs. If all Nodes are real, it is the same
    /// share of a real Node.
    pub fn cpu(&self, cpus: i64, of: i64) -> String {
        let share = |tenant: &Tenant| format!("{}m", tenant.cpu() * cpus / of);
        self.tenant().map_or_else(|| cpus.to_string(), share)
    }

    /// Returns the capacity of a Node with this CPU.
    pub fn capacity(&self, cpu: &str) -> Value {
        match self.tenant() {
            Some(tenant) => json!({ "cpu": cpu, "memory": tenant.memory() }),
            None => json!({ "cpu": cpu, "memory": "64Gi", "pods": "110" }),
        }
    }

    /// Creates a testbed on a sandbox of its own.
    pub async fn simulated(program: PathBuf, logs: PathBuf) -> Result<Self> {
        let sandbox = Sandbox::start(SandboxOptions { settings: quick(), ..SandboxOptions::default() }).await?;
        let namespace = "team-a".to_owned();
        let objects = Objects::new(client(&sandbox.management_kubeconfig()).await?, Contract::V1Beta2, &namespace);
        infrastructure::install(&objects, &infrastructure::KINDS).await?;
        let testbed = Self {
            cluster: "stage".to_owned(),
            workload: Objects::new(client(&sandbox.workload_kubeconfig()).await?, Contract::V1Beta2, &namespace),
            objects,
            user: User::administrator(),
            programs: Programs::new(program, logs),
            autoscaler: None,
            namespace,
            controllers: Controllers::Simulated(Box::new(sandbox)),
        };
        testbed.begin().await
    }

    /// Creates the ConfigMap that remembers Nodes, without data, and grants what the chart grants.
    pub async fn keep_memory(&self) -> Result<()> {
        self.objects.create(json!({ "kind": "ConfigMap", "metadata": { "name": REMEMBERED } })).await?;
        self.grant_memory(&self.user).await
    }

    /// Grants a user the ConfigMap that remembers Nodes, and the bootstrap templates of all namespaces.
    pub async fn grant_memory(&self, user: &User) -> Result<()> {
        let name = format!("{REMEMBERED}-{}", user.name);
        let map = json!({
            "apiGroups": [""], "resources": ["configmaps"], "resourceNames": [REMEMBERED],
            "verbs": ["list", "watch", "patch"],
        });
        let templates = json!({
            "apiGroups": [INFRASTRUCTURE_GROUP], "resources": ["loopbackconfigtemplates"], "verbs": ["list", "watch"],
        });
        for (role, rule) in [("Role", map), ("ClusterRole", templates)] {
            for object in users::grant(user, role, &name, &rule) {
                self.objects.create(object).await?;
            }
        }
        Ok(())
    }

    /// Creates a testbed with a Cluster in another namespace of the same API server.
    pub async fn neighbour(&self) -> Result<Self> {
        let Controllers::Real(environment) = &self.controllers else { bail!("only real controllers are shared") };
        let logs = self.programs.directory().join("neighbour");
        fs::create_dir_all(&logs)?;
        Self::real(Arc::clone(environment), self.programs.program().to_owned(), logs).await
    }

    /// Returns the user as which the program acts on the management cluster.
    pub fn user(&self) -> &User {
        &self.user
    }

    async fn begin(self) -> Result<Self> {
        let namespace = json!({ "kind": "Namespace", "metadata": { "name": self.namespace } });
        self.objects.create(namespace).await?;
        self.create_cluster().await?;
        Ok(self)
    }

    /// Creates a Cluster with an externally managed control plane, and lets the program read its kubeconfig.
    async fn create_cluster(&self) -> Result<()> {
        let reference = |kind: &str| json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": kind, "name": self.cluster });
        let metadata = json!({ "name": self.cluster });
        let objects = [
            json!({ "kind": "LoopbackCluster", "metadata": metadata, "spec": {} }),
            json!({ "kind": "LoopbackControlPlane", "metadata": metadata, "spec": { "version": "v1.36.3" } }),
            json!({
                "kind": "Cluster",
                "metadata": metadata,
                "spec": {
                    "infrastructureRef": reference("LoopbackCluster"),
                    "controlPlaneRef": reference("LoopbackControlPlane"),
                },
            }),
        ];
        for object in objects {
            self.objects.create(object).await?;
        }
        if let Controllers::Simulated(sandbox) = &self.controllers {
            let kubeconfig = fs::read_to_string(sandbox.workload_kubeconfig())?;
            self.objects.create(users::kubeconfig_secret(&self.cluster, &kubeconfig)).await?;
        }
        self.cluster_is_up(&self.cluster).await
    }

    /// Waits until a Cluster of the scenario's namespace can be reached, and lets the program read its kubeconfig.
    pub async fn cluster_is_up(&self, name: &str) -> Result<()> {
        let secret = format!("{name}-kubeconfig");
        if !self.is_simulated() {
            for object in users::may_read_secret(&self.user, &secret) {
                self.objects.create(object).await?;
            }
        }
        every(POLL_INTERVAL, "the Cluster's control plane", TIMEOUT, async || {
            self.objects.get("Secret", &secret).await?;
            let cluster = self.objects.get("Cluster", name).await?;
            let phase = &cluster.data["status"]["phase"];
            ensure!(phase == "Provisioned", "the Cluster's status is {}", cluster.data["status"]);
            Ok(())
        })
        .await
    }

    /// Returns the id of a node group here.
    pub fn id(&self, kind: &str, name: &str) -> String {
        format!("{kind}/{}/{name}", self.namespace)
    }

    /// Starts the program for the scenario's Cluster with only the documented rights, and waits until it is ready.
    pub async fn serve(&self) -> Result<Provider> {
        self.serve_cluster(&self.cluster, &[]).await
    }

    /// The same as `serve`, for a Cluster of the scenario's namespace and with environment variables.
    pub async fn serve_cluster(&self, cluster: &str, environment: &[(&str, &str)]) -> Result<Provider> {
        let management = match &self.controllers {
            Controllers::Real(real) => self.write_kubeconfig(&real.management)?,
            Controllers::InMemory(real) => self.write_kubeconfig(&real.management)?,
            Controllers::Simulated(sandbox) => sandbox.management_kubeconfig(),
            Controllers::Existing(tenant) => tenant.kubeconfig().to_owned(),
        };
        let cluster = format!("--cluster={}/{cluster}", self.namespace);
        let mut provider = self.programs.launch(&management, &[&cluster], environment)?;
        provider.ready().await?;
        Ok(provider)
    }

    fn write_kubeconfig(&self, management: &ControlPlane) -> Result<PathBuf> {
        let path = self.programs.directory().join("management.kubeconfig");
        fs::write(&path, management.kubeconfig(&self.user).to_string())?;
        Ok(path)
    }

    /// Returns the directory of its programs' files.
    pub fn directory(&self) -> &Path {
        self.programs.directory()
    }

    /// Copies the log lines of shared components about this scenario next to its programs' logs.
    pub(crate) fn keep_logs(&self) -> Result<()> {
        let about = [format!("{}/", self.namespace), format!("\"{}\"", self.namespace)];
        for (name, log) in self.controllers.logs() {
            let text = text(log);
            let lines = text.lines().filter(|line| about.iter().any(|about| line.contains(about.as_str())));
            let lines: Vec<&str> = lines.collect();
            fs::write(self.programs.directory().join(format!("{name}.log")), lines.join("\n"))?;
        }
        Ok(())
    }

    /// Returns the last log lines of the scenario's programs, and of other components about this scenario.
    pub fn log_tails(&self) -> String {
        let directory = self.programs.directory();
        let others = self.controllers.logs();
        let others = others.into_iter().map(|(name, _)| {
            let tail = tail(&directory.join(format!("{name}.log")));
            format!("\n--- the last lines of {name} about it:\n{tail}")
        });
        let autoscaler = self.autoscaler.iter().map(|_| {
            let tail = tail(&directory.join("cluster-autoscaler.log"));
            format!("\n--- the autoscaler's last lines:\n{tail}")
        });
        let all = format!("\n--- all of it: {}", directory.display());
        std::iter::once(self.programs.log_tails()).chain(autoscaler).chain(others).chain([all]).collect()
    }
}

/// Returns the spec of a Pod that requests this CPU, and a Node with these labels.
pub fn pod_spec(cpu: &str, labels: &Value) -> Value {
    json!({
        "nodeSelector": labels,
        "terminationGracePeriodSeconds": 1,
        "containers": [{
            "name": "web",
            // With real kubelets: that of kubeadm 1.36, which Nodes have already.
            "image": "registry.k8s.io/pause:3.10.2",
            "imagePullPolicy": "IfNotPresent",
            "resources": { "requests": { "cpu": cpu, "memory": "16Mi" } },
        }],
    })
}

/// Returns times as short as those of the real controllers' infrastructure.
fn quick() -> sandbox::Settings {
    let times = infrastructure::Times::default();
    sandbox::Settings {
        times: sandbox::Times {
            provision: times.provision,
            join: times.join,
            ready: times.ready,
            terminate: times.terminate,
            slow_factor: 10,
            ..sandbox::Times::ZERO
        },
        ..sandbox::Settings::default()
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    objects::client(Kubeconfig::read_from(kubeconfig)?).await.context("a client of the sandbox")
}
