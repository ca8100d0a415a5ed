//! A write of a fleet, over TLS: log, Event and history name the Cluster, certificate and address of its caller.

use std::net::Ipv4Addr;

use rcgen::SerialNumber;
use sandbox::{
    Settings, Times,
    api::{Resource, Selection},
    clock::Clock,
    clusters::{Clusters, ClustersOptions},
};
use serde_json::Value;
use service::listen::Client;
use testkit::until;

use super::*;
use crate::log::Log;

const URI: &str = "spiffe://prod.example/ns/team-000/cluster/c1";
const DEPLOYMENT: &str = "c1-group-0000";
const GROUP: &str = "MachineDeployment/team-000/c1-group-0000";

/// Returns the texts of the history of a Cluster's groups.
async fn history(admin: SocketAddr, cluster: &str) -> Vec<String> {
    let cluster = format!("team-000/{cluster}");
    let printed = says(admin, &["groups", "--cluster", &cluster, "-o", "json"]).await.unwrap();
    let state: Value = serde_json::from_str(&printed).unwrap();
    let groups = state["groups"].as_array().unwrap();
    let entries = groups.iter().flat_map(|group| group["history"].as_array().into_iter().flatten());
    entries.map(|entry| entry["text"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_logged_posted_and_kept_with_cluster_certificate_and_address_of_its_caller() {
    let log = Log::keep();
    let (dir, servers, clients) = (TempDir::new().unwrap(), Authority::new(), Authority::new());
    let options = ClustersOptions {
        settings: Settings { times: Times::ZERO, ..Settings::default() },
        clock: Clock::real(),
        management: (Ipv4Addr::LOCALHOST, 0).into(),
        clusters: 2,
        machines: 1,
        label: ("autoscaler".to_owned(), "fleet".to_owned()),
        controllers: true,
    };
    let clusters = Clusters::start(options).await.unwrap();
    let flags = tls(dir.path(), &servers, &clients);
    let mut config = config(dir.path(), clusters.management().address(), &flags);
    config.events = true;
    let running = Running::start(config).await;
    let certificate = clients.of_uris_with(&[URI], |params| {
        params.serial_number = Some(SerialNumber::from_slice(&[0x0a, 0x1b]));
    });
    let mut client = client(&servers, &certificate, running.grpc);
    until_served(&mut client).await;
    let request = proto::NodeGroupIncreaseSizeRequest { delta: 1, id: GROUP.to_owned() };
    client.node_group_increase_size(request).await.unwrap();

    let caller = Client {
        uri: Some(URI.into()),
        serial: Some("0a1b".into()),
        peer: Some(Ipv4Addr::LOCALHOST.into()),
        ..Client::default()
    };
    let caller = caller.certified();
    assert_eq!(caller.as_str(), format!("{URI}, certificate 0a1b, from 127.0.0.1"));
    let logged = format!("client=\"{caller}\"");
    for message in ["size written", "command done"] {
        assert_eq!(log.lines(&[GROUP, &logged, message]).len(), 1, "{message}: {:?}", log.lines(&[GROUP]));
    }
    let origin = format!(" (asked for by {caller})");
    let events = Resource::new("events.k8s.io", "v1", "events");
    let note = until("the Event", async || {
        let events = clusters.management().api().list(&events, &Selection::default()).unwrap();
        let is_it = |event: &Value| event["reason"] == "ScaledUp" && event["regarding"]["name"] == DEPLOYMENT;
        events.iter().find(|event| is_it(event)).map(|event| event["note"].as_str().unwrap().to_owned())
    })
    .await;
    assert_eq!(note, format!("1→2{origin}"));
    let admin = running.app.admin_address().unwrap();
    let history_of_it = history(admin, "c1").await;
    assert!(history_of_it.contains(&note), "{history_of_it:?}");
    assert!(history(admin, "c0").await.is_empty());
    drop(client);
    running.end().await;
    clusters.stop().await;
}
