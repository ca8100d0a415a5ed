//! Watches and their faults.

use super::*;
use crate::faults::{Fault, WatchFault};

#[tokio::test]
async fn a_watch_that_stalls_goes_on_when_the_fault_is_removed() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    let fault = world.server.faults().add(Fault::watch(WatchFault::Stall));
    fault.wait_for_hits(1).await;
    world.create("a")?;
    world.label("a", "1")?;
    assert!(tokio::time::timeout(Duration::from_millis(50), watch.line()).await.is_err());
    fault.remove();
    assert_eq!(watch.event().await?, event("ADDED", ""));
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    Ok(())
}

#[tokio::test]
async fn a_watch_ends_after_so_many_events() -> Result<()> {
    let world = World::start().await?;
    world.server.faults().add(Fault::watch(WatchFault::EndAfter(1)));
    let mut watch = world.watch("").await?;
    world.create("a")?;
    world.create("b")?;
    assert_eq!(watch.event().await?, event("ADDED", ""));
    assert_eq!(watch.line().await?, None);
    Ok(())
}

#[tokio::test]
async fn a_watch_is_cut_after_so_many_events() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.faults().add(Fault::watch(WatchFault::CutAfter(1))).wait_for_hits(1).await;
    world.create("a")?;
    assert_eq!(watch.event().await?, event("ADDED", ""));
    assert!(watch.line().await.is_err());
    Ok(())
}

#[tokio::test]
async fn events_come_twice_or_are_followed_by_old_ones() -> Result<()> {
    let world = World::start().await?;
    world.create("a")?;
    let twice = world.server.faults().add(Fault::watch(WatchFault::Duplicate));
    let mut watch = world.watch("").await?;
    world.label("a", "1")?;
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    twice.remove();
    world.server.faults().add(Fault::watch(WatchFault::Outdated)).wait_for_hits(1).await;
    world.label("a", "2")?;
    assert_eq!(watch.event().await?, event("MODIFIED", "2"));
    assert_eq!(watch.event().await?, event("MODIFIED", "1"));
    Ok(())
}

#[tokio::test]
async fn a_watch_that_runs_is_answered_that_it_has_expired() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.faults().add(Fault::watch(WatchFault::Expire).times(1));
    let line: Value = serde_json::from_str(&watch.line().await?.context("it has ended")?)?;
    assert_eq!((&line["type"], &line["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(watch.line().await?, None);
    let mut watch = world.watch("").await?;
    world.create("a")?;
    assert_eq!(watch.event().await?, event("ADDED", ""));
    Ok(())
}

#[tokio::test]
async fn a_line_that_is_no_json_ends_a_watch() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.faults().add(Fault::watch(WatchFault::Garbage));
    let line = watch.line().await?.context("it has ended")?;
    assert!(serde_json::from_str::<Value>(&line).is_err());
    assert_eq!(watch.line().await?, None);
    Ok(())
}

#[tokio::test]
async fn a_watch_that_is_too_slow_for_the_history_has_expired() -> Result<()> {
    let world = World::start().await?;
    let before = world.api.revision();
    world.create("a")?;
    world.api.forget_history();
    let path = format!("{MACHINES}?watch=true&resourceVersion={before}");
    let body = world.send(Method::GET, &path, None).await?.into_body().collect().await?.to_bytes();
    let line: Value = serde_json::from_slice(&body)?;
    assert_eq!((&line["type"], &line["object"]["reason"]), (&json!("ERROR"), &json!("Expired")));
    Ok(())
}

#[tokio::test]
async fn bookmarks_come_to_those_who_want_them() -> Result<()> {
    let settings = ServerSettings { bookmark_interval: Duration::from_millis(20), ..ServerSettings::default() };
    let world = World::start_with(settings).await?;
    let mut watch = world.watch("allowWatchBookmarks=true").await?;
    // A change of another kind moves the bookmark forward too.
    let map = json!({"metadata": {"namespace": "default", "name": "a"}});
    world.api.create(&Resource::core("configmaps"), map)?;
    loop {
        let line: Value = serde_json::from_str(&watch.line().await?.context("it has ended")?)?;
        assert_eq!(line["type"], "BOOKMARK");
        let revision = line["object"]["metadata"]["resourceVersion"].as_str().context("no revision")?;
        if revision.parse::<u64>()? == world.api.revision() {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn a_watch_in_progress_is_counted_until_its_client_has_left() -> Result<()> {
    let world = World::start().await?;
    let count = || world.api.watches(&World::machines());
    assert_eq!(count()?, 0);
    let watches = [world.watch("").await?, world.watch("").await?];
    assert_eq!(count()?, 2);
    drop(watches);
    testkit::until_true("both have left", || count().is_ok_and(|count| count == 0)).await;
    Ok(())
}

#[tokio::test]
async fn a_watch_ends_with_its_server() -> Result<()> {
    let world = World::start().await?;
    let mut watch = world.watch("").await?;
    world.server.shutdown().await;
    assert!(!matches!(watch.line().await, Ok(Some(_))));
    Ok(())
}
