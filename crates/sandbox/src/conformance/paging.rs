//! Cases of lists in pages and lists at a resource version.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    objects::{event, names, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(paging::pages_together_are_the_list),
        case!(paging::the_last_page_says_that_nothing_is_left),
        case!(paging::with_a_selector_it_is_not_answered_how_many_are_left),
        case!(paging::pages_show_one_state_while_objects_change),
        case!(paging::a_token_whose_state_is_forgotten_has_expired).forgets(),
        case!(paging::a_wrong_limit_or_token_is_refused),
        case!(paging::a_list_at_an_exact_version_shows_that_state),
        case!(paging::a_list_not_older_than_a_version_is_at_least_that_new),
        case!(paging::a_list_at_a_forgotten_version_has_expired).forgets(),
        case!(paging::a_list_from_the_future_is_not_answered),
        case!(paging::a_match_rule_that_makes_no_sense_is_refused),
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

async fn the_last_page_says_that_nothing_is_left(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 2).await?;
    for limit in ["2", "3", "0"] {
        let list = page(subject, limit, "").await?;
        ensure!(names(&list)? == ["w0", "w1"] && token(&list).is_empty(), "limit {limit}: {list}");
        ensure!(list["metadata"]["remainingItemCount"].is_null(), "limit {limit}: {list}");
    }
    Ok(())
}

async fn with_a_selector_it_is_not_answered_how_many_are_left(subject: &Subject<'_>) -> Result<()> {
    for name in ["a", "b", "c"] {
        let object = super::objects::labelled(name, &json!({ "app": "x" }));
        subject.post(subject.widgets(), &object).expect(201).await?;
    }
    let selected = || subject.get(subject.widgets()).query("labelSelector", "app=x").query("limit", "2");
    let first = selected().expect(200).await?;
    ensure!(names(&first)? == ["a", "b"] && !token(&first).is_empty(), "{first}");
    ensure!(first["metadata"]["remainingItemCount"].is_null(), "{first}");
    let second = selected().query("continue", token(&first)).expect(200).await?;
    ensure!(names(&second)? == ["c"] && token(&second).is_empty(), "{second}");
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

async fn a_wrong_limit_or_token_is_refused(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 2).await?;
    let first = page(subject, "1", "").await?;
    let rows = [
        ("limit", "two".to_owned(), ""),
        ("continue", "nonsense".to_owned(), ""),
        ("continue", token(&first).to_owned(), "5"),
    ];
    for (name, value, at) in rows {
        let call = subject.get(subject.widgets()).query(name, &value);
        let call = if at.is_empty() { call } else { call.query("resourceVersion", at) };
        call.refused(400, "BadRequest").await.with_context(|| format!("{name}={value}"))?;
    }
    Ok(())
}

async fn a_list_at_an_exact_version_shows_that_state(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 2).await?;
    let then = subject.get(subject.widgets()).expect(200).await?;
    subject.delete(subject.widget("w0")).expect(200).await?;
    let list = subject.get(subject.widgets()).query("resourceVersion", &version(&then)?.to_string());
    let list = list.query("resourceVersionMatch", "Exact").expect(200).await?;
    ensure!(names(&list)? == ["w0", "w1"] && version(&list)? == version(&then)?, "{list}");
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
    version(&any)?;
    Ok(())
}

async fn a_list_at_a_forgotten_version_has_expired(subject: &Subject<'_>) -> Result<()> {
    let events = subject.core("events");
    let created = subject.post(events.as_str(), &event("a", subject.namespace())).expect(201).await?;
    subject.delete(format!("{events}/a")).expect(200).await?;
    subject.forget_history().await?;
    let list = subject.get(events).query("resourceVersion", &version(&created)?.to_string());
    list.query("resourceVersionMatch", "Exact").refused(410, "Expired").await?;
    Ok(())
}

async fn a_list_from_the_future_is_not_answered(subject: &Subject<'_>) -> Result<()> {
    let list = subject.get(subject.widgets()).expect(200).await?;
    let future = (version(&list)? + 1_000_000).to_string();
    let status = subject.get(subject.widgets()).query("resourceVersion", &future).refused(504, "Timeout").await?;
    let cause = &status["details"]["causes"][0];
    ensure!(cause["reason"] == "ResourceVersionTooLarge", "{status}");
    Ok(())
}

async fn a_match_rule_that_makes_no_sense_is_refused(subject: &Subject<'_>) -> Result<()> {
    let rows: [&[(&str, &str)]; 5] = [
        &[("resourceVersionMatch", "Exact")],
        &[("resourceVersionMatch", "Exact"), ("resourceVersion", "0")],
        &[("resourceVersionMatch", "Newest"), ("resourceVersion", "1")],
        &[("resourceVersionMatch", "NotOlderThan")],
        &[("sendInitialEvents", "true")],
    ];
    for row in rows {
        let call = row.iter().fold(subject.get(subject.widgets()), |call, (name, value)| call.query(name, value));
        call.refused(422, "Invalid").await.with_context(|| format!("{row:?}"))?;
    }
    let call = subject.get(subject.widgets()).query("resourceVersion", "new").answer().await?;
    ensure!(call.status == 400, "{} was answered with {}: {}", call.request, call.status, call.text);
    Ok(())
}
