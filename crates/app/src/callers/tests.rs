//! Tests of a fleet's callers: each one has its own Cluster and nothing else, whatever its certificate names and
//! whichever group it asks for. The workload clusters are reached by real connections, and so the clock is real.
use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use prometheus_client::{encoding::text::encode, registry::Registry};
use rules::GroupId;
use serde_json::{Value, json};
use testkit::{CapturedLog, Wait};
use tokio::runtime::Handle;
use tonic::{Code, Request, Status};

use super::{unexpected::asked_for, *};
use crate::{Provider, ProviderOptions};
use cluster::{
    FleetOptions, Serve,
    fake::{FakeApi, NAMESPACE, scalable},
};
use connect::NodeAccess;
use index::{GroupSeries, objects};
use page::state::{ClusterStanding, FleetCluster, FleetState, Program, Selection, Source, State};
use proto::cloud_provider_server::CloudProvider as _;
use scale::traces::Traces;
use service::listen::{AdminPages as _, CheckState, Checks as _, Connection, DebugError};

const STAGE: &str = "spiffe://prod.example/ns/team-a/cluster/stage";
const OTHER: &str = "spiffe://prod.example/ns/team-a/cluster/other";
const OWN: &str = "spiffe://prod.example/ns/team-a/cluster/own";
const STAGE_WORKERS: &str = "MachineDeployment/team-a/stage-workers";
const OTHER_WORKERS: &str = "MachineDeployment/team-a/other-workers";
const OWN_WORKERS: &str = "MachineDeployment/team-a/own-workers";
const NO_WORKERS: &str = "MachineDeployment/team-a/no-such-group";
const LIMIT: Duration = Duration::from_secs(30);

struct World {
    api: FakeApi,
    provider: Provider,
    registry: Registry,
}

fn labelled() -> Value {
    json!({"metadata": {"labels": {"autoscaler": "fleet"}}})
}

/// Returns the caller with the certificate of these URIs.
fn caller(uris: &[&str]) -> Connection {
    let uri = if let [uri] = uris { Some((*uri).into()) } else { None };
    let name = uris.first().copied().unwrap_or("cluster-autoscaler");
    Connection::of(Client { name: name.into(), uri, ..Client::default() })
}

fn asked_by<T>(connection: &Connection, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(connection.clone());
    request
}

impl World {
    /// Starts to serve `team-a/stage` and `team-a/other`. The Clusters `team-a/own` and `team-b/stage` aren't selected.
    async fn start() -> Self {
        let api = FakeApi::with_capi();
        Self::over(api).await
    }

