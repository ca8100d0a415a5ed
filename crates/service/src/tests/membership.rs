//! Refresh, NodeGroups and NodeGroupForNode: the set of groups, and the group of a Node.

use jiff::Timestamp;
use rstest::rstest;
use tonic::Code;

use super::{LIMIT, Provider, UNKNOWN, WORKERS, annotated, annotations, assert_fails, inner, node, unregistered};
use index::objects;

const NOT_SYNCED: &str = "management/machines: the first list isn't complete yet";

#[tokio::test]
async fn refresh_is_unavailable_names_the_cache_and_pins_nothing_while_one_is_not_fresh() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.apply([annotated("more", &[])]);
    provider.stale(NOT_SYNCED);
    assert_fails(provider.refresh().await, Code::Unavailable, &["not ready: ", NOT_SYNCED]);
    assert_eq!(provider.group_ids().await.unwrap(), [WORKERS]);
    provider.fresh();
    provider.refresh().await.unwrap();
    assert_eq!(provider.group_ids().await.unwrap().len(), 2);
}

/// Cluster Autoscaler removes the taints of an interrupted scale-down once in its life, before its first Refresh.
#[rstest]
#[case::by_its_groups(false)]
#[case::by_a_node(true)]
#[tokio::test]
async fn what_is_asked_for_before_the_first_refresh_pins(#[case] asks_for_a_node: bool) {
    let mut provider = Provider::new(2, &["a"]).await;
    if asks_for_a_node {
        assert_eq!(provider.group_of(node("a", "cloud:///a")).await.id, WORKERS);
    } else {
        assert_eq!(provider.group_ids().await.unwrap(), [WORKERS]);
    }
    provider.apply([annotated("more", &[])]);
    assert_eq!(provider.group_ids().await.unwrap(), [WORKERS]);
    assert_eq!(provider.group_of(node("a", "cloud:///a")).await.id, WORKERS);
}

#[tokio::test]
async fn before_the_first_refresh_there_are_no_groups_and_a_node_is_nobodys_while_not_fresh() {
    let mut provider = Provider::new(2, &["a"]).await;
    provider.stale(NOT_SYNCED);
    assert_fails(provider.group_ids().await, Code::Unavailable, &[NOT_SYNCED]);
    assert_eq!(provider.group_of(node("a", "cloud:///a")).await.id, "", "nothing is pinned, so nothing is ours");
    provider.apply([annotated("more", &[])]);
    provider.fresh();
    assert_eq!(provider.group_of(node("a", "cloud:///a")).await.id, WORKERS);
    assert_eq!(provider.group_ids().await.unwrap().len(), 2, "it pinned as soon as it could");
}

/// The pins are those of an earlier caller, and may be days old.
#[rstest]
#[case::by_its_groups(false)]
#[case::by_a_node(true)]
#[tokio::test]
async fn a_caller_whose_connection_moves_pins_anew_once_nobody_else_is_in_a_loop(#[case] asks_for_a_node: bool) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.apply([
        annotated("more", &[]),
        objects::set_of("more", "more-1"),
        objects::joined("MachineSet/more-1", "m"),
    ]);
    let (mut before, channel) = provider.move_over().await;
    assert_eq!(provider.group_ids().await.unwrap(), [WORKERS], "the other caller may be in its loop");
    assert_eq!(provider.group_of(node("m", "cloud:///zone/m")).await, proto::NodeGroup::default());
    inner(before.node_groups(proto::NodeGroupsRequest {}).await).unwrap();
    drop((before, channel));
    let more = "MachineDeployment/team-a/more";
    let meets = async {
        loop {
            let met = if asks_for_a_node {
                provider.group_of(node("m", "cloud:///zone/m")).await.id == more
            } else {
                provider.group_ids().await.unwrap() == [more, WORKERS]
            };
            if met {
                break;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, meets).await.expect("it pins anew once the other connection is closed");
    provider.apply([annotated("yet-another", &[])]);
    assert_eq!(provider.group_ids().await.unwrap().len(), 2, "once in its loop");
}

/// Old pins are better than an error, which Cluster Autoscaler takes for an empty list.
#[tokio::test]
async fn a_caller_whose_connection_moves_keeps_old_pins_while_not_fresh() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.stale(NOT_SYNCED);
    drop(provider.move_over().await);
    provider.apply([annotated("more", &[])]);
    assert_eq!(provider.group_ids().await.unwrap(), [WORKERS]);
    assert_eq!(provider.group_of(node("a", "cloud:///a")).await.id, WORKERS);
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
    assert_eq!(provider.instances(WORKERS).await.unwrap().len(), 2);
    provider.increase(WORKERS, 1).await.unwrap();
}

