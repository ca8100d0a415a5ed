//! Pending Pods that the scheduler binds to new Nodes, and the removal of idle Nodes.

use anyhow::{Context as _, Result, ensure};
use e2e::{
    autoscaling::{Expander, Settings, record::Call},
    controllers::{
        groups::{Group, Workers},
        running::Autoscaling,
        testbed::{NODE_POOL, Testbed, pod_spec},
    },
    pool::Scalable,
    proto::{NodeGroupIncreaseSizeRequest, NodeGroupTemplateNodeInfoResponse},
    provider::Provider,
    wait::{SOON, eventually},
};
use kube::api::DynamicObject;
use serde_json::{Value, json};
use tonic::Code;

/// Only one of the groups fits such a Pod; it grows, the Pods run, and after their deletion it shrinks to zero.
pub(crate) async fn pods_bring_nodes_of_the_group_that_fits_and_idle_nodes_go(testbed: &Testbed) -> Result<()> {
    let cpu = |cpus| testbed.cpu(cpus, 16);
    let sizes = [("small", 2), ("big", 16)];
    let mut groups = Vec::new();
    for (name, cpus) in sizes {
        groups.push(workers(testbed, name).publishing(testbed.capacity(&cpu(cpus))).create(testbed).await?);
    }
    // The same size, but another label.
    let other = Workers::new("other").publishing(testbed.capacity(&cpu(16))).label(NODE_POOL, "other");
    let other = other.create(testbed).await?;
    let (small, big) = (&groups[0], &groups[1]);
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;

    // Two fit on a Node of 16 CPUs.
    for number in 0..3 {
        create_pod(testbed, &format!("web-{number}"), &cpu(6)).await?;
    }
    pods_run(testbed, &mut autoscaling, 3).await?;
    testbed.running(big, 2).await?;
    autoscaling.sizes(&[(&small.id, 0), (&big.id, 2), (&other.id, 0)]).await?;

    for number in 0..3 {
        testbed.workload.delete("Pod", &format!("web-{number}")).await?;
    }
    autoscaling.sizes(&[(&small.id, 0), (&big.id, 0), (&other.id, 0)]).await?;
    testbed.running(big, 0).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let increased = increases(&calls)?;
    ensure!(increased.iter().all(|request| request.id == big.id), "{increased:?}");
    ensure!(increased.iter().map(|request| request.delta).sum::<i32>() == 2, "{increased:?}");
    Ok(())
}

/// Annotations set the capacity of a Node, even if the infrastructure doesn't; a standalone MachineSet is a group like
/// any other.
pub(crate) async fn annotations_alone_bring_a_group_from_zero_and_back(testbed: &Testbed) -> Result<()> {
    let deployment = workers(testbed, "deployment").sized().bounds(0, 1).create(testbed).await?;
    let set = workers(testbed, "set").of(Scalable::MachineSet).sized().bounds(0, 1).create(testbed).await?;
    let mut autoscaling = testbed.autoscale(Settings::default()).await?;
    for number in 0..2 {
        create_pod(testbed, &format!("web-{number}"), &testbed.cpu(3, 4)).await?;
    }
    pods_run(testbed, &mut autoscaling, 2).await?;
    for group in [&deployment, &set] {
        testbed.running(group, 1).await?;
    }
    for number in 0..2 {
        testbed.workload.delete("Pod", &format!("web-{number}")).await?;
    }
    autoscaling.sizes(&[(&deployment.id, 0), (&set.id, 0)]).await?;
    for group in [&deployment, &set] {
        testbed.running(group, 0).await?;
    }
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let templates = calls.iter().filter(|call| call.name == "NodeGroupTemplateNodeInfo" && call.code == Code::Ok);
    let templates: Vec<NodeGroupTemplateNodeInfoResponse> = templates.map(Call::response).collect::<Result<_>>()?;
    ensure!(!templates.is_empty(), "no template was asked for");
    Ok(())
}

/// Two groups fit; the cheaper one is chosen, though it wastes more.
pub(crate) async fn the_cheaper_group_is_taken(testbed: &Testbed) -> Result<()> {
    let price = |workers: Workers, price: &str| workers.annotate(PRICE, price);
    let dear = price(workers(testbed, "dear").publishing(testbed.capacity("4")), "3.5").create(testbed).await?;
    let cheap = price(workers(testbed, "cheap").publishing(testbed.capacity("8")), "0.4").create(testbed).await?;
    let settings = Settings { expander: Expander::Price, ..Settings::default() };
    let mut autoscaling = testbed.autoscale(settings).await?;
    create_pod(testbed, "web", "3").await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    autoscaling.sizes(&[(&dear.id, 0), (&cheap.id, 1)]).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let prices = calls.iter().filter(|call| call.name == "PricingNodePrice" && call.code == Code::Ok).count();
    ensure!(prices >= 2, "{prices} prices were asked for");
    Ok(())
}

const PRICE: &str = "capacity.capi-autoscaler-provider.io/price-per-hour";

const ZONE: &str = "topology.kubernetes.io/zone";