    async fn over(api: FakeApi) -> Self {
        for (namespace, name, cluster) in [
            (NAMESPACE, "stage", labelled()),
            (NAMESPACE, "other", labelled()),
            (NAMESPACE, "own", json!({})),
            ("team-b", "stage", json!({})),
        ] {
            api.put_in(namespace, "clusters", name, &cluster);
            let group = scalable(&json!({"spec": {"clusterName": name}}));
            api.put_in(namespace, "machinedeployments", &format!("{name}-workers"), &group);
            let workload = FakeApi::default();
            let node = json!({"spec": {"providerID": format!("cloud:///{namespace}/{name}")}});
            workload.put_in("", "nodes", &format!("{name}-node"), &node);
            let address = workload.serve().await;
            api.put_kubeconfig(namespace, name, address);
            let machine = json!({
                "metadata": {"ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": format!("{name}-set"),
                    "controller": true,
                }]},
                "spec": {"clusterName": name, "providerID": format!("cloud:///{namespace}/{name}")},
                "status": {"phase": "Running", "nodeRef": {"name": format!("{name}-node")}},
            });
            let set = json!({
                "metadata": {"ownerReferences": [{
                    "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineDeployment",
                    "name": format!("{name}-workers"), "controller": true,
                }]},
                "spec": {"clusterName": name},
            });
            api.put_in(namespace, "machinesets", &format!("{name}-set"), &set);
            api.put_in(namespace, "machines", &format!("{name}-machine"), &machine);
        }
        let selector = "autoscaler=fleet".parse().unwrap();
        let serve = Serve::Selected { selector, namespaces: None, nodes: NodeAccess::default() };
        let informers = shared_informer::Settings::default();
        let options = ProviderOptions {
            serve,
            reading: FleetOptions { informers, ..FleetOptions::of_many(objects::rules(), LIMIT) },
            trust_domain: Some("prod.example".parse().unwrap()),
            group_series: GroupSeries::SumsOnly,
            events: None,
            slow_rpc: LIMIT,
            scale: ScaleOptions::default(),
        };
        let mut registry = Registry::default();
        let tasks = Spawner::from(Handle::current());
        let provider = Provider::start(api.clients(), options, Traces::default(), &mut registry, &tasks);
        Self { api, provider, registry }
    }

    /// Starts, and waits until all selected Clusters are in sync.
    async fn synced() -> Self {
        let world = Self::start().await;
        world.until_synced().await;
        for uri in [STAGE, OTHER] {
            world.refresh(&caller(&[uri])).await.unwrap();
        }
        world
    }

    async fn until_synced(&self) {
        let checks = || self.provider.fleet.checks();
        let state = || format!("{:?}", checks());
        let are_served = || [STAGE, OTHER].into_iter().all(|uri| self.is_served(&caller(&[uri])));
        let wait = Wait::new("all Clusters").within(LIMIT).showing(&state);
        wait.condition(|| {
            are_served() && checks().iter().all(|check| check.state == CheckState::Ready && check.reason.is_none())
        })
        .await;
    }

    /// Returns true if a caller's loop may begin, once its Cluster is in sync.
    fn is_served(&self, caller: &Connection) -> bool {
        let admission: &dyn service::Admission = &*self.provider.callers;
        admission.admit(Some(caller.client()), service::Access::Begin).is_ok()
    }

    /// Waits until a Cluster that had opted out is served again, without its pause.
    async fn until_served_again(&self, caller: &Connection) {
        tokio::time::pause();
        Wait::new("the opt-in").within(LIMIT).condition(|| self.is_served(caller)).await;
        tokio::time::resume();
    }

    async fn refresh(&self, caller: &Connection) -> Result<(), Status> {
        self.provider.service.refresh(asked_by(caller, proto::RefreshRequest {})).await.map(drop)
    }

    async fn groups(&self, caller: &Connection) -> Result<Vec<String>, Status> {
        let answer = self.provider.service.node_groups(asked_by(caller, proto::NodeGroupsRequest {})).await?;
        Ok(answer.into_inner().node_groups.into_iter().map(|group| group.id).collect())
    }

    async fn group_of(&self, caller: &Connection, node: &str, provider_id: &str) -> Result<String, Status> {
        let node = proto::ExternalGrpcNode {
            name: node.to_owned(),
            provider_id: provider_id.to_owned(),
            ..proto::ExternalGrpcNode::default()
        };
        let request = proto::NodeGroupForNodeRequest { node: Some(node) };
        let answer = self.provider.service.node_group_for_node(asked_by(caller, request)).await?;
        Ok(answer.into_inner().node_group.unwrap_or_default().id)
    }

    async fn target_size(&self, caller: &Connection, id: &str) -> Result<i32, Status> {
        let request = proto::NodeGroupTargetSizeRequest { id: id.to_owned() };
        let answer = self.provider.service.node_group_target_size(asked_by(caller, request)).await?;
        Ok(answer.into_inner().target_size)
    }

    async fn increase(&self, caller: &Connection, id: &str) -> Result<(), Status> {
        let request = proto::NodeGroupIncreaseSizeRequest { delta: 1, id: id.to_owned() };
        self.provider.service.node_group_increase_size(asked_by(caller, request)).await.map(drop)
    }

    /// Makes each call about a group, and returns their errors.
    async fn errors_of(&self, caller: &Connection, id: &str) -> Vec<Status> {
        let service = &self.provider.service;
        let id = || id.to_owned();
        let node = proto::ExternalGrpcNode { name: "other-node".to_owned(), ..proto::ExternalGrpcNode::default() };
        macro_rules! error {
            ($rpc:ident, $request:expr) => {
                service.$rpc(asked_by(caller, $request)).await.unwrap_err()
            };
        }
        vec![
            error!(node_group_target_size, proto::NodeGroupTargetSizeRequest { id: id() }),
            error!(node_group_increase_size, proto::NodeGroupIncreaseSizeRequest { delta: 1, id: id() }),
            error!(node_group_nodes, proto::NodeGroupNodesRequest { id: id() }),
            error!(node_group_template_node_info, proto::NodeGroupTemplateNodeInfoRequest { id: id() }),
            error!(node_group_get_options, proto::NodeGroupAutoscalingOptionsRequest { id: id(), defaults: None }),
            error!(node_group_decrease_target_size, proto::NodeGroupDecreaseTargetSizeRequest { delta: -1, id: id() }),
            error!(node_group_delete_nodes, proto::NodeGroupDeleteNodesRequest { nodes: vec![node], id: id() }),
        ]
    }

    /// Returns the number of requests for the size of a MachineDeployment of the namespace.
    fn asks_of_size(&self, name: &str) -> usize {
        let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machinedeployments/{name}");
        self.api.asks(&path) + self.api.asks(&format!("{path}/scale"))
    }

    fn metrics(&self) -> String {
        encoded(&self.registry)
    }

    fn source(&self) -> Source {
        let program = Program::new(Timestamp::UNIX_EPOCH, "");
        Source::new(self.provider.fleet.clone(), Arc::clone(&self.provider.callers) as _, None, program)
    }

    fn shown(&self, name: &str) -> Option<FleetCluster> {
        self.source().read().clusters.into_iter().find(|cluster| cluster.name == name)
    }

    /// Returns the value of a Cluster's series.
    fn series(&self, metric: &str, cluster: &str) -> Option<f64> {
        let series = format!("fleet_cluster_{metric}{{workload_cluster=\"{cluster}\"}} ");
        self.metrics().lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().unwrap())
    }

    async fn end(self) {
        self.provider.drain(LIMIT).await.unwrap();
        tokio::time::timeout(LIMIT, self.provider.shutdown()).await.unwrap();
    }
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    encode(&mut text, registry).unwrap();
    text
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

