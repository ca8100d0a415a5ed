//! Tests of state that lasts across loops, with a scripted provider and a workload cluster in memory, in virtual time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use fastrand::Rng;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::{BodyExt as _, Full};
use k8s_pb::{
    api::core::v1::{Node, NodeStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use parking_lot::Mutex;
use prost::Message;
use proto::{
    ExternalGrpcNode, Instance, InstanceErrorInfo, InstanceStatus, NodeGroup, NodeGroupAutoscalingOptions,
    NodeGroupAutoscalingOptionsRequest, NodeGroupAutoscalingOptionsResponse, NodeGroupDecreaseTargetSizeRequest,
    NodeGroupDeleteNodesRequest, NodeGroupForNodeRequest, NodeGroupForNodeResponse, NodeGroupIncreaseSizeRequest,
    NodeGroupNodesRequest, NodeGroupNodesResponse, NodeGroupTargetSizeRequest, NodeGroupTargetSizeResponse,
    NodeGroupTemplateNodeInfoResponse, NodeGroupsResponse, instance_status::InstanceState,
};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tonic::{Status, body::Body};

use super::{Caller, Driver, Settings, TO_BE_DELETED, Version, Workload};
use crate::{
    api::{Api, DeleteOptions, Resource, Selection},
    clock::Clock,
    http::{InProcess, ServerSettings},
};

/// A group of the scripted provider: its state, and the outcome of commands to it.
#[derive(Clone, Default)]
struct Group {
    min: i32,
    max: i32,
    size: i32,
    instances: Vec<Instance>,
    /// True if increases fail.
    refuses: bool,
    /// The instance that an increase creates at once.
    shows: Option<&'static str>,
    /// True if a delete removes its instances at once.
    deletes: bool,
    /// The utilization threshold in its options, if they have one.
    threshold: Option<f64>,
    /// True if a decrease succeeds and changes nothing.
    keeps_size: bool,
}

/// A recorded call: the seconds since the start, and its text.
type Asked = (u64, String);

struct State {
    groups: BTreeMap<String, Group>,
    asked: Vec<Asked>,
    start: Instant,
}

#[derive(Clone)]
struct World {
    state: Arc<Mutex<State>>,
    workload: Api,
}

fn creating(id: &str, error: Option<&str>) -> Instance {
    let error_info = error.map(|code| InstanceErrorInfo {
        error_code: code.to_owned(),
        error_message: code.to_owned(),
        instance_error_class: 1,
    });
    let status = InstanceStatus { instance_state: InstanceState::InstanceCreating.into(), error_info };
    Instance { id: id.to_owned(), status: Some(status) }
}

/// Returns a Node of a group, old enough for every age limit.
fn node(group: &str, name: &str, ready: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": { "group": group }, "creationTimestamp": "2020-01-01T00:00:00Z" },
        "spec": { "providerID": format!("fake:///{name}") },
        "status": {
            "allocatable": { "cpu": "4" },
            "conditions": [{ "type": "Ready", "status": if ready { "True" } else { "False" } }],
        },
    })
}

/// Returns a Pod that is pending, or on a Node. It may be evicted unless its name contains "stays".
fn pod(name: &str, cpu: &str, node: Option<&str>) -> Value {
    let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable" });
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "apps", "creationTimestamp": "2020-01-01T00:00:00Z",
            "annotations": { "cluster-autoscaler.kubernetes.io/safe-to-evict": (!name.contains("stays")).to_string() },
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{ "name": "app", "image": "app", "resources": { "requests": { "cpu": cpu } } }],
        },
        "status": { "conditions": if node.is_none() { vec![condition] } else { Vec::new() } },
    })
}

