//! Tests of the flags of a fleet.
use clap::Parser as _;
use rstest::rstest;

use super::*;
use crate::cli::{Cli, Command, ServeArgs, serve::OneCluster};
use connect::NodeAccess;
use rules::ScopeSpec;

const FLEET: [&str; 2] = ["--fleet-selector=autoscaler=fleet", "--fleet-trust-domain=prod.example"];
const TLS: [&str; 3] = ["--tls-cert-file=c", "--tls-key-file=k", "--tls-client-ca-file=ca"];

fn args(flags: &[&[&str]]) -> ServeArgs {
    let flags = ["x", "serve"].into_iter().chain(flags.concat());
    let Command::Serve(args) = Cli::try_parse_from(flags).unwrap().command else { panic!("it isn't serve") };
    *args
}

fn parse(flags: &[&[&str]]) -> Result<Config, UsageError> {
    Config::try_from(args(flags))
}

#[test]
fn a_fleet_is_chosen_by_labels_and_namespaces_and_has_a_trust_domain() {
    let fleet = |flags: &[&[&str]]| parse(flags).unwrap().fleet.unwrap();
    let several = ["--fleet-namespaces=team-a team-b", "--fleet-namespaces=team-c"];
    let config = parse(&[&FLEET, &TLS, &several]).unwrap();
    assert_eq!(config.rules.scope, Scope::Specs(Vec::new()), "a scope that is used by mistake matches nothing");
    assert_eq!(config.group_series, GroupSeries::SumsOnly);
    let config = config.fleet.unwrap();
    assert_eq!(config.selector.to_string(), "autoscaler=fleet");
    assert_eq!(config.trust_domain.to_string(), "prod.example");
    let namespaces = ["team-a", "team-b", "team-c"].map(str::to_owned);
    assert_eq!(config.namespaces, Some(namespaces.into()));
    let config = fleet(&[&FLEET, &TLS]);
    assert_eq!((config.namespaces, config.nodes), (None, NodeAccess::default()));
    for (nodes, expected) in [("none", NodeAccess::None), ("nodes-{cluster}", "nodes-{cluster}".parse().unwrap())] {
        let flag = format!("--workload-nodes={nodes}");
        assert_eq!(fleet(&[&FLEET, &TLS, &[&flag]]).nodes, expected);
    }
    let config = parse(&[&FLEET, &TLS, &["--fleet-group-metrics"]]).unwrap();
    assert_eq!(config.group_series, GroupSeries::Each);
    assert!(parse(&[&["--all-clusters"]]).unwrap().fleet.is_none());
}