fn codes(errors: &[Status]) -> Vec<Code> {
    errors.iter().map(Status::code).collect()
}

#[tokio::test]
async fn each_caller_has_the_groups_and_nodes_of_its_cluster_alone() {
    let world = World::synced().await;
    for (uri, name, groups) in [(STAGE, "stage", [STAGE_WORKERS]), (OTHER, "other", [OTHER_WORKERS])] {
        let caller = caller(&[uri]);
        assert_eq!(world.groups(&caller).await.unwrap(), groups);
        assert_eq!(world.target_size(&caller, groups[0]).await.unwrap(), 2);
        for known in ["stage", "other", "own"] {
            let id = format!("cloud:///team-a/{known}");
            let expected = if known == name { groups[0] } else { "" };
            assert_eq!(world.group_of(&caller, &format!("{known}-node"), &id).await.unwrap(), expected, "{name}");
        }
    }
    world.end().await;
}

#[tokio::test]
async fn a_caller_without_a_cluster_is_denied_every_call() {
    let callers = [
        ("nobody", Connection::of(Client::default())),
        ("without a URI", caller(&[])),
        ("two URIs", caller(&[STAGE, OTHER])),
        ("another domain", caller(&["spiffe://test.example/ns/team-a/cluster/stage"])),
        ("another form", caller(&["spiffe://prod.example/ns/team-a/sa/stage"])),
        ("a Cluster that isn't opted in", caller(&[OWN])),
        ("a Cluster of the same name elsewhere", caller(&["spiffe://prod.example/ns/team-b/cluster/stage"])),
        ("a Cluster that doesn't exist", caller(&["spiffe://prod.example/ns/team-c/cluster/stage"])),
    ];
    let world = World::synced().await;
    let service = &world.provider.service;
    for (who, caller) in &callers {
        let mut errors = world.errors_of(caller, STAGE_WORKERS).await;
        errors.push(world.refresh(caller).await.unwrap_err());
        errors.push(world.groups(caller).await.unwrap_err());
        errors.push(world.group_of(caller, "stage-node", "cloud:///team-a/stage").await.unwrap_err());
        errors.push(service.gpu_label(asked_by(caller, proto::GpuLabelRequest {})).await.unwrap_err());
        errors.push(service.cleanup(asked_by(caller, proto::CleanupRequest {})).await.unwrap_err());
        let prices = asked_by(caller, proto::PricingNodePriceRequest::default());
        errors.push(service.pricing_node_price(prices).await.unwrap_err());
        let prices = asked_by(caller, proto::PricingPodPriceRequest::default());
        errors.push(service.pricing_pod_price(prices).await.unwrap_err());
        let gpus = asked_by(caller, proto::GetAvailableGpuTypesRequest {});
        errors.push(service.get_available_gpu_types(gpus).await.unwrap_err());
        assert_eq!(codes(&errors), [Code::PermissionDenied; 15], "{who} at every RPC: {errors:?}");
    }
    assert_eq!(world.asks_of_size("stage-workers"), 0, "nothing was written");
    let counted = format!("grpc_answers_total{{rpc=\"Refresh\",code=\"PERMISSION_DENIED\"}} {}", callers.len());
    assert!(world.metrics().contains(&counted), "{}", world.metrics());
    world.end().await;
}

