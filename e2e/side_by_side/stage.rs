//! Clusters of one scenario's own, with Cluster Autoscaler and one of the two providers.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    autoscaling::{self, Autoscaler, CloudProvider, Settings},
    cluster_api::Environment,
    controllers::{
        groups::Group,
        testbed::{Testbed, pod_spec},
    },
    fleet::Service,
    go::Components,
    process::{Process, free_port, text},
    program::Programs,
    provider::{Provider, page},
    proxy::Proxy,
    users::{self, User},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The provider that Cluster Autoscaler gets its node groups from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Side {
    /// Its own, `clusterapi`.
    InTree,
    /// This program.
    Here,
    /// Two replicas of this program. The one that is called is killed in the middle of the scenario.
    HereTwice,
}

impl Side {
    pub(crate) const ALL: [Self; 3] = [Self::InTree, Self::Here, Self::HereTwice];

    /// Returns its name, as in the table.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::InTree => "in-tree",
            Self::Here => "here",
            Self::HereTwice => "here, two replicas",
        }
    }

    fn replicas(self) -> usize {
        match self {
            Self::InTree => 0,
            Self::Here => 1,
            Self::HereTwice => 2,
        }
    }
}

/// The role of in-tree, and its binding.
const IN_TREE: &str = "in-tree";

/// The interval of looking at what has happened.
const POLL: Duration = Duration::from_millis(300);

/// The clusters of a scenario, with real API servers and controllers, that no other scenario uses.
pub(crate) struct Stage {
    /// The Cluster, and the program.
    pub(crate) testbed: Testbed,
    /// The processes of both clusters.
    pub(crate) environment: Arc<Environment>,
    /// The provider that is looked at.
    pub(crate) side: Side,
    /// What clusters are made of.
    pub(crate) components: Arc<Components>,
    autoscaler: Autoscaler,
    program: PathBuf,
}

/// The kubeconfigs of both clusters, and the specs of `--node-group-auto-discovery`, which both providers know.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) management: Value,
    pub(crate) workload: Value,
    pub(crate) specs: Vec<String>,
    /// Further flags of the program.
    pub(crate) flags: Vec<String>,
}

impl Stage {
    pub(crate) async fn set(
        components: Arc<Components>,
        program: PathBuf,
        logs: PathBuf,
        side: Side,
        autoscaler: Autoscaler,
    ) -> Result<Self> {
        let environment = Arc::new(Box::pin(Environment::start(Arc::clone(&components))).await?);
        let testbed = Testbed::real(Arc::clone(&environment), program.clone(), logs).await?;
        let stage = Self { testbed, environment, side, components, autoscaler, program };
        if side == Side::InTree {
            stage.grant_in_tree().await?;
        }
        Ok(stage)
    }

    /// Lets in-tree do everything, where its permissions aren't compared.
    pub(crate) async fn grant_in_tree(&self) -> Result<()> {
        self.bind_in_tree("cluster-admin").await
    }

    /// Lets in-tree do instead what its documentation says it needs, with these resources of infrastructure templates.
    pub(crate) async fn grant_in_tree_documented(&self, templates: &[&str]) -> Result<()> {
        let resources = [
            "machinedeployments",
            "machinedeployments/scale",
            "machinepools",
            "machinepools/scale",
            "machines",
            "machinesets",
            "machinesets/scale",
        ];
        let role = json!({
            "kind": "ClusterRole",
            "metadata": { "name": IN_TREE },
            "rules": [
                { "apiGroups": ["cluster.x-k8s.io"], "resources": resources, "verbs": ["get", "list", "update", "watch"] },
                { "apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": templates, "verbs": ["get", "list", "watch"] },
            ],
        });
        self.testbed.objects.create(role).await?;
        self.testbed.objects.delete("ClusterRoleBinding", IN_TREE).await?;
        self.bind_in_tree(IN_TREE).await
    }

    async fn bind_in_tree(&self, role: &str) -> Result<()> {
        let binding = users::bind(self.testbed.user(), IN_TREE, ("ClusterRole", role));
        self.testbed.objects.create(binding).await.map(drop)
    }

    /// Returns the program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the access to the scenario's Cluster.
    pub(crate) fn access(&self) -> Access {
        let spec = format!("clusterapi:namespace={},clusterName={}", self.testbed.namespace, self.testbed.cluster);
        Access {
            management: self.environment.management.kubeconfig(self.testbed.user()),
            workload: self.environment.workload.kubeconfig(&User::administrator()),
            specs: vec![spec],
            flags: Vec::new(),
        }
    }

    /// The same through a proxy to the management API server, which knows the user.
    pub(crate) fn access_through(&self, proxy: &Proxy) -> Access {
        Access { management: users::plain_kubeconfig(&proxy.server()), ..self.access() }
    }

