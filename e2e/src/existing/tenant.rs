//! The objects that one scenario has created in shared clusters, and their removal. Groups are modelled on an existing
//! MachineDeployment.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use kube::Client;
use serde_json::{Map, Value, json};

use super::{Clusters, Status, WORKERS};
use crate::{
    cluster_api::POLL_INTERVAL,
    controllers::groups::{Group, HOOK, NODE_POOL, UNNEEDED, is_group},
    objects::{Contract, Objects},
    wait::every,
};

/// The time within which real machines come or go.
pub const TIMEOUT: Duration = Duration::from_secs(600);

/// The label of objects that scenarios create. Its value names the scenario.
const SCENARIO: &str = "e2e.capi-autoscaler-provider.io/scenario";

/// The prefix of that value.
const MARK: &str = "e2e-";

/// The namespace of its Pods.
pub(crate) const PODS: &str = "default";

/// The unneeded time that keeps idle Nodes of a group until the scenario allows scaling.
const HOLD: &str = "10h";

/// One scenario in shared clusters.
pub struct Tenant {
    /// A kubeconfig of the management cluster.
    kubeconfig: PathBuf,
    /// Distinguishes its objects, Nodes and Pods from all others.
    pub(crate) mark: String,
    workers: String,
    model: Model,
    /// Objects of the Cluster's namespace.
    pub(crate) objects: Objects,
    /// Nodes, and Pods of the namespace that its Pods are in.
    pub(crate) workload: Objects,
    workload_client: Client,
    made: Mutex<Vec<Created>>,
}

/// An object that it has created.
#[derive(Clone, Debug)]
enum Created {
    Group { group: Group, held: bool },
    Template(String),
}

impl Tenant {
    /// Checks that all prerequisites exist, and that no objects of an earlier scenario are left.
    pub async fn start(clusters: &Clusters, number: usize) -> Result<Self> {
        let (management, workload) = clusters.clients().await?;
        let objects = Objects::new(management, Contract::V1Beta2, &clusters.namespace);
        let model = Model::read(&objects, &clusters.workers).await.with_context(|| format!("what {WORKERS} names"))?;
        let cluster = objects.get("Cluster", &clusters.cluster).await?;
        ensure!(cluster.data["spec"]["paused"] != true, "Cluster {} is paused: nothing would happen", clusters.cluster);
        let tenant = Self {
            kubeconfig: clusters.management.clone(),
            mark: mark(number),
            workers: clusters.workers.clone(),
            workload: Objects::new(workload.clone(), Contract::V1Beta2, PODS),
            workload_client: workload,
            made: Mutex::default(),
            objects,
            model,
        };
        let mut left = tenant.marked(SCENARIO).await?;
        for pod in tenant.workload.list("Pod", NODE_POOL).await? {
            let name = pod.metadata.name.unwrap_or_default();
            let labels = pod.metadata.labels.unwrap_or_default();
            if labels.get(NODE_POOL).is_some_and(|mark| mark.starts_with(MARK)) {
                left.push(format!("Pod/{name} of the workload cluster"));
            }
        }
        ensure!(left.is_empty(), "left by an earlier run, and to be deleted first: {}", left.join(", "));
        Ok(tenant)
    }

    /// A kubeconfig of the management cluster.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the status of the autoscaler here, which changes with each of its loops.
    pub(crate) fn status(&self) -> Status {
        Status::new(self.workload_client.clone())
    }

