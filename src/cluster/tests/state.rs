//! Tests of the state of a followed cluster: over the admin listener, through the client of `groups`, to the table.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use nodegroup::GroupId;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{WORKERS, World, fake::*, scalable};
use crate::{
    cli::groups::{Client, Filter, View, table},
    index::objects::{capacity_annotations, merge},
    page::StatusPage,
    server::{AllowedHosts, Checks as _, StatusPages as _, admin_router, bind, serve_http},
    state::{InstanceActivity, Selection, State, StateSource, SyncState},
};

fn fleet() -> FakeApi {
    let api = FakeApi::with_capi();
    let mut workers = scalable(&capacity_annotations("4", "16Gi"));
    merge(
        &mut workers,
        &json!({"metadata": {"annotations": {
            "capacity.cluster-autoscaler.kubernetes.io/gpu-type": "nvidia.com/gpu",
            "capacity.cluster-autoscaler.kubernetes.io/gpu-count": "2",
            "capacity.cluster-autoscaler.kubernetes.io/taints": "gpu=yes:NoSchedule",
            "cluster.x-k8s.io/autoscaling-options-scaledownunneededtime": "20m",
            "cluster.x-k8s.io/autoscaling-options-scaledownunreadytime": "soon",
        }}}),
    );
    let owned = |kind: &str, name: &str| {
        json!({"metadata": {"ownerReferences": [
            {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "controller": true},
        ]}})
    };
    api.put("machinedeployments", "workers", &workers);
    api.put("machinedeployments", "broken", &scalable(&json!({"spec": {"replicas": "three"}})));
    api.put("machinesets", "workers-1", &owned("MachineDeployment", "workers"));
    let mut joined = owned("MachineSet", "workers-1");
    merge(
        &mut joined,
        &json!({
            "spec": {"providerID": "cloud:///zone/a"}, "status": {"phase": "Running", "nodeRef": {"name": "a"}},
        }),
    );
    api.put("machines", "a", &joined);
    api.put("nodes", "a", &json!({"spec": {"providerID": "cloud:///zone/a"}}));
    api
}

