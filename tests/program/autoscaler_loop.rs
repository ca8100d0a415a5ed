//! Runs the loop of `examples/autoscaler_loop.rs` against the real service: it must make as many calls as Cluster
//! Autoscaler.

use std::collections::BTreeMap;

use clap::Parser as _;
use index::Index;
use rules::capi::Context;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::{autoscaler_loop_example as autoscaler_loop, fleet, service};

const GROUPS: usize = 3;
const MACHINES_PER_GROUP: usize = 2;
/// The number of Nodes without a group.
const OTHERS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn the_calls_are_as_many_as_cluster_autoscalers() {
    let (loops, shutdown) = (2, CancellationToken::new());
    let index = Index::new(fleet::rules());
    fleet::fill(&index, GROUPS, MACHINES_PER_GROUP);
    fleet::add_deployment(&index, &Context::new("cluster.x-k8s.io"), "empty", 0);
    index.refresh();
    let server = service::serve(index, &Handle::current(), &shutdown);
    let (address, nodes) = (server.address().to_string(), (GROUPS * MACHINES_PER_GROUP + OTHERS).to_string());
    let flags = ["x", "--address", &address, "--nodes", &nodes, "--block", "10", "--loops", "2"];
    let report = autoscaler_loop::play(&autoscaler_loop::Args::parse_from(flags)).await.unwrap();
    shutdown.cancel();

    let grouped = GROUPS * MACHINES_PER_GROUP;
    assert_eq!((report.groups, report.nodes, report.grouped_nodes), (GROUPS + 1, grouped + OTHERS, grouped));
    let expected = [
        ("NodeGroupForNode", grouped + 5 * OTHERS),
        ("NodeGroupGetOptions", 6 * grouped),
        ("NodeGroupTargetSize", 3 * (GROUPS + 1)),
        ("NodeGroupTemplateNodeInfo", 1),
        ("NodeGroups", 1),
        ("Refresh", 1),
    ];
    let played: BTreeMap<_, _> = report.rpcs.iter().map(|(rpc, samples)| (*rpc, samples.took.len())).collect();
    assert_eq!(played, expected.map(|(rpc, n)| (rpc, n * loops)).into());
    let all: usize = expected.iter().map(|(_, n)| n * loops).sum();
    assert_eq!((report.whole().took.len(), report.empty.took.len()), (all, all));
    assert_eq!(report.instances.took.len(), (GROUPS + 1) * loops);
    assert!(report.whole().errors.is_empty(), "{:?}", report.whole().errors);
}
