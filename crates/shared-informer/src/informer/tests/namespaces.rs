//! Tests of namespaces with a limit: what is beyond it is left out, and the other namespaces go on.

use testkit::CapturedLog;

use super::*;
use crate::NamespaceLimit;

const WATCH: Duration = Duration::from_secs(60);

/// Returns settings whose limit of the kind is as much as two namespaces may have.
fn limited(objects: usize, bytes: usize) -> Settings {
    let limit = NamespaceLimit { objects, bytes };
    Settings { max_objects: 2 * objects, max_of_namespace: Some(limit), watch_timeout: WATCH, page_size: 10, ..paged() }
}

fn of_team(team: &str, count: usize, version: u64) -> Vec<Value> {
    (0..count).map(|n| widget(&format!("{team}/w{n:03}"), version, 1)).collect()
}

fn reason(factory: &Factory, namespace: &str) -> String {
    factory.left_out_of(namespace).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn of_a_watch_objects_beyond_the_limit_of_their_namespace_are_left_out_and_others_go_on() {
    let mut scene = synced_with(limited(3, usize::MAX), &[widget("other/a", 1, 1)]).await;
    let (said, _log) = CapturedLog::begin();
    for n in 0..10_u64 {
        scene.watch.put(&widget(&format!("team-a/w{n}"), 11 + n, 1));
    }
    scene.watch.put(&widget("other/b", 30, 1));
    let seen = scene.seen.take(4).await;
    assert_eq!(seen, ["+team-a/w0=1", "+team-a/w1=1", "+team-a/w2=1", "+other/b=1"]);
    scene.watch.put(&widget("team-a/w0", 31, 2));
    assert_eq!(scene.seen.next().await, "team-a/w0:1>2");
    let expected = "the namespace team-a has more than 3 objects or";
    assert!(reason(&scene.factory, "team-a").starts_with(expected), "{}", reason(&scene.factory, "team-a"));
    assert_eq!(scene.factory.left_out_of("other"), None);
    let status = scene.informer.status();
    assert_eq!((status.objects, status.left_out, status.reason), (5, 7, None));
    let lines = said.take();
    assert_eq!(lines.lines().filter(|line| line.contains("namespace=team-a")).count(), 1, "{lines}");
}

#[tokio::test(start_paused = true)]
async fn a_list_of_any_number_of_objects_of_one_namespace_is_complete_for_the_others() {
    let (factory, mut api) = factory_with(limited(10, usize::MAX));
    let informer = informer(&factory);
    let all = [of_team("team-a", 100, 5), of_team("zone-b", 10, 5)].concat();
    api.list().await.page(10, &all, None);
    let watch = api.watch_from(10).await.open();
    until("the sync", || informer.has_synced()).await;
    assert_eq!(informer.store().len(), 20);
    assert_eq!(informer.store().in_namespace("zone-b").len(), 10);
    assert_eq!(reason(&factory, "zone-b"), "");
    assert_eq!(informer.status().left_out, 90);
    // The kind has as many objects as it may have, and what is left out doesn't count.
    watch.put(&widget("team-a/more", 11, 1));
    watch.put(&widget("zone-b/w000", 12, 2));
    until("the change", || held(&informer).contains(&"zone-b/w000=2".to_owned())).await;
    assert_eq!(informer.status().reason, None);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_what_is_left_out_alone_has_an_end() {
    let (factory, mut api) = factory_with(limited(10, usize::MAX));
    let informer = informer(&factory);
    let mut call = api.list().await;
    for page in 0..=16 * 20 / 10 + 3 {
        let items: Vec<_> = (0..10).map(|n| widget(&format!("team-a/p{page}n{n}"), 5, 1)).collect();
        call.page(10, &items, Some(&format!("t{page}")));
        call = api.call().await;
        if call.parameter("continue").is_none() {
            break;
        }
    }
    let status = informer.status();
    assert!(status.reason.unwrap_or_default().contains("there are more than 20 objects"));
    assert_eq!(status.objects, 10);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_finds_place_for_all_ends_it() {
    let mut scene = synced_with(limited(3, usize::MAX), &of_team("team-a", 4, 1)).await;
    assert_eq!(scene.informer.store().len(), 3);
    // The pauses between lists get longer, up to four watches.
    let mut version = 10;
    for watches in [1, 2, 4, 4] {
        for watch in 1..=watches {
            tokio::time::advance(WATCH).await;
            drop(scene.watch);
            if watch == watches {
                version += 1;
                scene.api.list().await.page(version, &of_team("team-a", 4, 1), None);
            }
            scene.watch = scene.api.watch_from(version).await.open();
        }
        assert_ne!(reason(&scene.factory, "team-a"), "");
    }
    version += 1;
    scene.watch.delete(&widget("team-a/w003", version, 1));
    for watch in 1..=4 {
        tokio::time::advance(WATCH).await;
        drop(scene.watch);
        if watch == 4 {
            version += 1;
            scene.api.list().await.page(version, &of_team("team-a", 3, 1), None);
        }
        scene.watch = scene.api.watch_from(version).await.open();
    }
    until("its end", || scene.factory.left_out_of("team-a").is_none()).await;
    assert_eq!(scene.informer.store().len(), 3);
    // Without anything left out there are no such lists.
    for _ in 0..3 {
        tokio::time::advance(WATCH).await;
        drop(scene.watch);
        scene.watch = scene.api.watch_from(version).await.open();
    }
}

#[tokio::test(start_paused = true)]
async fn a_known_object_that_gets_too_large_stays_as_it_was_unless_another_has_its_name() {
    const BYTES: usize = 10_000;
    let (factory, mut api) = factory_with(limited(10, BYTES));
    let informer = weighing(&factory);
    let mut seen = Seen::of(&informer);
    let large = i64::try_from(BYTES).unwrap();
    api.list().await.page(10, &[widget("team-a/a", 1, 1), widget("team-a/b", 2, 1), widget("other/a", 3, 1)], None);
    let watch = api.watch_from(10).await.open();
    seen.until_synced().await;
    watch.put(&widget("team-a/a", 11, large));
    watch.put(&with_uid(widget("team-a/b", 12, large), "another"));
    watch.put(&widget("other/a", 13, 2));
    assert_eq!(seen.take(2).await, ["-team-a/b=1", "other/a:1>2"]);
    assert_eq!(held(&informer), ["other/a=2", "team-a/a=1"]);
    watch.error(410, "too old");
    let listed = [widget("team-a/a", 11, large), with_uid(widget("team-a/b", 12, large), "another")];
    api.list().await.page(20, &listed, None);
    let watch = api.watch_from(20).await.open();
    assert_eq!(seen.take(1).await, ["-other/a=2?"]);
    assert_eq!(held(&informer), ["team-a/a=1"], "it is listed, so that it exists");
    // It is stored again once it is smaller.
    watch.put(&widget("team-a/a", 21, 5));
    assert_eq!(seen.take(1).await, ["team-a/a:1>5"]);
    assert_ne!(reason(&factory, "team-a"), "");
}
