//! The state and the metrics of a fleet: its Clusters with their callers, and the calls that nobody should make.

use jiff::Timestamp;
use rules::GroupId;
use rules::capi::ObjectKey;

use super::{super::unexpected::asked_for, *};
use page::state::{ClusterStanding, FleetCluster, FleetState, Program, Selection, Source, State};
use service::listen::{AdminPages as _, DebugError};
use testkit::CapturedLog;

const OWN: &str = "spiffe://prod.example/ns/team-a/cluster/own";
const OWN_WORKERS: &str = "MachineDeployment/team-a/own-workers";
const NO_WORKERS: &str = "MachineDeployment/team-a/no-such-group";

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(NAMESPACE, name)
}

impl World {
    fn source(&self) -> Source {
        let program = Program::new(Timestamp::UNIX_EPOCH, "");
        Source::new(self.provider.fleet.clone(), Arc::clone(&self.provider.callers) as _, None, program)
    }

    fn shown(&self, name: &str) -> Option<FleetCluster> {
        self.source().read().clusters.into_iter().find(|cluster| cluster.name == name)
    }

    /// Returns the value of a Cluster's series.
    fn series(&self, metric: &str, cluster: &str) -> Option<f64> {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        let series = format!("fleet_cluster_{metric}{{workload_cluster=\"{cluster}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&series)).map(|value| value.parse().unwrap())
    }
}

#[tokio::test]
async fn each_cluster_is_shown_with_its_caller_its_sync_and_its_sizes() {
    let world = World::synced().await;
    let until: Timestamp = "2030-01-02T03:04:05Z".parse().unwrap();
    let named = Connection::of(Client {
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
async fn node_groups_of_all_clusters_that_are_served_have_series_on_request() {
    let world = World::synced().await;
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FleetGroupMetrics::new(Arc::clone(&world.provider.callers) as _)));
    let groups = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let group = |line: &str| Some(line.strip_prefix("node_group_size{group=\"")?.split_once('"')?.0.to_owned());
        let mut groups: Vec<_> = text.lines().filter_map(group).collect();
        groups.sort_unstable();
        groups
    };
    let (other, stage) = ("MachineDeployment/team-a/other-workers", "MachineDeployment/team-a/stage-workers");
    assert_eq!(groups(), [other, stage]);
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
    assert!(!text.contains("node_group_size{"), "{text}");
    world.api.put("clusters", "stage", &json!({}));
    Wait::new("the opt-out").within(LIMIT).condition(|| groups() == [other]).await;
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
    world.api.put("clusters", "stage", &json!({}));
    let standing = || world.shown("stage").map(|cluster| cluster.standing);
    Wait::new("the opt-out").within(LIMIT).condition(|| standing() == Some(ClusterStanding::Leaving)).await;
    world.refresh(&caller).await.unwrap_err();
    let left = world.shown("stage").unwrap();
    assert_eq!(left.reason.as_deref(), Some("its labels don't match --fleet-selector any more"));
    assert_eq!((left.groups, left.denied_calls, left.last_unexpected_call_ago.is_some()), (1, 1, true), "{left:?}");
    assert_eq!(world.series("synced", "team-a/stage"), None);
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
    for sum in ["fleet_clusters{standing=\"leaving\"} 1", "fleet_clusters{standing=\"served\"} 1"] {
        assert!(text.contains(sum), "{sum}: {text}");
    }
    world.end().await;
}

#[tokio::test]
async fn calls_for_groups_of_other_clusters_are_counted_and_the_first_one_is_logged() {
    let world = World::synced().await;
    let caller = caller(&[STAGE]);
    for id in [OTHER_WORKERS, OWN_WORKERS, NO_WORKERS] {
        assert_eq!(codes(&world.errors_of(&caller, id).await), [Code::NotFound; 7]);
    }
    let shown = world.shown("stage").unwrap();
    assert_eq!((shown.foreign_group_calls, shown.denied_calls), (14, 0), "the third one is nobody's");
    assert!(shown.last_unexpected_call_ago.is_some());
    assert_eq!(world.series("foreign_group_calls_total", "team-a/stage"), Some(14.0));
    assert_eq!(world.series("foreign_group_calls_total", "team-a/other"), Some(0.0));
    assert_eq!(world.series("denied_calls_total", "team-a/stage"), Some(0.0));

    let stage = page::state::ServedClusters::cluster(&*world.provider.callers, Some(&key("stage"))).unwrap();
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
    let mut text = String::new();
    encode(&mut text, &world.registry).unwrap();
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
