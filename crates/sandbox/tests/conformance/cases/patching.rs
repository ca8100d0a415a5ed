//! Cases of JSON, merge and strategic merge patches.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{Call, Patch, node, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(patching::a_merge_patch_sets_replaces_and_removes),
        case!(patching::a_version_in_a_merge_patch_is_a_precondition),
        case!(patching::a_patch_that_changes_nothing_is_no_new_version),
        case!(patching::a_json_patch_adds_replaces_and_removes),
        case!(patching::a_json_patch_that_can_not_be_applied_is_refused),
        case!(patching::a_strategic_patch_merges_lists_by_key),
        case!(patching::a_patch_may_not_make_an_object_invalid),
        case!(patching::a_status_patch_changes_the_status_only),
        case!(patching::the_manager_of_each_field_is_kept),
    ]
}

async fn create(subject: &Subject<'_>, spec: &Value) -> Result<Value> {
    subject.post(subject.widgets(), &widget("a", spec)).expect(201).await
}

fn merge(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(subject.widget("a"), Patch::Merge, body)
}

fn operations(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(subject.widget("a"), Patch::Json, body)
}

async fn a_merge_patch_sets_replaces_and_removes(subject: &Subject<'_>) -> Result<()> {
    let before = json!({ "replicas": 1, "colour": "red", "parts": [1, 2], "nested": { "a": 1, "b": 2 } });
    let created = create(subject, &before).await?;
    let change = json!({ "spec": { "replicas": 2, "colour": null, "absent": null, "parts": [3], "nested": { "a": null, "c": 3 } } });
    let patched = merge(subject, &change).expect(200).await?;
    let expected = json!({ "replicas": 2, "parts": [3], "nested": { "b": 2, "c": 3 } });
    ensure!(patched["spec"] == expected, "{patched}");
    ensure!(version(&patched)? > version(&created)? && patched["metadata"]["generation"] == 2, "{patched}");
    let annotate = json!({ "metadata": { "annotations": { "example.com/a": "1" }, "labels": { "b": "2" } } });
    let patched = merge(subject, &annotate).expect(200).await?;
    ensure!(patched["metadata"]["annotations"] == json!({ "example.com/a": "1" }), "{patched}");
    let patched =
        merge(subject, &json!({ "metadata": { "annotations": { "example.com/a": null } } })).expect(200).await?;
    ensure!(patched["metadata"]["annotations"].is_null() && patched["metadata"]["labels"]["b"] == "2", "{patched}");
    Ok(())
}

async fn a_version_in_a_merge_patch_is_a_precondition(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({})).await?;
    let change = |colour: &str| json!({ "metadata": { "resourceVersion": created["metadata"]["resourceVersion"] }, "spec": { "colour": colour } });
    merge(subject, &change("red")).expect(200).await?;
    merge(subject, &change("blue")).refused(409, "Conflict").await?;
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read["spec"]["colour"] == "red", "{read}");
    Ok(())
}

async fn a_patch_that_changes_nothing_is_no_new_version(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({ "replicas": 1 })).await?;
    let same = merge(subject, &json!({ "spec": { "replicas": 1 } })).expect(200).await?;
    ensure!(same == created, "it was {created}, and became {same}");
    let same = operations(subject, &json!([])).expect(200).await?;
    ensure!(same == created, "it was {created}, and became {same}");
    Ok(())
}

async fn a_json_patch_adds_replaces_and_removes(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1, "colour": "red", "parts": [1, 3] })).await?;
    let change = json!([
        { "op": "replace", "path": "/spec/replicas", "value": 2 },
        { "op": "remove", "path": "/spec/colour" },
        { "op": "add", "path": "/spec/parts/1", "value": 2 },
        { "op": "add", "path": "/spec/parts/-", "value": 4 },
        { "op": "add", "path": "/spec/nested", "value": { "a": 1 } },
        { "op": "add", "path": "/spec/nested/b", "value": null },
        // The RFC requires a refusal here.
        { "op": "replace", "path": "/spec/absent", "value": 1 },
    ]);
    let patched = operations(subject, &change).expect(200).await?;
    // Absence and null are the same to clients, and some servers drop a null.
    let mut spec = patched["spec"].clone();
    if let Some(nested) = spec["nested"].as_object_mut() {
        nested.remove("b");
    }
    ensure!(spec == json!({ "replicas": 2, "parts": [1, 2, 3, 4], "nested": { "a": 1 }, "absent": 1 }), "{patched}");
    Ok(())
}