#[tokio::test]
async fn a_group_of_another_cluster_is_answered_as_one_that_does_not_exist_and_counted_and_logged() {
    let world = World::synced().await;
    let caller = caller(&[STAGE]);
    let of_foreign = world.errors_of(&caller, OTHER_WORKERS).await;
    let of_own = world.errors_of(&caller, OWN_WORKERS).await;
    let of_none = world.errors_of(&caller, NO_WORKERS).await;
    assert_eq!(codes(&of_foreign), [Code::NotFound; 7], "{of_foreign:?}");
    for (errors, id) in [(of_foreign, OTHER_WORKERS), (of_own, OWN_WORKERS)] {
        for (error, of_none) in errors.iter().zip(&of_none) {
            assert_eq!(error.code(), of_none.code());
            assert_eq!(error.message().replace(id, "it"), of_none.message().replace(NO_WORKERS, "it"));
        }
    }
    assert_eq!(world.asks_of_size("other-workers"), 0, "nothing was written");

    let shown = world.shown("stage").unwrap();
    assert_eq!((shown.foreign_group_calls, shown.denied_calls), (14, 0), "the third one is nobody's");
    assert!(shown.last_unexpected_call_ago.is_some());
    assert_eq!(world.series("foreign_group_calls_total", "team-a/stage"), Some(14.0));
    assert_eq!(world.series("foreign_group_calls_total", "team-a/other"), Some(0.0));
    assert_eq!(world.series("denied_calls_total", "team-a/stage"), Some(0.0));

    let stage = ServedClusters::cluster(&*world.provider.callers, Some(&key("stage"))).unwrap();
    let unexpected = Unexpected::default();
    let asked = |id: &str| asked_for(&stage.cluster, &unexpected, &GroupId::parse(id).unwrap(), Some(caller.client()));
    let said = CapturedLog::of(|| {
        asked(STAGE_WORKERS);
        asked(NO_WORKERS);
        asked(OTHER_WORKERS);
        asked(OTHER_WORKERS);
    });
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in ["team-a/stage", OTHER_WORKERS, "of=team-a/other", STAGE] {
        assert!(said.contains(part), "{part}: {said}");
    }

    // The API server of this test refuses all writes.
    assert!(world.increase(&caller, STAGE_WORKERS).await.is_err());
    assert!(world.asks_of_size("stage-workers") > 0, "its own group is written");
    world.end().await;
}

#[tokio::test]
async fn an_opt_out_takes_effect_at_the_next_call_and_concerns_nobody_else() {
    let world = World::synced().await;
    let (stage, other) = (caller(&[STAGE]), caller(&[OTHER]));
    world.api.put("clusters", "stage", &json!({}));
    Wait::new("the opt-out").within(LIMIT).condition(|| !world.provider.fleet.is_selected(&key("stage"))).await;
    let refused = world.refresh(&stage).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("its labels don't match --fleet-selector any more"), "{refused}");
    let before = world.asks_of_size("stage-workers");
    assert_eq!(world.increase(&stage, STAGE_WORKERS).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(world.asks_of_size("stage-workers"), before, "nothing was written");
    // A loop that is under way goes on with the last state.
    assert_eq!(world.groups(&stage).await.unwrap(), [STAGE_WORKERS]);
    assert_eq!(world.target_size(&stage, STAGE_WORKERS).await.unwrap(), 2);
    world.refresh(&other).await.unwrap();
    assert_eq!(world.groups(&other).await.unwrap(), [OTHER_WORKERS]);

    world.api.put("clusters", "stage", &labelled());
    world.until_served_again(&stage).await;
    world.until_synced().await;
    world.refresh(&stage).await.unwrap();
    assert_eq!(world.groups(&stage).await.unwrap(), [STAGE_WORKERS]);
    world.end().await;
}

/// Returns the caller with a certificate of `team-a/stage` that is valid from this time.
fn issued(valid_from: Option<&str>) -> Connection {
    let valid_from = valid_from.map(|time| time.parse().unwrap());
    Connection::of(Client { name: STAGE.into(), uri: Some(STAGE.into()), valid_from, ..Client::default() })
}

