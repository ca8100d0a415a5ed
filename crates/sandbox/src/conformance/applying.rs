//! Cases of server-side apply, as far as clients that create, change and own fields need it.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject,
    call::{Call, Patch},
    case,
    objects::{GROUP, config_map, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(applying::an_apply_creates_a_missing_object),
        case!(applying::an_apply_changes_an_existing_object),
        case!(applying::a_field_that_is_no_longer_applied_is_removed),
        case!(applying::fields_of_others_are_left_alone),
        case!(applying::a_field_of_another_manager_is_a_conflict),
        case!(applying::force_takes_a_field_over),
        case!(applying::the_same_value_is_shared),
        case!(applying::applying_the_same_again_is_no_new_version),
        case!(applying::the_body_may_be_yaml),
        case!(applying::a_manager_is_needed),
        case!(applying::core_kinds_are_applied_too),
    ]
}

fn apply(subject: &Subject<'_>, manager: &str, spec: &Value) -> Call {
    subject.patch(subject.widget("a"), Patch::Apply, &widget("a", spec)).query("fieldManager", manager)
}

fn entry<'a>(object: &'a Value, manager: &str) -> Result<&'a Value> {
    let entries = object["metadata"]["managedFields"].as_array();
    let found = entries.into_iter().flatten().find(|entry| entry["manager"] == manager);
    found.with_context(|| format!("no fields of {manager} in {object}"))
}

async fn an_apply_creates_a_missing_object(subject: &Subject<'_>) -> Result<()> {
    let created = apply(subject, "me", &json!({ "replicas": 1 })).expect(201).await?;
    ensure!(created["spec"] == json!({ "replicas": 1 }) && created["metadata"]["generation"] == 1, "{created}");
    let mine = entry(&created, "me")?;
    ensure!(mine["operation"] == "Apply" && mine["fieldsV1"] == json!({ "f:spec": { "f:replicas": {} } }), "{created}");
    Ok(())
}

async fn an_apply_changes_an_existing_object(subject: &Subject<'_>) -> Result<()> {
    apply(subject, "me", &json!({ "replicas": 1 })).expect(201).await?;
    let changed = apply(subject, "me", &json!({ "replicas": 2, "colour": "red" })).expect(200).await?;
    ensure!(changed["spec"] == json!({ "replicas": 2, "colour": "red" }), "{changed}");
    ensure!(changed["metadata"]["generation"] == 2, "{changed}");
    Ok(())
}

async fn a_field_that_is_no_longer_applied_is_removed(subject: &Subject<'_>) -> Result<()> {
    apply(subject, "me", &json!({ "replicas": 1, "colour": "red" })).expect(201).await?;
    let changed = apply(subject, "me", &json!({ "replicas": 1 })).expect(200).await?;
    ensure!(changed["spec"] == json!({ "replicas": 1 }), "{changed}");
    Ok(())
}

async fn fields_of_others_are_left_alone(subject: &Subject<'_>) -> Result<()> {
    apply(subject, "me", &json!({ "replicas": 1 })).expect(201).await?;
    let both = apply(subject, "you", &json!({ "colour": "red" })).expect(200).await?;
    ensure!(both["spec"] == json!({ "replicas": 1, "colour": "red" }), "{both}");
    let changed = apply(subject, "me", &json!({ "replicas": 2 })).expect(200).await?;
    ensure!(changed["spec"] == json!({ "replicas": 2, "colour": "red" }), "{changed}");
    Ok(())
}

async fn a_field_of_another_manager_is_a_conflict(subject: &Subject<'_>) -> Result<()> {
    let create = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 1 })));
    create.query("fieldManager", "maker").expect(201).await?;
    let status = apply(subject, "me", &json!({ "replicas": 2 })).refused(409, "Conflict").await?;
    let cause = &status["details"]["causes"][0];
    ensure!(cause["reason"] == "FieldManagerConflict" && cause["field"] == ".spec.replicas", "{status}");
    let message = cause["message"].as_str().unwrap_or_default();
    ensure!(message.contains("maker"), "{status}");
    Ok(())
}

async fn force_takes_a_field_over(subject: &Subject<'_>) -> Result<()> {
    apply(subject, "maker", &json!({ "replicas": 1, "colour": "red" })).expect(201).await?;
    let taken = apply(subject, "me", &json!({ "replicas": 2 })).query("force", "true").expect(200).await?;
    ensure!(taken["spec"] == json!({ "replicas": 2, "colour": "red" }), "{taken}");
    ensure!(entry(&taken, "maker")?["fieldsV1"] == json!({ "f:spec": { "f:colour": {} } }), "{taken}");
    ensure!(entry(&taken, "me")?["fieldsV1"] == json!({ "f:spec": { "f:replicas": {} } }), "{taken}");
    Ok(())
}

async fn the_same_value_is_shared(subject: &Subject<'_>) -> Result<()> {
    apply(subject, "maker", &json!({ "replicas": 1 })).expect(201).await?;
    let shared = apply(subject, "me", &json!({ "replicas": 1 })).expect(200).await?;
    for manager in ["maker", "me"] {
        ensure!(entry(&shared, manager)?["fieldsV1"] == json!({ "f:spec": { "f:replicas": {} } }), "{shared}");
    }
    // The field stays until its last owner drops it.
    let dropped = apply(subject, "maker", &json!({})).expect(200).await?;
    ensure!(dropped["spec"]["replicas"] == 1, "{dropped}");
    Ok(())
}

async fn applying_the_same_again_is_no_new_version(subject: &Subject<'_>) -> Result<()> {
    let created = apply(subject, "me", &json!({ "replicas": 1 })).expect(201).await?;
    let again = apply(subject, "me", &json!({ "replicas": 1 })).expect(200).await?;
    ensure!(again == created, "it was {created}, and became {again}");
    Ok(())
}

async fn the_body_may_be_yaml(subject: &Subject<'_>) -> Result<()> {
    let text = format!("apiVersion: {GROUP}/v1\nkind: Widget\nmetadata: {{ name: a }}\nspec:\n  replicas: 2\n");
    let call = subject.call(http::Method::PATCH, subject.widget("a")).query("fieldManager", "me");
    let created = call.body("application/apply-patch+yaml", text).expect(201).await?;
    ensure!(created["spec"] == json!({ "replicas": 2 }), "{created}");
    Ok(())
}

async fn a_manager_is_needed(subject: &Subject<'_>) -> Result<()> {
    let call = subject.patch(subject.widget("a"), Patch::Apply, &widget("a", &json!({})));
    let status = call.refused(422, "Invalid").await?;
    ensure!(status["details"]["causes"][0]["field"] == "fieldManager", "{status}");
    Ok(())
}

async fn core_kinds_are_applied_too(subject: &Subject<'_>) -> Result<()> {
    let apply = |data: &Value| {
        let call = subject.patch(subject.core("configmaps/a"), Patch::Apply, &config_map("a", data));
        call.query("fieldManager", "me")
    };
    apply(&json!({ "a": "1", "b": "2" })).expect(201).await?;
    let changed = apply(&json!({ "a": "2" })).expect(200).await?;
    ensure!(changed["data"] == json!({ "a": "2" }), "{changed}");
    Ok(())
}