impl World {
    fn new(groups: impl IntoIterator<Item = (&'static str, Group)>) -> Self {
        let groups = groups.into_iter().map(|(id, group)| (id.to_owned(), group)).collect();
        let workload = Api::new(Clock::real());
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "apps" } });
        workload.load_values(vec![namespace]).unwrap();
        let state = State { groups, asked: Vec::new(), start: Instant::now() };
        Self { state: Arc::new(Mutex::new(state)), workload }
    }

    fn has(&self, objects: impl IntoIterator<Item = Value>) {
        self.workload.load_values(objects.into_iter().collect()).unwrap();
    }

    /// Starts a Cluster Autoscaler of version 1.`minor`.
    fn start(&self, minor: u32, settings: Settings) -> JoinHandle<()> {
        let workload = Workload::new(self.client());
        let driver = Driver::new(self.caller(), workload, Version::new(minor, 2), settings, Rng::with_seed(1), |_| {});
        tokio::spawn(driver.run())
    }

    fn client(&self) -> kube::Client {
        let api = InProcess::new(self.workload.clone(), ServerSettings::default());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await?;
                let answer = api.answer(parts, body).map(|body| body.map_err(tower::BoxError::from));
                Ok::<_, tower::BoxError>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Returns the recorded calls that begin with one of these names.
    fn asked(&self, names: &[&str]) -> Vec<Asked> {
        let asked = self.state.lock().asked.clone();
        asked.into_iter().filter(|(_, what)| names.iter().any(|name| what.starts_with(name))).collect()
    }

    /// Returns the recorded commands in order, without times.
    fn commands(&self) -> Vec<String> {
        self.asked(&["increase", "decrease", "delete"]).into_iter().map(|(_, what)| what).collect()
    }

    fn change(&self, group: &str, change: impl FnOnce(&mut Group)) {
        self.state.lock().groups.get_mut(group).map(change).unwrap();
    }

    fn names(&self, kind: &'static str) -> Vec<String> {
        let objects = self.workload.list(&Resource::core(kind), &Selection::default()).unwrap();
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn tainted(&self) -> Vec<String> {
        let nodes = self.workload.list(&Resource::core("nodes"), &Selection::default()).unwrap();
        let is_tainted = |node: &Value| {
            let taints = node["spec"]["taints"].as_array();
            taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TO_BE_DELETED))
        };
        let tainted = nodes.iter().filter(|node| is_tainted(node));
        tainted.map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn note(&self, what: impl Into<String>) {
        let mut state = self.state.lock();
        let at = state.start.elapsed().as_secs();
        state.asked.push((at, what.into()));
    }

    fn of(&self, id: &str) -> Result<Group, Status> {
        self.state.lock().groups.get(id).cloned().ok_or_else(|| Status::not_found(id.to_owned()))
    }

    /// Finds the group by the Node's label, or by an instance with its providerID.
    fn group_of(&self, node: &ExternalGrpcNode) -> Option<NodeGroup> {
        let state = self.state.lock();
        let has = |group: &Group| group.instances.iter().any(|instance| instance.id == node.provider_id);
        let (id, group) = state.groups.iter().find(|(id, group)| node.labels.get("group") == Some(id) || has(group))?;
        Some(listed(id, group))
    }
}

fn listed(id: &str, group: &Group) -> NodeGroup {
    NodeGroup { id: id.to_owned(), min_size: group.min, max_size: group.max, debug: String::new() }
}

/// Returns settings whose times are easy to distinguish.
fn settings() -> Settings {
    let seconds = Duration::from_secs;
    Settings {
        unneeded: seconds(60),
        unready: seconds(120),
        provision: seconds(100),
        delay_after_add: seconds(200),
        delay_after_taint: seconds(1),
        recheck: seconds(30),
        drain: seconds(50),
        ..Settings::default()
    }
}

