//! Tests of fleets over a minimal API server: Clusters that come, go, opt in and out, and are created anew.

use std::time::Duration;

use rules::capi::{CLIENT_NOT_BEFORE, NotBefore, ObjectKey};
use serde_json::json;
use testkit::CapturedLog;
use tokio::time::{self, Instant};

use super::{
    GROUP,
    fake::*,
    fleet_world::{OTHER, OWN, STAGE, World, group_of, groups, labelled, three},
    naming, template,
};
use crate::Left;
use service::listen::{Check, CheckState, Checks as _};

/// The time for which a Cluster that has left is read.
const GRACE: Duration = Duration::from_secs(15 * 60);

#[tokio::test(start_paused = true)]
async fn each_selected_cluster_is_served_from_its_own_index_by_one_watch_per_kind() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    for cluster in [STAGE.0, OTHER.0] {
        world.until("its Machine", |world| world.member(cluster).unwrap().index().stats().machines == 1).await;
    }
    api.put("machinedeployments", "more", &group_of("other"));
    let both = [OTHER.1[0], "MachineDeployment/team-a/more"];
    let sorted = [both[1], both[0]];
    world.until_served(&[STAGE, (OTHER.0, &sorted)]).await;
    for plural in ["clusters", "machinedeployments", "machinesets", "machines"] {
        assert_eq!(api.watches(plural), 1, "{plural}");
    }
    world.shutdown().await;
}

