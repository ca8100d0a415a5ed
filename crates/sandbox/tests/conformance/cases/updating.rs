//! Cases of replacing objects.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    objects::{GROUP, config_map, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(updating::an_update_with_an_old_version_is_a_conflict),
        case!(updating::an_update_without_a_version_is_refused_for_custom_kinds_only),
        case!(updating::the_generation_follows_the_spec_only),
        case!(updating::a_status_update_leaves_the_spec_alone),
        case!(updating::of_concurrent_updates_one_wins_per_version),
    ]
}

async fn create(subject: &Subject<'_>, name: &str, spec: &Value) -> Result<Value> {
    subject.post(subject.widgets(), &widget(name, spec)).expect(201).await
}

async fn an_update_with_an_old_version_is_a_conflict(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    object["spec"]["replicas"] = json!(2);
    subject.put(subject.widget("a"), &object).expect(200).await?;
    object["spec"]["replicas"] = json!(3);
    let status = subject.put(subject.widget("a"), &object).refused(409, "Conflict").await?;
    ensure!(status["details"] == json!({ "name": "a", "group": GROUP, "kind": "widgets" }), "{status}");
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read["spec"]["replicas"] == 2, "{read}");
    Ok(())
}

async fn an_update_without_a_version_is_refused_for_custom_kinds_only(subject: &Subject<'_>) -> Result<()> {
    create(subject, "a", &json!({})).await?;
    let status = subject.put(subject.widget("a"), &widget("a", &json!({ "replicas": 2 })));
    let status = status.refused(422, "Invalid").await?;
    ensure!(status["details"]["causes"][0]["field"] == "metadata.resourceVersion", "{status}");
    let maps = subject.core("configmaps");
    subject.post(maps.as_str(), &config_map("a", &json!({ "a": "1" }))).expect(201).await?;
    let updated = subject.put(format!("{maps}/a"), &config_map("a", &json!({ "a": "2" }))).expect(200).await?;
    ensure!(updated["data"]["a"] == "2", "{updated}");
    Ok(())
}

async fn the_generation_follows_the_spec_only(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    object["metadata"]["labels"] = json!({ "a": "b" });
    object["metadata"]["generation"] = json!(9);
    let mut object = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(object["metadata"]["generation"] == 1, "labels raised it: {object}");
    object["spec"]["replicas"] = json!(2);
    let mut object = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(object["metadata"]["generation"] == 2, "the spec did not raise it: {object}");
    object["status"] = json!({ "phase": "Ready" });
    let object = subject.put(format!("{}/status", subject.widget("a")), &object).expect(200).await?;
    ensure!(object["metadata"]["generation"] == 2, "the status raised it: {object}");
    Ok(())
}

async fn a_status_update_leaves_the_spec_alone(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    object["status"] = json!({ "phase": "Ready" });
    object["spec"]["replicas"] = json!(2);
    object["metadata"]["labels"] = json!({ "a": "b" });
    let object = subject.put(format!("{}/status", subject.widget("a")), &object).expect(200).await?;
    ensure!(object["status"]["phase"] == "Ready" && object["spec"]["replicas"] == 1, "{object}");
    ensure!(object["metadata"]["labels"].is_null(), "{object}");
    Ok(())
}

async fn of_concurrent_updates_one_wins_per_version(subject: &Subject<'_>) -> Result<()> {
    const WRITERS: u64 = 20;
    let mut object = create(subject, "a", &json!({ "replicas": 0 })).await?;
    for round in 0..3 {
        let attempts = (0..WRITERS).map(|writer| {
            let mut object = object.clone();
            object["spec"]["colour"] = json!(format!("{round} by {writer}"));
            subject.put(subject.widget("a"), &object).answer()
        });
        let answers = try_join_all(attempts).await?;
        let mut winners = Vec::new();
        for answer in &answers {
            if answer.status == 200 {
                winners.push(answer.expect(200)?);
            } else {
                answer.refused(409, "Conflict")?;
            }
        }
        ensure!(winners.len() == 1, "{} of {WRITERS} updates of one version were taken", winners.len());
        object = winners.pop().context("no winner")?;
        let read = subject.get(subject.widget("a")).expect(200).await?;
        ensure!(read == object, "answered {object}, read {read}");
    }
    Ok(())
}