impl World {
    /// Returns a caller of the provider, whose answers have one message each.
    fn caller(&self) -> Caller {
        let world = self.clone();
        Caller::new(tower::service_fn(move |request: http::Request<Body>| {
            let world = world.clone();
            async move {
                let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                let request = request.into_body().collect().await?.to_bytes();
                // A message comes after a flag and its length.
                let message = match world.answer(&call, request.slice(5..)) {
                    Err(status) => return Ok(status.into_http()),
                    Ok(message) => message,
                };
                let length = u32::try_from(message.len()).unwrap().to_be_bytes();
                let framed = Bytes::from([&[0], &length[..], &message].concat());
                let done = HeaderMap::from_iter([(HeaderName::from_static("grpc-status"), HeaderValue::from(0))]);
                let body = Full::new(framed).with_trailers(async move { Some(Ok(done)) });
                Ok::<_, Status>(http::Response::new(Body::new(body)))
            }
        }))
    }

    fn answer(&self, call: &str, request: Bytes) -> Result<Vec<u8>, Status> {
        let answer = match call {
            "NodeGroups" => {
                let node_groups = self.state.lock().groups.iter().map(|(id, group)| listed(id, group)).collect();
                NodeGroupsResponse { node_groups }.encode_to_vec()
            }
            "NodeGroupForNode" => {
                let node = NodeGroupForNodeRequest::decode(request).unwrap().node.unwrap_or_default();
                NodeGroupForNodeResponse { node_group: self.group_of(&node) }.encode_to_vec()
            }
            "NodeGroupTargetSize" => {
                let target_size = self.of(&NodeGroupTargetSizeRequest::decode(request).unwrap().id)?.size;
                NodeGroupTargetSizeResponse { target_size }.encode_to_vec()
            }
            "NodeGroupNodes" => {
                let instances = self.of(&NodeGroupNodesRequest::decode(request).unwrap().id)?.instances;
                NodeGroupNodesResponse { instances }.encode_to_vec()
            }
            "NodeGroupIncreaseSize" => {
                let NodeGroupIncreaseSizeRequest { delta, id } = Message::decode(request).unwrap();
                self.note(format!("increase {id} by {delta}"));
                if self.of(&id)?.refuses {
                    return Err(Status::internal("refused"));
                }
                self.change(&id, |group| {
                    group.size += delta;
                    group.instances.extend(group.shows.map(|id| creating(id, None)));
                });
                Vec::new()
            }
            "NodeGroupDeleteNodes" => {
                let NodeGroupDeleteNodesRequest { nodes, id } = Message::decode(request).unwrap();
                let mut names: Vec<_> = nodes.into_iter().map(|node| node.name).collect();
                names.sort_unstable();
                self.note(format!("delete {} of {id}", names.join(" ")));
                if !self.of(&id)?.deletes {
                    return Err(Status::failed_precondition("refused"));
                }
                self.change(&id, |group| {
                    group.size -= i32::try_from(names.len()).unwrap();
                    group.instances.retain(|instance| !names.contains(&instance.id));
                });
                Vec::new()
            }
            "NodeGroupDecreaseTargetSize" => {
                let NodeGroupDecreaseTargetSizeRequest { delta, id } = Message::decode(request).unwrap();
                self.note(format!("decrease {id} by {delta}"));
                self.change(&id, |group| {
                    if !group.keeps_size {
                        group.size += delta;
                        group.instances.clear();
                    }
                });
                Vec::new()
            }
            "NodeGroupTemplateNodeInfo" => {
                let allocatable = [("cpu".to_owned(), Quantity { string: Some("4".to_owned()) })].into();
                let status = NodeStatus { allocatable, ..NodeStatus::default() };
                let node = Bytes::from(Node { status: Some(status), ..Node::default() }.encode_to_vec());
                NodeGroupTemplateNodeInfoResponse { node_info: node.clone(), node_bytes: node }.encode_to_vec()
            }
            "NodeGroupGetOptions" => {
                let NodeGroupAutoscalingOptionsRequest { id, defaults } = Message::decode(request).unwrap();
                self.note(format!("options of {id}"));
                let own = |threshold| NodeGroupAutoscalingOptions {
                    scale_down_utilization_threshold: threshold,
                    ..defaults.unwrap_or_default()
                };
                let node_group_autoscaling_options = self.of(&id)?.threshold.map(own);
                NodeGroupAutoscalingOptionsResponse { node_group_autoscaling_options }.encode_to_vec()
            }
            "GPULabel" | "GetAvailableGPUTypes" | "Refresh" => Vec::new(),
            _ => return Err(Status::unimplemented(call.to_owned())),
        };
        Ok(answer)
    }
}