#[tokio::test]
async fn a_certificate_is_revoked_at_the_next_call_on_open_connections_too() {
    let world = World::synced().await;
    let (old, new, other) =
        (issued(Some("2026-01-02T03:04:05Z")), issued(Some("2026-01-02T03:04:06Z")), caller(&[OTHER]));
    let unknown = issued(None);
    for caller in [&old, &new, &unknown] {
        world.refresh(caller).await.unwrap();
    }
    let with = |not_before: &str| {
        let mut cluster = labelled();
        cluster["metadata"]["annotations"] = json!({"capi-autoscaler-provider.io/client-not-before": not_before});
        cluster
    };
    let is_denied = |caller: &Connection| {
        let admission: &dyn service::Admission = &*world.provider.callers;
        [service::Access::Begin, service::Access::Read, service::Access::Write].map(|access| {
            admission.admit(Some(caller.client()), access).is_err_and(|why| why.code() == Code::PermissionDenied)
        })
    };
    world.api.put("clusters", "stage", &with("2026-01-02T03:04:06Z"));
    Wait::new("the revocation").within(LIMIT).condition(|| is_denied(&old) == [true; 3]).await;
    assert_eq!((is_denied(&new), is_denied(&unknown), is_denied(&other)), ([false; 3], [true; 3], [false; 3]));
    let refused = world.refresh(&old).await.unwrap_err();
    assert!(refused.message().contains("client-not-before of Cluster team-a/stage: issue a new one"), "{refused}");
    let before = world.asks_of_size("stage-workers");
    assert_eq!(world.increase(&old, STAGE_WORKERS).await.unwrap_err().code(), Code::PermissionDenied);
    assert_eq!(world.asks_of_size("stage-workers"), before, "nothing was written");
    world.refresh(&new).await.unwrap();

    // A text that is no time was to exclude somebody.
    world.api.put("clusters", "stage", &with("yesterday"));
    Wait::new("the denial of all").within(LIMIT).condition(|| is_denied(&new) == [true; 3]).await;
    world.refresh(&other).await.unwrap();
    world.api.put("clusters", "stage", &labelled());
    Wait::new("the end of it").within(LIMIT).condition(|| is_denied(&old) == [false; 3]).await;
    world.refresh(&old).await.unwrap();

    // It holds for one that is opted in later, and for the last state of one that has left.
    world.api.put("clusters", "stage", &with("2026-01-02T03:04:06Z"));
    Wait::new("the revocation").within(LIMIT).condition(|| is_denied(&old) == [true; 3]).await;
    let mut left = with("2026-01-02T03:04:06Z");
    left["metadata"]["labels"] = json!({});
    world.api.put("clusters", "stage", &left);
    Wait::new("the opt-out").within(LIMIT).condition(|| is_denied(&new) == [true, false, true]).await;
    assert_eq!(is_denied(&old), [true; 3]);
    // A certificate that is stolen then reads nothing more either, and a new one does.
    left["metadata"]["annotations"]["capi-autoscaler-provider.io/client-not-before"] = json!("2026-01-02T03:04:07Z");
    world.api.put("clusters", "stage", &left);
    Wait::new("the revocation").within(LIMIT).condition(|| is_denied(&new) == [true; 3]).await;
    assert_eq!(is_denied(&issued(Some("2026-01-02T03:04:07Z"))), [true, false, true]);
    world.api.put("clusters", "stage", &with("2026-01-02T03:04:06Z"));
    world.until_served_again(&new).await;
    assert_eq!(is_denied(&new), [false; 3]);
    assert_eq!(is_denied(&old), [true; 3]);
    world.end().await;
}

#[tokio::test]
async fn no_cluster_is_denied_before_all_are_known() {
    let api = FakeApi::with_capi();
    api.hold("clusters");
    let world = World::over(api).await;
    for uri in [STAGE, OWN] {
        let refused = world.refresh(&caller(&[uri])).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    }
    let refused = world.refresh(&caller(&[STAGE, OTHER])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "that is known without them");
    world.api.release("clusters");
    world.until_synced().await;
    world.refresh(&caller(&[STAGE])).await.unwrap();
    world.end().await;
}

// The state and the metrics of a fleet: its Clusters with their callers.

