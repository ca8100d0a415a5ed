//! Tests of infrastructure templates of any kind: none blocks for long, and an unreadable one affects only its
//! groups.

use prost::Message;
use rules::ProblemKind;
use serde_json::json;
use tokio::time::Instant;

use super::{GROUP, NOT_FOLLOWED, WORKERS, World, annotated, fake::*, from_zero, scalable, template};
use index::objects;
use service::listen::CheckState;

const KIND: &str = "CloudMachineTemplate";
const CHECK: &str = "templates/CloudMachineTemplate.infrastructure.cluster.x-k8s.io";

const ANNOTATED: &str = "MachineDeployment/team-a/annotated";

/// It is asked for and not guessed.
const PLURAL: &str = "cloudmachinetemplatice";

fn installed() -> FakeApi {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    api
}

/// Returns the cpu in a group's template.
fn cpu(world: &World) -> Option<String> {
    let served = world.workload.index().served(&objects::id(WORKERS))?;
    let node = k8s_pb::api::core::v1::Node::decode(served.template.clone()?).unwrap();
    node.status?.capacity.get("cpu")?.string.clone()
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_forbidden_leaves_its_groups_to_their_annotations() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.refuse(PLURAL, 403, "User \"provider\" cannot list resource");
    api.put("machinedeployments", "workers", &annotated(GROUP, KIND));
    api.put("machinedeployments", "zero", &from_zero(KIND));
    let world = World::synced(&api).await;
    world.until("the problem", |world| world.problems_of(WORKERS) == [ProblemKind::Template.as_str()]).await;
    assert_eq!(world.groups(), [WORKERS], "a group for its template alone is none");
    assert_eq!(cpu(&world).as_deref(), Some("4"));
    let Some((CheckState::Informational, why)) = world.check(CHECK) else { panic!("{:?}", world.check(CHECK)) };
    assert!(why.contains("forbidden") && why.contains("User \"provider\" cannot list resource"), "{why}");
    assert!(world.is_ready());
    assert_eq!(world.problem(), "");
    api.put(PLURAL, "t", &template("8"));
    api.allow(PLURAL);
    world.until_groups(&[WORKERS, "MachineDeployment/team-a/zero"]).await;
    world.until("no problem", |world| world.problems_of(WORKERS).is_empty()).await;
    assert_eq!(world.check(CHECK), Some((CheckState::Ready, String::new())));
    world.shutdown().await;
}

/// A template kind is reported as synced as soon as nothing waits for it. A Refresh before that would let Cluster
/// Autoscaler choose among the groups whose templates arrived first.
#[tokio::test(start_paused = true)]
async fn the_first_refresh_waits_for_the_first_list_of_templates() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.put(PLURAL, "t", &template("8"));
    api.put("machinedeployments", "workers", &from_zero(KIND));
    api.hold(PLURAL);
    let world = World::new(&api);
    world.until("the wait", |world| world.problem() == "templates: the first list isn't complete yet").await;
    world.until("the kind", |world| matches!(world.check(CHECK), Some((CheckState::Pending, _)))).await;
    assert!(!world.is_ready());
    api.release(PLURAL);
    world.until_ready().await;
    assert_eq!(cpu(&world).as_deref(), Some("8"));
    assert!(world.is_ready());
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn templates_that_never_come_hold_the_start_for_ten_seconds() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.put("machinedeployments", "workers", &annotated(GROUP, KIND));
    api.hold(PLURAL);
    let world = World::new(&api);
    world.until("the wait", |world| world.problem().starts_with("templates: ")).await;
    let waited = Instant::now();
    world.until_ready().await;
    let waited = waited.elapsed();
    assert!((9..=11).contains(&waited.as_secs()), "{waited:?}");
    assert!(matches!(world.check(CHECK), Some((CheckState::Informational, _))), "{:?}", world.check(CHECK));
    assert_eq!(world.groups(), [WORKERS]);
    world.shutdown().await;
}

