//! IncreaseSize, DecreaseTargetSize and DeleteNodes: the code of each refusal, and the reads right after a command.

use std::time::Duration;

use rstest::rstest;
use serde_json::json;
use tonic::Code;

use super::{LIMIT, Provider, UNKNOWN, WORKERS, annotated, assert_fails, node};
use index::{Change, objects};
use scale::fake::{Fault, status};

/// The words are those of `scale`, and the codes are this table and those of the API server's answers.
#[tokio::test]
async fn each_refusal_has_its_code_and_writes_nothing() {
    let mut provider = Provider::with([
        annotated("more", &[]),
        objects::set_of("more", "more-1"),
        objects::joined("MachineSet/more-1", "m"),
    ])
    .await;
    assert_fails(provider.increase(WORKERS, 0).await, Code::InvalidArgument, &[WORKERS, "0"]);
    assert_fails(provider.decrease(WORKERS, i32::MAX).await, Code::InvalidArgument, &[WORKERS, "2147483647"]);
    let beyond = provider.increase(WORKERS, i32::MAX).await;
    assert_fails(beyond, Code::FailedPrecondition, &[WORKERS, "2147483649", "maximum of 10"]);
    let of_another = provider.delete(WORKERS, vec![node("m", "cloud:///zone/m")]).await;
    let both = ["cloud:///zone/m", "MachineDeployment/team-a/more", WORKERS];
    assert_fails(of_another, Code::InvalidArgument, &both);
    let nowhere = vec![node("a", "cloud:///a"), node("x", "cloud:///x")];
    assert_fails(provider.delete(WORKERS, nowhere).await, Code::NotFound, &["cloud:///x", WORKERS]);
    provider.delete(WORKERS, Vec::new()).await.unwrap();
    assert!(provider.world.api.calls().is_empty());
    // The Machines are read, since another replica may have deleted some of them.
    let all = vec![node("a", "cloud:///a"), node("b", "cloud:///b")];
    assert_fails(provider.delete(WORKERS, all).await, Code::FailedPrecondition, &["is 0", "minimum of 1"]);
    assert!(provider.world.api.calls().iter().all(|call| call.starts_with("GET machine")));
    assert_eq!(provider.target_size(WORKERS).await.unwrap(), 2);
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
#[case::busy_for_long(429, Code::Unavailable)]
#[tokio::test]
async fn an_answer_of_the_api_server_has_its_code_and_its_words(#[case] answer: u16, #[case] code: Code) {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let mut words = status(answer, "the API server's own words");
    words["details"]["retryAfterSeconds"] = json!(600);
    provider.world.api.fault("PATCH scale", Fault::Answer(answer, words));
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

/// A webhook's message may be very long, and a status is sent in a header.
#[tokio::test]
async fn words_beyond_all_measure_are_cut_and_keep_their_code() {
    let mut provider = Provider::pinned(2, &["a"]).await;
    let words = "\u{1f480} no\n".repeat(100_000);
    provider.world.api.fault("PATCH scale", Fault::Answer(403, status(403, &words)));
    assert_fails(provider.increase(WORKERS, 1).await, Code::PermissionDenied, &[WORKERS, "\u{1f480} no"]);
}