#[tokio::test]
async fn each_cluster_is_shown_with_its_caller_its_sync_its_sizes_and_its_writes() {
    let world = World::synced().await;
    let until: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
    let named = Connection::of(Client {
        name: "cluster-autoscaler".into(),
        uri: Some(STAGE.into()),
        serial: Some("0a1b".into()),
        until: Some(until),
        peer: Some("192.0.2.7".parse().unwrap()),
        ..Client::default()
    });
    world.refresh(&named).await.unwrap();
    let state: FleetState = serde_json::from_slice(&world.source().clusters().unwrap()).unwrap();
    assert!(state.head.ready, "{:?}", state.head.checks);
    assert!(state.informers.iter().all(|informer| informer.synced) && !state.informers.is_empty());
    let ids: Vec<_> = state.clusters.iter().map(FleetCluster::id).collect();
    assert_eq!(ids, ["team-a/other", "team-a/stage"]);
    for cluster in &state.clusters {
        assert_eq!((cluster.standing, cluster.reason.as_deref()), (ClusterStanding::Served, None), "{cluster:?}");
        assert!(cluster.nodes_synced && cluster.calls.last_refresh_ago.is_some(), "{cluster:?}");
        assert_eq!((cluster.groups, cluster.machines, cluster.nodes, cluster.problems), (1, 1, 1, 0));
    }
    let own = world.source().of("team-a/stage").unwrap().read(&Selection::default());
    assert_eq!((own.head.cluster.as_deref(), state.head.cluster), (Some("team-a/stage"), None));
    let caller = &state.clusters[1].callers[0];
    assert_eq!((caller.uri.as_deref(), caller.serial.as_deref()), (Some(STAGE), Some("0a1b")));
    assert_eq!((caller.peer, caller.until), (Some("192.0.2.7".parse().unwrap()), Some(until)));
    let expiry = "client_certificate_expiry_timestamp_seconds";
    assert_eq!(world.series(expiry, "team-a/stage"), Some(1_893_553_445.0));
    assert_eq!(world.series(expiry, "team-a/other"), None, "its caller isn't connected any more");
    world.increase(&named, STAGE_WORKERS).await.unwrap_err();
    let own = world.source().of("team-a/stage").unwrap().read(&Selection::default());
    let by = format!(" (asked for by {STAGE}, certificate 0a1b, from 192.0.2.7)");
    assert!(own.groups[0].history[0].text.ends_with(&by), "{:?}", own.groups[0].history);
    drop(named);
    assert_eq!(world.shown("stage").unwrap().callers, [], "nor is this one");

    world.api.put(
        "machinedeployments",
        "stage-workers",
        &json!({
            "metadata": {"annotations": {
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size": "many",
                "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size": "9",
            }},
            "spec": {"clusterName": "stage", "replicas": 2},
        }),
    );
    let in_need = || world.shown("stage").is_some_and(|cluster| (cluster.groups, cluster.problems) == (0, 1));
    Wait::new("the problem").within(LIMIT).condition(in_need).await;
    for (metric, value) in
        [("synced", 1.0), ("nodes_synced", 1.0), ("node_groups", 0.0), ("node_groups_with_problem", 1.0)]
    {
        assert_eq!(world.series(metric, "team-a/stage"), Some(value), "{metric}");
    }
    let last = world.series("last_refresh_timestamp_seconds", "team-a/stage").unwrap();
    let age = Timestamp::now().as_duration().as_secs_f64() - last;
    assert!((0.0..60.0).contains(&age), "{last}");
    world.end().await;
}

#[tokio::test]
async fn a_cluster_that_cannot_be_reached_is_in_need_and_the_fleet_is_ready_nevertheless() {
    let world = World::synced().await;
    world.api.put("clusters", "lost", &labelled());
    let standing = || world.shown("lost").map(|cluster| cluster.standing);
    Wait::new("it").within(LIMIT).condition(|| standing() == Some(ClusterStanding::NotConnected)).await;
    let lost = world.shown("lost").unwrap();
    assert!(lost.reason.is_some() && !lost.nodes_synced && lost.calls.last_refresh_ago.is_none(), "{lost:?}");
    for metric in ["synced", "nodes_synced"] {
        assert_eq!(world.series(metric, "team-a/lost"), Some(0.0), "{metric}");
    }
    assert_eq!(world.series("last_refresh_timestamp_seconds", "team-a/lost"), None);
    let state = world.source().read();
    assert!(state.head.ready, "{:?}", state.head.checks);
    assert_eq!(state.in_need_first()[0].0.name, "lost");
    assert_eq!(world.shown("stage").unwrap().standing, ClusterStanding::Served);
    world.end().await;
}