/// The group that is spread over zones wastes fewer CPUs, so it would be chosen if its template had a zone. Only the
/// group whose Nodes were all in the zone fits.
pub(crate) async fn a_pod_with_a_zone_takes_the_group_that_is_all_there(testbed: &Testbed) -> Result<()> {
    let spread = workers(testbed, "spread").publishing(testbed.capacity(&testbed.cpu(4, 16))).replicas(2);
    let spread = spread.create(testbed).await?;
    let single = workers(testbed, "single").publishing(testbed.capacity(&testbed.cpu(16, 16))).replicas(1).bounds(0, 1);
    let single = single.create(testbed).await?;
    place(testbed, &spread, &["a", "b"]).await?;
    place(testbed, &single, &["a"]).await?;
    // Cluster Autoscaler would remember a Node that it has seen itself, with its zone.
    let provider = testbed.serve().await?;
    promises(&provider, &spread, None).await?;
    promises(&provider, &single, Some("a")).await?;
    for group in [&spread, &single] {
        testbed.objects.patch(group.kind, &group.name, json!({ "spec": { "replicas": 0 } })).await?;
        testbed.running(group, 0).await?;
    }
    promises(&provider, &single, Some("a")).await?;
    let mut autoscaling = testbed.autoscale_by(provider, Settings::default()).await?;
    create_pod_on(testbed, "web", &testbed.cpu(3, 16), json!({ ZONE: "a" })).await?;
    autoscaling.sizes(&[(&spread.id, 0), (&single.id, 1)]).await?;
    place(testbed, &single, &["a"]).await?;
    pods_run(testbed, &mut autoscaling, 1).await?;
    let Some(calls) = autoscaling.end().await? else { return Ok(()) };
    let increased = increases(&calls)?;
    ensure!(increased.len() == 1 && increased[0].id == single.id, "{increased:?}");
    Ok(())
}

/// Waits for as many Nodes of a group as there are zones, and labels each with one, as a cloud controller does.
async fn place(testbed: &Testbed, group: &Group, zones: &[&str]) -> Result<()> {
    let machines = testbed.running(group, zones.len()).await?;
    for (machine, zone) in machines.iter().zip(zones) {
        let node = machine.node.as_ref().context("a running Machine without a Node")?;
        let labels = json!({ "metadata": { "labels": { ZONE: zone } } });
        testbed.workload.patch("Node", node, labels).await?;
    }
    Ok(())
}

/// Waits until the template of a group has this zone, or none.
async fn promises(provider: &Provider, group: &Group, zone: Option<&str>) -> Result<()> {
    eventually(&format!("the zone of {}", group.id), SOON, async || {
        let labels = provider.template_node(&group.id).await?.metadata.unwrap_or_default().labels;
        let found = labels.get(ZONE).map(String::as_str);
        ensure!(found == zone, "it is {found:?}, expected {zone:?}: {labels:?}");
        Ok(())
    })
    .await
}

/// Returns the increases among recorded calls.
fn increases(calls: &[Call]) -> Result<Vec<NodeGroupIncreaseSizeRequest>> {
    calls.iter().filter(|call| call.name == "NodeGroupIncreaseSize").map(Call::request).collect()
}

/// Returns a group whose Nodes the scenario's Pods select.
pub(crate) fn workers(testbed: &Testbed, name: &str) -> Workers {
    Workers::new(name).label(NODE_POOL, testbed.mark())
}

/// Creates a Pod that requests this CPU.
pub(crate) async fn create_pod(testbed: &Testbed, name: &str, cpu: &str) -> Result<()> {
    create_pod_on(testbed, name, cpu, json!({})).await
}

/// Creates a Pod that requests this CPU, and a Node with these labels besides the scenario's own.
async fn create_pod_on(testbed: &Testbed, name: &str, cpu: &str, labels: Value) -> Result<()> {
    testbed.workload.create(pod_on(testbed, name, cpu, labels)).await?;
    Ok(())
}

/// Returns a Pod that requests this CPU, and a Node with these labels besides the scenario's own.
pub(crate) fn pod_on(testbed: &Testbed, name: &str, cpu: &str, mut labels: Value) -> Value {
    labels[NODE_POOL] = json!(testbed.mark());
    json!({
        "kind": "Pod",
        "metadata": { "name": name, "labels": { NODE_POOL: testbed.mark() } },
        "spec": pod_spec(cpu, &labels),
    })
}

/// Waits until all pods run.
pub(crate) async fn pods_run(testbed: &Testbed, autoscaling: &mut Autoscaling, count: usize) -> Result<()> {
    autoscaling
        .until("running pods", async || {
            let pods = pods(testbed).await?;
            let phases: Vec<_> = pods.iter().map(|pod| pod.data["status"]["phase"].clone()).collect();
            ensure!(phases.len() == count && phases.iter().all(|phase| phase == "Running"), "phases are {phases:?}");
            Ok(())
        })
        .await
}

/// Returns the names of the Nodes on which the scenario's Pods run.
pub(crate) async fn busy_nodes(testbed: &Testbed) -> Result<Vec<String>> {
    let pods = pods(testbed).await?;
    Ok(pods.iter().filter_map(|pod| pod.data["spec"]["nodeName"].as_str().map(str::to_owned)).collect())
}

/// Returns the scenario's Pods.
async fn pods(testbed: &Testbed) -> Result<Vec<DynamicObject>> {
    testbed.workload.list("Pod", &format!("{NODE_POOL}={}", testbed.mark())).await
}