    /// Returns a unique name.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.mark)
    }

    /// Returns the CPU of a Node in millicores.
    pub(crate) fn cpu(&self) -> i64 {
        self.model.cpu
    }

    /// Returns the memory of a Node.
    pub(crate) fn memory(&self) -> &str {
        &self.model.memory
    }

    /// Returns true if Nodes have exactly this CPU, so that their template publishes it.
    pub(crate) fn is_whole(&self, cpu: &Value) -> bool {
        milli(cpu) == Some(self.model.cpu)
    }

    /// Returns the Machine spec of its groups. A Machine that isn't to join waits for bootstrap data that nobody
    /// creates.
    pub(crate) fn machine(&self, joins: bool) -> Value {
        let mut machine = self.model.machine.clone();
        if !joins {
            machine["bootstrap"] = json!({ "dataSecretName": self.name("missing") });
        }
        machine
    }

    /// Labels a new group, and holds its Nodes until scaling is allowed.
    pub(crate) fn receive(&self, group: &Group, labels: &mut Map<String, Value>, annotations: &mut Map<String, Value>) {
        labels.insert(SCENARIO.to_owned(), json!(self.mark));
        let held = !annotations.contains_key(UNNEEDED);
        if held {
            annotations.insert(UNNEEDED.to_owned(), json!(HOLD));
        }
        self.remember(Created::Group { group: group.clone(), held });
    }

    /// Allows scaling.
    pub(crate) async fn allow_scaling(&self) -> Result<()> {
        for made in self.made() {
            if let Created::Group { group, held: true } = made {
                self.objects.annotate(group.kind, &group.name, json!({ UNNEEDED: null })).await?;
            }
        }
        Ok(())
    }

    /// Creates another infrastructure template of the same machines, and returns its name.
    pub(crate) async fn another_template(&self, group: &Group) -> Result<String> {
        let name = format!("{}-anew", group.name);
        self.remember(Created::Template(name.clone()));
        let metadata = json!({ "name": name, "labels": { SCENARIO: self.mark } });
        self.objects.create(self.model.template(&metadata)).await?;
        Ok(name)
    }

    /// Writes down the current objects, to find the cause of a failure afterwards.
    pub(crate) async fn dump_objects(&self, directory: &Path) -> Result<()> {
        let mut all = Vec::new();
        for kind in ["MachineDeployment", "MachineSet", "Machine"] {
            all.extend(self.objects.list(kind, "").await?);
        }
        all.extend(self.workload.list("Node", "").await?);
        all.extend(self.workload.list("Pod", &format!("{NODE_POOL}={}", self.mark)).await?);
        fs::write(directory.join("objects.yaml"), serde_yaml::to_string(&all)?)?;
        Ok(())
    }

    /// Removes all its objects, and waits until they are gone.
    pub async fn leave(&self) -> Result<()> {
        let selector = format!("{NODE_POOL}={}", self.mark);
        for pod in self.workload.list("Pod", &selector).await? {
            self.workload.remove("Pod", &pod.metadata.name.unwrap_or_default()).await?;
        }
        let made = self.made();
        for made in &made {
            if let Created::Group { group, .. } = made {
                self.objects.remove(group.kind, &group.name).await?;
            }
        }
        every(POLL_INTERVAL, "what the scenario has made gone", TIMEOUT, async || {
            for made in &made {
                if let Created::Group { group, .. } = made {
                    self.release_machines(group).await?;
                    let there = self.objects.find(group.kind, &group.name).await?;
                    ensure!(there.is_none(), "{} is still there", group.id);
                }
            }
            for kind in ["Node", "Pod"] {
                let left = self.workload.list(kind, &selector).await?;
                let left: Vec<_> = left.into_iter().filter_map(|object| object.metadata.name).collect();
                ensure!(left.is_empty(), "{kind} {left:?} is still there");
            }
            Ok(())
        })
        .await?;
        for made in made {
            if let Created::Template(name) = made {
                self.objects.remove(&self.model.template_kind, &name).await?;
            }
        }
        let left = self.marked(&format!("{SCENARIO}={}", self.mark)).await?;
        ensure!(left.is_empty(), "still there: {}", left.join(", "));
        let workers = self.objects.find("MachineDeployment", &self.workers).await?;
        workers.map(drop).with_context(|| format!("MachineDeployment {} is gone", self.workers))
    }

    /// Releases Machines that are held in deletion. Fails as long as any Machine is left.
    async fn release_machines(&self, group: &Group) -> Result<()> {
        let machines = self.objects.list("Machine", &format!("pool={}", group.name)).await?;
        for machine in &machines {
            let annotations = machine.metadata.annotations.as_ref();
            let name = machine.metadata.name.as_deref().unwrap_or_default();
            if annotations.is_some_and(|all| all.contains_key(HOOK)) {
                self.objects.annotate("Machine", name, json!({ HOOK: null })).await?;
            }
        }
        ensure!(machines.is_empty(), "{} Machines of {} are still there", machines.len(), group.id);
        Ok(())
    }

    /// Lists the objects that scenarios have created, as `Kind/name`.
    async fn marked(&self, selector: &str) -> Result<Vec<String>> {
        let mut marked = Vec::new();
        for kind in ["MachineDeployment", "MachineSet", &self.model.template_kind] {
            for object in self.objects.list(kind, selector).await? {
                marked.push(format!("{kind}/{}", object.metadata.name.unwrap_or_default()));
            }
        }
        Ok(marked)
    }

    fn remember(&self, made: Created) {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(made);
    }

    fn made(&self) -> Vec<Created> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Returns a mark that is short, since names of Machines and Nodes derive from it, and new for each run.
fn mark(number: usize) -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{MARK}{:x}-{number}", seconds & 0x00ff_ffff)
}

/// The spec of Machines here, and the capacity of their Nodes.
#[derive(Clone, Debug)]
struct Model {
    /// `spec.template.spec` of its MachineDeployment.
    machine: Value,
    /// The kind of its infrastructure template.
    template_kind: String,
    /// The spec of that template.
    template_spec: Value,
    /// The CPU of a Node in millicores.
    cpu: i64,
    /// The memory of a Node.
    memory: String,
}

impl Model {
    /// Reads the MachineDeployment and its template.
    async fn read(objects: &Objects, name: &str) -> Result<Self> {
        let deployment = objects.get("MachineDeployment", name).await?;
        let what = || format!("MachineDeployment {name}");
        ensure!(!is_group(&deployment), "{} is a group itself: take its maximum size off", what());
        let machine = deployment.data["spec"]["template"]["spec"].clone();
        let reference = &machine["infrastructureRef"];
        let kind = reference["kind"].as_str().context("no infrastructureRef").with_context(what)?.to_owned();
        let template = reference["name"].as_str().context("an infrastructureRef without name").with_context(what)?;
        let template = objects.get(&kind, template).await?;
        let capacity = &template.data["status"]["capacity"];
        let said = || format!("status.capacity of its {kind} is {capacity}: it must say cpu and memory");
        let cpu = milli(&capacity["cpu"]).filter(|cpu| *cpu > 0).with_context(said).with_context(what)?;
        let memory = text(&capacity["memory"]).with_context(said).with_context(what)?;
        Ok(Self { machine, template_spec: template.data["spec"].clone(), template_kind: kind, cpu, memory })
    }

    /// Returns another template of the same Machines.
    fn template(&self, metadata: &Value) -> Value {
        json!({ "kind": self.template_kind, "metadata": metadata, "spec": self.template_spec })
    }
}

fn text(quantity: &Value) -> Option<String> {
    match quantity {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses a CPU quantity as millicores.
fn milli(quantity: &Value) -> Option<i64> {
    let text = text(quantity)?;
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => text.parse::<i64>().ok()?.checked_mul(1000),
    }
}
