//! Cases of replacing objects.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    objects::{GROUP, config_map, node, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(updating::an_update_with_the_newest_version_is_taken),
        case!(updating::an_update_with_an_old_version_is_a_conflict),
        case!(updating::an_update_without_a_version_is_refused_for_custom_kinds_only),
        case!(updating::an_update_of_a_missing_object_is_not_found),
        case!(updating::the_names_in_body_and_path_must_agree),
        case!(updating::the_uid_is_a_precondition),
        case!(updating::an_update_that_changes_nothing_is_no_new_version),
        case!(updating::the_generation_follows_the_spec_only),
        case!(updating::an_update_leaves_the_status_alone),
        case!(updating::a_status_update_leaves_the_spec_alone),
        case!(updating::the_status_of_a_core_kind_is_apart),
        case!(updating::a_field_that_is_left_out_is_removed),
        case!(updating::a_dry_run_updates_nothing),
        case!(updating::of_concurrent_updates_one_wins_per_version),
        case!(updating::an_immutable_config_map_stays),
    ]
}

async fn create(subject: &Subject<'_>, name: &str, spec: &Value) -> Result<Value> {
    subject.post(subject.widgets(), &widget(name, spec)).expect(201).await
}

async fn an_update_with_the_newest_version_is_taken(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    let before = object.clone();
    object["spec"]["replicas"] = json!(2);
    let updated = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(updated["spec"]["replicas"] == 2 && version(&updated)? > version(&before)?, "{updated}");
    for part in ["uid", "creationTimestamp", "namespace"] {
        ensure!(updated["metadata"][part] == before["metadata"][part], "{part} of {updated}");
    }
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == updated, "answered {updated}, read {read}");
    Ok(())
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

async fn an_update_of_a_missing_object_is_not_found(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({}));
    object["metadata"]["resourceVersion"] = json!("1");
    subject.put(subject.widget("a"), &object).refused(404, "NotFound").await?;
    Ok(())
}

async fn the_names_in_body_and_path_must_agree(subject: &Subject<'_>) -> Result<()> {
    let object = create(subject, "a", &json!({})).await?;
    create(subject, "b", &json!({})).await?;
    subject.put(subject.widget("b"), &object).refused(400, "BadRequest").await?;
    Ok(())
}

async fn the_uid_is_a_precondition(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({})).await?;
    object["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    let status = subject.put(subject.widget("a"), &object).refused(409, "Conflict").await?;
    let message = status["message"].as_str().unwrap_or_default();
    ensure!(message.to_lowercase().contains("uid"), "{status}");
    Ok(())
}

async fn an_update_that_changes_nothing_is_no_new_version(subject: &Subject<'_>) -> Result<()> {
    let object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    let updated = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(updated == object, "it was {object}, and became {updated}");
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

async fn an_update_leaves_the_status_alone(subject: &Subject<'_>) -> Result<()> {
    let mut object = create(subject, "a", &json!({ "replicas": 1 })).await?;
    object["status"] = json!({ "phase": "Ready" });
    let mut object = subject.put(format!("{}/status", subject.widget("a")), &object).expect(200).await?;
    ensure!(object["status"]["phase"] == "Ready", "{object}");
    object["status"] = json!({ "phase": "Failed" });
    object["spec"]["replicas"] = json!(2);
    let object = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(object["status"]["phase"] == "Ready" && object["spec"]["replicas"] == 2, "{object}");
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

async fn the_status_of_a_core_kind_is_apart(subject: &Subject<'_>) -> Result<()> {
    let name = subject.unique("node");
    let path = format!("/api/v1/nodes/{name}");
    let mut object = subject.post("/api/v1/nodes", &node(&name)).expect(201).await?;
    object["spec"]["unschedulable"] = json!(true);
    object["status"]["capacity"] = json!({ "cpu": "4" });
    let mut object = subject.put(path.as_str(), &object).expect(200).await?;
    ensure!(object["spec"]["unschedulable"] == true && object["status"]["capacity"].is_null(), "{object}");
    object["spec"] = json!({});
    object["status"]["capacity"] = json!({ "cpu": "4" });
    let object = subject.put(format!("{path}/status"), &object).expect(200).await?;
    ensure!(object["spec"]["unschedulable"] == true && object["status"]["capacity"]["cpu"] == "4", "{object}");
    Ok(())
}

async fn a_field_that_is_left_out_is_removed(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({ "replicas": 1, "colour": "red" }));
    object["metadata"]["labels"] = json!({ "a": "b" });
    let created = subject.post(subject.widgets(), &object).expect(201).await?;
    let mut object = widget("a", &json!({ "colour": "red" }));
    object["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
    let updated = subject.put(subject.widget("a"), &object).expect(200).await?;
    ensure!(updated["spec"] == json!({ "colour": "red" }), "{updated}");
    ensure!(updated["metadata"]["labels"].is_null(), "{updated}");
    ensure!(updated["metadata"]["uid"] == created["metadata"]["uid"], "{updated}");
    Ok(())
}

async fn a_dry_run_updates_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, "a", &json!({ "replicas": 1 })).await?;
    let mut object = created.clone();
    object["spec"]["replicas"] = json!(2);
    let updated = subject.put(subject.widget("a"), &object).query("dryRun", "All").expect(200).await?;
    ensure!(updated["spec"]["replicas"] == 2, "{updated}");
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
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

async fn an_immutable_config_map_stays(subject: &Subject<'_>) -> Result<()> {
    let mut object = config_map("a", &json!({ "a": "1" }));
    object["immutable"] = json!(true);
    let maps = subject.core("configmaps");
    subject.post(maps.as_str(), &object).expect(201).await?;
    object["data"]["a"] = json!("2");
    subject.put(format!("{maps}/a"), &object).refused(422, "Invalid").await?;
    Ok(())
}
