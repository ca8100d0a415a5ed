//! IncreaseSize, DecreaseTargetSize and DeleteNodes: the code of each refusal, and the reads right after a command.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tonic::Code;

use super::{LIMIT, Provider, UNKNOWN, WORKERS, annotated, assert_fails, node};
use index::{Change, objects};
use scale::fake::{Fault, status};

#[tokio::test]
async fn an_increase_shows_in_the_target_size_at_once() {
    let mut provider = Provider::pinned(2, &["a", "b"]).await;
    provider.increase(WORKERS, 3).await.unwrap();
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 5);
    assert_eq!(provider.world.api.replicas(), 5);
    assert_eq!(provider.instances(WORKERS).await.unwrap().len(), 5, "placeholders fill the target size");
}

#[tokio::test]
async fn a_size_by_a_wrong_delta_is_an_invalid_argument() {
    let mut provider = Provider::pinned(2, &[]).await;
    for delta in [0, -1, i32::MIN] {
        assert_fails(provider.increase(WORKERS, delta).await, Code::InvalidArgument, &[WORKERS, &delta.to_string()]);
    }
    for delta in [0, 1, i32::MAX] {
        assert_fails(provider.decrease(WORKERS, delta).await, Code::InvalidArgument, &[WORKERS, &delta.to_string()]);
    }
    assert!(provider.world.api.calls().is_empty());
}

#[tokio::test]
async fn a_size_beyond_a_bound_is_a_failed_precondition_with_both_numbers() {
    let mut provider = Provider::pinned(2, &["a", "b"]).await;
    assert_fails(provider.increase(WORKERS, 9).await, Code::FailedPrecondition, &[WORKERS, "11", "maximum of 10"]);
    assert_fails(provider.increase(WORKERS, i32::MAX).await, Code::FailedPrecondition, &["2147483649", "10"]);
    let nodes = vec![node("a", "cloud:///a"), node("b", "cloud:///b")];
    assert_fails(provider.delete(WORKERS, nodes).await, Code::FailedPrecondition, &["is 0", "minimum of 1"]);
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
    // The Machines are read, since another replica may have deleted some of them.
    assert!(provider.world.api.calls().iter().all(|call| call.starts_with("GET machine")));
}

#[tokio::test]
async fn a_node_that_leads_nowhere_is_not_found_and_nothing_is_written() {
    let mut provider = Provider::pinned(3, &["a", "b", "c"]).await;
    let nodes = vec![node("a", "cloud:///a"), node("x", "cloud:///x")];
    assert_fails(provider.delete(WORKERS, nodes).await, Code::NotFound, &["cloud:///x", WORKERS]);
    assert!(provider.world.api.calls().is_empty());
}

#[tokio::test]
async fn a_node_of_another_group_is_an_invalid_argument_that_names_both() {
    let more = "MachineDeployment/team-a/more";
    let mut provider = Provider::with([
        annotated("more", &[]),
        objects::set_of("more", "more-1"),
        objects::joined("MachineSet/more-1", "m"),
    ])
    .await;
    let nodes = vec![node("m", "cloud:///zone/m")];
    assert_fails(provider.delete(WORKERS, nodes).await, Code::InvalidArgument, &["cloud:///zone/m", more, WORKERS]);
    assert!(provider.world.api.calls().is_empty());
}

#[tokio::test]
async fn deleting_nothing_is_a_success() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.delete(WORKERS, Vec::new()).await.unwrap();
    assert!(provider.world.api.calls().is_empty());
}

/// Reads continue with the last values; a write to an object that isn't a group any more is refused.
#[tokio::test]
async fn a_group_that_is_none_any_more_is_a_failed_precondition() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.apply([Change::ScalableGone(objects::id(WORKERS))]);
    assert_fails(provider.increase(WORKERS, 1).await, Code::FailedPrecondition, &[WORKERS, "deleted"]);
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
    provider.refresh().await.unwrap();
    assert_fails(provider.increase(WORKERS, 1).await, Code::NotFound, &[WORKERS]);
    assert_fails(provider.increase(UNKNOWN, 1).await, Code::NotFound, &[UNKNOWN]);
}

#[rstest]
#[case::forbidden(403, Code::PermissionDenied)]
#[case::refused_by_a_webhook(400, Code::FailedPrecondition)]
#[case::gone(404, Code::NotFound)]
#[tokio::test]
async fn an_answer_of_the_api_server_has_its_code_and_its_words(#[case] answer: u16, #[case] code: Code) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.world.api.fault("PATCH scale", Fault::Answer(answer, status(answer, "the API server's own words")));
    let result = provider.increase(WORKERS, 1).await;
    assert_fails(result, code, &[WORKERS, "the API server's own words"]);
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
}

#[tokio::test]
async fn a_call_that_its_caller_gives_up_is_counted_as_cancelled() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    provider.world.api.fault("PATCH scale", Fault::Hold);
    let mut request = tonic::Request::new(proto::NodeGroupIncreaseSizeRequest { delta: 1, id: WORKERS.to_owned() });
    request.set_timeout(Duration::from_millis(50));
    provider.client.node_group_increase_size(request).await.unwrap_err();
    let line = "grpc_answers_total{rpc=\"NodeGroupIncreaseSize\",code=\"CANCELLED\"} 1\n";
    let seen = async {
        while !provider.metrics().contains(line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, seen).await.unwrap();
    provider.world.api.release();
}

#[tokio::test]
async fn an_api_server_that_stays_busy_is_unavailable() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let mut busy = status(429, "too many requests");
    busy["details"] = json!({"retryAfterSeconds": 600});
    provider.world.api.fault("PATCH scale", Fault::Answer(429, busy));
    assert_fails(provider.increase(WORKERS, 1).await, Code::Unavailable, &[WORKERS, "too many requests"]);
}

/// A webhook's message may be very long, and a status is sent in a header.
#[tokio::test]
async fn words_beyond_all_measure_are_cut_and_keep_their_code() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let words = "\u{1f480} no\n".repeat(100_000);
    provider.world.api.fault("PATCH scale", Fault::Answer(403, status(403, &words)));
    assert_fails(provider.increase(WORKERS, 1).await, Code::PermissionDenied, &[WORKERS, "\u{1f480} no"]);
}
