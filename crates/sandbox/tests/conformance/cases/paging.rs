//! Cases of lists in pages and lists at a resource version.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{event, names, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(paging::pages_together_are_the_list),
        case!(paging::pages_show_one_state_while_objects_change),
        case!(paging::a_token_whose_state_is_forgotten_has_expired).forgets(),
        case!(paging::a_list_not_older_than_a_version_is_at_least_that_new),
    ]
}

async fn fill(subject: &Subject<'_>, count: usize) -> Result<()> {
    for number in 0..count {
        let object = widget(&format!("w{number}"), &json!({}));
        subject.post(subject.widgets(), &object).expect(201).await?;
    }
    Ok(())
}

fn token(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or_default()
}

async fn page(subject: &Subject<'_>, limit: &str, token: &str) -> Result<Value> {
    let call = subject.get(subject.widgets()).query("limit", limit);
    let call = if token.is_empty() { call } else { call.query("continue", token) };
    call.expect(200).await
}

async fn pages_together_are_the_list(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 5).await?;
    let first = page(subject, "2", "").await?;
    ensure!(names(&first)? == ["w0", "w1"], "{first}");
    ensure!(first["metadata"]["remainingItemCount"] == 3, "{first}");
    let second = page(subject, "2", token(&first)).await?;
    ensure!(names(&second)? == ["w2", "w3"], "{second}");
    ensure!(second["metadata"]["remainingItemCount"] == 1, "{second}");
    ensure!(version(&second)? == version(&first)?, "the pages are of different states: {first} {second}");
    let third = page(subject, "2", token(&second)).await?;
    ensure!(names(&third)? == ["w4"] && token(&third).is_empty(), "{third}");
    ensure!(version(&third)? == version(&first)?, "the pages are of different states: {first} {third}");
    Ok(())
}

async fn pages_show_one_state_while_objects_change(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 4).await?;
    let first = page(subject, "2", "").await?;
    subject.delete(subject.widget("w2")).expect(200).await?;
    subject.post(subject.widgets(), &widget("w9", &json!({}))).expect(201).await?;
    let second = page(subject, "9", token(&first)).await?;
    ensure!(names(&second)? == ["w2", "w3"], "{second}");
    ensure!(version(&second)? == version(&first)?, "the pages are of different states: {first} {second}");
    Ok(())
}

async fn a_token_whose_state_is_forgotten_has_expired(subject: &Subject<'_>) -> Result<()> {
    let events = subject.core("events");
    for name in ["a", "b", "c"] {
        subject.post(events.as_str(), &event(name, subject.namespace())).expect(201).await?;
    }
    let first = subject.get(events.as_str()).query("limit", "1").expect(200).await?;
    // The latest state remains after all history up to it is dropped.
    subject.delete(format!("{events}/b")).expect(200).await?;
    subject.forget_history().await?;
    let second = subject.get(events.as_str()).query("limit", "1").query("continue", token(&first));
    let status = second.refused(410, "Expired").await?;
    // This token continues the list in a newer state.
    let rest = subject.get(events.as_str()).query("continue", token(&status)).expect(200).await?;
    ensure!(names(&rest)? == ["c"], "{rest}");
    ensure!(version(&rest)? > version(&first)?, "the rest is not newer: {first} {rest}");
    Ok(())
}

async fn a_list_not_older_than_a_version_is_at_least_that_new(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 2).await?;
    subject.delete(subject.widget("w0")).expect(200).await?;
    let created = subject.post(subject.widgets(), &widget("w7", &json!({}))).expect(201).await?;
    for rule in ["", "NotOlderThan"] {
        let list = subject.get(subject.widgets()).query("resourceVersion", &version(&created)?.to_string());
        let list = if rule.is_empty() { list } else { list.query("resourceVersionMatch", rule) };
        let list = list.expect(200).await?;
        ensure!(names(&list)? == ["w1", "w7"] && version(&list)? >= version(&created)?, "{list}");
    }
    // Any state is acceptable, including the latest.
    let any = subject.get(subject.widgets()).query("resourceVersion", "0").expect(200).await?;
    // A state that there isn't yet is waited for in vain.
    let future = (version(&any)? + 1_000_000).to_string();
    let status = subject.get(subject.widgets()).query("resourceVersion", &future).refused(504, "Timeout").await?;
    ensure!(status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{status}");
    Ok(())
}