/// Each walk visits all objects of the namespace, so one for each Cluster would be quadratic.
#[tokio::test(start_paused = true)]
async fn clusters_that_are_opted_in_together_are_filled_by_few_walks() {
    let api = FakeApi::with_capi();
    let names: Vec<_> = (0..100).map(|number| format!("c{number:02}")).collect();
    for name in &names {
        api.put("clusters", name, &labelled());
        api.put("machinedeployments", &format!("{name}-workers"), &group_of(name));
    }
    let world = World::new(&api, None);
    let clusters: Vec<_> = names.iter().map(|name| format!("team-a/{name}")).collect();
    let groups: Vec<_> = names.iter().map(|name| format!("MachineDeployment/team-a/{name}-workers")).collect();
    let groups: Vec<_> = groups.iter().map(|group| [group.as_str()]).collect();
    let expected: Vec<_> =
        clusters.iter().zip(&groups).map(|(cluster, group)| (cluster.as_str(), &group[..])).collect();
    world.until_served(&expected).await;
    assert!((1..=25).contains(&world.fleet.walks()), "{}", world.fleet.walks());
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn clusters_of_other_namespaces_are_not_even_watched() {
    let api = three();
    api.put_in("team-b", "clusters", "foreign", &labelled());
    let world = World::new(&api, Some(&[NAMESPACE]));
    world.until_served(&[STAGE, OTHER]).await;
    assert!(!world.fleet.is_selected(&ObjectKey::new("team-b", "foreign")));
    assert!(!api.was_asked("/apis/cluster.x-k8s.io/v1beta2/clusters"));
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_opts_out_keeps_its_last_state_for_a_while_and_may_come_back() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    world.events();
    let before = world.member(STAGE.0).unwrap();

    api.put("clusters", "stage", &json!({}));
    world.until("the end", |world| world.noted("left team-a/stage")).await;
    let left_at = Instant::now();
    assert_eq!(before.left(), Some(Left::OptedOut));
    let why = before.check_fresh().unwrap_err();
    assert!(why.contains("team-a/stage isn't served any more: its labels don't match"), "{why}");
    api.delete("machinedeployments", "stage-workers");
    api.put("machinedeployments", "news", &group_of("other"));
    let others = ["MachineDeployment/team-a/news", OTHER.1[0]];
    world.until_served(&[(OTHER.0, &others)]).await;
    assert_eq!(groups(&before), STAGE.1, "it keeps its last state");

    time::sleep(GRACE / 2).await;
    world.until("its end", |world| world.noted("dropped team-a/stage")).await;
    assert!(left_at.elapsed() + Duration::from_secs(1) > GRACE, "{:?}", left_at.elapsed());
    assert_eq!(world.events(), ["left team-a/stage", "dropped team-a/stage"]);

    api.put("clusters", "stage", &labelled());
    world.until_served(&[("team-a/stage", &[]), (OTHER.0, &others)]).await;
    assert!(before.left().is_some(), "it is served anew");
    assert_eq!(world.events(), ["joined team-a/stage"]);
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_whose_label_flips_joins_again_after_a_pause_and_fills_no_log() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    world.events();
    let (log, _guard) = CapturedLog::begin();
    for _ in 0..12 {
        let before = world.member(STAGE.0).unwrap();
        api.put("clusters", "stage", &json!({}));
        world.until("the end", |_| before.left().is_some()).await;
        let left_at = Instant::now();
        api.put("clusters", "stage", &labelled());
        world.until_served(&[STAGE, OTHER]).await;
        let pause = left_at.elapsed().as_secs_f64();
        assert!((9.9..10.5).contains(&pause), "{pause} s");
    }
    let events = world.events();
    assert_eq!(events, ["left team-a/stage", "joined team-a/stage"].repeat(12));
    time::sleep(Duration::from_secs(61)).await;
    let said = log.take();
    let logged = said.lines().filter(|line| line.contains("a Cluster is")).count();
    assert!((8..=12).contains(&logged), "four lines a minute: {said}");
    let more = said.lines().filter_map(|line| line.rsplit_once("more=")?.1.parse::<usize>().ok());
    assert_eq!(logged + more.sum::<usize>(), events.len(), "{said}");
    world.shutdown().await;
}

/// The owner of one Cluster can fill no log, and another one's warning doesn't hide how many there were.
#[tokio::test(start_paused = true)]
async fn an_annotation_that_is_no_time_again_and_again_has_few_lines_and_a_sum() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let (log, _guard) = CapturedLog::begin();
    let set = async |name: &str, text: Option<&str>| {
        let mut cluster = labelled();
        if let Some(text) = text {
            cluster["metadata"]["annotations"] = json!({ CLIENT_NOT_BEFORE: text });
        }
        api.put("clusters", name, &cluster);
        let member = world.member(&format!("team-a/{name}")).unwrap();
        let expected = text.map(|_| NotBefore::Unreadable);
        world.until("the annotation", |_| member.client_not_before() == expected).await;
    };
    for _ in 0..10 {
        set("stage", Some("soon")).await;
        set("stage", None).await;
    }
    time::sleep(Duration::from_secs(61)).await;
    set("other", Some("soon")).await;
    let said = log.take();
    let warned = || said.lines().filter(|line| line.contains("annotation"));
    let about = |name: &str| warned().filter(|line| line.contains(name)).collect::<Vec<_>>();
    let ([first, second, sum], [other]) = (&about("team-a/stage")[..], &about("team-a/other")[..]) else {
        panic!("{said}")
    };
    assert!([first, second, other].iter().all(|line| line.contains("isn't a time such as")), "{said}");
    assert!(sum.contains("was set to no time more often") && sum.contains("more=8"), "{sum}");
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_with_another_uid_begins_anew() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let before = world.member(STAGE.0).unwrap();
    api.delete("clusters", "stage");
    world.until("the end", |_| before.left() == Some(Left::Deleted)).await;
    let mut created = labelled();
    created["metadata"]["uid"] = json!("another");
    api.put("clusters", "stage", &created);
    world.until_served(&[STAGE, OTHER]).await;
    let after = world.member(STAGE.0).unwrap();
    assert_eq!((&*after.uid().unwrap().to_string(), after.left()), ("another", None));
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_does_not_decode_stays_what_it_was() {
    let api = three();
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let odd = json!({"spec": {"paused": "perhaps"}});
    api.put("clusters", "stage", &odd);
    api.put("clusters", "own", &odd);
    api.put("machinedeployments", "more", &group_of("stage"));
    let both = ["MachineDeployment/team-a/more", STAGE.1[0]];
    world.until_served(&[(STAGE.0, &both), OTHER]).await;
    let mut other = odd;
    other["metadata"] = json!({"uid": "another"});
    api.put("clusters", "stage", &other);
    world.until_served(&[OTHER]).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn templates_go_to_the_clusters_whose_groups_name_their_kind_in_their_namespace() {
    let api = three();
    api.serve_group(GROUP, &["v1beta1"]);
    api.install(GROUP, "CloudMachineTemplate", "cloudmachinetemplates");
    let of = |cluster: &str| {
        naming(GROUP, "CloudMachineTemplate", &json!({"spec": {"replicas": 0, "clusterName": cluster}}))
    };
    // A group without replicas is one by its template alone.
    for cluster in ["stage", "own"] {
        api.put("machinedeployments", &format!("{cluster}-workers"), &of(cluster));
    }
    api.put("cloudmachinetemplates", "t", &template("4"));
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    api.put("clusters", "own", &labelled());
    world.until_served(&[STAGE, OTHER, OWN]).await;
    assert_eq!(api.watches("cloudmachinetemplates"), 1);
    api.delete("cloudmachinetemplates", "t");
    world.until_served(&[(STAGE.0, &[]), OTHER, (OWN.0, &[])]).await;
    api.put("cloudmachinetemplates", "t", &template("8"));
    world.until_served(&[STAGE, OTHER, OWN]).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_read_fails_its_own_clusters_alone() {
    let api = three();
    api.put_in("team-b", "clusters", "foreign", &labelled());
    api.put_in("team-b", "machinedeployments", "foreign-workers", &group_of("foreign"));
    let world = World::new(&api, Some(&[NAMESPACE, "team-b"]));
    let foreign = ("team-b/foreign", &["MachineDeployment/team-b/foreign-workers"] as &[&str]);
    world.until_served(&[STAGE, OTHER, foreign]).await;
    api.refuse_in("team-b", None, 403);
    world.until_served(&[STAGE, OTHER, (foreign.0, &[])]).await;
    let why = world.member(foreign.0).unwrap().check_fresh().unwrap_err();
    assert_eq!(why, "the namespace team-b can't be read");
    let why = world.member(STAGE.0).unwrap().check_fresh().err();
    assert!(why.as_ref().is_none_or(|why| why.starts_with("workload/nodes: ")), "{why:?}");
    api.allow_in("team-b", None);
    world.until_served(&[STAGE, OTHER, foreign]).await;
    world.shutdown().await;
}

/// Without an autoscaler and without scrapes, too, the log says what is served.
#[tokio::test(start_paused = true)]
async fn the_first_sync_of_a_cluster_ends_though_nobody_asks_for_anything() {
    let (log, _guard) = CapturedLog::begin();
    let api = three();
    let world = World::new(&api, None);
    // Its Nodes are waited for as well, and can't be read.
    time::sleep(Duration::from_secs(60)).await;
    let said = log.take();
    assert_eq!(said.matches("node groups are read served=1 left_out=0").count(), 2, "{said}");
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_unknown_until_all_are_listed() {
    let api = three();
    api.hold("clusters");
    let world = World::new(&api, None);
    let machines = Check::ready("management/machines");
    world.until("the other kinds", |world| world.fleet.checks().contains(&machines)).await;
    assert!(!world.fleet.knows_clusters());
    let pending = world.fleet.pending();
    assert_eq!(pending.iter().map(|check| &*check.name).collect::<Vec<_>>(), ["management/clusters"]);
    assert_eq!(pending, world.fleet.checks().into_iter().filter(|check| !check.is_ready()).collect::<Vec<_>>());
    api.release("clusters");
    world.until("the list", |world| world.fleet.knows_clusters()).await;
    assert!(world.fleet.is_selected(&ObjectKey::new(NAMESPACE, "stage")));
    assert!(!world.fleet.is_selected(&ObjectKey::new(NAMESPACE, "own")));
    world.shutdown().await;
}

/// The test uses a real connection, and so the real clock.
#[tokio::test]
async fn nodes_are_those_of_each_workload_cluster_and_a_dead_one_concerns_nobody_else() {
    let workload_api = FakeApi::default();
    workload_api.put_in("", "nodes", "node-1", &json!({"spec": {"providerID": "cloud:///node-1"}}));
    let address = workload_api.serve().await;
    let api = three();
    api.put_kubeconfig(NAMESPACE, "stage", address);
    let world = World::new(&api, None);
    world.until_served(&[STAGE, OTHER]).await;
    let (stage, other) = (world.member(STAGE.0).unwrap(), world.member(OTHER.0).unwrap());
    world.until("its Nodes", |_| stage.check_fresh().is_ok()).await;
    assert_eq!((stage.index().stats().nodes, other.index().stats().nodes), (1, 0));
    let why = other.check_fresh().unwrap_err();
    assert!(why.starts_with("workload/nodes: Secret team-a/other-kubeconfig"), "{why}");
    let checks = world.fleet.checks();
    assert!(checks.iter().all(Check::is_ready), "{checks:?}");
    assert_eq!(world.fleet.pending(), []);
    let clusters = checks.iter().find(|check| check.name == "fleet/clusters").unwrap();
    assert!(
        clusters.state == CheckState::Informational
            && clusters.reason.as_deref().is_some_and(|why| why.starts_with("team-a/other: ")),
        "{checks:?}"
    );
    time::timeout(Duration::from_secs(10), world.shutdown()).await.unwrap();
}
