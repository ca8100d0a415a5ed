//! Tests of the table of Clusters for people, as a whole, and of its schema.

use clap::Parser as _;
use rstest::rstest;

use super::*;
use crate::cli::{Cli, Command, groups::tests::assert_documented};
use page::state::{CallsState, Check, Client, ClusterStanding, DeniedCaller, Head, InformerState, TlsStanding};

fn args(flags: &[&str]) -> ClustersArgs {
    let cli = Cli::try_parse_from(["x", "clusters"].iter().chain(flags)).unwrap();
    let Command::Clusters(args) = cli.command else { panic!("it isn't clusters") };
    args
}

fn cluster(namespace: &str, name: &str) -> FleetCluster {
    FleetCluster {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        calls: CallsState { last_refresh_ago: Some(7), last_refresh_refused: None },
        callers: vec![Client {
            uri: Some(format!("spiffe://prod.example/ns/{namespace}/cluster/{name}").into()),
            serial: Some("0a1b".into()),
            peer: Some("192.0.2.7".parse().unwrap()),
            until: Some("2027-03-04T05:06:07Z".parse().unwrap()),
            ..Client::default()
        }],
        nodes_synced: true,
        groups: 2,
        machines: 12,
        nodes: 11,
        ..FleetCluster::default()
    }
}

fn fleet() -> FleetState {
    let lost = FleetCluster {
        standing: ClusterStanding::NotConnected,
        reason: Some("no such Secret\u{1b}[2J".to_owned()),
        calls: CallsState::default(),
        callers: Vec::new(),
        nodes: 0,
        problems: 1,
        ..cluster("team-b", "lost")
    };
    let cut =
        FleetCluster { nodes_synced: false, nodes_reason: Some("no route".to_owned()), ..cluster("team-b", "cut") };
    FleetState {
        head: Head {
            schema_version: page::state::SCHEMA_VERSION,
            taken_at: "2026-01-01T00:00:00Z".parse().unwrap(),
            ready: true,
            ..Head::default()
        },
        clusters: vec![cluster("team-a", "prod"), lost, cut],
        ..FleetState::default()
    }
}

#[test]
fn the_table_begins_with_the_clusters_in_need_and_ends_with_the_reasons() {
    insta::assert_snapshot!(args(&[]).render(&fleet()).unwrap());
    let wide = args(&["-o", "wide"]).render(&fleet()).unwrap();
    let line = wide.lines().nth(3).unwrap();
    let end = "2027-03-04   192.0.2.7   0a1b          0         0   spiffe://prod.example/ns/team-a/cluster/prod";
    assert!(line.ends_with(end), "{wide}");
}

#[test]
fn callers_that_were_denied_stand_below_the_clusters() {
    let denied = |identity: &str| DeniedCaller {
        identity: identity.to_owned(),
        peer: Some("192.0.2.9".parse().unwrap()),
        reason: "it isn't served\u{1b}".to_owned(),
        denied_calls: 17,
        last_ago: 4,
    };
    let [one, other] = ["spiffe://prod.example/ns/team-a/cluster/own", "spiffe://prod.example/ns/team-c/cluster/x"];
    let state = FleetState { clusters: Vec::new(), denied: vec![denied(one), denied(other)], ..fleet() };
    let lines = [
        "no Clusters: one has to match --fleet-selector by its labels",
        "",
        "DENIED CALLER                                   LAST   CALLS   ADDRESS     WHY",
        "spiffe://prod.example/ns/team-a/cluster/own   4s ago      17   192.0.2.9   it isn't served\\u{1b}",
    ];
    let args = args(&["-n", "team-a"]);
    assert_eq!(args.render(&args.chosen(state)).unwrap(), lines.join("\n") + "\n");
}

#[test]
fn json_and_yaml_are_the_whole_schema() {
    for form in ["json", "yaml"] {
        let text = args(&["-o", form]).render(&fleet()).unwrap();
        assert_eq!(serde_yaml::from_str::<FleetState>(&text).unwrap(), fleet(), "{form}");
        assert!(!text.contains('\u{1b}'), "{form}: {text}");
    }
}

#[test]
fn the_narrow_table_has_the_last_caller_and_the_number_of_the_others() {
    let mut state = FleetState { clusters: vec![cluster("team-a", "prod")], ..fleet() };
    let other = Client { peer: Some("192.0.2.8".parse().unwrap()), ..Client::default() };
    state.clusters[0].callers.push(other);
    let table = args(&[]).render(&state).unwrap();
    assert!(table.ends_with("   192.0.2.7 +1\n"), "{table}");
    let wide = args(&["-o", "wide"]).render(&state).unwrap();
    assert!(wide.contains("   192.0.2.7, 192.0.2.8   0a1b, -   "), "{wide}");
}

