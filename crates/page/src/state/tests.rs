//! Tests of the state of a followed cluster, and of the queries that select a part of it.
use std::sync::Arc;

use jiff::Timestamp;
use rules::GroupId;

use crate::state::{CheckState, InstanceState, ProblemKind, Program, Run, Selection, Source, SourcedText, State};
use cluster::fake::{WORKERS, World, fleet};

/// Returns the state of a world that no autoscaler calls.
fn source(world: &World) -> Source {
    let program = Program::new(Timestamp::UNIX_EPOCH, "pod-0");
    Source::new(world.fleet.clone(), Arc::new(world.fleet.clone()), None, program)
}

#[tokio::test(start_paused = true)]
async fn a_group_is_shown_with_all_that_is_known_of_it() {
    let api = fleet();
    api.refuse("nodes", 403, "forbidden");
    let world = World::new(&api);
    world.until("all but the Nodes", |world| world.problem() == "workload/nodes: forbidden: forbidden").await;
    world.until_groups(&[WORKERS]).await;
    let source = source(&world).only().unwrap();
    let selection = Selection { instances: true, group: GroupId::parse(WORKERS) };
    let state = source.read(&selection);
    assert_eq!(serde_json::from_slice::<State>(&source.json(&selection).unwrap()).unwrap().groups, state.groups);

    assert_eq!((state.head.schema_version, state.head.program.started_at), (1, Timestamp::UNIX_EPOCH));
    assert_eq!((state.head.program.pod.as_deref(), state.head.cluster.as_deref()), (Some("pod-0"), None));
    assert!(!state.head.ready && state.left_out.is_empty());
    let nodes = state.head.checks.iter().find(|check| check.name == "workload/nodes").unwrap();
    assert_eq!((nodes.state, nodes.reason.as_deref()), (CheckState::Pending, Some("forbidden: forbidden")));
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
    assert_eq!(workers.options["scaledownunneededtime"], "20m");
    assert_eq!(workers.problems[0].kind, ProblemKind::Options);
    let template = workers.template.as_ref().unwrap();
    let sourced = |value: &SourcedText| (value.value.clone(), value.source.clone());
    assert_eq!(sourced(&template.capacity["cpu"]), ("4".to_owned(), "annotation".to_owned()));
    assert_eq!(sourced(&template.capacity["pods"]), ("110".to_owned(), "default".to_owned()));
    assert_eq!(template.gpus["nvidia.com/gpu"], "2");
    assert_eq!((template.taints[0].key.as_str(), template.taints[0].source.as_str()), ("gpu", "annotation"));
    let instances = workers.instances.as_deref().unwrap();
    assert_eq!(
        (instances[0].instance.id.as_str(), instances[0].instance.state),
        ("cloud:///zone/a", InstanceState::Running)
    );
    assert_eq!((instances[0].machine.as_deref(), instances[0].node.as_deref()), (Some("a"), Some("a")));
    assert_eq!(instances[1].instance.id, "replica-MachineDeployment-team-a_workers-0");
    assert_eq!((instances[1].instance.state, instances[1].machine.as_deref()), (InstanceState::Creating, None));
    world.shutdown().await;
}

/// An instance stays as it is for Cluster Autoscaler, which gives it up in its own time.
#[tokio::test(start_paused = true)]
async fn an_instance_whose_node_is_gone_is_marked_once_the_nodes_are_in_sync() {
    let api = fleet();
    api.delete("nodes", "a");
    api.refuse("nodes", 403, "forbidden");
    let world = World::new(&api);
    world.until_groups(&[WORKERS]).await;
    let source = source(&world).only().unwrap();
    let seen = || {
        let state = source.read(&Selection { instances: true, group: GroupId::parse(WORKERS) });
        let instance = &state.groups[0].instances.as_deref().unwrap()[0];
        (instance.instance.state, instance.node.clone().unwrap(), instance.node_gone)
    };
    assert_eq!(seen(), (InstanceState::Running, "a".to_owned(), false));
    api.allow("nodes");
    world.until_ready().await;
    assert_eq!(seen(), (InstanceState::Running, "a".to_owned(), true));
    api.put("nodes", "a", &serde_json::json!({"spec": {"providerID": "cloud:///zone/a"}}));
    world.until("the Node is there", |_| !seen().2).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn samples_of_all_groups_are_their_past() {
    let world = World::new(&fleet());
    world.until_ready().await;
    world.until_groups(&[WORKERS]).await;
    let source = source(&world);
    source.sample();
    source.sample();
    let past = source.only().unwrap().past(&GroupId::parse(WORKERS).unwrap());
    assert_eq!(past, [Run { minutes: 2, size: 2, nodes: 1 }]);
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
