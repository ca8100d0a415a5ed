//! The whole program in-process on a sandbox: Cluster API carries out a Cluster Autoscaler's requests, and the program
//! reports the results. The test drives the clock of the clusters.

mod clients;
mod traces;

use std::sync::Arc;

use proto::{ExternalGrpcNode, Instance, instance_status::InstanceState};
use rstest::rstest;
use sandbox::{
    Contract, SandboxOptions, Settings, Times,
    api::{DeleteOptions, PatchKind, Resource, Selection, Subresource},
    faults::{Fault, WatchFault},
    requests::Request,
};
use serde_json::{Value, json};
use testkit::{soon, until};
use tonic::Code;

use crate::world::{World, behaving, cluster, deployment, name};

const GROUP: &str = "MachineDeployment/team-a/workers";

/// Returns a group that scales from zero by its annotations.
fn workers(replicas: i64, behaviour: &str) -> Value {
    behaving(deployment("workers", replicas, json!({})), behaviour)
}

async fn start(contract: Contract, manifests: Vec<Value>) -> World {
    start_with(contract, manifests, &[]).await
}

/// The same with further flags.
async fn start_with(contract: Contract, manifests: Vec<Value>, further: &[&str]) -> World {
    let settings = Settings { contract, times: Times::default() };
    let options = SandboxOptions { settings, manifests, ..SandboxOptions::default() };
    let version = if contract == Contract::V1Beta1 { "v1beta1" } else { "v1beta2" };
    let own = ["--admin-listen=none", "--capi-version", version];
    let world = World::start(options, &[&own, further].concat(), |_| {}).await;
    until("in sync", async || world.client().await.refresh(proto::RefreshRequest {}).await.ok()).await;
    world
}

impl World {
    fn objects(&self, plural: &'static str) -> Vec<Arc<Value>> {
        let resource = Resource::new("cluster.x-k8s.io", self.version, plural);
        self.sandbox.management().api().list(&resource, &Selection::default()).unwrap()
    }

    fn machines(&self) -> Vec<String> {
        self.objects("machines").iter().map(|machine| name(machine)).collect()
    }

    async fn instances(&self) -> Vec<Instance> {
        let request = proto::NodeGroupNodesRequest { id: GROUP.to_owned() };
        self.client().await.node_group_nodes(request).await.unwrap().into_inner().instances
    }

    /// Waits until this number of instances is answered, all in this state.
    async fn until_instances(&self, count: usize, state: InstanceState) -> Vec<Instance> {
        until(&format!("{count} instances in {state:?}"), async || {
            let all = self.instances().await;
            let all_so = all.iter().all(|one| one.status.as_ref().unwrap().instance_state() == state);
            (all.len() == count && all_so).then_some(all)
        })
        .await
    }

    async fn increase(&self, delta: i32) -> Result<(), tonic::Status> {
        let request = proto::NodeGroupIncreaseSizeRequest { id: GROUP.to_owned(), delta };
        self.client().await.node_group_increase_size(request).await.map(|_| ())
    }

    async fn target_size(&self) -> i32 {
        let request = proto::NodeGroupTargetSizeRequest { id: GROUP.to_owned() };
        self.client().await.node_group_target_size(request).await.unwrap().into_inner().target_size
    }

    async fn options(&self) -> Option<proto::NodeGroupAutoscalingOptions> {
        let request = proto::NodeGroupAutoscalingOptionsRequest { id: GROUP.to_owned(), defaults: None };
        self.client().await.node_group_get_options(request).await.unwrap().into_inner().node_group_autoscaling_options
    }

    /// Changes the MachineDeployment as another user.
    fn change_workers(&self, patch: Value) {
        self.change("machinedeployments", "workers", patch);
    }

    async fn delete(&self, nodes: Vec<ExternalGrpcNode>) -> Result<(), tonic::Status> {
        let request = proto::NodeGroupDeleteNodesRequest { id: GROUP.to_owned(), nodes };
        self.client().await.node_group_delete_nodes(request).await.map(|_| ())
    }
}

