//! Many node groups, and an API server that isn't there.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::{PAUSE, Settings},
    control_plane::ControlPlane,
    controllers::groups::Workers,
    crds::Installed,
    objects::{Contract, Objects},
    proxy::Proxy,
    users::{self, User},
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Outcome, PATIENCE, growing};
use crate::stage::{Access, Run, Side, Stage};

/// The size is what is looked at: how soon Cluster API's controllers follow after a restart is their own.
pub(super) async fn api_server_restart(stage: &Stage) -> Result<Outcome> {
    let group = Workers::new("workers").sized().create(&stage.testbed).await?;
    let mut run = stage.autoscale(growing()).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    stage.environment.management.stop_api_server();
    run.turn();
    tokio::time::sleep(10 * PAUSE).await;
    stage.environment.management.start_api_server().await?;
    stage.pod("web", "3").await?;
    let is_one = async || {
        let size = stage.testbed.objects.scale(group.kind, &group.name).await?;
        ensure!(size == 1, "the node group has {size} replicas for one Pod");
        Ok(())
    };
    let grown = run.within(PATIENCE, is_one).await;
    if grown.is_err() {
        return Ok(Outcome::after("", grown));
    }
    Ok(match run.stays(Duration::from_secs(20), is_one).await {
        Ok(()) => Outcome::after("grown to one", grown),
        Err(last) => Outcome::bad(last),
    })
}

/// The node groups behind a bad API server: enough that their requests add up.
const SEVERAL: usize = 20;

/// Each request takes 200 ms longer.
pub(super) async fn slow_api_server(stage: &Stage) -> Result<Outcome> {
    grows_through(stage, |proxy| proxy.slow_down(Duration::from_millis(200))).await
}

/// Ten requests a second are answered, and the others with 429.
pub(super) async fn throttling_api_server(stage: &Stage) -> Result<Outcome> {
    grows_through(stage, |proxy| proxy.throttle(Duration::from_millis(100))).await
}

async fn grows_through(stage: &Stage, hinder: impl Fn(&Proxy)) -> Result<Outcome> {
    for number in 0..SEVERAL {
        Workers::new(&format!("workers-{number}")).sized().create(&stage.testbed).await?;
    }
    let proxy = stage.environment.management.proxy_of(stage.testbed.user()).await?;
    let mut run = stage.start(&stage.access_through(&proxy), growing(), &[]).await?;
    run.wait_for_loops(2, PATIENCE).await?;
    hinder(&proxy);
    let before = (proxy.asked().len(), proxy.refused());
    stage.pod("web", "3").await?;
    run.turn();
    let runs = run.within(2 * PATIENCE, async || stage.runs("web").await).await;
    let (asked, refused) = (proxy.asked().len() - before.0, proxy.refused() - before.1);
    let requests =
        if refused == 0 { format!("{asked} requests") } else { format!("{asked} requests, {refused} refused") };
    Ok(match runs {
        Ok(((), took)) => Outcome::good(format!("the Pod runs after {} s, {requests}", took.as_secs())),
        Err(last) => Outcome::bad(format!("{last}; {requests}")),
    })
}

pub(super) async fn two_hundred_nodes(stage: &Stage) -> Result<Outcome> {
    up_and_down(stage, 200).await
}

pub(super) async fn thousand_nodes(stage: &Stage) -> Result<Outcome> {
    up_and_down(stage, 1000).await
}

