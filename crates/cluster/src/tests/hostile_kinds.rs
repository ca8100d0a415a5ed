//! Tests of groups that name hundreds of kinds of infrastructure templates: kinds that don't exist cost no request or
//! check each, the existing ones are limited per namespace, and each is dropped when it isn't named any more.

use std::time::Duration;

use rules::ProblemKind;
use serde_json::json;
use tokio::time;

use super::{GROUP, NOT_FOLLOWED, WORKERS, World, annotated, fake::*, metrics::metrics_of, template};
use crate::templates::KINDS_OF_A_NAMESPACE;
use service::listen::CheckState;
use testkit::CapturedLog;

fn served(kinds: usize) -> FakeApi {
    let api = FakeApi::with_capi();
    api.serve_group(GROUP, &["v1beta1"]);
    for n in 0..kinds {
        api.install(GROUP, &format!("Kind{n:03}"), &format!("kind{n:03}s"));
    }
    api
}

fn followed(api: &FakeApi, kinds: usize) -> usize {
    (0..kinds).map(|n| api.watches(&format!("kind{n:03}s"))).sum()
}

#[tokio::test(start_paused = true)]
async fn kinds_that_do_not_exist_cost_no_request_check_task_or_series_each() {
    const MADE_UP: usize = 600;
    let api = served(1);
    for n in 0..MADE_UP {
        let group = if n % 2 == 0 { GROUP.to_owned() } else { format!("made-up-{n}.example.com") };
        api.put("machinedeployments", &format!("m{n}"), &annotated(&group, &format!("MadeUp{n}")));
    }
    api.put("machinedeployments", "workers", &annotated(GROUP, "Kind000"));
    api.put("kind000s", "t", &json!({}));
    let world = World::synced(&api).await;
    world
        .until("all reasons", |world| {
            let problems = world.workload.index().stats().problems;
            problems.iter().filter(|problem| problem.problem == ProblemKind::Template.as_str()).count() == MADE_UP
        })
        .await;
    let Some((CheckState::Informational, why)) = world.check(NOT_FOLLOWED) else {
        panic!("{:?}", world.check(NOT_FOLLOWED))
    };
    assert!(why.ends_with("; and 590 more"), "{why}");
    let checks = world.workload.checks();
    let of_templates = checks.iter().filter(|check| check.name.starts_with("templates/"));
    assert_eq!(of_templates.count(), 2, "{checks:?}");
    let metrics = metrics_of(&world).to_lowercase();
    assert!(metrics.contains("resource=\"kind000s.") && !metrics.contains("resource=\"madeup"), "{metrics}");
    assert!(!metrics.contains("made-up") && !metrics.contains("madeup"), "{metrics}");
    assert_eq!(metrics.matches("check=\"templates/").count(), 1, "{metrics}");
    assert!(world.is_ready());
    let (groups, resources) = (api.asks("/apis"), api.asks(&format!("/apis/{GROUP}/v1beta1")));
    time::sleep(Duration::from_secs(3600)).await;
    // The core kinds are rediscovered every minute, by two requests.
    let asked = api.asks("/apis") - groups;
    assert!(asked <= 60 + 30 + 8, "{asked} in an hour");
    let asked = api.asks(&format!("/apis/{GROUP}/v1beta1")) - resources;
    assert!((2..=30 + 8).contains(&asked), "{asked} in an hour");
    assert!(!api.was_asked("/apis/made-up-1.example.com/v1beta1"));
    world.shutdown().await;
}