async fn a_json_patch_that_can_not_be_applied_is_refused(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1, "parts": [1] })).await?;
    for operation in [
        json!({ "op": "test", "path": "/spec/replicas", "value": 2 }),
        json!({ "op": "test", "path": "/spec/replicas", "value": "1" }),
        json!({ "op": "remove", "path": "/spec/colour" }),
        json!({ "op": "replace", "path": "/spec/nested/a", "value": 1 }),
        json!({ "op": "add", "path": "/spec/nested/a", "value": 1 }),
        json!({ "op": "add", "path": "/spec/parts/7", "value": 1 }),
        json!({ "op": "remove", "path": "/spec/parts/7" }),
        json!({ "op": "move", "from": "/spec/colour", "path": "/spec/a" }),
    ] {
        let status = operations(subject, &json!([operation])).refused(422, "Invalid").await;
        status.with_context(|| format!("{operation}"))?;
    }
    Ok(())
}

async fn a_node(subject: &Subject<'_>) -> Result<(String, String)> {
    let name = subject.unique("node");
    let mut object = node(&name);
    object["spec"] = json!({ "taints": [{ "key": "a", "effect": "NoSchedule" }] });
    subject.post("/api/v1/nodes", &object).expect(201).await?;
    Ok((format!("/api/v1/nodes/{name}"), format!("/api/v1/nodes/{name}/status")))
}

async fn a_strategic_patch_merges_lists_by_key(subject: &Subject<'_>) -> Result<()> {
    let (path, status) = a_node(subject).await?;
    let conditions = |conditions: Value| json!({ "status": { "conditions": conditions } });
    let first =
        conditions(json!([{ "type": "Ready", "status": "False" }, { "type": "DiskPressure", "status": "False" }]));
    subject.patch(status.as_str(), Patch::Strategic, &first).expect(200).await?;
    let second = conditions(json!([{ "type": "Ready", "status": "True", "reason": "Up" }]));
    let patched = subject.patch(status.as_str(), Patch::Strategic, &second).expect(200).await?;
    let found: Vec<_> = patched["status"]["conditions"].as_array().into_iter().flatten().collect();
    let pairs: Vec<_> = found.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
    ensure!(pairs == [(&json!("Ready"), &json!("True")), (&json!("DiskPressure"), &json!("False"))], "{patched}");
    ensure!(found[0]["reason"] == "Up", "{patched}");
    let gone = conditions(json!([{ "type": "Ready", "$patch": "delete" }]));
    let patched = subject.patch(status, Patch::Strategic, &gone).expect(200).await?;
    let left = patched["status"]["conditions"].as_array().context("no conditions")?;
    ensure!(left.len() == 1 && left[0]["type"] == "DiskPressure", "{patched}");
    // Taints have no merge key: the list is replaced.
    let taints = json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } });
    let patched = subject.patch(path, Patch::Strategic, &taints).expect(200).await?;
    let taints = patched["spec"]["taints"].as_array().context("no taints")?;
    ensure!(taints.len() == 1 && taints[0]["key"] == "b", "{patched}");
    Ok(())
}

async fn a_patch_may_not_make_an_object_invalid(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1 })).await?;
    merge(subject, &json!({ "metadata": { "labels": { "a": "b c" } } })).refused(422, "Invalid").await?;
    merge(subject, &json!({ "spec": { "replicas": "many" } })).refused(422, "Invalid").await?;
    Ok(())
}

async fn a_status_patch_changes_the_status_only(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({ "replicas": 1 })).await?;
    let change = json!({ "status": { "phase": "Ready" }, "spec": { "replicas": 2 } });
    let patched = subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &change).expect(200).await?;
    ensure!(patched["status"]["phase"] == "Ready" && patched["spec"]["replicas"] == 1, "{patched}");
    ensure!(patched["metadata"]["generation"] == 1 && version(&patched)? > version(&created)?, "{patched}");
    let change = json!({ "status": { "phase": "Failed" }, "spec": { "replicas": 2 } });
    let patched = merge(subject, &change).expect(200).await?;
    ensure!(patched["status"]["phase"] == "Ready" && patched["spec"]["replicas"] == 2, "{patched}");
    let read = subject.get(format!("{}/status", subject.widget("a"))).expect(200).await?;
    ensure!(read == patched, "{read}");
    Ok(())
}

async fn the_manager_of_each_field_is_kept(subject: &Subject<'_>) -> Result<()> {
    let create = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 1 })));
    create.query("fieldManager", "maker").expect(201).await?;
    merge(subject, &json!({ "spec": { "colour": "red" } })).query("fieldManager", "painter").expect(200).await?;
    let status = subject.patch(
        format!("{}/status", subject.widget("a")),
        Patch::Merge,
        &json!({ "status": { "phase": "Ready" } }),
    );
    let object = status.query("fieldManager", "controller").expect(200).await?;
    let entries = object["metadata"]["managedFields"].as_array().context("no managedFields")?;
    let mut found: Vec<_> = entries
        .iter()
        .map(|entry| ["manager", "operation", "subresource"].map(|part| entry[part].as_str().unwrap_or_default()))
        .collect();
    found.sort_unstable();
    let expected = [["controller", "Update", "status"], ["maker", "Update", ""], ["painter", "Update", ""]];
    ensure!(found == expected, "{object}");
    Ok(())
}