/// Returns the reason and note of the Events on the node group.
fn events(world: &World) -> Vec<(String, String)> {
    world.events_on("workers")
}

/// Waits for an Event with this reason, and returns its note.
async fn until_event(world: &World, reason: &str) -> String {
    until(reason, async || events(world).into_iter().find(|event| event.0 == reason).map(|event| event.1)).await
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_group_scales_up_from_zero_and_the_named_node_goes(
    #[values(Contract::V1Beta1, Contract::V1Beta2)] contract: Contract,
) {
    let world = start(contract, vec![cluster(), workers(0, "")]).await;
    assert!(world.instances().await.is_empty());
    world.increase(3).await.unwrap();
    assert_eq!(world.target_size().await, 3);
    world.until_instances(3, InstanceState::InstanceCreating).await;
    assert!(world.nodes().is_empty());

    world.pass(60).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    let nodes = world.nodes();
    for node in &nodes {
        let request = proto::NodeGroupForNodeRequest { node: Some(node.clone()) };
        let group = world.client().await.node_group_for_node(request).await.unwrap().into_inner().node_group.unwrap();
        assert_eq!(group.id, GROUP);
    }

    // The first and the last stay: neither order nor age decides.
    world.delete(vec![nodes[1].clone()]).await.unwrap();
    assert_eq!(world.target_size().await, 2);
    world.pass(30).await;
    assert_eq!(world.machines(), [nodes[0].name.clone(), nodes[2].name.clone()]);
    let left = world.until_instances(2, InstanceState::InstanceRunning).await;
    let mut ids: Vec<_> = left.into_iter().map(|instance| instance.id).collect();
    ids.sort();
    assert_eq!(ids, [nodes[0].provider_id.clone(), nodes[2].provider_id.clone()]);
    world.stop().await;
}

#[rstest]
#[case::fails("fail", 99, Contract::V1Beta1)]
#[case::no_capacity("no-capacity", 1, Contract::V1Beta1)]
#[case::no_capacity("no-capacity", 1, Contract::V1Beta2)]
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_does_not_come_is_reported_with_the_class_of_its_error(
    #[case] behaviour: &str,
    #[case] class: i32,
    #[case] contract: Contract,
) {
    let world = start(contract, vec![cluster(), workers(0, behaviour)]).await;
    let grace = json!({ "capi-autoscaler-provider.io/capacity-error-grace": "0" });
    world.change_workers(json!({ "metadata": { "annotations": grace } }));
    world.increase(1).await.unwrap();
    world.pass(60).await;
    let error = until("an instance with an error", async || {
        world.instances().await.into_iter().find_map(|one| one.status?.error_info)
    })
    .await;
    assert_eq!(error.instance_error_class, class, "{error:?}");
    // Cluster Autoscaler then deletes the instance by its id.
    let id = world.instances().await.remove(0).id;
    let node = ExternalGrpcNode { name: id.clone(), provider_id: id, ..ExternalGrpcNode::default() };
    world.delete(vec![node]).await.unwrap();
    world.pass(30).await;
    assert!(world.machines().is_empty());
    world.stop().await;
}

/// Since Cluster API 1.11 nothing marks a failed Machine as hopeless.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_never_joins_stays_creating_without_an_error(#[values("never-join", "fail")] behaviour: &str) {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(0, behaviour)]).await;
    world.increase(1).await.unwrap();
    world.pass(100).await;
    let instances = world.until_instances(1, InstanceState::InstanceCreating).await;
    assert_eq!(instances[0].status.as_ref().unwrap().error_info, None);
    world.stop().await;
}

