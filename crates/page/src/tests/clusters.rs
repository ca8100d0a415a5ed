//! The page of a fleet, and the links of its Clusters' pages.

use super::*;
use crate::clusters;
use crate::state::{Client, ClusterStanding, DeniedCaller, FleetCluster, FleetState};

fn well(name: &str) -> FleetCluster {
    FleetCluster {
        namespace: "team-a".to_owned(),
        name: name.to_owned(),
        calls: calls(4, None),
        callers: vec![Client {
            serial: Some("0a1b".into()),
            peer: Some("192.0.2.7".parse().unwrap()),
            until: Some("2027-01-01T01:00:00Z".parse().unwrap()),
            ..Client::default()
        }],
        nodes_synced: true,
        groups: 2,
        machines: 6,
        nodes: 6,
        ..FleetCluster::default()
    }
}

fn fleet_of(clusters: Vec<FleetCluster>) -> FleetState {
    FleetState { head: head(), clusters, ..FleetState::default() }
}

fn page(fleet: &FleetState, query: &str) -> String {
    clusters::clusters(fleet, &View::parse(query).unwrap()).into_string()
}

#[test]
fn a_fleet_that_is_well_says_so_and_links_to_each_cluster() {
    let page = page(&fleet_of(vec![well("stage")]), "refresh=10");
    assert_shows(
        &page,
        &[
            "<title>Clusters</title>",
            "href=\"/?cluster=team-a%2Fstage&amp;refresh=10\">team-a/stage</a>",
            "192.0.2.7 certificate ends ",
            "<code>0a1b</code>",
            "in 365 d",
            ">4 s ago<",
        ],
    );
    assert!(!page.contains("badge bad") && !page.contains("badge odd"), "{page}");
}

#[rstest]
#[case::not_connected(
    FleetCluster { standing: ClusterStanding::NotConnected, reason: Some("no route".to_owned()), ..well("x") },
    &["1 to look at", "not connected", "no route"]
)]
#[case::not_in_sync(
    FleetCluster { standing: ClusterStanding::NotInSync, reason: Some("nodes: cut".to_owned()), ..well("x") },
    &["1 to look at", "not in sync", "nodes: cut"]
)]
#[case::nodes_not_in_sync(
    FleetCluster { nodes_synced: false, nodes_reason: Some("connection refused".to_owned()), ..well("x") },
    &["1 to look at", "Nodes not in sync", "connection refused"]
)]
#[case::refused(
    FleetCluster { calls: calls(1, Some("not ready")), ..well("x") },
    &["1 to look at", "Refresh refused", "not ready"]
)]
#[case::certificate_expired(
    FleetCluster {
        callers: vec![Client { until: Some("2026-01-01T00:59:00Z".parse().unwrap()), ..Client::default() }],
        ..well("x")
    },
    &["1 to look at", "certificate expired", "1 min ago"]
)]
#[case::unexpected_calls(
    FleetCluster { foreign_group_calls: 3, last_unexpected_call_ago: Some(9), ..well("x") },
    &["unexpected calls", "3 calls for node groups of other Clusters"]
)]
#[case::not_called(FleetCluster { calls: CallsState::default(), ..well("x") }, &["not called here", "never here", "may call another replica"])]
#[case::problems(FleetCluster { problems: 1, ..well("x") }, &["problems"])]
fn a_cluster_in_need_comes_first_and_says_why(#[case] cluster: FleetCluster, #[case] expected: &[&str]) {
    let page = page(&fleet_of(vec![well("a"), well("b"), cluster]), "");
    assert_shows(&page, expected);
    assert!(page.find("team-a/x<") < page.find("team-a/a<"), "{page}");
}

#[test]
fn a_cluster_that_leaves_comes_after_those_in_need_and_unexpected_calls_are_forgotten() {
    let leaving = FleetCluster {
        standing: ClusterStanding::Leaving,
        reason: Some("it was deleted".to_owned()),
        calls: CallsState::default(),
        ..well("a")
    };
    let once = FleetCluster { denied_calls: 1, last_unexpected_call_ago: Some(3_600), ..well("c") };
    let page = page(&fleet_of(vec![leaving, FleetCluster { problems: 1, ..well("b") }, once]), "");
    assert!(page.contains("it was deleted") && !page.contains("unexpected calls"), "{page}");
    assert!(page.find("team-a/b<") < page.find("team-a/a<"), "{page}");
    assert!(page.find("team-a/a<") < page.find("team-a/c<"), "{page}");
}

#[test]
fn a_large_fleet_is_cut_into_pages_and_found_by_name() {
    let fleet = fleet_of((0..250).map(|number| well(&format!("c{number:03}"))).collect());
    let second = page(&fleet, "page=2");
    assert!(second.contains("250 rows, page 2 of 3") && second.contains("team-a/c100<"), "{second}");
    assert!(!second.contains("team-a/c099<") && !second.contains("team-a/c200<"), "{second}");
    let found = page(&fleet, "q=C007");
    assert!(found.contains("1 row<") && found.contains("team-a/c007<") && !found.contains("team-a/c008<"), "{found}");
}

#[test]
fn callers_that_are_denied_are_listed_with_the_reason() {
    let caller = DeniedCaller {
        identity: "spiffe://prod.example/ns/team-a/cluster/own".to_owned(),
        peer: Some("192.0.2.9".parse().unwrap()),
        reason: "no label of it matches".to_owned(),
        denied_calls: 17,
        last_ago: 65,
    };
    let denied = page(&FleetState { denied: vec![caller], ..fleet_of(vec![well("stage")]) }, "");
    let expected = ["Denied callers", "team-a/cluster/own<", ">17<", "192.0.2.9", "1 min 5 s ago", "no label"];
    assert_shows(&denied, &expected);
    assert!(!page(&fleet_of(vec![well("stage")]), "").contains("Denied callers"));
}

#[test]
fn no_text_of_a_fleet_becomes_markup() {
    let text = || Some(HOSTILE.to_owned());
    let cluster = FleetCluster {
        standing: ClusterStanding::NotConnected,
        reason: text(),
        nodes_reason: text(),
        callers: vec![Client { uri: Some(HOSTILE.into()), serial: Some(HOSTILE.into()), ..Client::default() }],
        ..well(HOSTILE)
    };
    let fleet = FleetState {
        head: Head { ready: false, checks: vec![Check::pending(HOSTILE, HOSTILE)], ..head() },
        denied: vec![DeniedCaller {
            identity: HOSTILE.to_owned(),
            reason: HOSTILE.to_owned(),
            ..DeniedCaller::default()
        }],
        ..fleet_of(vec![cluster])
    };
    assert_escaped(&page(&fleet, ""));
}

#[test]
fn the_links_of_a_clusters_pages_stay_at_the_cluster() {
    let view = View::parse("cluster=team-a%2Fstage").unwrap();
    let state = State { groups: vec![workers()], ..state() };
    let first = overview::overview(&state, &[], &view).into_string();
    assert_shows(
        &first,
        &[
            "href=\"/\">‹ all Clusters",
            "<h1>Node groups of team-a/stage</h1>",
            "href=\"/groups/MachineDeployment/team-a/workers?cluster=team-a%2Fstage\"",
            "href=\"/?cluster=team-a%2Fstage&amp;state=steady\"",
            "<input type=\"hidden\" name=\"cluster\" value=\"team-a/stage\">",
        ],
    );
    let below = group::group(&state, None, &[], &view).unwrap().into_string();
    assert!(below.contains("href=\"/?cluster=team-a%2Fstage\">‹ all node groups of team-a/stage"), "{below}");
}
