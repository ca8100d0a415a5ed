//! Tests of namespaces of the scope that can't be read, because they were deleted together with their RoleBindings,
//! or lack rights. They affect only their own groups.

use std::{collections::BTreeSet, time::Duration};

use rstest::rstest;
use rules::capi::Keys;
use rules::{Rules, Scope, ScopeSpec};
use serde_json::json;
use tokio::time;

use super::{GROUP, PATIENCE, WORKERS, World, fake::*, from_zero, scalable, template};
use index::{
    Detail,
    objects::{self, NAMESPACE},
};
use service::listen::CheckState;

const OTHER: &str = "team-b";
const THEIRS: &str = "MachineDeployment/team-b/theirs";
const CHECK: &str = "management/namespaces/team-b";

/// Creates node groups in two namespaces, each with a Machine.
fn two_namespaces() -> FakeApi {
    let api = FakeApi::with_capi();
    for (namespace, name) in [(NAMESPACE, "workers"), (OTHER, "theirs")] {
        let owned = |kind: &str, name: &str| {
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": kind, "name": name, "controller": true},
            ]}})
        };
        api.put_in(namespace, "machinedeployments", name, &scalable(&json!({})));
        let set = format!("{name}-1");
        api.put_in(namespace, "machinesets", &set, &owned("MachineDeployment", name));
        let mut machine = owned("MachineSet", &set);
        objects::merge(&mut machine, &json!({"spec": {"providerID": format!("cloud:///{name}/a")}}));
        api.put_in(namespace, "machines", &format!("{name}-a"), &machine);
    }
    api
}

/// Creates a world whose scope names these namespaces.
fn scoped(api: &FakeApi, namespaces: &[&str], max_staleness: Duration) -> World {
    let spec = |namespace: &&str| ScopeSpec { namespace: Some((*namespace).to_owned()), ..ScopeSpec::default() };
    let scope = Scope::Specs(namespaces.iter().map(spec).collect());
    let rules = Rules { keys: Keys::new(CAPI), scope, ..objects::rules() };
    World::with(api, Setup { rules, max_staleness, ..Setup::default() })
}

/// Calls `look` for two minutes of the world's clock.
async fn for_two_minutes(world: &World, look: impl Fn(&World)) {
    let until = time::Instant::now() + Duration::from_secs(120);
    while time::Instant::now() < until {
        look(world);
        time::sleep(Duration::from_millis(500)).await;
    }
}

fn is_left_out(world: &World) -> bool {
    matches!(world.check(CHECK), Some((CheckState::Informational, _)))
}

/// Returns the names of a group's Machines.
fn machines_of(world: &World, group: &str) -> BTreeSet<String> {
    let snapshot = world.workload.index().snapshot(Some(&objects::id(group)), Detail::Instances);
    let instances = snapshot.groups.iter().filter_map(|group| group.instances(true)).flatten();
    instances.filter_map(|instance| instance.machine).collect()
}

/// One forbidden kind is enough: a group without its Machines would be wrong, and a Machine without its group is in
/// none.
#[rstest]
#[case::of_all_kinds(None)]
#[case::of_groups(Some("machinedeployments"))]
#[case::of_machines(Some("machines"))]
#[case::of_clusters(Some("clusters"))]
#[tokio::test(start_paused = true)]
async fn a_namespace_that_comes_to_be_forbidden_is_left_out_and_the_others_go_on(#[case] plural: Option<&str>) {
    let api = two_namespaces();
    let world = scoped(&api, &[NAMESPACE, OTHER], Duration::ZERO);
    world.until_ready().await;
    world.until_groups(&[WORKERS, THEIRS]).await;
    world.until("all watches", |_| api.watches("machines") == 2 && api.watches("clusters") == 2).await;

    api.refuse_in(OTHER, plural, 403);
    world.until("the namespace to be left out", is_left_out).await;
    for_two_minutes(&world, |world| {
        assert_eq!(world.problem(), "", "Refresh serves the others");
        assert!(world.is_ready());
        assert_eq!(world.groups(), [WORKERS]);
    })
    .await;
    assert_eq!(world.workload.index().stats().groups["namespace_forbidden"], 1);
    let Some((CheckState::Informational, why)) = world.check(CHECK) else { panic!("{:?}", world.workload.checks()) };
    assert!(why.contains("forbidden: cannot list ") && why.contains("aren't served"), "{why}");

    api.put_in(NAMESPACE, "machinedeployments", "more", &scalable(&json!({})));
    world.until_groups(&["MachineDeployment/team-a/more", WORKERS]).await;
    api.allow_in(OTHER, plural);
    world.until_groups(&["MachineDeployment/team-a/more", WORKERS, THEIRS]).await;
    assert_eq!(world.check(CHECK), None);
    assert_eq!(machines_of(&world, THEIRS), BTreeSet::from(["theirs-a".to_owned()]));
    world.shutdown().await;
}