    /// Starts Cluster Autoscaler with the provider for the scenario's Cluster.
    pub(crate) async fn autoscale(&self, settings: Settings) -> Result<Run> {
        self.start(&self.access(), settings, &[]).await
    }

    /// The same in any clusters, with further flags of Cluster Autoscaler.
    pub(crate) async fn start(&self, access: &Access, settings: Settings, flags: &[&str]) -> Result<Run> {
        self.start_side(self.side, access, settings, flags).await
    }

    /// Starts Cluster Autoscaler with the provider of either side.
    pub(crate) async fn start_side(
        &self,
        side: Side,
        access: &Access,
        settings: Settings,
        flags: &[&str],
    ) -> Result<Run> {
        let directory = self.testbed.directory();
        let metrics = free_port()?;
        let [management, workload] = [("management", &access.management), ("workload", &access.workload)]
            .map(|(name, kubeconfig)| (directory.join(format!("{name}.kubeconfig")), kubeconfig));
        for (path, kubeconfig) in [&management, &workload] {
            fs::write(path, kubeconfig.to_string())?;
        }
        let mut ours = vec![format!("--workload-kubeconfig={}", workload.0.display())];
        ours.extend(access.specs.iter().map(|spec| format!("--node-group-auto-discovery={spec}")));
        ours.extend(access.flags.iter().cloned());
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        let programs = Programs::new(self.program.clone(), directory.to_owned());
        let mut replicas = Vec::new();
        for _ in 0..side.replicas() {
            let mut replica = programs.launch(&management.0, &ours, &[])?;
            replica.ready().await?;
            replicas.push(replica);
        }
        let front = Service::of(&replicas.iter().collect::<Vec<_>>()).await?;
        let caller = self.start_autoscaler(side, access, front.port(), settings, metrics, flags)?;
        Ok(Run { caller, metrics, replicas, front })
    }

    fn start_autoscaler(
        &self,
        side: Side,
        access: &Access,
        port: u16,
        settings: Settings,
        metrics: u16,
        flags: &[&str],
    ) -> Result<Running> {
        let (directory, address) = (self.testbed.directory(), format!("127.0.0.1:{port}"));
        let binary = match &self.autoscaler {
            Autoscaler::Binary(binary) => binary,
            Autoscaler::Driver(version) => {
                let log = directory.join("cluster-autoscaler.log");
                let driving = autoscaling::drive(&address, &self.testbed.workload, *version, settings, &log)?;
                return Ok(Running::Driver(driving));
            }
        };
        let address = json!({ "address": address, "grpc_timeout": "30s" });
        let provider = match side {
            Side::InTree => CloudProvider::ClusterApi { management: &access.management, discovery: &access.specs },
            Side::Here | Side::HereTwice => CloudProvider::ExternalGrpc(&address),
        };
        let started = binary.start_with(directory, &access.workload, provider, settings, metrics, flags)?;
        Ok(Running::Binary(started))
    }

    /// Ends Cluster Autoscaler, and starts another. The program keeps running.
    pub(crate) async fn restart_autoscaler(&self, mut run: Run, settings: Settings) -> Result<Run> {
        run.end_autoscaler().await?;
        let metrics = free_port()?;
        let caller = self.start_autoscaler(self.side, &self.access(), run.front.port(), settings, metrics, &[])?;
        Ok(Run { caller, metrics, ..run })
    }

    /// Returns the provider's requests to the management cluster so far.
    pub(crate) fn requests(&self) -> Result<usize> {
        Ok(self.environment.management.answered(self.testbed.user())?.len())
    }

    /// Creates a Pod that requests this CPU, and any Node.
    pub(crate) async fn pod(&self, name: &str, cpu: &str) -> Result<()> {
        self.pod_on(name, cpu, &json!({})).await
    }

    /// Creates a Pod that requests this CPU, and a Node with these labels.
    pub(crate) async fn pod_on(&self, name: &str, cpu: &str, labels: &Value) -> Result<()> {
        let spec = pod_spec(cpu, labels);
        let pod = json!({ "kind": "Pod", "metadata": { "name": name }, "spec": spec });
        self.testbed.workload.create(pod).await?;
        Ok(())
    }

    /// Fails unless a node group has this size.
    pub(crate) async fn has_size(&self, group: &Group, expected: i32) -> Result<()> {
        let size = self.testbed.objects.scale(group.kind, &group.name).await?;
        ensure!(size == expected, "the node group has {size} replicas");
        Ok(())
    }

    /// Fails if more than this number of Machines of a node group are left.
    pub(crate) async fn are_left(&self, group: &Group, most: usize) -> Result<()> {
        let left = self.testbed.machines(group).await?.len();
        ensure!(left <= most, "{left} Machines are left");
        Ok(())
    }