fn refused_writes() -> Fault {
    Fault::refuse(503, "ServiceUnavailable", "no leader").on_verb("patch").on_path("/scale").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_the_api_refuses_once_is_written_once() {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(1, "")]).await;
    let fault = world.sandbox.management().faults().add(refused_writes().times(1));
    world.increase(1).await.unwrap();
    assert_eq!(fault.hits(), 1);
    assert_eq!(world.objects("machinedeployments")[0]["spec"]["replicas"], 2);
    assert_eq!(world.target_size().await, 2);
    world.pass(60).await;
    world.until_instances(2, InstanceState::InstanceRunning).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_that_the_api_goes_on_refusing_is_an_error_and_can_be_asked_for_again() {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(1, "")]).await;
    let fault = world.sandbox.management().faults().add(refused_writes());
    let error = world.increase(1).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    assert_eq!(world.target_size().await, 1);
    fault.remove();
    world.increase(1).await.unwrap();
    assert_eq!(world.target_size().await, 2);
    assert_eq!(world.objects("machinedeployments")[0]["spec"]["replicas"], 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_during_a_cut_of_the_watches_are_seen_afterwards() {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(1, "")]).await;
    world.until_instances(1, InstanceState::InstanceRunning).await;
    let management = world.sandbox.management();
    let cut = Fault::watch(WatchFault::Cut).on_path("/machines").unwrap();
    let fault = management.faults().add(cut.times(3));
    let scale = json!({ "spec": { "replicas": 3 } });
    let deployments = Resource::new("cluster.x-k8s.io", "v1beta2", "machinedeployments");
    management.api().patch(&deployments, "team-a", "workers", PatchKind::Merge, Subresource::Main, scale).unwrap();
    world.pass(60).await;
    soon("a cut watch", fault.wait_for_hits(1)).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_read_asks_an_api() {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(2, "")]).await;
    world.until_instances(2, InstanceState::InstanceRunning).await;
    let apis = [world.sandbox.management(), world.sandbox.workload()];
    let followed = [
        (apis[0], ["clusters", "machinedeployments", "machinesets", "machines", "machinepools"].as_slice()),
        (apis[1], ["nodes"].as_slice()),
    ];
    for (api, plurals) in followed {
        // A watch is each informer's last request, with or without the initial list.
        for plural in plurals {
            let watched = |request: &Request| request.verb == "watch" && request.path.ends_with(plural);
            until(&format!("a watch of {plural}"), async || (api.requests().count(watched) > 0).then_some(())).await;
        }
        api.requests().clear();
    }
    let mut client = world.client().await;
    let id = GROUP.to_owned();
    for _ in 0..20 {
        client.refresh(proto::RefreshRequest {}).await.unwrap();
        client.node_groups(proto::NodeGroupsRequest {}).await.unwrap();
        client.gpu_label(proto::GpuLabelRequest {}).await.unwrap();
        client.get_available_gpu_types(proto::GetAvailableGpuTypesRequest {}).await.unwrap();
        world.target_size().await;
        world.instances().await;
        let template = proto::NodeGroupTemplateNodeInfoRequest { id: id.clone() };
        client.node_group_template_node_info(template).await.unwrap();
        for node in world.nodes() {
            client.node_group_for_node(proto::NodeGroupForNodeRequest { node: Some(node) }).await.unwrap();
        }
        let options = proto::NodeGroupAutoscalingOptionsRequest { id: id.clone(), defaults: None };
        client.node_group_get_options(options).await.unwrap();
    }
    for api in apis {
        assert_eq!(api.requests().all(), []);
    }
    world.stop().await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_delete_in_the_middle_of_a_rollout_is_refused_and_works_after_it(
    #[values(Contract::V1Beta1, Contract::V1Beta2)] contract: Contract,
) {
    let world = start(contract, vec![cluster(), workers(2, "")]).await;
    world.pass(60).await;
    world.until_instances(2, InstanceState::InstanceRunning).await;
    assert_eq!(world.options().await, None);

    world.change_workers(json!({ "spec": { "template": { "spec": { "version": "v1.36.0" } } } }));
    world.pass(0).await;
    let options = until("options that hold the Nodes", async || world.options().await).await;
    assert!(options.scale_down_utilization_threshold < 0.0);
    world.sandbox.management().requests().clear();
    let error = world.delete(vec![world.nodes().remove(0)]).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("is rolling out"), "{error}");
    assert!(until_event(&world, "ScaleDownRefused").await.contains("is rolling out"));
    let is_write = |request: &Request| {
        matches!(request.verb, "patch" | "update" | "delete") && !request.path.contains("events.k8s.io")
    };
    assert_eq!(world.sandbox.management().requests().count(is_write), 0);
    world.increase(1).await.unwrap();

    world.pass(600).await;
    until("no rollout", async || world.options().await.is_none().then_some(())).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    let node = world.nodes().remove(1);
    world.delete(vec![node.clone()]).await.unwrap();
    world.pass(60).await;
    assert_eq!(world.machines().len(), 2);
    assert!(!world.machines().contains(&node.name));
    let note = until_event(&world, "ScaledDown").await;
    assert!(note.starts_with(&format!("3→2: Machine {} (asked for by 127.0.0.1:", node.name)), "{note}");
    let note = until_event(&world, "ScaledUp").await;
    assert!(note.starts_with("2→3 (asked for by 127.0.0.1:"), "{note}");
    world.stop().await;
}

