//! Cases of watches.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    Case, Subject, case,
    subject::{Call, Patch, event, labelled, names, version},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(watching::a_watch_resumes_exactly_after_a_version),
        case!(watching::a_watch_without_a_version_begins_with_what_is_there),
        case!(watching::changes_come_in_their_order_with_their_versions),
        case!(watching::a_delete_brings_the_last_state_with_the_version_of_the_delete),
        case!(watching::entering_a_selector_is_an_add_and_leaving_it_a_delete),
        case!(watching::a_bookmark_ends_the_initial_events),
        case!(watching::a_stream_of_nothing_has_its_bookmark_too),
        case!(watching::a_bookmark_comes_before_a_watch_ends),
        case!(watching::initial_events_can_be_left_out),
        case!(watching::a_version_that_is_too_old_has_expired).forgets(),
        case!(watching::a_watch_under_way_outlives_forgetting).forgets(),
    ]
}

async fn now(subject: &Subject<'_>) -> Result<String> {
    Ok(version(&subject.get(subject.widgets()).expect(200).await?)?.to_string())
}

fn from(subject: &Subject<'_>, version: &str) -> Call {
    subject.get(subject.widgets()).query("resourceVersion", version)
}

async fn a_watch_resumes_exactly_after_a_version(subject: &Subject<'_>) -> Result<()> {
    let first = subject.create("a", &json!({})).await?;
    let second = subject.create("b", &json!({})).await?;
    subject.delete(subject.widget("a")).expect(200).await?;
    let mut watch = from(subject, &version(&first)?.to_string()).watch().await?;
    ensure!(watch.expect("ADDED", "b").await? == second, "not the object as it was created: {second}");
    watch.expect("DELETED", "a").await?;
    subject.create("c", &json!({})).await?;
    watch.expect("ADDED", "c").await?;
    Ok(())
}

async fn a_watch_without_a_version_begins_with_what_is_there(subject: &Subject<'_>) -> Result<()> {
    for name in ["a", "b"] {
        subject.create(name, &json!({})).await?;
    }
    let list = subject.get(subject.widgets()).expect(200).await?;
    ensure!(names(&list)? == ["a", "b"], "{list}");
    for unset in [true, false] {
        let call = subject.get(subject.widgets());
        let call = if unset { call } else { call.query("resourceVersion", "0") };
        let mut watch = call.watch().await?;
        for name in ["a", "b"] {
            watch.expect("ADDED", name).await.with_context(|| format!("without a version: {unset}"))?;
        }
    }
    Ok(())
}

async fn changes_come_in_their_order_with_their_versions(subject: &Subject<'_>) -> Result<()> {
    let mut watch = from(subject, &now(subject).await?).watch().await?;
    let created = subject.create("a", &json!({})).await?;
    let change = json!({ "spec": { "colour": "red" } });
    let changed = subject.merge("a", &change).await?;
    let status = json!({ "status": { "phase": "Ready" } });
    let ready = subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &status).expect(200).await?;
    subject.delete(subject.widget("a")).expect(200).await?;
    let mut last = 0;
    for (kind, expected) in
        [("ADDED", Some(created)), ("MODIFIED", Some(changed)), ("MODIFIED", Some(ready)), ("DELETED", None)]
    {
        let object = watch.expect(kind, "a").await?;
        ensure!(version(&object)? > last, "{kind} is not newer than {last}: {object}");
        last = version(&object)?;
        if let Some(expected) = expected {
            ensure!(object == expected, "{kind} brought {object}, expected {expected}");
        }
    }
    Ok(())
}

async fn a_delete_brings_the_last_state_with_the_version_of_the_delete(subject: &Subject<'_>) -> Result<()> {
    let mut created = subject.create("a", &json!({ "replicas": 3 })).await?;
    let mut watch = from(subject, &version(&created)?.to_string()).watch().await?;
    subject.delete(subject.widget("a")).expect(200).await?;
    let mut deleted = watch.expect("DELETED", "a").await?;
    ensure!(version(&deleted)? > version(&created)?, "{deleted}");
    for object in [&mut created, &mut deleted] {
        object["metadata"]["resourceVersion"].take();
    }
    ensure!(deleted == created, "deleted as {deleted}, was {created}");
    Ok(())
}

async fn entering_a_selector_is_an_add_and_leaving_it_a_delete(subject: &Subject<'_>) -> Result<()> {
    let labels = |app: &str| json!({ "metadata": { "labels": { "app": app } } });
    let mut watch = from(subject, &now(subject).await?).query("labelSelector", "app=x").watch().await?;
    subject.post(subject.widgets(), &labelled("a", &json!({ "app": "y" }))).expect(201).await?;
    let entered = subject.merge("a", &labels("x")).await?;
    let within = json!({ "spec": { "colour": "red" } });
    subject.merge("a", &within).await?;
    let left = subject.merge("a", &labels("z")).await?;
    subject.merge("a", &json!({ "spec": { "colour": "blue" } })).await?;
    subject.merge("a", &labels("x")).await?;
    subject.delete(subject.widget("a")).expect(200).await?;

    ensure!(watch.expect("ADDED", "a").await? == entered, "not the state that entered: {entered}");
    watch.expect("MODIFIED", "a").await?;
    let gone = watch.expect("DELETED", "a").await?;
    ensure!(gone["metadata"]["labels"]["app"] == "x", "not the last state that was selected: {gone}");
    ensure!(version(&gone)? == version(&left)?, "not the version of the change that left: {gone}");
    let back = watch.expect("ADDED", "a").await?;
    ensure!(back["spec"]["colour"] == "blue", "{back}");
    watch.expect("DELETED", "a").await?;
    Ok(())
}

