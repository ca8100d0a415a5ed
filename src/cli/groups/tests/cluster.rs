//! Tests of the state of a followed cluster: over the admin listener, through the client of `groups`, to the table.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::cli::groups::{Client, Filter};
use ::cluster::fake::{WORKERS, World, fleet};
use page::state::Source;
use page::state::tables::{View, table};
use service::listen::{AllowedHosts, admin_router, bind, new_registry, serve_http};

#[tokio::test]
async fn the_table_of_groups_is_that_of_the_cluster() {
    let world = World::synced(&fleet()).await;
    world.until_groups(&[WORKERS]).await;
    let source = Arc::new(Source::alone(world.fleet.clone(), Timestamp::UNIX_EPOCH));
    let listener = bind("127.0.0.1:0".parse().unwrap(), "--admin-listen").unwrap();
    let address = listener.local_addr().unwrap();
    let ends = CancellationToken::new();
    let router = admin_router(source, new_registry(), AllowedHosts::on(address.ip()));
    let serving = tokio::spawn(serve_http(listener, router, ends.clone()));

    let client = Client::new(format!("http://{address}").parse().unwrap(), Duration::from_secs(20));
    let state = client.state(None, true).await.unwrap();
    let view = View { all: true, ..View::default() };
    let lines = [
        "ID                                 MIN   SIZE   MAX   RUNNING   CREATING   CPU CAPACITY   MEMORY CAPACITY   \
         GPU                ARCH    NOTES",
        "MachineDeployment/team-a/workers     1      2    10         1          1              4              16Gi   \
         2 nvidia.com/gpu   amd64   1 problem",
        "",
        "NODE GROUP                         PROBLEMS",
        "MachineDeployment/team-a/workers   annotation cluster.x-k8s.io/autoscaling-options-scaledownunreadytime is \
         \"soon\": a time must be a Go duration such as 10m or 1h30m: \"soon\" doesn't begin with a number; it is ignored",
    ];
    let text = table(&state, view);
    let shown: Vec<_> = text.lines().collect();
    assert_eq!(shown[..4], lines[..4]);
    assert!(shown[4].starts_with(&lines[4][..120]), "{}", shown[4]);
    assert!(text.contains("MachineDeployment/team-a/broken   its object can't be read\n"), "{text}");
    assert!(text.ends_with("(and 1 MachineSet that its MachineDeployment scales)\n"), "{text}");

    let without = client.state(None, false).await.unwrap();
    assert!(without.groups.iter().all(|group| group.instances.is_none()));
    assert_eq!(without.groups[0].counts, state.groups[0].counts);
    let filter = Filter { ids: vec!["broken".to_owned()], ..Filter::default() };
    assert_eq!(filter.apply(without).unwrap().left_out[0].reason, "undecodable");

    ends.cancel();
    serving.await.unwrap().unwrap();
    world.shutdown().await;
}