    /// Fails unless a Pod runs.
    pub(crate) async fn runs(&self, name: &str) -> Result<()> {
        let phase = self.testbed.workload.get("Pod", name).await?.data["status"]["phase"].clone();
        ensure!(phase == "Running", "the Pod {name} is {}", phase.as_str().unwrap_or("without a phase"));
        Ok(())
    }
}

/// What makes the calls.
enum Running {
    Binary(Process),
    Driver(JoinHandle<()>),
}

impl Running {
    /// Returns why it has ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match self {
            Self::Driver(task) => task.is_finished().then(|| "the driver has ended".to_owned()),
            Self::Binary(process) => {
                process.still_running().err()?;
                let output = process.output();
                let fatal = output.lines().rev().find(|line| line.starts_with('F') || line.starts_with("panic:"));
                Some(format!("Cluster Autoscaler has exited: {}", fatal.unwrap_or("without a last word")))
            }
        }
    }

    fn binary(&self) -> Result<&Process> {
        match self {
            Self::Binary(process) => Ok(process),
            Self::Driver(_) => bail!("the scenario needs a binary of Cluster Autoscaler"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Driver(task) = self {
            task.abort();
        }
    }
}

/// A running Cluster Autoscaler with its provider. Dropping it ends both.
pub(crate) struct Run {
    caller: Running,
    metrics: u16,
    /// The program's replicas that run.
    pub(crate) replicas: Vec<Provider>,
    front: Service,
}

impl Run {
    /// Is called in the middle of a scenario: of two replicas the one that is called is killed.
    pub(crate) fn turn(&mut self) {
        if self.replicas.len() == 2 {
            self.replicas.remove(0);
        }
    }

    /// Ends Cluster Autoscaler as a container runtime does.
    pub(crate) async fn end_autoscaler(&mut self) -> Result<()> {
        if let Running::Binary(process) = &mut self.caller {
            process.terminate()?;
            process.ended(Duration::from_secs(30)).await?;
        }
        Ok(())
    }

    /// Waits until `look` succeeds, and returns its value and the time it took. An error says what was seen last.
    pub(crate) async fn within<T>(
        &mut self,
        limit: Duration,
        mut look: impl AsyncFnMut() -> Result<T>,
    ) -> Result<(T, Duration), String> {
        let start = Instant::now();
        loop {
            let error = match look().await {
                Ok(value) => return Ok((value, start.elapsed())),
                Err(error) => error,
            };
            if let Some(ended) = self.caller.ended() {
                return Err(ended);
            }
            if start.elapsed() > limit {
                return Err(format!("after {} s {error:#}", limit.as_secs()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Fails if `look` fails within this time, and says when.
    pub(crate) async fn stays(
        &mut self,
        limit: Duration,
        mut look: impl AsyncFnMut() -> Result<()>,
    ) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < limit {
            look().await.map_err(|error| format!("after {} s {error:#}", start.elapsed().as_secs()))?;
            if let Some(ended) = self.caller.ended() {
                return Err(ended);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns the loops that Cluster Autoscaler has begun.
    fn loops(&self) -> Result<usize> {
        Ok(text(self.caller.binary()?.log()).matches("Starting main loop").count())
    }

    /// Waits for a number of further loops.
    pub(crate) async fn wait_for_loops(&mut self, times: usize, limit: Duration) -> Result<()> {
        let wanted = self.loops()? + times + 1;
        let start = Instant::now();
        while self.loops()? < wanted {
            if let Some(ended) = self.caller.ended() {
                bail!(ended);
            }
            ensure!(start.elapsed() < limit, "{} of {wanted} loops after {} s", self.loops()?, limit.as_secs());
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Returns the resident memory of Cluster Autoscaler and of the program's replicas, in MiB.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let replicas = self.replicas.iter().map(|replica| resident(replica.process.id()));
        Ok((resident(self.caller.binary()?.id())?, replicas.sum::<Result<f64>>()?))
    }

    /// Returns the value of one of Cluster Autoscaler's metrics, a series as it is exposed.
    pub(crate) async fn metric(&self, series: &str) -> Result<f64> {
        metric(self.metrics, series).await
    }
}

/// Returns the value of a series at a port.
async fn metric(port: u16, series: &str) -> Result<f64> {
    let (status, body) = page(port, "/metrics").await?;
    ensure!(status == 200, "/metrics answers {status}");
    let value = body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value.with_context(|| format!("there is no {series}"))?;
    Ok(value.trim().parse()?)
}

/// Returns the resident memory of a process of this machine, in MiB.
fn resident(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1024.0)
}
