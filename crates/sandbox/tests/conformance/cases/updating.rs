//! Cases of replacing objects.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{GROUP, config_map, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(updating::an_update_with_an_old_version_is_a_conflict),
        case!(updating::an_update_without_a_version_is_refused_for_custom_kinds_only),
        case!(updating::the_generation_follows_the_spec_only),
        case!(updating::a_status_update_leaves_the_spec_alone),
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