#[tokio::test]
async fn the_table_of_groups_is_that_of_the_cluster() {
    let world = World::synced(&fleet()).await;
    world.until_groups(&[WORKERS]).await;
    let source = Arc::new(StateSource::new(world.workload.clone(), Timestamp::UNIX_EPOCH));
    let listener = bind("127.0.0.1:0".parse().unwrap(), "--admin-listen").unwrap();
    let address = listener.local_addr().unwrap();
    let ends = CancellationToken::new();
    let router = admin_router(
        Arc::clone(&source) as Arc<_>,
        Arc::new(StatusPage::new(Arc::clone(&source))),
        AllowedHosts::on(address.ip()),
    );
    let serving = tokio::spawn(serve_http(listener, router, ends.clone()));

    let client = Client::new(format!("http://{address}").parse().unwrap(), Duration::from_secs(20));
    let state = client.state(true).await.unwrap();
    let view = View { all: true, ..View::default() };
    let lines = [
        "ID                                 MIN   SIZE   MAX   RUNNING   CREATING   DELETING   FAILED   CPU   MEMORY   \
         GPU                ARCH    NOTES",
        "MachineDeployment/team-a/workers     1      2    10         1          1          0        0     4     16Gi   \
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

    let without = client.state(false).await.unwrap();
    assert!(without.groups.iter().all(|group| group.instances.is_none()));
    assert_eq!(without.groups[0].counts, state.groups[0].counts);
    let filter = Filter { ids: vec!["broken".to_owned()], ..Filter::default() };
    assert_eq!(filter.apply(without).unwrap().left_out[0].reason, "undecodable");

    ends.cancel();
    serving.await.unwrap().unwrap();
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_shown_with_all_that_is_known_of_it() {
    let api = fleet();
    api.refuse("nodes", 403, "forbidden");
    let world = World::new(&api);
    world.until("all but the Nodes", |world| world.problem() == "workload/nodes: forbidden: forbidden").await;
    world.until_groups(&[WORKERS]).await;
    let source = StateSource::new(world.workload.clone(), Timestamp::UNIX_EPOCH);
    let selection = Selection { instances: true, group: GroupId::parse(WORKERS) };
    let state = source.read(&selection);
    assert_eq!(serde_json::from_slice::<State>(&source.json(&selection).unwrap()).unwrap().groups, state.groups);

    assert_eq!((state.schema_version, state.program.started_at.as_str()), (1, "1970-01-01T00:00:00Z"));
    assert!(!state.ready && state.left_out.is_empty());
    let nodes = state.checks.iter().find(|check| check.name == "workload/nodes").unwrap();
    assert_eq!((nodes.state, nodes.reason.as_deref()), (SyncState::Pending, Some("forbidden: forbidden")));
    let [management, workload] = state.clusters.as_slice() else { panic!("{:?}", state.clusters) };
    assert_eq!((management.name.as_str(), workload.name.as_str()), ("management", "workload"));
    let deployments = &management.informers[1];
    assert_eq!(deployments.resource, "machinedeployments.cluster.x-k8s.io/v1beta2");
    assert!(deployments.synced && deployments.reason.is_none());
    assert_eq!((deployments.objects, deployments.undecodable), (2, 1));
    let nodes = &workload.informers[0];
    assert_eq!((nodes.synced, nodes.reason.as_deref()), (false, Some("forbidden: forbidden")));

    let [workers] = state.groups.as_slice() else { panic!("{:?}", state.groups) };
    assert_eq!(
        (workers.kind.as_str(), workers.name.as_str(), workers.cluster.as_str()),
        ("MachineDeployment", "workers", "stage")
    );
    assert_eq!((workers.size, workers.spec_replicas, workers.written), (2, Some(2), None));
    assert!(workers.pinned && !workers.rolling_out);
    assert_eq!(workers.options["scaledownunneededtime"], "20m0s");
    assert_eq!(workers.problems[0].kind, "options");
    let template = workers.template.as_ref().unwrap();
    let sourced = |value: &crate::state::SourcedText| (value.value.clone(), value.source.clone());
    assert_eq!(sourced(&template.capacity["cpu"]), ("4".to_owned(), "annotation".to_owned()));
    assert_eq!(sourced(&template.capacity["pods"]), ("110".to_owned(), "default".to_owned()));
    assert_eq!(template.gpus["nvidia.com/gpu"], "2");
    assert_eq!((template.taints[0].key.as_str(), template.taints[0].source.as_str()), ("gpu", "annotation"));
    let instances = workers.instances.as_deref().unwrap();
    assert_eq!((instances[0].id.as_str(), instances[0].state), ("cloud:///zone/a", InstanceActivity::Running));
    assert_eq!((instances[0].machine.as_deref(), instances[0].node.as_deref()), (Some("a"), Some("a")));
    assert_eq!(instances[1].id, "replica-MachineDeployment-team-a_workers-0");
    assert_eq!((instances[1].state, instances[1].machine.as_deref()), (InstanceActivity::Creating, None));
    world.shutdown().await;
}

#[rstest::rstest]
#[case("", Ok((true, None)))]
#[case("instances=false", Ok((false, None)))]
#[case("group=MachineDeployment%2Fteam-a%2Fworkers&instances=true", Ok((true, Some(WORKERS))))]
#[case("group=MachineDeployment/team-a/workers", Ok((true, Some(WORKERS))))]
#[case("instances=no", Err("instances is \"no\": it must be true or false"))]
#[case("group=workers", Err("group is \"workers\": it must be an id, such as MachineDeployment/team-a/workers"))]
#[case("groups=all", Err("parameter \"groups\" isn't known: known are instances and group"))]
fn a_query_selects(#[case] query: &str, #[case] expected: Result<(bool, Option<&str>), &str>) {
    let selection = Selection::parse(query).map(|it| (it.instances, it.group.map(|group| group.to_string())));
    let expected = expected.map(|(instances, group)| (instances, group.map(str::to_owned))).map_err(str::to_owned);
    assert_eq!(selection, expected);
}

#[tokio::test]
async fn who_shows_numbers_looks_at_no_machine_but_those_of_the_group_that_is_asked_for() {
    let world = World::synced(&fleet()).await;
    world.until_groups(&[WORKERS]).await;
    let source = Arc::new(StateSource::new(world.workload.clone(), Timestamp::UNIX_EPOCH));
    let pages = StatusPage::new(Arc::clone(&source));
    let index = world.workload.index();
    let visits_of = |ask: &dyn Fn()| {
        let before = index.visits();
        ask();
        index.visits() - before
    };
    let state = |instances| drop(source.json(&Selection { instances, group: None }).unwrap());
    assert_eq!(visits_of(&|| drop(pages.page("/", ""))), 0, "the first page");
    assert_eq!(visits_of(&|| state(false)), 0, "what groups asks for");
    assert_eq!(visits_of(&|| drop(world.workload.checks())), 0, "readyz");
    assert_eq!(visits_of(&|| state(true)), 1, "the instances");
    assert_eq!(visits_of(&|| drop(pages.page(&format!("/groups/{WORKERS}"), ""))), 1, "the page of a group");
    world.shutdown().await;
}