async fn seconds(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

fn group(min: i32, size: i32) -> Group {
    Group { min, max: 10, size, deletes: true, ..Group::default() }
}

/// Some versions revert an increase that brings no Node within the provision time, others delete its instance. All of
/// them back off the group.
#[rstest]
#[case(33, "delete pending of a")]
#[case(35, "delete pending of a")]
#[case(36, "decrease a by -1")]
#[case(37, "decrease a by -1")]
#[tokio::test(start_paused = true)]
async fn an_increase_that_takes_too_long_is_taken_back(#[case] minor: u32, #[case] expected: &str) {
    let world = World::new([("a", group(0, 0))]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(5).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    world.change("a", |group| group.instances = vec![creating("pending", None)]);
    seconds(90).await;
    assert_eq!(world.commands().len(), 1, "it comes");
    seconds(40).await;
    assert_eq!(world.commands()[1], expected);
    seconds(280).await;
    let increases = world.asked(&["increase"]).len();
    assert_eq!(increases, 1, "it is backed off: {:?}", world.commands());
    seconds(60).await;
    assert_eq!(world.asked(&["increase"]).len(), 2);
}

/// Since 1.36 an increase counts as finished once its instances are past their provision time. If the instance exists
/// in the loop right after the increase, both times end in one loop, and the group is never backed off.
#[rstest]
#[case::up_to_1_35(35, false, true)]
#[case::since_1_36(36, false, false)]
#[case::of_1_37(37, false, false)]
#[case::with_an_id_that_changes(36, true, true)]
#[case::of_1_37_with_an_id_that_changes(37, true, true)]
#[tokio::test(start_paused = true)]
async fn an_instance_that_is_there_at_once_hides_that_its_increase_took_too_long(
    #[case] minor: u32,
    #[case] id_changes: bool,
    #[case] backs_off: bool,
) {
    let world = World::new([("a", Group { shows: Some("new-pending"), ..group(0, 0) })]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(60).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    if id_changes {
        world.change("a", |group| group.instances = vec![creating("pending", None)]);
    }
    // After the provision time, and another one for the instance with the other id.
    seconds(200).await;
    let increases = world.asked(&["increase"]).len();
    assert_eq!(increases == 1, backs_off, "{:?}", world.commands());
}

#[tokio::test(start_paused = true)]
async fn another_group_takes_over_from_one_whose_instances_fail() {
    let world = World::new([("a", Group { max: 1, deletes: false, ..group(0, 0) }), ("b", group(0, 0))]);
    world.has([pod("web", "3", None)]);
    world.change("b", |group| group.max = 0);
    world.start(36, settings());
    seconds(5).await;
    assert_eq!(world.commands(), ["increase a by 1"]);
    world.change("b", |group| group.max = 1);
    world.change("a", |group| group.instances = vec![creating("failed", Some("NoCapacity"))]);
    seconds(20).await;
    let commands = world.commands();
    assert!(commands.contains(&"increase b by 1".to_owned()), "{commands:?}");
    let deletes = commands.iter().filter(|command| *command == "delete failed of a").count();
    assert!(deletes > 1, "what is refused is named in every loop: {commands:?}");
}

#[tokio::test(start_paused = true)]
async fn a_size_is_corrected_once_it_was_wrong_for_as_long_as_a_node_may_take() {
    let world = World::new([("a", group(2, 2))]);
    world.has([node("a", "first", true)]);
    world.start(36, settings());
    seconds(95).await;
    assert!(world.commands().is_empty(), "{:?}", world.commands());
    seconds(30).await;
    assert_eq!(world.commands(), ["decrease a by -1"]);
    // An instance that is expected to become a Node is waited for.
    let other = World::new([("a", Group { instances: vec![creating("second", None)], ..group(2, 2) })]);
    other.has([node("a", "first", true)]);
    other.start(36, settings());
    seconds(300).await;
    assert!(other.commands().is_empty(), "{:?}", other.commands());
}

#[tokio::test(start_paused = true)]
async fn instances_without_a_node_are_given_up_as_far_as_the_minimum_allows() {
    let instances = vec![creating("x", None), creating("y", None)];
    let world = World::new([("a", Group { instances, ..group(2, 3) })]);
    world.has([node("a", "first", true), pod("web", "3", Some("first"))]);
    world.start(36, settings());
    seconds(95).await;
    assert!(world.commands().is_empty(), "{:?}", world.commands());
    seconds(300).await;
    let commands = world.commands();
    assert!(commands == ["delete x of a"] || commands == ["delete y of a"], "{commands:?}");
}

#[tokio::test(start_paused = true)]
async fn unneeded_nodes_go_in_parallel_down_to_the_minimum() {
    let world = World::new([("a", group(1, 4))]);
    world.has(["n1", "n2", "n3", "n4"].map(|name| node("a", name, true)));
    world.start(36, settings());
    seconds(58).await;
    assert!(world.commands().is_empty());
    assert!(world.tainted().is_empty());
    seconds(15).await;
    let asked = world.asked(&["delete"]);
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked.iter().all(|(at, _)| *at == asked[0].0), "{asked:?}");
    assert_eq!(world.tainted().len(), 3);
    seconds(300).await;
    assert_eq!(world.asked(&["delete"]).len(), 3);
}

#[rstest]
#[case::moves("web", &["delete n1 of a"])]
#[case::stays("web-stays", &[])]
#[tokio::test(start_paused = true)]
async fn a_node_that_is_used_little_is_drained_first(#[case] name: &str, #[case] expected: &[&str]) {
    let world = World::new([("a", group(0, 2))]);
    world.has([node("a", "n1", true), node("a", "n2", true)]);
    world.has([pod(name, "1", Some("n1")), pod("busy", "3", Some("n2"))]);
    world.start(36, settings());
    seconds(100).await;
    assert_eq!(world.commands(), expected);
    assert_eq!(world.names("pods").contains(&name.to_owned()), expected.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_for_a_while_after_an_increase() {
    let world = World::new([("a", group(0, 1)), ("b", Group { max: 1, ..group(0, 0) })]);
    world.change("a", |group| group.max = 1);
    world.has([node("a", "n1", true), pod("busy", "3", Some("n1"))]);
    world.start(36, settings());
    seconds(5).await;
    world.has([pod("web", "3", None)]);
    seconds(10).await;
    assert_eq!(world.commands(), ["increase b by 1"]);
    world.has([node("b", "n2", true)]);
    let delete = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    for name in ["busy", "web"] {
        world.workload.delete(&Resource::core("pods"), "apps", name, &delete).unwrap();
    }
    seconds(170).await;
    assert_eq!(world.commands().len(), 1, "{:?}", world.commands());
    seconds(50).await;
    assert_eq!(world.commands().len(), 3, "{:?}", world.commands());
}

#[tokio::test(start_paused = true)]
async fn old_taints_are_taken_off_before_the_first_refresh_and_never_again() {
    let taint = || json!([{ "key": TO_BE_DELETED, "value": "1", "effect": "NoSchedule" }]);
    let tainted = |group: &str, name: &str| {
        let mut node = node(group, name, true);
        node["spec"]["taints"] = taint();
        node
    };
    let world = World::new([("a", group(1, 1))]);
    world.has([tainted("a", "ours"), tainted("other", "theirs")]);
    let first = world.start(36, Settings { pause: Duration::from_secs(60), ..settings() });
    seconds(1).await;
    assert_eq!(world.tainted(), ["theirs"]);
    world.has([tainted("a", "new")]);
    seconds(600).await;
    assert_eq!(world.tainted(), ["new", "theirs"]);
    first.abort();
    world.start(36, settings());
    seconds(1).await;
    assert_eq!(world.tainted(), ["theirs"]);
}

#[rstest]
#[case::most(4, true)]
#[case::few(3, false)]
#[tokio::test(start_paused = true)]
async fn nothing_is_scaled_while_too_many_nodes_are_broken(#[case] broken: usize, #[case] stops: bool) {
    let world = World::new([("a", Group { max: 20, ..group(0, 8) })]);
    world.has((0..8).map(|number| node("a", &format!("n{number}"), number >= broken)));
    world.has((0..8).map(|number| pod(&format!("p{number}-stays"), "3", Some(&format!("n{number}")))));
    world.has([pod("web", "3", None)]);
    world.start(36, settings());
    seconds(30).await;
    assert_eq!(world.commands().is_empty(), stops, "{:?}", world.commands());
}

/// Up to 1.35, Nodes that a group lacks for its size count as free capacity even without an increase under way.
#[rstest]
#[case(35, true)]
#[case(36, false)]
#[tokio::test(start_paused = true)]
async fn nodes_that_nobody_waits_for_hold_pods_back_in_some_versions(#[case] minor: u32, #[case] holds: bool) {
    let world = World::new([("a", Group { instances: vec![creating("x", None)], ..group(0, 1) })]);
    world.has([pod("web", "3", None)]);
    world.start(minor, settings());
    seconds(60).await;
    assert_eq!(world.asked(&["increase"]).is_empty(), holds);
}

/// Options that keep a Node reset its unneeded time only in loops that reach the search for unneeded Nodes. A loop that
/// corrects a size fetches the options too but resets nothing: the first options that don't keep the Node remove it.
#[rstest]
#[case::loops_that_come_to_their_end(35, false)]
#[case::loops_that_correct_a_size(35, true)]
#[case::loops_of_1_37_that_correct_a_size(37, true)]
#[tokio::test(start_paused = true)]
async fn options_that_keep_a_node_restart_its_time_only_where_loops_come_to_their_end(
    #[case] minor: u32,
    #[case] corrects: bool,
) {
    let incorrect = Group { keeps_size: true, ..group(1, 1 + i32::from(corrects)) };
    let world = World::new([("a", group(0, 1)), ("b", incorrect)]);
    world.has([node("a", "n1", true), node("b", "n2", true)]);
    world.has([pod("busy", "3", Some("n1")), pod("other", "3", Some("n2"))]);
    world.start(minor, settings());
    seconds(80).await;
    let delete = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
    world.workload.delete(&Resource::core("pods"), "apps", "busy", &delete).unwrap();
    seconds(35).await;
    assert_eq!(!world.asked(&["decrease b"]).is_empty(), corrects);
    world.change("a", |group| group.threshold = Some(-1.0));
    seconds(75).await;
    let kept = world.asked(&["options of a"]).into_iter().filter(|(at, _)| (120..190).contains(at));
    assert!(kept.count() > 3, "the options that keep it were asked for");
    assert!(world.asked(&["delete"]).is_empty(), "{:?}", world.commands());
    world.change("b", |group| group.size = 1);
    world.change("a", |group| group.threshold = None);
    seconds(45).await;
    assert_eq!(world.asked(&["delete n1 of a"]).len(), usize::from(corrects), "{:?}", world.commands());
    seconds(60).await;
    assert_eq!(world.asked(&["delete n1 of a"]).len(), 1, "it goes at last: {:?}", world.commands());
}
