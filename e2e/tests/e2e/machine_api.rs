//! OpenShift's Machine API: MachineSets and Machines of `machine.openshift.io`, without Clusters and
//! MachineDeployments, in a single cluster.

use std::collections::HashMap;

use anyhow::{Result, ensure};
use e2e::{
    controllers::instances::instances,
    fixtures::{Recorded, load_machine_api},
    objects::MACHINE_API_GROUP,
    proto::{ExternalGrpcNode, instance_status::InstanceState},
    provider::Provider,
    wait::{SOON, eventually},
    world::World,
};
use serde_json::{Value, json};

const ZONE_A: &str = "prod-x7k2p-worker-eu-central-1a";
const ZONE_B: &str = "prod-x7k2p-worker-eu-central-1b";
const GPU: &str = "prod-x7k2p-gpu-eu-central-1a";
const HANDED_OVER: &str = "prod-x7k2p-worker-eu-central-1c";

/// A MachineSet under Cluster API's authority is no group, since its controller would do nothing.
pub(crate) async fn machine_sets_are_node_groups_and_nodes_lead_to_them(world: &World) -> Result<()> {
    let testbed = Testbed::new(world).await?;
    let provider = &testbed.provider;
    let groups: Vec<_> = provider.groups().await?.into_iter().map(|it| (it.id, it.min_size, it.max_size)).collect();
    assert_eq!(groups, [(testbed.id(GPU), 0, 4), (testbed.id(ZONE_A), 1, 6), (testbed.id(ZONE_B), 1, 6)]);
    ensure!(!groups.iter().any(|(id, ..)| *id == testbed.id(HANDED_OVER)));

    let group_of = async |node: &ExternalGrpcNode| anyhow::Ok(provider.group_of(node).await?.map(|group| group.id));
    let node = testbed.node("ip-10-0-1-11").await?;
    assert_eq!(group_of(&node).await?, Some(testbed.id(ZONE_A)));
    // By the annotation alone, which includes the namespace.
    let nameless = ExternalGrpcNode { provider_id: String::new(), ..node.clone() };
    assert_eq!(group_of(&nameless).await?, Some(testbed.id(ZONE_A)));
    let master = testbed.node("ip-10-0-1-31").await?;
    assert_eq!(group_of(&master).await?, None);
    let bare = ExternalGrpcNode { annotations: HashMap::new(), ..nameless };
    assert_eq!(group_of(&bare).await?, None);
    Ok(())
}

/// A MachineSet there replaces a Machine that is being deleted at once, so it is marked before the size is lowered.
pub(crate) async fn the_machine_named_is_marked_and_the_size_lowered(world: &World) -> Result<()> {
    let testbed = Testbed::new(world).await?;
    let (id, set) = (testbed.id(ZONE_A), testbed.recorded.name(ZONE_A));
    let machine = testbed.recorded.name(&format!("{ZONE_A}-9xk2m"));
    let node = testbed.node("ip-10-0-1-12").await?;
    testbed.provider.delete(&id, std::slice::from_ref(&node)).await?;
    assert_eq!(testbed.provider.target_size(&id).await?, 2);
    assert_eq!(world.objects.scale("MachineSet", &set).await?, 2);
    world.objects.assert_marked(&[&machine]).await?;

    // The controller deletes the marked Machine, and no longer counts it.
    world.objects.delete("Machine", &machine).await?;
    let seen = world.objects.get("MachineSet", &set).await?.metadata.generation;
    world.objects.patch_status("MachineSet", &set, json!({ "replicas": 2, "observedGeneration": seen })).await?;
    eventually("the Machine's instance is deleting", SOON, async || {
        let instances = instances(&testbed.provider, &id).await?;
        let instance = instances.get(&format!("deleting-machine-{}_{machine}", world.namespace));
        ensure!(instance == Some(&(InstanceState::InstanceDeleting, None)), "instances are {instances:?}");
        ensure!(instances.len() == 3, "instances are {instances:?}");
        Ok(())
    })
    .await?;
    // Naming it again during its deletion succeeds, and lowers no size.
    testbed.provider.delete(&id, std::slice::from_ref(&node)).await?;
    assert_eq!(world.objects.scale("MachineSet", &set).await?, 2);

    world.objects.patch("Machine", &machine, json!({ "metadata": { "finalizers": null } })).await?;

    // Its MachineSet doesn't count a Machine that another user deletes: a new one comes anyway, and no other may be
    // deleted for it.
    let other = testbed.recorded.name(&format!("{ZONE_A}-4hq8z"));
    world.objects.delete("Machine", &other).await?;
    let node = testbed.node("ip-10-0-1-11").await?;
    testbed.provider.delete(&id, &[node]).await?;
    assert_eq!(world.objects.scale("MachineSet", &set).await?, 2);
    Ok(())
}