/// A MachineSet counts Machines that are being deleted as replicas, and takes them first for a smaller size: the one
/// that is held has no replacement before it is gone.
#[tokio::test(flavor = "multi_thread")]
async fn the_named_machine_goes_while_another_is_held_in_deletion() {
    let world = start(Contract::V1Beta2, vec![cluster(), workers(3, "")]).await;
    world.pass(60).await;
    world.until_instances(3, InstanceState::InstanceRunning).await;
    let (machines, nodes) = (world.machines(), world.nodes());
    let (api, resource) =
        (world.sandbox.management().api(), Resource::new("cluster.x-k8s.io", world.version, "machines"));
    let hook = json!({ "metadata": { "annotations": { "pre-drain.delete.hook.machine.cluster.x-k8s.io/test": "" } } });
    api.patch(&resource, "team-a", &machines[0], PatchKind::Merge, Subresource::Main, hook).unwrap();
    api.delete(&resource, "team-a", &machines[0], &DeleteOptions::default()).unwrap();

    world.delete(vec![nodes[2].clone()]).await.unwrap();
    assert_eq!(world.target_size().await, 2);
    until("the named one is gone", async || {
        world.pass(1).await;
        (!world.machines().contains(&machines[2])).then_some(())
    })
    .await;
    assert!(world.machines().contains(&machines[0]) && world.machines().contains(&machines[1]));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_minimum_size_a_machine_that_failed_is_replaced_and_the_next_one_waits() {
    let world = start(Contract::V1Beta1, vec![cluster(), workers(1, "fail")]).await;
    let min = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size";
    world.change_workers(json!({ "metadata": { "annotations": { min: "1" } } }));
    world.pass(60).await;
    let failed = async || {
        let instances = world.instances().await;
        let failed = instances.into_iter().find(|one| one.id.starts_with("failed-machine-"))?;
        Some(ExternalGrpcNode { name: failed.id.clone(), provider_id: failed.id, ..ExternalGrpcNode::default() })
    };
    let first = until("a failed Machine", failed).await;
    let before = world.machines();
    until("the bounds", async || world.delete(vec![first.clone()]).await.ok()).await;
    assert_eq!(world.target_size().await, 1);
    assert!(until_event(&world, "ReplacedFailedMachine").await.contains(&before[0]));

    world.pass(60).await;
    assert_ne!(world.machines(), before);
    assert_eq!(world.machines().len(), 1);
    let second = until("another one", async || failed().await.filter(|node| *node != first)).await;
    let error = world.delete(vec![second]).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert!(error.message().contains("the next can be at"), "{error}");
    world.stop().await;
}
