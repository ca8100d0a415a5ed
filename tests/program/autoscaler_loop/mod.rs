//! Runs the loop of `examples/autoscaler_loop.rs` against the real service: it must make as many calls as Cluster
//! Autoscaler.

mod serving;

use std::{collections::BTreeMap, io::Write as _};

use clap::Parser as _;
use index::Index;
use rstest::rstest;
use rules::capi::Context;
use sandbox::requests::Request;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{args, calls, fleet, nodes, report, service};

const GROUPS: usize = 3;
const MACHINES_PER_GROUP: usize = 2;
/// The number of Nodes without a group.
const OTHERS: usize = 4;

async fn play(flags: &[&str]) -> report::Report {
    play_at("", flags).await
}

/// Runs loops against an address with a scheme.
async fn play_at(scheme: &str, flags: &[&str]) -> report::Report {
    let shutdown = CancellationToken::new();
    let index = Index::new(fleet::rules());
    fleet::fill(&index, GROUPS, MACHINES_PER_GROUP);
    fleet::add_deployment(&index, &Context::new("cluster.x-k8s.io"), "empty", 0);
    index.refresh();
    let server = service::serve(index, &Handle::current(), &shutdown);
    let (address, nodes) =
        (format!("{scheme}{}", server.address()), (GROUPS * MACHINES_PER_GROUP + OTHERS).to_string());
    let flags = [&["x", "--address", &address, "--nodes", &nodes, "--block", "10"], flags].concat();
    let args = args::Args::parse_from(flags);
    let mut caller = calls::Caller::connect(&args.address, (&args).into()).await.unwrap();
    let fleet = nodes::fleet(&mut caller, &args).await.unwrap();
    for _ in 0..args.loops {
        caller.play(&fleet).await.unwrap();
    }
    shutdown.cancel();
    report::Report::new((&args).into(), &fleet, args.loops, caller.samples())
}

#[rstest]
#[case::first_of_the_new_options("1.35", 6, 1)]
#[case::latest("1.36", 6, 2)]
#[case::old_fields("1.33", 4, 1)]
#[case::both_fields("1.34", 4, 1)]
#[tokio::test(flavor = "multi_thread")]
async fn the_calls_are_as_many_as_cluster_autoscalers(
    #[case] version: &str,
    #[case] options: usize,
    #[case] loops: usize,
) {
    let report = play(&["--ca-version", version, "--loops", &loops.to_string(), "--empty", "both"]).await;
    let grouped = GROUPS * MACHINES_PER_GROUP;
    assert_eq!((report.groups, report.nodes, report.grouped_nodes), (GROUPS + 1, grouped + OTHERS, grouped));
    let expected = [
        ("NodeGroupForNode", grouped + 5 * OTHERS),
        ("NodeGroupGetOptions", options * grouped),
        ("NodeGroupTargetSize", 3 * (GROUPS + 1)),
        ("NodeGroupTemplateNodeInfo", 1),
        ("NodeGroups", 1),
        ("Refresh", 1),
    ];
    let played: BTreeMap<_, _> = report.rpcs.iter().map(|row| (row.rpc.as_str(), row.n)).collect();
    assert_eq!(played, expected.map(|(rpc, n)| (rpc, n * loops)).into());
    let all: usize = expected.iter().map(|(_, n)| n * loops).sum();
    assert_eq!(report.whole.n, all);
    assert_eq!(
        report.empty.iter().map(|row| (row.rpc.as_str(), row.n)).collect::<Vec<_>>(),
        [("GPULabel", all), ("Refresh", all)]
    );
    assert_eq!(report.instances.as_ref().unwrap().n, (GROUPS + 1) * loops);
    assert!(report.whole.errors.is_empty(), "{:?}", report.whole.errors);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_report_is_a_table_and_json() {
    let report = play(&[]).await;
    let table = report.table();
    assert!(table.starts_with("Cluster Autoscaler 1.36, 4 groups, 10 Nodes (6 of a group), 1 loop\n"), "{table}");
    assert!(table.lines().any(|line| line.starts_with("the whole loop ")), "{table}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["caVersion"], &json["loop"]["n"]), (&"1.36".into(), &report.whole.n.into()));
    assert!(json["loop"]["ratio"]["Refresh"].as_f64().unwrap() > 0.0);
}

/// Runs a loop at the size of a large cluster, with the program in a process of its own. Its duration and memory are
/// written to the log of the tests, since machines differ too much to assert them.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_of_5000_nodes_asks_neither_api() {
    const GROUPS: usize = 200;
    const NODES: usize = 5_000;
    let program = serving::Program::start(GROUPS, NODES / GROUPS).await;
    let kubeconfig = program.sandbox.workload_kubeconfig();
    let kubeconfig = kubeconfig.to_str().unwrap();
    // Fewer empty calls than in a measurement, since an unoptimized build is slow.
    let flags = ["x", "--address", &program.address, "--kubeconfig", kubeconfig, "--empty-calls", "10"];
    let args = args::Args::parse_from(flags);
    let mut caller = calls::Caller::connect(&args.address, (&args).into()).await.unwrap();
    let fleet = nodes::fleet(&mut caller, &args).await.unwrap();
    program.forget_requests().await;

    caller.play(&fleet).await.unwrap();

    let report = report::Report::new((&args).into(), &fleet, 1, caller.samples());
    let memory = cfg!(target_os = "linux").then(|| ["VmRSS", "VmHWM"].map(|field| program.memory(field)));
    writeln!(std::io::stderr(), "{}resident memory of the program and its peak, in KiB: {memory:?}", report.table())
        .unwrap();
    let expected = [
        ("NodeGroupForNode", NODES),
        ("NodeGroupGetOptions", 6 * NODES),
        ("NodeGroupTargetSize", 3 * GROUPS),
        ("NodeGroups", 1),
        ("Refresh", 1),
    ];
    let played: BTreeMap<_, _> = report.rpcs.iter().map(|row| (row.rpc.as_str(), row.n)).collect();
    assert_eq!(played, expected.into());
    assert_eq!((report.whole.n, report.empty[0].n), (35_602, 3_562));
    let errors = report.rpcs.iter().chain(&report.empty).chain(&report.instances).map(|row| &row.errors);
    assert!(errors.clone().all(BTreeMap::is_empty), "{:?}", errors.collect::<Vec<_>>());
    for api in [program.sandbox.management(), program.sandbox.workload()] {
        let asked = api.requests().all().into_iter().filter(|request| !comes_by_itself(request));
        assert_eq!(asked.collect::<Vec<_>>(), []);
    }
    program.stop().await;
}

/// Returns true for requests that the program makes without a call: discovery and the Secret with the workload
/// cluster's kubeconfig once a minute, and watches that replace ended ones.
fn comes_by_itself(request: &Request) -> bool {
    let path: Vec<_> = request.path.trim_matches('/').split('/').collect();
    let is_discovery = matches!(path[..], ["api" | "apis"] | ["api", _] | ["apis", _, _]);
    let is_kubeconfig = matches!(path[..], [.., "secrets", "prod-kubeconfig"]);
    request.verb == "watch" || (request.verb == "get" && (is_discovery || is_kubeconfig))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_may_be_a_url_as_the_sandbox_prints_it() {
    assert_eq!(play_at("http://", &[]).await.groups, GROUPS + 1);
}
