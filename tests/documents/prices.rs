//! Checks the example's price file, and the one in its document.

use std::fs;

use app::App;
use app::prices::PriceFile;
use proto::cloud_provider_client::CloudProviderClient;
use rules::price::{Price, Rates, Tariff};

use super::{offline_server, read, root};

#[test]
fn the_price_file_and_the_one_in_its_document_are_read() {
    let (_, prices) = PriceFile::open(&root().join("examples/prices.yaml")).unwrap();
    let price = |number: f64| Price::try_from(number).unwrap();
    assert_eq!(prices.instance_types.get("g5.xlarge"), Some(&price(1.006)));
    assert_eq!(prices.resources.map(|rates| rates.memory), Some(price(0.00375)));
    let [spot, arm] = prices.selectors.as_slice() else { panic!("{prices:?}") };
    assert_eq!(spot.tariff, Tariff::Whole(price(0.074)));
    assert_eq!(arm.tariff, Tariff::Resources(Rates { cpu: price(0.0272), memory: price(0.003), gpu: None }));

    let document = read("docs/how-to/prices.md");
    let (_, rest) = document.split_once("```yaml\n").unwrap();
    let (form, _) = rest.split_once("```").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prices.yaml");
    fs::write(&file, form).unwrap();
    let (_, documented) = PriceFile::open(&file).unwrap();
    assert_eq!(documented.selectors, prices.selectors);
    assert!(documented.instance_types.iter().all(|known| prices.instance_types.get(known.0) == Some(known.1)));
}

/// Returns the price of a Node with these labels for two hours.
async fn price_of(server: &App, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let node = proto::ExternalGrpcNode { labels, ..proto::ExternalGrpcNode::default() };
    let request = proto::PricingNodePriceRequest {
        node: Some(node),
        start_timestamp: Some(prost_types::Timestamp { seconds: 0, nanos: 0 }),
        end_timestamp: Some(prost_types::Timestamp { seconds: 7200, nanos: 0 }),
        ..proto::PricingNodePriceRequest::default()
    };
    let mut client = CloudProviderClient::connect(format!("http://{}", server.grpc_address())).await.unwrap();
    client.pricing_node_price(request).await.unwrap().into_inner().price
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_prices_nodes_by_the_file_of_the_example() {
    let flag = format!("--prices={}", root().join("examples/prices.yaml").display());
    let (server, shutdown) = offline_server(&[&flag]).await;
    let large = ("node.kubernetes.io/instance-type", "m5.large");
    let xlarge = ("node.kubernetes.io/instance-type", "m5.xlarge");
    let spot = ("node.cluster.x-k8s.io/lifecycle", "spot");
    for (labels, expected) in [(&[large][..], 0.192), (&[xlarge], 0.384), (&[xlarge, spot], 0.148)] {
        let price = price_of(&server, labels).await;
        assert!((price - expected).abs() < 1e-9, "{labels:?}: {price}");
    }
    shutdown.request();
    server.finish().await.unwrap();
}