/// Kinds that aren't served, and a scope that needs one of them.
pub(crate) async fn check_says_what_is_missing(world: &World) -> Result<()> {
    load_machine_api(world).await?;
    let group = [("CAPI_GROUP", MACHINE_API_GROUP)];
    let (code, report) = world.check(&[&world.scope()], &group)?;
    ensure!(code == Some(0), "check ends with {code:?}: {report:#}");
    let of = |report: &Value, check: &str, field: &str| -> Vec<String> {
        let checks = report["checks"].as_array().into_iter().flatten().filter(|it| it["check"] == check);
        checks.map(|it| it[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let read =
        "machine.openshift.io/v1beta1 is read; served are v1beta1, without Cluster, MachineDeployment, MachinePool";
    assert_eq!(of(&report, "cluster-api", "message"), [read]);
    assert_eq!(of(&report, "cluster-api", "status"), ["ok"]);
    let rights = of(&report, "right", "message");
    ensure!(rights.iter().any(|right| right.starts_with("patch machinesets.machine.openshift.io/scale")), "{rights:?}");
    ensure!(!rights.iter().any(|right| right.contains("clusters.") || right.contains("deployments")), "{rights:?}");
    ensure!(of(&report, "scope", "message")[0].starts_with("3 node groups: "), "{report:#}");

    let scope = format!("{},clusterName={}", world.scope(), world.cluster);
    let (_, report) = world.check(&[&scope], &group)?;
    let scope = of(&report, "scope", "message");
    let missing =
        format!("Cluster {}/{} isn't there: machine.openshift.io serves no Clusters", world.namespace, world.cluster);
    ensure!(scope[0].starts_with(&missing), "check says {scope:?}");
    let remedy = format!("--node-group-auto-discovery clusterapi:namespace={}", world.namespace);
    ensure!(of(&report, "scope", "remedy")[0].ends_with(&remedy), "{report:#}");

    // Without CAPI_GROUP it looks for Cluster API itself.
    let (code, report) = world.check(&[&world.scope()], &[])?;
    ensure!(code == Some(1), "check ends with {code:?}");
    let missing = of(&report, "cluster-api", "message");
    ensure!(missing[0].contains("doesn't serve the API group cluster.x-k8s.io"), "check says {missing:?}");
    ensure!(missing[0].contains("CAPI_GROUP"), "check says {missing:?}");
    Ok(())
}

/// The fixtures, and the program in the in-tree mode on OpenShift: in the cluster, with CAPI_GROUP.
struct Testbed<'a> {
    world: &'a World,
    recorded: Recorded,
    provider: Provider,
}

impl<'a> Testbed<'a> {
    async fn new(world: &'a World) -> Result<Self> {
        let recorded = load_machine_api(world).await?;
        let mut provider = world.spawn_bare(&[&world.scope()], &[("CAPI_GROUP", MACHINE_API_GROUP)])?;
        provider.ready().await?;
        let testbed = Self { world, recorded, provider };
        let ids = [GPU, ZONE_A, ZONE_B].map(|set| testbed.id(set));
        testbed.provider.shows(&ids.each_ref().map(String::as_str)).await?;
        Ok(testbed)
    }

    /// Returns the group id of a MachineSet.
    fn id(&self, set: &str) -> String {
        self.recorded.name(&format!("MachineSet/openshift-machine-api/{set}"))
    }

    /// Returns a Node as Cluster Autoscaler sends it.
    async fn node(&self, host: &str) -> Result<ExternalGrpcNode> {
        let name = self.recorded.name(&format!("{host}.prod-x7k2p.internal"));
        self.world.objects.node_as_sent(&name).await
    }
}