/// Only the start waits: a kind that is named later affects only its own groups.
#[tokio::test(start_paused = true)]
async fn a_kind_is_listed_once_a_group_names_it_and_leaves_refresh_alone() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.put("machinedeployments", "workers", &scalable(&json!({})));
    let world = World::synced(&api).await;
    world.until_groups(&[WORKERS]).await;
    assert!(!api.was_asked(&format!("/apis/{GROUP}/v1beta1/{PLURAL}")), "nobody names it");
    api.hold(PLURAL);
    api.put("machinedeployments", "workers", &annotated(GROUP, KIND));
    world.until("the kind", |world| world.check(CHECK).is_some()).await;
    assert_eq!(world.problem(), "");
    assert!(world.is_ready());
    api.release(PLURAL);
    world.until("the list", |_| api.watches(PLURAL) == 1).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_missing_leaves_its_groups_to_their_annotations_and_brings_them_later() {
    let api = installed();
    api.put("machinedeployments", "annotated", &annotated(GROUP, KIND));
    api.put("machinedeployments", "workers", &from_zero(KIND));
    let world = World::synced(&api).await;
    world.until("the problem", |world| world.problems_of(ANNOTATED) == [ProblemKind::Template.as_str()]).await;
    assert_eq!(world.groups(), [ANNOTATED], "its annotations are enough");
    assert_eq!(world.check(CHECK), None, "a kind that doesn't exist has no check, and so no series, of its own");
    let Some((CheckState::Informational, why)) = world.check(NOT_FOLLOWED) else {
        panic!("{:?}", world.check(NOT_FOLLOWED))
    };
    assert!(why.contains("no kind CloudMachineTemplate"), "{why}");
    assert!(world.is_ready());
    assert_eq!(world.problem(), "", "Refresh doesn't fail for it");
    api.install(GROUP, KIND, PLURAL);
    api.put(PLURAL, "t", &template("8"));
    world.until_groups(&[ANNOTATED, WORKERS]).await;
    assert_eq!(cpu(&world).as_deref(), Some("8"));
    api.put(PLURAL, "t", &template("16"));
    world.until("the change", |world| cpu(world).as_deref() == Some("16")).await;
    api.delete(PLURAL, "t");
    world.until_groups(&[ANNOTATED]).await;
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn naming_another_kind_leaves_what_is_known_of_the_first() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.put(PLURAL, "t", &template("8"));
    api.put("machinedeployments", "workers", &annotated(GROUP, KIND));
    let world = World::synced(&api).await;
    world.until("the first kind", |world| world.check(CHECK) == Some((CheckState::Ready, String::new()))).await;
    api.put("machinedeployments", "others", &annotated(GROUP, "OtherMachineTemplate"));
    // The clock stands still until all tasks are idle, so the first state seen is the result of one step.
    world
        .until("the second kind", |world| {
            assert_eq!(world.check(CHECK), Some((CheckState::Ready, String::new())), "it stays known");
            world.check(NOT_FOLLOWED).is_some()
        })
        .await;
    world.shutdown().await;
}

/// The old version isn't served any more after the upgrade, and no watch reports the objects deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_in_another_version_is_followed_there() {
    let api = installed();
    api.install(GROUP, KIND, PLURAL);
    api.put(PLURAL, "t", &template("8"));
    api.put("machinedeployments", "workers", &from_zero(KIND));
    let world = World::synced(&api).await;
    world.until_groups(&[WORKERS]).await;
    api.serve_group(GROUP, &["v1beta2"]);
    api.delete(PLURAL, "t");
    world.until_groups(&[]).await;
    assert!(api.was_asked(&format!("/apis/{GROUP}/v1beta2/{PLURAL}")));
    assert_eq!(world.check(CHECK), Some((CheckState::Ready, String::new())));
    world.shutdown().await;
}
