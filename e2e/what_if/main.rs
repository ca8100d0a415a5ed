//! Compares `whatif` with reality: generated clusters, each on real API servers with Cluster API's core, kube-scheduler
//! and an unmodified Cluster Autoscaler, and its dump in `whatif` with the same Cluster Autoscaler. The sizes of the node
//! groups and the Pods without a Node must be the same.

// A scenario of its own that needs a part of the stage.
#[allow(dead_code, reason = "the scenarios of side-by-side use the rest")]
#[path = "../side_by_side/stage.rs"]
mod stage;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use e2e::{
    autoscaling::{Autoscaler, Binary, Settings, binary::VARIABLE},
    controllers::groups::{Group, Workers},
    go::{self, Components},
    objects::Objects,
    program,
};
use fastrand::Rng;
use serde_json::{Value, json};
use stage::{Side, Stage};
use whatif::{Change, Options, Player};

/// The label of Nodes, which Cluster API propagates to them.
const POOL: &str = "node.cluster.x-k8s.io/pool";
/// The CPUs that a Node may have. No two groups of a cluster have the same: Cluster Autoscaler chooses at random then.
const CPUS: [u32; 6] = [2, 4, 6, 8, 12, 16];
/// The time for which nothing must have moved.
const QUIET: Duration = Duration::from_secs(20);
/// A cluster that takes longer is broken.
const LONGEST: Duration = Duration::from_secs(300);
/// The factor of `whatif`, and the times that are those of the real Cluster Autoscaler after it.
const SPEED: u32 = 60;
const WAITS: [&str; 5] = [
    "--scale-down-unneeded-time=2m",
    "--scale-down-unready-time=2m",
    "--scale-down-delay-after-add=1m",
    "--unremovable-node-recheck-timeout=1m",
    "--expander=least-waste",
];

/// Compares what `whatif` answers with what happens on real components.
///
/// CLUSTER_AUTOSCALER names a binary of Cluster Autoscaler.
#[derive(Parser)]
#[command(name = "what-if")]
struct Args {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of seeds
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Let `whatif` use kube-scheduler too
    #[arg(long)]
    kube_scheduler: bool,
    /// Use this binary of the program, instead of building one
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Keep the logs and dumps here, a directory for each seed
    #[arg(long, value_name = "DIRECTORY", default_value = "target/tmp/what-if")]
    logs: PathBuf,
}