/// Ten node groups; each Pod needs a Node of its own. One of twenty Pods stays, with its Node.
async fn up_and_down(stage: &Stage, pods: usize) -> Result<Outcome> {
    let testbed = &stage.testbed;
    let limit = Duration::from_secs(u64::try_from(pods)? * 2).max(6 * PATIENCE);
    let mut groups = Vec::new();
    for number in 0..10 {
        let max = i32::try_from(pods / 10 * 3 / 2)?;
        groups.push(Workers::new(&format!("workers-{number}")).sized().bounds(0, max).create(testbed).await?);
    }
    // Longer than a busy scheduler may take to bind all Pods: Cluster Autoscaler removes a Node that seems empty, with the
    // Pod that it gets meanwhile.
    let unneeded = Duration::from_millis(150) * u32::try_from(pods)?;
    let settings = Settings { unneeded, provision: 2 * limit, ..growing() };
    let mut run = stage.autoscale(settings).await?;
    let before = stage.requests()?;
    let all = (0..pods).map(|number| async move { stage.pod(&format!("web-{number}"), "3").await });
    stream::iter(all).buffer_unordered(10).try_collect::<Vec<()>>().await?;
    let sizes = async || -> Result<i32> {
        let mut all = 0;
        for group in &groups {
            all += testbed.objects.scale(group.kind, &group.name).await?;
        }
        Ok(all)
    };
    let (began, mut asked, mut replaced) = (Instant::now(), None, 0);
    let run_all = run.within(limit, async || {
        let listed = testbed.workload.list("Pod", "").await?;
        // Cluster API has been seen to make Machines too many, and then to remove others with their Pods, which a
        // ReplicaSet would replace.
        let there: BTreeSet<&str> = listed.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
        let names = (0..pods).map(|number| format!("web-{number}"));
        for name in names.filter(|name| !there.contains(name.as_str())) {
            stage.pod(&name, "3").await?;
            replaced += 1;
        }
        let runs = |pod: &&DynamicObject| {
            pod.data["status"]["phase"] == "Running" && pod.metadata.deletion_timestamp.is_none()
        };
        let (running, nodes) = (listed.iter().filter(runs).count(), usize::try_from(sizes().await?)?);
        if nodes >= pods {
            asked.get_or_insert_with(|| began.elapsed());
        }
        ensure!(running == pods, "{running} Pods run, of {nodes} Nodes");
        let machines = testbed.objects.list("Machine", "").await?.len();
        ensure!(machines == nodes, "there are {machines} Machines instead of {nodes}");
        Ok(listed)
    });
    let (running, up) = match run_all.await {
        Ok(up) => up,
        Err(last) => return Ok(Outcome::bad(last)),
    };
    let nodes = sizes().await?;
    let (stay, go): (Vec<_>, Vec<_>) = running.iter().enumerate().partition(|(number, _)| number % 20 == 0);
    let busy: BTreeSet<&str> = stay.iter().filter_map(|(_, pod)| pod.data["spec"]["nodeName"].as_str()).collect();
    run.turn();
    let delete = |(_, pod): (usize, &DynamicObject)| {
        let name = pod.metadata.name.clone().unwrap_or_default();
        async move { testbed.workload.delete("Pod", &name).await }
    };
    stream::iter(go.into_iter().map(delete)).buffer_unordered(10).try_collect::<Vec<()>>().await?;
    let gone = run.within(limit, async || {
        let left = testbed.objects.list("Machine", "").await?;
        ensure!(left.len() <= busy.len(), "{} Machines are left, and the sizes are {}", left.len(), sizes().await?);
        Ok(left)
    });
    let (left, down) = match gone.await {
        Ok(gone) => gone,
        Err(last) => return Ok(Outcome::bad(last)),
    };
    let left: BTreeSet<&str> =
        left.iter().filter_map(|machine| machine.data["status"]["nodeRef"]["name"].as_str()).collect();
    let wrong = busy.difference(&left).count();
    let requests = stage.requests()? - before;
    Ok(Outcome {
        good: wrong == 0,
        seen: format!(
            "all sizes written after {} s, up in {} s to {nodes} Nodes, down in {} s, {replaced} Pods replaced meanwhile, \
             {wrong} busy Nodes lost, {requests} requests",
            asked.unwrap_or(up).as_secs(),
            up.as_secs(),
            down.as_secs()
        ),
    })
}

const GROUPS: usize = 200;
const MACHINES: usize = 25;
const NAMESPACE: &str = "team-a";
const CLUSTER: &str = "prod";
/// The loops that are measured, after one that fills caches.
const LOOPS: usize = 2;

/// With Cluster Autoscaler's default limits of requests.
pub(super) async fn idle_loop(stage: &Stage) -> Result<Outcome> {
    idle(stage, &["--kube-client-qps=5", "--kube-client-burst=10"]).await
}

/// With limits that hold nothing up.
pub(super) async fn idle_loop_unlimited(stage: &Stage) -> Result<Outcome> {
    idle(stage, &["--kube-client-qps=200", "--kube-client-burst=400"]).await
}