/// Each has an autoscaler that calls another copy, or none.
#[test]
fn clusters_that_are_only_not_called_here_come_after_those_in_need_and_are_counted() {
    let calls = CallsState { last_refresh_ago: Some(120), last_refresh_refused: Some("not ready".to_owned()) };
    let gone = FleetCluster { calls, callers: Vec::new(), ..cluster("team-a", "gone") };
    let never = FleetCluster { calls: CallsState::default(), callers: Vec::new(), ..cluster("team-a", "never") };
    let wrong = FleetCluster { problems: 1, ..cluster("team-b", "wrong") };
    let state = FleetState { clusters: vec![gone, never, cluster("team-a", "prod"), wrong], ..fleet() };
    let shown = args(&[]).render(&state).unwrap();
    let expected = [
        ("team-b/wrong", "problems "),
        ("team-a/gone", "not called here "),
        ("team-a/never", "not called here "),
        ("team-a/prod", "well "),
    ];
    let lines: Vec<_> = shown.lines().skip(1).collect();
    assert_eq!(lines.len(), expected.len(), "no refusal of another time is a reason: {shown}");
    for (line, (name, state)) in lines.into_iter().zip(expected) {
        let rest = line.strip_prefix(name).unwrap_or_else(|| panic!("{name}: {shown}"));
        assert!(rest.trim_start().starts_with(state), "{name}: {shown}");
    }
    let said = "Clusters not called here: 2; they may call another replica: ask each by --server";
    assert_eq!(args(&[]).warnings(&state), [said]);
}

#[rstest]
#[case::no_namespace(&[], 3, &[])]
#[case::of_one(&["-n", "team-a"], 1, &[])]
#[case::of_none(&["-n", "nowhere"], 0, &["no Cluster in namespace \"nowhere\": correct --namespace"])]
fn a_namespace_chooses_its_clusters(#[case] flags: &[&str], #[case] number: usize, #[case] said: &[&str]) {
    let args = args(flags);
    let state = args.chosen(fleet());
    assert_eq!(state.clusters.len(), number);
    let warnings = args.warnings(&state);
    assert_eq!(warnings.len(), said.len(), "{warnings:?}");
    for (warning, said) in warnings.iter().zip(said) {
        assert!(warning.starts_with(said), "{warning}");
    }
}

#[test]
fn a_fleet_without_clusters_and_one_out_of_sync_say_so() {
    let args = args(&[]);
    let check = Check {
        name: "management/clusters".to_owned(),
        state: CheckState::Pending,
        reason: Some("forbidden\u{1b}".to_owned()),
    };
    let state = FleetState { clusters: Vec::new(), head: Head { checks: vec![check], ..Head::default() }, ..fleet() };
    assert_eq!(args.render(&state).unwrap(), "no Clusters: one has to match --fleet-selector by its labels\n");
    assert_eq!(args.warnings(&state), ["not in sync: management/clusters: forbidden\\u{1b}"]);
}

#[rstest]
#[case::server(&["--server", "ftp://a"], "--server (or CAPI_AUTOSCALER_SERVER): \"ftp://a\" can't be used")]
#[case::time(&["--timeout", "0s"], "--timeout: \"0s\" can't be used: it has to be longer than 0")]
fn wrong_flags_are_named(
    #[case] flags: &[&str],
    #[case] expected: &str,
    #[values("groups", "clusters")] subcommand: &str,
) {
    let error = Cli::try_parse_from(["x", subcommand].iter().chain(flags)).unwrap().run().unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn every_field_of_the_schema_is_documented() {
    let mut state = fleet();
    let text = || Some(String::new());
    state.clusters[0].last_unexpected_call_ago = Some(1);
    state.clusters[0].reason = text();
    state.clusters[0].calls.last_refresh_refused = text();
    state.tls =
        Some(TlsStanding { clients_until: Some(state.head.taken_at), failing: text(), ..TlsStanding::default() });
    state.informers = vec![InformerState::default()];
    state.denied = vec![DeniedCaller { peer: Some([192, 0, 2, 9].into()), ..DeniedCaller::default() }];
    let found = assert_documented(&state);
    assert!(found.contains("certificateUntil"), "{found:?}");
}