/// After a restart the namespace was never read.
#[rstest]
#[case::of_all_kinds(None)]
#[case::of_machines(Some("machines"))]
#[tokio::test(start_paused = true)]
async fn a_namespace_that_is_forbidden_from_the_start_holds_it_for_ten_seconds(#[case] plural: Option<&str>) {
    let api = two_namespaces();
    api.refuse_in(OTHER, plural, 403);
    let began = time::Instant::now();
    let world = scoped(&api, &[NAMESPACE, OTHER], PATIENCE);
    world.until("the wait", |world| world.problem().contains("forbidden")).await;
    world.until_ready().await;
    let waited = began.elapsed();
    assert!((9..=12).contains(&waited.as_secs()), "{waited:?}");
    for_two_minutes(&world, |world| {
        assert_eq!((world.problem().as_str(), world.groups()), ("", vec![WORKERS.to_owned()]));
    })
    .await;
    assert!(is_left_out(&world), "{:?}", world.workload.checks());

    api.allow_in(OTHER, plural);
    world.until("the first group", |world| world.groups().contains(&THEIRS.to_owned())).await;
    assert_eq!(machines_of(&world, THEIRS).len(), 1, "it comes with its Machines");
    assert_eq!(world.check(CHECK), None);
    world.shutdown().await;
}

/// Problems beyond single namespaces fail Refresh, however long they last.
#[rstest]
#[case::all_at_once(&[NAMESPACE, OTHER], &[NAMESPACE, OTHER], 403)]
#[case::the_only_one(&[NAMESPACE], &[NAMESPACE], 403)]
#[case::an_error_of_the_server(&[NAMESPACE, OTHER], &[OTHER], 500)]
#[case::credentials(&[NAMESPACE, OTHER], &[OTHER], 401)]
#[tokio::test(start_paused = true)]
async fn other_trouble_fails_refresh(#[case] scope: &[&str], #[case] refused: &[&str], #[case] code: u16) {
    let api = two_namespaces();
    let world = scoped(&api, scope, Duration::ZERO);
    world.until_ready().await;
    let groups = world.groups();
    world.until("all watches", |_| api.watches("machines") == scope.len()).await;
    for namespace in refused {
        api.refuse_in(namespace, None, code);
    }
    world.until("the failure", |world| world.problem().contains("cannot list ")).await;
    for_two_minutes(&world, |world| {
        assert!(world.problem().contains("cannot list "), "{:?}", world.problem());
        assert!(!world.is_ready());
        // The first refused namespace may have been left out until the last one was refused.
        if scope.len() == 1 || code != 403 {
            assert_eq!((world.check(CHECK), world.groups()), (None, groups.clone()), "what is known stays known");
        }
    })
    .await;
    for namespace in refused {
        api.allow_in(namespace, None);
    }
    world.until_ready().await;
    world.shutdown().await;
}

/// The informers of templates have a watch per namespace too.
#[tokio::test(start_paused = true)]
async fn templates_of_the_others_are_read_all_the_same() {
    let api = two_namespaces();
    api.serve_group(GROUP, &["v1beta1"]);
    api.install(GROUP, "CloudMachineTemplate", "cloudmachinetemplates");
    for (namespace, name) in [(NAMESPACE, "workers"), (OTHER, "theirs")] {
        api.put_in(namespace, "cloudmachinetemplates", "t", &template("8"));
        api.put_in(namespace, "machinedeployments", name, &from_zero("CloudMachineTemplate"));
    }
    api.refuse_in(OTHER, None, 403);
    let world = scoped(&api, &[NAMESPACE, OTHER], PATIENCE);
    world.until_ready().await;
    world.until_groups(&[WORKERS]).await;
    let check = format!("templates/CloudMachineTemplate.{GROUP}");
    world.until("the kind", |world| world.check(&check) == Some((CheckState::Ready, String::new()))).await;
    assert_eq!(world.problems_of(WORKERS), [""; 0]);
    api.allow_in(OTHER, None);
    world.until_groups(&[WORKERS, THEIRS]).await;
    world.shutdown().await;
}
