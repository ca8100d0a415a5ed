//! Tests of a fleet's callers: each one has its own Cluster and nothing else, whatever its certificate names and
//! whichever group it asks for. The workload clusters are reached by real connections, and so the clock is real.
#![allow(clippy::unwrap_used, clippy::panic)]

mod seeing;

use std::time::Duration;

use prometheus_client::{encoding::text::encode, registry::Registry};
use rstest::rstest;
use serde_json::{Value, json};
use testkit::Wait;
use tokio::runtime::Handle;
use tonic::{Code, Request, Status};

use super::*;
use crate::{Provider, ProviderOptions};
use cluster::{
    FleetOptions, Serve,
    fake::{FakeApi, NAMESPACE, scalable},
};
use connect::NodeAccess;
use index::{GroupSeries, objects};
use proto::cloud_provider_server::CloudProvider as _;
use scale::traces::Traces;
use service::listen::{CheckState, Checks as _, Connection};

const STAGE: &str = "spiffe://prod.example/ns/team-a/cluster/stage";
const OTHER: &str = "spiffe://prod.example/ns/team-a/cluster/other";
const STAGE_WORKERS: &str = "MachineDeployment/team-a/stage-workers";
const OTHER_WORKERS: &str = "MachineDeployment/team-a/other-workers";
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
        let owned = || id.to_owned();
        let node = proto::ExternalGrpcNode { name: "other-node".to_owned(), ..proto::ExternalGrpcNode::default() };
        vec![
            self.target_size(caller, id).await.unwrap_err(),
            self.increase(caller, id).await.unwrap_err(),
            service.node_group_nodes(asked_by(caller, proto::NodeGroupNodesRequest { id: owned() })).await.unwrap_err(),
            service
                .node_group_template_node_info(asked_by(
                    caller,
                    proto::NodeGroupTemplateNodeInfoRequest { id: owned() },
                ))
                .await
                .unwrap_err(),
            service
                .node_group_get_options(asked_by(
                    caller,
                    proto::NodeGroupAutoscalingOptionsRequest { id: owned(), defaults: None },
                ))
                .await
                .unwrap_err(),
            service
                .node_group_decrease_target_size(asked_by(
                    caller,
                    proto::NodeGroupDecreaseTargetSizeRequest { delta: -1, id: owned() },
                ))
                .await
                .unwrap_err(),
            service
                .node_group_delete_nodes(asked_by(
                    caller,
                    proto::NodeGroupDeleteNodesRequest { nodes: vec![node], id: owned() },
                ))
                .await
                .unwrap_err(),
        ]
    }

    /// Returns the number of requests for the size of a MachineDeployment of the namespace.
    fn asks_of_size(&self, name: &str) -> usize {
        let path = format!("/apis/cluster.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/machinedeployments/{name}");
        self.api.asks(&path) + self.api.asks(&format!("{path}/scale"))
    }

    async fn end(self) {
        self.provider.drain(LIMIT).await.unwrap();
        tokio::time::timeout(LIMIT, self.provider.shutdown()).await.unwrap();
    }
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

#[rstest]
#[case::nobody(Connection::of(Client::default()))]
#[case::without_a_uri(caller(&[]))]
#[case::two_uris(caller(&[STAGE, OTHER]))]
#[case::another_domain(caller(&["spiffe://test.example/ns/team-a/cluster/stage"]))]
#[case::another_form(caller(&["spiffe://prod.example/ns/team-a/sa/stage"]))]
#[case::a_cluster_that_is_not_opted_in(caller(&["spiffe://prod.example/ns/team-a/cluster/own"]))]
#[case::a_cluster_of_the_same_name_elsewhere(caller(&["spiffe://prod.example/ns/team-b/cluster/stage"]))]
#[case::a_cluster_that_does_not_exist(caller(&["spiffe://prod.example/ns/team-c/cluster/stage"]))]
#[tokio::test]
async fn a_caller_without_a_cluster_is_denied_every_call(#[case] caller: Connection) {
    let world = World::synced().await;
    let mut errors = world.errors_of(&caller, STAGE_WORKERS).await;
    errors.push(world.refresh(&caller).await.unwrap_err());
    errors.push(world.groups(&caller).await.unwrap_err());
    errors.push(world.group_of(&caller, "stage-node", "cloud:///team-a/stage").await.unwrap_err());
    let service = &world.provider.service;
    errors.push(service.gpu_label(asked_by(&caller, proto::GpuLabelRequest {})).await.unwrap_err());
    errors.push(service.cleanup(asked_by(&caller, proto::CleanupRequest {})).await.unwrap_err());
    let prices = asked_by(&caller, proto::PricingNodePriceRequest::default());
    errors.push(service.pricing_node_price(prices).await.unwrap_err());
    let prices = asked_by(&caller, proto::PricingPodPriceRequest::default());
    errors.push(service.pricing_pod_price(prices).await.unwrap_err());
    let gpus = asked_by(&caller, proto::GetAvailableGpuTypesRequest {});
    errors.push(service.get_available_gpu_types(gpus).await.unwrap_err());
    assert_eq!(errors.len(), 15, "every RPC");
    assert_eq!(codes(&errors), [Code::PermissionDenied; 15], "{errors:?}");
    assert_eq!(world.asks_of_size("stage-workers"), 0, "nothing was written");
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
    let counted = "grpc_answers_total{rpc=\"Refresh\",code=\"PERMISSION_DENIED\"} 1";
    assert!(text.contains(counted), "{text}");
    world.end().await;
}

#[tokio::test]
async fn a_group_of_another_cluster_is_answered_as_one_that_does_not_exist() {
    let world = World::synced().await;
    let caller = caller(&[STAGE]);
    let (foreign, none) = (OTHER_WORKERS, "MachineDeployment/team-a/no-such-group");
    let of_foreign = world.errors_of(&caller, foreign).await;
    let of_none = world.errors_of(&caller, none).await;
    assert_eq!(codes(&of_foreign), [Code::NotFound; 7], "{of_foreign:?}");
    for (of_foreign, of_none) in of_foreign.iter().zip(&of_none) {
        assert_eq!(of_foreign.code(), of_none.code());
        assert_eq!(of_foreign.message().replace(foreign, "it"), of_none.message().replace(none, "it"));
    }
    assert_eq!(world.asks_of_size("other-workers"), 0, "nothing was written");
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
    let key = rules::capi::ObjectKey::new(NAMESPACE, "stage");
    Wait::new("the opt-out").within(LIMIT).condition(|| !world.provider.fleet.is_selected(&key)).await;
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
    for uri in [STAGE, "spiffe://prod.example/ns/team-a/cluster/own"] {
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

#[tokio::test]
async fn a_write_is_recorded_with_cluster_certificate_and_address_of_its_caller() {
    let world = World::synced().await;
    let named = Client {
        name: "cluster-autoscaler".into(),
        uri: Some(STAGE.into()),
        serial: Some("0a1b".into()),
        peer: Some("192.0.2.7".parse().unwrap()),
        ..Client::default()
    };
    world.increase(&Connection::of(named), STAGE_WORKERS).await.unwrap_err();
    let history = world.provider.callers.history(&rules::capi::ObjectKey::new(NAMESPACE, "stage"));
    let entries = history.unwrap().of(&rules::GroupId::parse(STAGE_WORKERS).unwrap());
    assert!(
        entries[0].text.ends_with(&format!(" (asked for by {STAGE}, certificate 0a1b, from 192.0.2.7)")),
        "{entries:?}"
    );
    world.end().await;
}