/// How a cluster ended.
#[derive(Clone, Debug, Eq, PartialEq)]
struct End {
    sizes: BTreeMap<String, i64>,
    pending: BTreeSet<String>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("what-if: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let binary = Binary::named()?.into_iter().next();
    let binary = binary.with_context(|| format!("{VARIABLE} names no binary of Cluster Autoscaler: set it"))?;
    let components = Arc::new(go::components()?);
    let program = args.program.clone().map_or_else(program::build, Ok)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let mut differences = 0;
    for seed in args.seed..args.seed + args.seeds {
        let logs = args.logs.join(seed.to_string());
        let compared = compare(seed, &logs, (&components, &program, &binary), args.kube_scheduler);
        let (real, answered) = runtime.block_on(compared).with_context(|| format!("seed {seed}"))?;
        let is_same = real == answered;
        differences += u32::from(!is_same);
        println!("seed {seed}: {}", if is_same { "the same" } else { "DIFFERENT" });
        println!("  real   {:?}, without a Node: {:?}", real.sizes, real.pending);
        if !is_same {
            println!("  whatif {:?}, without a Node: {:?}", answered.sizes, answered.pending);
        }
    }
    println!("{differences} of {} clusters ended otherwise", args.seeds);
    Ok(differences == 0)
}

async fn compare(
    seed: u64,
    logs: &Path,
    (components, program, binary): (&Arc<Components>, &Path, &Binary),
    kube_scheduler: bool,
) -> Result<(End, End)> {
    if logs.exists() {
        fs::remove_dir_all(logs)?;
    }
    fs::create_dir_all(logs)?;
    let logs = fs::canonicalize(logs)?;
    let autoscaler = Autoscaler::Binary(binary.clone());
    let stage = Stage::set(Arc::clone(components), program.to_owned(), logs.clone(), Side::Here, autoscaler).await?;
    let mut rng = Rng::with_seed(seed);
    let groups = create_groups(&stage, &mut rng).await?;
    let dump = dump(&stage, &logs).await?;
    let pods = pods(&mut rng, stage.testbed.workload.namespace(), groups.len());
    let added = logs.join("pods.yaml");
    fs::write(&added, json!({ "apiVersion": "v1", "kind": "List", "items": pods }).to_string())?;
    let real = really(&stage, &groups, pods).await?;
    let options = Options {
        manifests: vec![dump.display().to_string()],
        changes: vec![Change::add(&added.display().to_string())],
        cluster: None,
        prices: None,
        until: Duration::from_secs(7200),
        speed: SPEED,
        machine_time: Some(Duration::from_secs(60)),
        player: Player::Binary(binary.path.clone()),
        scheduler: kube_scheduler.then(|| components.kube_scheduler.clone()),
        flags: WAITS.map(str::to_owned).into(),
        logs: Some(logs.join("whatif")),
    };
    let report = whatif::run(&options, &mut |_| {}).await?;
    fs::write(logs.join("report.json"), serde_json::to_string_pretty(&report)?)?;
    let sizes = report.groups.iter().map(|group| (name_of(&group.id), group.after)).collect();
    let pending = report.pending.iter().flat_map(|pending| pending.pods.iter().map(|pod| name_of(pod))).collect();
    Ok((real, End { sizes, pending }))
}

fn name_of(id: &str) -> String {
    id.rsplit('/').next().unwrap_or(id).to_owned()
}

async fn create_groups(stage: &Stage, rng: &mut Rng) -> Result<Vec<Group>> {
    let mut cpus = CPUS.to_vec();
    rng.shuffle(&mut cpus);
    let mut groups = Vec::new();
    let mut replicas = 0;
    for (number, cpu) in cpus.into_iter().take(rng.usize(2..5)).enumerate() {
        let name = format!("group-{number}");
        let (max, size) = (rng.i32(1..6), rng.i32(0..3));
        let (min, size) = (rng.i32(0..2).min(max), size.min(max));
        let size = size.max(min);
        replicas += size;
        let capacity = json!({ "cpu": cpu.to_string(), "memory": format!("{}Gi", cpu * 4), "pods": "110" });
        let mut workers = Workers::new(&name).bounds(min, max).replicas(size).publishing(capacity).label(POOL, &name);
        if rng.u8(0..3) == 0 {
            workers = workers.taint("dedicated", &name, "NoSchedule");
        }
        groups.push(workers.create(&stage.testbed).await?);
    }
    let began = Instant::now();
    loop {
        let nodes = stage.testbed.workload.list("Node", "").await?;
        let ready = nodes.iter().filter(|node| {
            let conditions = node.data["status"]["conditions"].as_array();
            let is_free =
                node.data["spec"]["taints"].as_array().into_iter().flatten().all(|it| it["key"] == "dedicated");
            is_free
                && conditions.is_some_and(|all| all.iter().any(|it| it["type"] == "Ready" && it["status"] == "True"))
        });
        if ready.count() == usize::try_from(replicas)? {
            return Ok(groups);
        }
        ensure!(began.elapsed() < LONGEST, "{} of {replicas} Nodes", nodes.len());
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// Writes what kubectl would of both clusters.
async fn dump(stage: &Stage, logs: &Path) -> Result<PathBuf> {
    let mut items = Vec::new();
    let management = &stage.testbed.objects;
    for kind in ["Cluster", "MachineDeployment", "MachineSet", "Machine", "LoopbackMachineTemplate"] {
        items.extend(listed(management, kind).await?);
    }
    items.extend(listed(&stage.testbed.workload, "Node").await?);
    let path = logs.join("dump.yaml");
    fs::write(&path, json!({ "apiVersion": "v1", "kind": "List", "items": items }).to_string())?;
    Ok(path)
}

async fn listed(objects: &Objects, kind: &str) -> Result<Vec<Value>> {
    let place = e2e::objects::Place::of(kind, objects.contract());
    let listed = objects.list(kind, "").await?;
    let named = |object| {
        let mut value = serde_json::to_value(object)?;
        value["apiVersion"] = json!(place.resource.api_version);
        value["kind"] = json!(kind);
        Ok(value)
    };
    listed.into_iter().map(named).collect()
}

/// Returns Pods that want more or less of what groups have.
fn pods(rng: &mut Rng, namespace: &str, groups: usize) -> Vec<Value> {
    let number = rng.usize(1..12);
    let pod = |number: usize, rng: &mut Rng| {
        let cpu = 250 * rng.u32(1..40);
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "a",
                "image": "registry.k8s.io/pause:3.10.2",
                "resources": { "requests": { "cpu": format!("{cpu}m"), "memory": format!("{}Mi", 64 * rng.u32(1..64)) } },
            }],
        });
        if rng.u8(0..3) == 0 {
            spec["nodeSelector"] = json!({ POOL: format!("group-{}", rng.usize(0..groups)) });
        }
        if rng.bool() {
            spec["tolerations"] = json!([{ "key": "dedicated", "operator": "Exists" }]);
        }
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("pod-{number}"), "namespace": namespace },
            "spec": spec,
        })
    };
    (0..number).map(|number| pod(number, rng)).collect()
}

/// Lets Cluster Autoscaler act on the real clusters until nothing moves.
async fn really(stage: &Stage, groups: &[Group], pods: Vec<Value>) -> Result<End> {
    for pod in pods {
        stage.testbed.workload.create(pod).await?;
    }
    let flags = ["--scale-down-unneeded-time=2s"];
    let mut run = stage.start(&stage.access(), Settings::default(), &flags).await?;
    run.wait_for_loops(2, LONGEST).await?;
    let began = Instant::now();
    let (mut last, mut since) = (None, Instant::now());
    loop {
        let seen = seen(stage, groups).await?;
        if last.as_ref() != Some(&seen) {
            (last, since) = (Some(seen), Instant::now());
        } else if since.elapsed() > QUIET {
            run.end_autoscaler().await?;
            return Ok(seen.0);
        }
        ensure!(began.elapsed() < LONGEST, "it doesn't settle: {last:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Returns the present end, and the number of Machines and Nodes.
async fn seen(stage: &Stage, groups: &[Group]) -> Result<(End, usize, usize)> {
    let mut sizes = BTreeMap::new();
    for group in groups {
        let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
        sizes.insert(group.name.clone(), i64::from(size));
    }
    let pods = stage.testbed.workload.list("Pod", "").await?;
    let pending = pods.iter().filter(|pod| pod.data["spec"]["nodeName"].is_null());
    let pending = pending.filter_map(|pod| pod.metadata.name.clone()).collect();
    let machines = stage.testbed.objects.list("Machine", "").await?.len();
    let nodes = stage.testbed.workload.list("Node", "").await?.len();
    Ok((End { sizes, pending }, machines, nodes))
}