#[rstest]
#[case::nameless(node("", ""))]
#[case::a_placeholder_in_a_path(unregistered("pending-machine-../../a_b"))]
#[case::a_nul(node("a\0", "cloud:///a\0"))]
#[case::letters_of_several_bytes(unregistered("pending-machine-täam_ä"))]
#[tokio::test]
async fn a_node_that_leads_nowhere_is_nobodys_and_no_error(#[case] node: proto::ExternalGrpcNode) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    assert_eq!(provider.group_of(node).await, proto::NodeGroup::default());
}

/// One thread answers all calls, so no name may occupy it.
#[rstest]
#[case::dashes("template-node-for-MachineDeployment/team-a/", "-")]
#[case::a_placeholder("pending-machine-", "a-")]
#[case::a_replica("replica-MachineDeployment-team-a_", "0-")]
#[case::a_path("cloud:///", "a/")]
#[tokio::test]
async fn a_huge_name_is_answered_in_no_time(#[case] prefix: &str, #[case] rest: &str) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let name = format!("{prefix}{}", rest.repeat((4 << 20) / rest.len()));
    let pairs = [("cluster.x-k8s.io/machine", name.as_str()), ("cluster.x-k8s.io/cluster-namespace", name.as_str())];
    let node = proto::ExternalGrpcNode { annotations: annotations(&pairs), ..unregistered(&name) };
    let answer = tokio::time::timeout(LIMIT, provider.group_of(node)).await;
    assert_eq!(answer.expect("an answer in time"), proto::NodeGroup::default());
}

#[tokio::test]
async fn cleanup_ends_nothing() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.client.cleanup(proto::CleanupRequest {}).await.unwrap();
    assert_eq!(provider.group_ids().await.unwrap(), [WORKERS]);
    provider.refresh().await.unwrap();
    provider.increase(WORKERS, 1).await.unwrap();
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 3);
}

#[tokio::test]
async fn answers_are_counted_by_rpc_and_code() {
    let mut provider = Provider::new(2, &[]).await;
    provider.stale(NOT_SYNCED);
    provider.refresh().await.unwrap_err();
    provider.fresh();
    for _ in 0..2 {
        provider.refresh().await.unwrap();
    }
    provider.target_size(UNKNOWN).await.unwrap_err();
    provider.increase(WORKERS, 0).await.unwrap_err();
    provider.client.pricing_node_price(proto::PricingNodePriceRequest::default()).await.unwrap_err();
    let metrics = provider.metrics();
    for (rpc, code, count) in [
        ("Refresh", "UNAVAILABLE", 1),
        ("Refresh", "OK", 2),
        ("NodeGroupTargetSize", "NOT_FOUND", 1),
        ("NodeGroupIncreaseSize", "INVALID_ARGUMENT", 1),
        ("PricingNodePrice", "UNIMPLEMENTED", 1),
    ] {
        let line = format!("grpc_answers_total{{rpc=\"{rpc}\",code=\"{code}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} isn't in {metrics}");
    }
    let of_refresh = metrics.matches("grpc_answers_total{rpc=\"Refresh\"").count();
    assert_eq!(of_refresh, 2, "codes that there were, and OK: {metrics}");
    assert!(metrics.contains("grpc_answers_total{rpc=\"Cleanup\",code=\"OK\"} 0\n"), "from 0 on: {metrics}");
    for (rpc, count) in [("Refresh", 3), ("NodeGroupTargetSize", 1), ("NodeGroupGetOptions", 0)] {
        let line = format!("grpc_answer_seconds_count{{rpc=\"{rpc}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} isn't in {metrics}");
    }
}

#[tokio::test]
async fn the_time_of_the_last_call_is_known_of_rpcs_that_were_called() {
    let mut provider = Provider::new(2, &[]).await;
    assert!(!provider.metrics().contains("grpc_last_call_timestamp_seconds{"));
    let before = Timestamp::now().as_second();
    provider.stale(NOT_SYNCED);
    provider.refresh().await.unwrap_err();
    let metrics = provider.metrics();
    let (_, rest) = metrics.split_once("grpc_last_call_timestamp_seconds{rpc=\"Refresh\"} ").unwrap();
    let at: i64 = rest.lines().next().unwrap().parse().unwrap();
    assert!((before..=Timestamp::now().as_second()).contains(&at), "{at}");
    assert_eq!(metrics.matches("grpc_last_call_timestamp_seconds{").count(), 1, "{metrics}");
}