#[rstest]
#[case::plaintext(&[], "knows its clients by their certificates")]
#[case::without_an_authority(&TLS[..2], "knows its clients by their certificates")]
#[case::insecure(&["--listen-allow-insecure", "--listen=0.0.0.0:8086"], "knows its clients by their certificates")]
#[case::a_unix_socket(&["--listen=unix:///run/grpc.sock"], "knows its clients by their certificates")]
#[case::a_unix_socket_and_files(
    &["--listen=unix:///run/grpc.sock", TLS[0], TLS[1], TLS[2]], "a Unix socket has no TLS"
)]
#[case::one_cluster(&["--cluster=team-a/prod", TLS[0], TLS[1], TLS[2]], "--fleet-selector and --cluster exclude")]
#[case::all(&["--all-clusters", TLS[0], TLS[1], TLS[2]], "--fleet-selector and --all-clusters exclude")]
#[case::discovery(
    &["--node-group-auto-discovery=clusterapi:", TLS[0], TLS[1], TLS[2]],
    "--fleet-selector and --node-group-auto-discovery exclude"
)]
#[case::a_workload_kubeconfig(&["--workload-kubeconfig=w", TLS[0], TLS[1], TLS[2]], "by the Secret of its Cluster")]
#[case::no_group_metrics(
    &["--no-group-metrics", TLS[0], TLS[1], TLS[2]],
    "--no-group-metrics (or CAPI_AUTOSCALER_NO_GROUP_METRICS): \"true\" can't be used: with --fleet-selector"
)]
#[case::group_metrics_and_none(
    &["--no-group-metrics", "--fleet-group-metrics", TLS[0], TLS[1], TLS[2]],
    "unless --fleet-group-metrics is given: leave this flag out"
)]
fn a_fleet_excludes(#[case] more: &[&str], #[case] expected: &str) {
    let error = parse(&[&FLEET, more]).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[rstest]
#[case::no_domain(&[FLEET[0]], "--fleet-selector needs --fleet-trust-domain")]
#[case::no_selector(&[FLEET[1]], "--fleet-trust-domain needs --fleet-selector")]
#[case::namespaces_alone(&["--fleet-namespaces=team-a"], "--fleet-namespaces needs --fleet-selector")]
#[case::group_metrics_alone(&["--fleet-group-metrics"], "--fleet-group-metrics needs --fleet-selector")]
#[case::selector(&["--fleet-selector=a b", FLEET[1]], "is none of key, !key")]
#[case::domain(&[FLEET[0], "--fleet-trust-domain=spiffe://a"], "a trust domain of SPIFFE")]
#[case::nodes(&[FLEET[0], FLEET[1], "--workload-nodes=kubeconfig"], "{cluster} stands once for the Cluster's name")]
#[case::namespace(&[FLEET[0], FLEET[1], "--fleet-namespaces=A"], "can't be the name of a Kubernetes object")]
fn flags_of_a_fleet_are_validated(#[case] flags: &[&str], #[case] expected: &str) {
    let error = parse(&[flags, &TLS]).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_subcommand_for_one_cluster_refuses_a_fleet() {
    let error = OneCluster::try_from(args(&[&FLEET, &TLS])).unwrap_err().to_string();
    assert!(error.contains("--fleet-selector") && error.contains("give --cluster"), "{error}");
}

/// Returns the configuration for one Cluster of a fleet.
fn one(flags: &[&[&str]]) -> Result<OneCluster, UsageError> {
    OneCluster::try_from(args(&[&["--cluster=team-a/stage"], &flags.concat()]))
}

#[test]
fn a_subcommand_for_one_cluster_looks_at_one_of_a_fleet_with_the_flags_of_the_fleet() {
    let OneCluster { config, fleet } = one(&[&FLEET, &TLS, &["--fleet-namespaces=team-b team-a"]]).unwrap();
    assert_eq!(config.rules.scope, Scope::Specs(vec![ScopeSpec::cluster("team-a", "stage")]));
    assert_eq!(config.workload, NodeAccess::default().of(&"team-a/stage".parse().unwrap()));
    assert_eq!(config.warnings, Vec::<String>::new(), "a fleet's clients need no list of names");
    assert_eq!(fleet.unwrap().to_string(), "autoscaler=fleet");
    for (nodes, expected) in [("none", "none"), ("{cluster}-nodes", "Secret team-a/stage-nodes")] {
        let flag = format!("--workload-nodes={nodes}");
        assert_eq!(one(&[&FLEET, &TLS, &[&flag]]).unwrap().config.workload.to_string(), expected);
    }
}

#[rstest]
#[case::no_domain(&[FLEET[0]], &TLS, "--fleet-selector needs --fleet-trust-domain")]
#[case::another_namespace(
    &[FLEET[0], FLEET[1], "--fleet-namespaces=team-b team-c"], &TLS,
    "\"team-b team-c\" can't be used: Cluster team-a/stage is in none of these"
)]
#[case::no_authority(&FLEET, &TLS[..2], "knows its clients by their certificates")]
fn flags_of_a_fleet_are_validated_beside_one_of_its_clusters(
    #[case] flags: &[&str],
    #[case] tls: &[&str],
    #[case] expected: &str,
) {
    let error = one(&[flags, tls]).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}