fn initial(subject: &Subject<'_>) -> Call {
    let call = subject.get(subject.widgets()).query("sendInitialEvents", "true");
    call.query("resourceVersionMatch", "NotOlderThan").query("allowWatchBookmarks", "true")
}

const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

async fn a_bookmark_ends_the_initial_events(subject: &Subject<'_>) -> Result<()> {
    let mut last = 0;
    for name in ["a", "b"] {
        last = version(&subject.create(name, &json!({})).await?)?;
    }
    let mut watch = initial(subject).watch().await?;
    for name in ["a", "b"] {
        watch.expect("ADDED", name).await?;
    }
    let bookmark = watch.bookmark().await?;
    ensure!(bookmark["metadata"]["annotations"][INITIAL_EVENTS_END] == "true", "{bookmark}");
    ensure!(version(&bookmark)? >= last, "older than what came before: {bookmark}");
    subject.create("c", &json!({})).await?;
    watch.expect_after_bookmarks("ADDED", "c").await?;
    Ok(())
}

async fn a_stream_of_nothing_has_its_bookmark_too(subject: &Subject<'_>) -> Result<()> {
    let mut watch = initial(subject).watch().await?;
    let bookmark = watch.bookmark().await?;
    ensure!(bookmark["metadata"]["annotations"][INITIAL_EVENTS_END] == "true", "{bookmark}");
    // The watch can be resumed from there.
    subject.create("a", &json!({})).await?;
    from(subject, &version(&bookmark)?.to_string()).watch().await?.expect("ADDED", "a").await?;
    Ok(())
}

async fn a_bookmark_comes_before_a_watch_ends(subject: &Subject<'_>) -> Result<()> {
    let start = now(subject).await?;
    let watch = |bookmarks: &str| {
        let call = from(subject, &start).query("timeoutSeconds", "4").query("allowWatchBookmarks", bookmarks);
        // Nothing is selected here: only the bookmark moves a quiet watch forward.
        call.query("labelSelector", "app=nobody").watch()
    };
    let (mut with, mut without) = (watch("true").await?, watch("false").await?);
    let created = subject.create("a", &json!({})).await?;
    let bookmark = with.bookmark().await?;
    ensure!(version(&bookmark)? >= version(&created)?, "older than what has happened, {created}: {bookmark}");
    with.ended().await?;
    let event = without.next().await?;
    ensure!(event.is_none(), "{event:?} was not asked for");
    Ok(())
}

async fn initial_events_can_be_left_out(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({})).await?;
    let call = subject.get(subject.widgets()).query("sendInitialEvents", "false");
    let call =
        call.query("resourceVersionMatch", "NotOlderThan").query("resourceVersion", &version(&created)?.to_string());
    let mut watch = call.watch().await?;
    subject.create("b", &json!({})).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}

async fn a_version_that_is_too_old_has_expired(subject: &Subject<'_>) -> Result<()> {
    let events = subject.core("events");
    let created = subject.post(events.as_str(), &event("a", subject.namespace())).expect(201).await?;
    for name in ["b", "c"] {
        subject.post(events.as_str(), &event(name, subject.namespace())).expect(201).await?;
    }
    subject.forget_history().await?;
    // Some servers refuse the request, others send an error event: clients handle both.
    let old = version(&created)?.to_string();
    let answer = subject.get(events).query("resourceVersion", &old).query("watch", "true").answer().await?;
    let status = if answer.status == 410 {
        answer.refused(410, "Expired")?
    } else {
        let event = answer.expect(200)?;
        ensure!(event["type"] == "ERROR", "{event}");
        event["object"].clone()
    };
    ensure!(status["kind"] == "Status" && status["code"] == 410 && status["reason"] == "Expired", "{status}");
    Ok(())
}

async fn a_watch_under_way_outlives_forgetting(subject: &Subject<'_>) -> Result<()> {
    let mut watch = from(subject, &now(subject).await?).watch().await?;
    subject.create("a", &json!({})).await?;
    watch.expect("ADDED", "a").await?;
    // Of another kind: the watch isn't behind, though its last revision is older than the latest.
    subject.post(subject.core("events"), &event("other", subject.namespace())).expect(201).await?;
    subject.forget_history().await?;
    subject.create("b", &json!({})).await?;
    watch.expect("ADDED", "b").await?;
    Ok(())
}
