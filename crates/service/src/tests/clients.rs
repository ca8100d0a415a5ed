//! Clients with a name: read-only clients write nothing and don't affect other clients, and the writes of the others
//! are recorded with the client's name.

use prometheus_client::registry::Registry;
use rules::GroupId;
use tonic::Request;

use super::*;
use crate::listen::{Client, Connection};
use proto::cloud_provider_server::CloudProvider as _;

fn asked_by<T>(connection: &Connection, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(connection.clone());
    request
}

fn client(name: &str, is_read_only: bool) -> Connection {
    Connection::of(Client { name: name.into(), is_read_only, ..Client::default() })
}

fn session(world: &World) -> Session {
    Session::new(Arc::clone(&world.index), world.scale.clone(), || Ok(()), CallLogOptions::default())
}

fn served(session: Session) -> Service {
    let metrics = RpcMetrics::register(&mut Registry::default());
    Service::new(Arc::new(Arc::new(session)), metrics, CallLogOptions::default())
}

fn service(world: &World) -> Service {
    served(session(world))
}

#[tokio::test]
async fn a_client_that_may_only_read_writes_nothing() {
    let world = World::new(2, &["a", "b"]);
    let (service, dashboard) = (service(&world), client("dashboard", true));
    service.refresh(asked_by(&dashboard, proto::RefreshRequest {})).await.unwrap();
    let id = || WORKERS.to_owned();
    let increase = proto::NodeGroupIncreaseSizeRequest { delta: 1, id: id() };
    let decrease = proto::NodeGroupDecreaseTargetSizeRequest { delta: -1, id: id() };
    let delete = proto::NodeGroupDeleteNodesRequest { nodes: vec![node("a", "")], id: id() };
    let why = ["client dashboard may only read", "--tls-read-only-client-names"];
    let refused = service.node_group_increase_size(asked_by(&dashboard, increase)).await;
    assert_fails(refused, Code::PermissionDenied, &why);
    let refused = service.node_group_decrease_target_size(asked_by(&dashboard, decrease)).await;
    assert_fails(refused, Code::PermissionDenied, &why);
    let refused = service.node_group_delete_nodes(asked_by(&dashboard, delete)).await;
    assert_fails(refused, Code::PermissionDenied, &why);
    let size = proto::NodeGroupTargetSizeRequest { id: id() };
    let size = service.node_group_target_size(asked_by(&dashboard, size)).await.unwrap().into_inner();
    assert_eq!(size.target_size, 2);
    assert_eq!(world.scale.history().of(&GroupId::parse(WORKERS).unwrap()), []);
}

/// Only Cluster Autoscaler's own Refresh changes its set of groups.
#[tokio::test]
async fn a_client_that_may_only_read_changes_nothing_under_another_ones_loop() {
    let world = World::new(2, &["a", "b"]);
    let service = service(&world);
    let (autoscaler, dashboard) = (client("cluster-autoscaler", false), client("dashboard", true));
    service.refresh(asked_by(&autoscaler, proto::RefreshRequest {})).await.unwrap();
    world.index.apply_and_take_notices(annotated("more", &[]));
    service.refresh(asked_by(&dashboard, proto::RefreshRequest {})).await.unwrap();
    let groups = async |connection: &Connection| {
        let groups = service.node_groups(asked_by(connection, proto::NodeGroupsRequest {})).await.unwrap();
        groups.into_inner().node_groups.len()
    };
    assert_eq!(groups(&dashboard).await, 1);
    assert_eq!(groups(&autoscaler).await, 1);
    service.refresh(asked_by(&autoscaler, proto::RefreshRequest {})).await.unwrap();
    assert_eq!(groups(&dashboard).await, 2);
}

#[tokio::test]
async fn the_history_names_the_client_of_each_written_or_refused_change() {
    let world = World::new(2, &["a", "b"]);
    let (service, autoscaler) = (service(&world), client("cluster-autoscaler", false));
    let increase = |delta| proto::NodeGroupIncreaseSizeRequest { delta, id: WORKERS.to_owned() };
    service.node_group_increase_size(asked_by(&autoscaler, increase(1))).await.unwrap();
    service.node_group_increase_size(asked_by(&autoscaler, increase(100))).await.unwrap_err();
    service.node_group_increase_size(asked_by(&autoscaler, increase(-1))).await.unwrap_err();
    let history = world.scale.history().of(&GroupId::parse(WORKERS).unwrap());
    assert_eq!(history.len(), 3, "{history:?}");
    for entry in &history {
        assert!(entry.text.ends_with(" (asked for by cluster-autoscaler)"), "{entry:?}");
    }
}

#[tokio::test]
async fn calls_for_unknown_groups_are_reported_with_their_client_and_other_failures_are_not() {
    let (world, reported) = (World::new(2, &["a", "b"]), Arc::<Mutex<Vec<_>>>::default());
    let reports = Arc::clone(&reported);
    let service = served(session(&world).of_one_of_many(move |group, client| {
        let client = client.map(|client| client.name.to_string()).unwrap_or_default();
        reports.lock().push((group.to_string(), client));
    }));
    let autoscaler = client("cluster-autoscaler", false);
    service.refresh(asked_by(&autoscaler, proto::RefreshRequest {})).await.unwrap();
    for id in [UNKNOWN, WORKERS, "no id"] {
        let size = proto::NodeGroupTargetSizeRequest { id: id.to_owned() };
        let _ = service.node_group_target_size(asked_by(&autoscaler, size)).await;
        let increase = proto::NodeGroupIncreaseSizeRequest { delta: 100, id: id.to_owned() };
        service.node_group_increase_size(asked_by(&autoscaler, increase)).await.unwrap_err();
    }
    let expected = (UNKNOWN.to_owned(), "cluster-autoscaler".to_owned());
    assert_eq!(*reported.lock(), [expected.clone(), expected]);
}