/// Discovery must not be queried for each new name.
#[tokio::test(start_paused = true)]
async fn names_that_change_all_the_time_have_discovery_asked_now_and_then() {
    let api = served(0);
    api.put("machinedeployments", "workers", &annotated(GROUP, "MadeUp"));
    let world = World::synced(&api).await;
    let before = api.asks("/apis");
    for n in 0..600 {
        api.put("machinedeployments", "workers", &annotated(GROUP, &format!("MadeUp{n}")));
        time::sleep(Duration::from_secs(1)).await;
    }
    let asked = api.asks("/apis") - before;
    assert!(asked <= 10 + 60 + 8, "{asked} in ten minutes");
    let states = world.workload.index().wanted_kinds();
    assert_eq!(states.len(), 1);
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn names_that_change_all_the_time_have_few_lines_a_minute_and_a_sum() {
    let api = served(0);
    let world = World::synced(&api).await;
    let (said, _log) = CapturedLog::begin();
    for n in 0..200 {
        for group in 0..20 {
            api.put("machinedeployments", &format!("m{group}"), &annotated(GROUP, &format!("MadeUp{n}x{group}")));
        }
        time::sleep(Duration::from_millis(100)).await;
    }
    let lines = said.take();
    let lines = lines.lines().filter(|line| line.contains("infrastructure templates of")).count();
    assert!((10..=11).contains(&lines), "{lines} lines in 20 seconds");
    time::sleep(Duration::from_secs(61)).await;
    let sums = said.take();
    let sums: Vec<_> = sums.lines().filter(|line| line.contains("infrastructure templates of")).collect();
    assert!(matches!(sums[..], [sum] if sum.contains("of further kinds")), "{sums:?}");
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_has_its_number_of_kinds_followed_and_others_have_theirs() {
    const KINDS: usize = 40;
    let api = served(KINDS);
    for n in 0..KINDS - 1 {
        api.put("machinedeployments", &format!("m{n:03}"), &annotated(GROUP, &format!("Kind{n:03}")));
    }
    let world = World::synced(&api).await;
    world.until("its kinds", |_| followed(&api, KINDS) == KINDS_OF_A_NAMESPACE).await;
    api.put_in("team-b", "machinedeployments", "workers", &annotated(GROUP, "Kind039"));
    api.put_in("team-b", "kind039s", "t", &json!({}));
    world.until("the other's kind", |_| api.watches("kind039s") == 1).await;
    assert_eq!(followed(&api, KINDS), KINDS_OF_A_NAMESPACE + 1);
    let problems = || {
        let snapshot = world.workload.index().snapshot(None, index::Detail::Counts);
        let of = |group: &index::GroupSnapshot| group.served().map(|it| format!("{:?}", it.definition.problems));
        snapshot.groups.iter().filter_map(of).collect::<Vec<_>>()
    };
    let refused = problems().into_iter().filter(|it| it.contains("more than 16 kinds of infrastructure templates"));
    assert_eq!(refused.count(), KINDS - 1 - KINDS_OF_A_NAMESPACE);
    assert_eq!(world.problem(), "");
    world.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_nobody_names_any_more_is_dropped_after_a_while() {
    let api = served(1);
    api.put("machinedeployments", "workers", &annotated(GROUP, "Kind000"));
    api.put("kind000s", "t", &template("8"));
    let world = World::synced(&api).await;
    world.until("its watch", |_| api.watches("kind000s") == 1).await;
    api.delete("machinedeployments", "workers");
    world.until("its end", |world| world.workload.index().wanted_kinds().is_empty()).await;
    time::sleep(Duration::from_secs(290)).await;
    assert_eq!(api.watches("kind000s"), 1, "groups come back");
    api.put("machinedeployments", "workers", &annotated(GROUP, "Kind000"));
    world.until("its name", |world| !world.workload.index().wanted_kinds().is_empty()).await;
    time::sleep(Duration::from_secs(890)).await;
    assert_eq!(api.watches("kind000s"), 1);
    api.delete("machinedeployments", "workers");
    time::sleep(Duration::from_secs(700)).await;
    world.until("its last watch", |_| api.watches("kind000s") == 0).await;
    world
        .until("that nothing of it is left", |world| {
            world.check("templates/Kind000.infrastructure.cluster.x-k8s.io").is_none()
        })
        .await;
    let kind = rules::capi::KindRef { group: GROUP.into(), kind: "Kind000".into() };
    assert_eq!(world.workload.index().kind_state(&kind), None);
    // The template changes while its kind isn't followed.
    api.put("kind000s", "t", &template("16"));
    api.put("machinedeployments", "workers", &annotated(GROUP, "Kind000"));
    world.until("its watch again", |_| api.watches("kind000s") == 1).await;
    world.until("no problem", |world| world.problems_of(WORKERS).is_empty()).await;
    world.shutdown().await;
}