/// No controllers run: objects are written as those leave them. Cluster Autoscaler's own requests, for Pods and Nodes of
/// the workload cluster, aren't counted.
async fn idle(stage: &Stage, flags: &[&str]) -> Result<Outcome> {
    let start = |contract, installed| ControlPlane::start(Arc::clone(&stage.components), contract, installed);
    let management = start(Contract::V1Beta2, Installed::All).await?;
    let workload = start(Contract::V1Beta2, Installed::Nothing).await?;
    fill(&management.objects(NAMESPACE), &workload.objects("default")).await?;
    let user = User::provider(0);
    if stage.side == Side::InTree {
        let everything = users::bind(&user, "in-tree", ("ClusterRole", "cluster-admin"));
        management.objects(NAMESPACE).create(everything).await?;
    }
    let access = Access {
        management: management.kubeconfig(&user),
        workload: workload.kubeconfig(&User::administrator()),
        specs: vec![format!("clusterapi:namespace={NAMESPACE},clusterName={CLUSTER}")],
        flags: Vec::new(),
    };
    let mut run = stage.start(&access, growing(), flags).await?;
    let limit = Duration::from_secs(480);
    if let Err(error) = run.wait_for_loops(1, limit).await {
        return Ok(Outcome::bad(format!("no loop ends: {error}")));
    }
    let main = |what: &str| format!("cluster_autoscaler_function_duration_seconds_{what}{{function=\"main\"}}");
    let look = async |run: &Run| -> Result<(f64, f64, usize)> {
        let requests = management.answered(&user)?.len();
        Ok((run.metric(&main("sum")).await?, run.metric(&main("count")).await?, requests))
    };
    let (seconds, loops, before) = look(&run).await?;
    run.wait_for_loops(LOOPS, limit).await?;
    let (seconds_after, loops_after, after) = look(&run).await?;
    let loops = loops_after - loops;
    let per_loop = f64::from(u32::try_from(after - before)?) / loops;
    let (autoscaler, provider) = run.memory()?;
    let memory = match stage.side {
        Side::InTree => format!("{autoscaler:.0} MiB"),
        Side::Here | Side::HereTwice => format!("{autoscaler:.0} MiB and {provider:.0} MiB"),
    };
    let seen = format!(
        "{:.1} s and {per_loop:.0} requests to the management cluster a loop; {memory}",
        (seconds_after - seconds) / loops
    );
    Ok(Outcome { good: per_loop < 1.0, seen })
}

/// Writes the node groups with their Machines and Nodes, all of them running.
async fn fill(management: &Objects, workload: &Objects) -> Result<()> {
    management.create(json!({ "kind": "Namespace", "metadata": { "name": NAMESPACE } })).await?;
    management.create(cluster()).await?;
    let groups = (0..GROUPS).map(|number| fill_group(management, workload, number));
    stream::iter(groups).buffer_unordered(20).try_collect::<Vec<()>>().await.map(drop)
}

fn cluster() -> Value {
    json!({
        "kind": "Cluster",
        "metadata": { "name": CLUSTER },
        "spec": { "controlPlaneEndpoint": { "host": "127.0.0.1", "port": 6443 } },
        "status": { "phase": "Provisioned" },
    })
}

async fn fill_group(management: &Objects, workload: &Objects, number: usize) -> Result<()> {
    let name = format!("workers-{number:03}");
    let labels = json!({ "cluster.x-k8s.io/cluster-name": CLUSTER, "pool": name });
    let infrastructure = json!({
        "kind": "DevMachineTemplate",
        "metadata": { "name": name },
        "spec": { "template": { "spec": {} } },
        "status": { "capacity": { "cpu": "4", "memory": "16Gi", "pods": "110" } },
    });
    management.create(infrastructure).await?;
    let template = json!({
        "metadata": { "labels": labels },
        "spec": {
            "clusterName": CLUSTER,
            "bootstrap": { "dataSecretName": "none" },
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "DevMachineTemplate", "name": name,
            },
        },
    });
    let spec = json!({
        "clusterName": CLUSTER,
        "replicas": MACHINES,
        "selector": { "matchLabels": { "pool": name } },
        "template": template,
    });
    let annotations = json!({
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "0",
        "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "100",
    });
    let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
    let status = json!({ "replicas": MACHINES, "readyReplicas": MACHINES, "availableReplicas": MACHINES });
    let deployment = json!({ "kind": "MachineDeployment", "metadata": metadata, "spec": spec, "status": status });
    let deployment = management.create(deployment).await?;
    let owner = |kind: &str, uid: Option<String>| -> Result<Value> {
        let uid = uid.context("an object without uid")?;
        Ok(json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "uid": uid, "controller": true,
        }]))
    };
    let owners = owner("MachineDeployment", deployment.metadata.uid)?;
    let metadata = json!({ "name": name, "labels": labels, "ownerReferences": owners });
    let set = json!({ "kind": "MachineSet", "metadata": metadata, "spec": spec, "status": status });
    let set = management.create(set).await?;
    let owners = owner("MachineSet", set.metadata.uid)?;
    for index in 0..MACHINES {
        let machine = format!("{name}-{index:02}");
        let provider_id = format!("made-up:///{machine}");
        let mut spec = template["spec"].clone();
        spec["providerID"] = json!(provider_id);
        let object = json!({
            "kind": "Machine",
            "metadata": { "name": machine, "labels": labels, "ownerReferences": owners },
            "spec": spec,
            "status": { "phase": "Running", "nodeRef": { "name": machine } },
        });
        management.create(object).await?;
        let quantities = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
        let node = json!({
            "kind": "Node",
            "metadata": { "name": machine, "labels": { "kubernetes.io/hostname": machine } },
            "spec": { "providerID": provider_id },
            "status": {
                "capacity": quantities,
                "allocatable": quantities,
                "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "" }],
            },
        });
        workload.create(node).await?;
    }
    Ok(())
}
