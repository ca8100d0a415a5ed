//! PricingNodePrice and PricingPodPrice: old and new fields, time spans, pods, and missing prices.

use k8s_pb::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    apimachinery::pkg::api::resource::Quantity,
};
use prost::Message as _;
use prost_types::Timestamp;
use rstest::rstest;
use rules::capi::PRICE_PER_HOUR;
use tonic::{Code, Status};

use super::{Provider, assert_fails, inner, node};
use index::{Change, objects};
use proto::{PricingNodePriceRequest, PricingPodPriceRequest};

const HOUR: i64 = 3600;

/// Returns the group `workers`, whose Nodes have 8 cores and 64 GiB and this price.
fn workers(price: &str) -> Change {
    let mut more = objects::capacity_annotations("8", "64Gi");
    objects::merge(&mut more, &serde_json::json!({"metadata": {"annotations": {PRICE_PER_HOUR: price}}}));
    objects::deployment("workers", 2, ("1", "10"), &more)
}

fn template_node() -> proto::ExternalGrpcNode {
    node("template-node-for-MachineDeployment/team-a/workers-1", "")
}

#[allow(clippy::unnecessary_wraps)] // as the fields have it
fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

/// Returns the request of Cluster Autoscaler 1.33 for an hour.
fn old() -> PricingNodePriceRequest {
    PricingNodePriceRequest { start_time: at(7 * HOUR), end_time: at(8 * HOUR), ..PricingNodePriceRequest::default() }
}

/// Returns the request of 1.35.
fn new() -> PricingNodePriceRequest {
    PricingNodePriceRequest {
        start_timestamp: at(7 * HOUR),
        end_timestamp: at(8 * HOUR),
        ..PricingNodePriceRequest::default()
    }
}

/// Returns the request of 1.34.2.
fn both() -> PricingNodePriceRequest {
    PricingNodePriceRequest { start_timestamp: at(7 * HOUR), end_timestamp: at(8 * HOUR), ..old() }
}

async fn node_price(provider: &mut Provider, request: PricingNodePriceRequest) -> Result<f64, Status> {
    let request = PricingNodePriceRequest { node: request.node.or(Some(template_node())), ..request };
    inner(provider.client.pricing_node_price(request).await).map(|answer| answer.price)
}

/// Returns the price of a pod for the time span of a request about a Node.
async fn pod_price(provider: &mut Provider, pod: &Pod, span: PricingNodePriceRequest) -> Result<f64, Status> {
    let request = PricingPodPriceRequest {
        pod_bytes: pod.encode_to_vec().into(),
        start_time: span.start_time,
        end_time: span.end_time,
        start_timestamp: span.start_timestamp,
        end_timestamp: span.end_timestamp,
        ..PricingPodPriceRequest::default()
    };
    inner(provider.client.pricing_pod_price(request).await).map(|answer| answer.price)
}

fn container(requests: &[(&str, &str)], restart_policy: Option<&str>) -> Container {
    let quantity = |text: &str| Quantity { string: Some(text.to_owned()) };
    let requests = requests.iter().map(|(resource, text)| ((*resource).to_owned(), quantity(text))).collect();
    Container {
        name: Some("one".to_owned()),
        resources: Some(ResourceRequirements { requests, ..ResourceRequirements::default() }),
        restart_policy: restart_policy.map(str::to_owned),
        ..Container::default()
    }
}

fn pod(spec: PodSpec) -> Pod {
    Pod { spec: Some(spec), ..Pod::default() }
}

fn asking_for(requests: &[(&str, &str)]) -> Pod {
    pod(PodSpec { containers: vec![container(requests, None)], ..PodSpec::default() })
}

#[track_caller]
fn assert_price(answer: Result<f64, Status>, expected: f64) {
    let price = answer.unwrap();
    assert!((price - expected).abs() < 1e-9, "{price} isn't {expected}");
}

#[rstest]
#[case::old_fields(old())]
#[case::new_fields(new())]
#[case::both(both())]
#[case::the_new_ones_are_believed(PricingNodePriceRequest { start_time: at(0), end_time: at(99), ..new() })]
#[case::one_of_each(PricingNodePriceRequest { start_time: at(7 * HOUR), start_timestamp: None, ..new() })]
#[tokio::test]
async fn an_hour_costs_the_price_per_hour(#[case] request: PricingNodePriceRequest) {
    let mut provider = Provider::with([workers("0.8")]).await;
    assert_price(node_price(&mut provider, request.clone()).await, 0.8);
    assert_price(pod_price(&mut provider, &asking_for(&[("cpu", "2")]), request).await, 0.1);
}

#[rstest]
#[case::nothing(0, 0.0)]
#[case::half_an_hour(HOUR / 2, 0.4)]
#[case::a_second(1, 0.8 / 3600.0)]
#[case::a_year(8760 * HOUR, 7008.0)]
#[tokio::test]
async fn the_price_grows_with_the_time_span(#[case] seconds: i64, #[case] expected: f64) {
    let mut provider = Provider::with([workers("0.8")]).await;
    let request = PricingNodePriceRequest { end_timestamp: at(7 * HOUR + seconds), ..new() };
    assert_price(node_price(&mut provider, request).await, expected);
}