#[tokio::test]
async fn a_cluster_that_has_left_is_shown_with_the_reason_and_has_no_series() {
    let world = World::synced().await;
    let caller = caller(&[STAGE]);
    let (fleet, served) = (world.provider.fleet.clone(), Arc::clone(&world.provider.callers));
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FleetMetrics::new(fleet, served, GroupSeries::Each)));
    let groups_with_series = || {
        let group = |line: &str| Some(line.strip_prefix("node_group_size{group=\"")?.split_once('"')?.0.to_owned());
        encoded(&registry).lines().filter_map(group).collect::<BTreeSet<_>>()
    };
    let groups = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(groups_with_series(), groups(&[OTHER_WORKERS, STAGE_WORKERS]), "on request");
    assert!(!world.metrics().contains("node_group_size{"), "{}", world.metrics());
    world.api.put("clusters", "stage", &json!({}));
    let standing = || world.shown("stage").map(|cluster| cluster.standing);
    Wait::new("the opt-out").within(LIMIT).condition(|| standing() == Some(ClusterStanding::Leaving)).await;
    world.refresh(&caller).await.unwrap_err();
    let left = world.shown("stage").unwrap();
    assert_eq!(left.reason.as_deref(), Some("its labels don't match --fleet-selector any more"));
    assert_eq!((left.groups, left.denied_calls, left.last_unexpected_call_ago.is_some()), (1, 1, true), "{left:?}");
    assert_eq!((world.series("synced", "team-a/stage"), groups_with_series()), (None, groups(&[OTHER_WORKERS])));
    let text = world.metrics();
    for sum in ["fleet_clusters{standing=\"leaving\"} 1", "fleet_clusters{standing=\"served\"} 1"] {
        assert!(text.contains(sum), "{sum}: {text}");
    }
    world.end().await;
}

#[tokio::test]
async fn callers_of_clusters_that_are_not_served_are_shown_with_the_reason() {
    let world = World::synced().await;
    let (own, two) = (caller(&[OWN]), caller(&[STAGE, OTHER]));
    for _ in 0..3 {
        world.refresh(&own).await.unwrap_err();
    }
    world.refresh(&two).await.unwrap_err();
    let denied = world.source().read().denied;
    let shown: Vec<_> = denied.iter().map(|caller| (caller.identity.as_str(), caller.denied_calls)).collect();
    let nobody = format!("name {STAGE}");
    assert_eq!(shown, [(nobody.as_str(), 1), (OWN, 3)], "the last one first");
    assert!(denied[0].reason.contains("has no URI, or several"), "{denied:?}");
    assert!(denied[1].reason.contains("its labels have to match --fleet-selector"), "{denied:?}");
    assert_eq!(world.shown("stage").unwrap().denied_calls, 0, "that caller is nobody's");
    let text = world.metrics();
    assert!(text.contains("\nfleet_denied_calls_total 4\n"), "{text}");
    world.end().await;
}

#[tokio::test]
async fn the_state_of_one_cluster_is_chosen_by_its_name() {
    let world = World::synced().await;
    let source = world.source();
    let state: State =
        serde_json::from_slice(&source.state("cluster=team-a%2Fstage&instances=false").unwrap()).unwrap();
    let groups: Vec<_> = state.groups.iter().map(|group| group.id.as_str()).collect();
    assert_eq!((groups, state.machines, state.nodes), (vec![STAGE_WORKERS], 1, 1));
    assert!(state.head.ready && state.groups[0].instances.is_none() && state.calls.last_refresh_ago.is_some());
    assert!(state.clusters.iter().all(|cluster| !cluster.informers.is_empty()), "{:?}", state.clusters);

    for (query, expected) in [
        ("", "choose a Cluster by cluster=NAMESPACE/NAME"),
        ("cluster=stage", "cluster is \"stage\": it must be NAMESPACE/NAME"),
        ("cluster=team-a%2Fown", "Cluster \"team-a/own\" isn't served here: clusters and /debug/clusters list those"),
        ("cluster=team-a%2Fstage&x=1", "parameter \"x\" isn't known"),
    ] {
        let Err(DebugError::Query(why)) = source.state(query) else { panic!("{query} is answered") };
        assert!(why.contains(expected), "{query}: {why}");
    }
    world.end().await;
}
