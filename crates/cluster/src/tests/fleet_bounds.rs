//! Tests of a fleet with a namespace that has more objects than its limit: its Clusters alone are concerned.

use shared_informer::{NamespaceLimit, Settings};

use super::{
    fake::FakeApi,
    fleet_world::{OTHER, STAGE, World, group_of, labelled, machine_of, three},
};
use connect::NodeAccess;
use service::listen::{CheckState, Checks as _};

const FOREIGN: (&str, &[&str]) = ("team-b/foreign", &["MachineDeployment/team-b/foreign-workers"]);
const OF_ONE: usize = 10;

/// Returns a fleet whose limit of a kind is less than the objects of both namespaces.
fn bounded(api: &FakeApi) -> World {
    let limit = NamespaceLimit { objects: OF_ONE, bytes: 1 << 20 };
    let informers = Settings { max_objects: OF_ONE + 5, max_of_namespace: Some(limit), ..Settings::default() };
    World::with(api, None, NodeAccess::None, &informers)
}

fn machines(world: &World, cluster: &str) -> u64 {
    world.member(cluster).map_or(0, |member| member.index().stats().machines)
}

#[tokio::test(start_paused = true)]
async fn a_namespace_beyond_its_limit_fails_refresh_of_its_own_clusters_alone() {
    let api = three();
    api.put_in("team-b", "clusters", "foreign", &labelled());
    api.put_in("team-b", "machinedeployments", "foreign-workers", &group_of("foreign"));
    let world = bounded(&api);
    world.until_served(&[STAGE, OTHER, FOREIGN]).await;
    world.until("Refresh", |world| [STAGE.0, FOREIGN.0].iter().all(|it| world.problem(it).is_empty())).await;
    for n in 0..3 * OF_ONE {
        api.put_in("team-b", "machines", &format!("foreign-{n:02}"), &machine_of("foreign"));
    }
    api.put("machines", "stage-b", &machine_of("stage"));
    let reason = "the namespace team-b has more than 10 objects or 1048576 bytes of machines.cluster.x-k8s.io/";
    world.until("its reason", |world| world.problem(FOREIGN.0).starts_with(reason)).await;
    assert!(world.problem(FOREIGN.0).ends_with(": some are left out"));
    world.until("its Machines", |world| machines(world, FOREIGN.0) == OF_ONE as u64).await;
    world.until("the others' news", |world| machines(world, STAGE.0) == 2).await;
    world.until("Refresh of others", |world| world.problem(STAGE.0).is_empty()).await;
    assert_eq!(world.fleet.core_problem(), None);
    let checks = world.fleet.checks();
    assert!(checks.iter().all(service::listen::Check::is_ready), "{checks:?}");
    let clusters = checks.iter().find(|check| check.name == "fleet/clusters").unwrap();
    let (CheckState::Informational, Some(why)) = (clusters.state, &clusters.reason) else { panic!("{clusters:?}") };
    assert!(why.starts_with("team-b/foreign: the namespace team-b has more than"), "{why}");
    world.shutdown().await;
}