#[rstest]
#[case::the_end_before_the_start(PricingNodePriceRequest { end_timestamp: at(6 * HOUR), ..new() }, "ends before it starts")]
#[case::the_end_before_the_start_in_old_fields(PricingNodePriceRequest { end_time: at(6 * HOUR), ..old() }, "ends before it starts")]
#[case::no_start(PricingNodePriceRequest { start_timestamp: None, ..new() }, "has no start: set startTimestamp")]
#[case::no_end(PricingNodePriceRequest { end_timestamp: None, ..new() }, "has no end: set endTimestamp")]
#[case::no_times(PricingNodePriceRequest::default(), "has no start")]
#[case::a_time_beyond_all_calendars(PricingNodePriceRequest { end_timestamp: at(i64::MAX), ..new() }, "the end of the time span is no time")]
#[case::broken_nanoseconds(
    PricingNodePriceRequest { end_timestamp: Some(Timestamp { seconds: 8 * HOUR, nanos: -1 }), ..new() },
    "the end of the time span is no time"
)]
#[tokio::test]
async fn a_time_span_that_is_none_is_an_invalid_argument(#[case] request: PricingNodePriceRequest, #[case] part: &str) {
    let mut provider = Provider::with([workers("0.8")]).await;
    assert_fails(node_price(&mut provider, request.clone()).await, Code::InvalidArgument, &[part]);
    let pod = asking_for(&[("cpu", "1")]);
    assert_fails(pod_price(&mut provider, &pod, request).await, Code::InvalidArgument, &[part]);
}

#[tokio::test]
async fn a_pod_costs_what_the_scheduler_counts() {
    let spec = PodSpec {
        init_containers: vec![container(&[("cpu", "1")], Some("Always"))],
        containers: vec![container(&[("cpu", "1"), ("memory", "8Gi")], None)],
        overhead: [("cpu".to_owned(), Quantity { string: Some("500m".to_owned()) })].into(),
        ..PodSpec::default()
    };
    let mut provider = Provider::with([workers("0.8")]).await;
    // The price is 0.05 per core and 0.05 per 8 GiB.
    assert_price(pod_price(&mut provider, &pod(spec), new()).await, 0.175);
}

#[tokio::test]
async fn the_old_field_of_a_pod_is_read_when_the_new_one_is_empty() {
    let mut provider = Provider::with([workers("0.8")]).await;
    let request = PricingPodPriceRequest {
        pod: asking_for(&[("cpu", "2")]).encode_to_vec().into(),
        start_time: at(0),
        end_time: at(HOUR),
        ..PricingPodPriceRequest::default()
    };
    assert_price(inner(provider.client.pricing_pod_price(request.clone()).await).map(|answer| answer.price), 0.1);
    let both = PricingPodPriceRequest { pod_bytes: asking_for(&[("cpu", "4")]).encode_to_vec().into(), ..request };
    assert_price(inner(provider.client.pricing_pod_price(both).await).map(|answer| answer.price), 0.2);
}

#[rstest]
#[case::no_pod(b"", &["there is no pod"])]
#[case::no_encoded_pod(b"\xff\xff", &["no encoded core/v1 Pod"])]
#[tokio::test]
async fn a_pod_that_is_none_is_an_invalid_argument(#[case] pod_bytes: &'static [u8], #[case] parts: &[&str]) {
    let mut provider = Provider::with([workers("0.8")]).await;
    let request = PricingPodPriceRequest {
        pod_bytes: pod_bytes.into(),
        start_timestamp: at(0),
        end_timestamp: at(HOUR),
        ..PricingPodPriceRequest::default()
    };
    assert_fails(provider.client.pricing_pod_price(request).await, Code::InvalidArgument, parts);
}

#[tokio::test]
async fn a_pod_with_a_broken_amount_is_an_invalid_argument_that_names_it() {
    let mut provider = Provider::with([workers("0.8")]).await;
    let answer = pod_price(&mut provider, &asking_for(&[("cpu", "one")]), new()).await;
    assert_fails(answer, Code::InvalidArgument, &["container \"one\"", "\"cpu\" is \"one\""]);
}

#[tokio::test]
async fn where_nothing_has_a_price_both_are_unimplemented() {
    let mut provider = Provider::with([workers("")]).await;
    let parts = [PRICE_PER_HOUR, "--prices"];
    assert_fails(node_price(&mut provider, new()).await, Code::Unimplemented, &parts);
    assert_fails(pod_price(&mut provider, &asking_for(&[("cpu", "1")]), new()).await, Code::Unimplemented, &parts);
}

#[tokio::test]
async fn a_node_without_a_price_among_others_is_not_found() {
    let others = objects::deployment("others", 2, ("1", "10"), &objects::capacity_annotations("8", "64Gi"));
    let mut provider = Provider::with([workers("0.8"), others]).await;
    let of = |node| PricingNodePriceRequest { node: Some(node), ..new() };
    let others = node("template-node-for-MachineDeployment/team-a/others-1", "");
    let parts = ["MachineDeployment/team-a/others", PRICE_PER_HOUR];
    assert_fails(node_price(&mut provider, of(others)).await, Code::NotFound, &parts);
    let stranger = node("stranger", "cloud:///zone/stranger");
    assert_fails(node_price(&mut provider, of(stranger)).await, Code::NotFound, &["belongs to no node group"]);
}
