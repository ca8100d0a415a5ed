//! Cases of JSON, merge and strategic merge patches, and of `/scale`.

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
        case!(patching::a_status_patch_changes_the_status_only),
        case!(patching::a_scale_shows_replicas_status_and_selector),
        case!(patching::replicas_that_were_never_set_can_be_set_but_not_read),
        case!(patching::an_update_sets_the_replicas),
        case!(patching::an_old_version_is_a_conflict),
        case!(patching::a_merge_patch_sets_the_replicas_and_zero_too),
        case!(patching::from_zero_a_json_patch_tests_an_empty_spec_and_adds),
        case!(patching::a_test_that_fails_changes_nothing),
        case!(patching::a_dry_run_scales_nothing),
        case!(patching::the_manager_of_the_size_is_who_changed_it_last),
        case!(patching::a_size_of_zero_written_as_a_scale_has_no_manager),
        case!(patching::a_size_is_written_only_to_the_object_of_this_uid),
    ]
}

fn merge_patch(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(subject.widget("a"), Patch::Merge, body)
}

fn json_patch(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(subject.widget("a"), Patch::Json, body)
}

async fn a_merge_patch_sets_replaces_and_removes(subject: &Subject<'_>) -> Result<()> {
    let before = json!({ "replicas": 1, "colour": "red", "parts": [1, 2], "nested": { "a": 1, "b": 2 } });
    let created = subject.create("a", &before).await?;
    let change = json!({ "spec": { "replicas": 2, "colour": null, "absent": null, "parts": [3], "nested": { "a": null, "c": 3 } } });
    let patched = merge_patch(subject, &change).expect(200).await?;
    let expected = json!({ "replicas": 2, "parts": [3], "nested": { "b": 2, "c": 3 } });
    ensure!(patched["spec"] == expected, "{patched}");
    ensure!(version(&patched)? > version(&created)? && patched["metadata"]["generation"] == 2, "{patched}");
    let annotate = json!({ "metadata": { "annotations": { "example.com/a": "1" }, "labels": { "b": "2" } } });
    let patched = merge_patch(subject, &annotate).expect(200).await?;
    ensure!(patched["metadata"]["annotations"] == json!({ "example.com/a": "1" }), "{patched}");
    let patched =
        merge_patch(subject, &json!({ "metadata": { "annotations": { "example.com/a": null } } })).expect(200).await?;
    ensure!(patched["metadata"]["annotations"].is_null() && patched["metadata"]["labels"]["b"] == "2", "{patched}");
    Ok(())
}

async fn a_version_in_a_merge_patch_is_a_precondition(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({})).await?;
    let change = |colour: &str| json!({ "metadata": { "resourceVersion": created["metadata"]["resourceVersion"] }, "spec": { "colour": colour } });
    merge_patch(subject, &change("red")).expect(200).await?;
    merge_patch(subject, &change("blue")).refused(409, "Conflict").await?;
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read["spec"]["colour"] == "red", "{read}");
    Ok(())
}

async fn a_patch_that_changes_nothing_is_no_new_version(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({ "replicas": 1 })).await?;
    let same = merge_patch(subject, &json!({ "spec": { "replicas": 1 } })).expect(200).await?;
    ensure!(same == created, "it was {created}, and became {same}");
    let same = json_patch(subject, &json!([])).expect(200).await?;
    ensure!(same == created, "it was {created}, and became {same}");
    Ok(())
}

async fn a_json_patch_adds_replaces_and_removes(subject: &Subject<'_>) -> Result<()> {
    subject.create("a", &json!({ "replicas": 1, "colour": "red", "parts": [1, 3] })).await?;
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
    let patched = json_patch(subject, &change).expect(200).await?;
    // Absence and null are the same to clients, and some servers drop a null.
    let mut spec = patched["spec"].clone();
    if let Some(nested) = spec["nested"].as_object_mut() {
        nested.remove("b");
    }
    ensure!(spec == json!({ "replicas": 2, "parts": [1, 2, 3, 4], "nested": { "a": 1 }, "absent": 1 }), "{patched}");
    Ok(())
}

async fn a_json_patch_that_can_not_be_applied_is_refused(subject: &Subject<'_>) -> Result<()> {
    subject.create("a", &json!({ "replicas": 1, "parts": [1] })).await?;
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
        let status = json_patch(subject, &json!([operation])).refused(422, "Invalid").await;
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

async fn a_status_patch_changes_the_status_only(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({ "replicas": 1 })).await?;
    let change = json!({ "status": { "phase": "Ready" }, "spec": { "replicas": 2 } });
    let patched = subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &change).expect(200).await?;
    ensure!(patched["status"]["phase"] == "Ready" && patched["spec"]["replicas"] == 1, "{patched}");
    ensure!(patched["metadata"]["generation"] == 1 && version(&patched)? > version(&created)?, "{patched}");
    let change = json!({ "status": { "phase": "Failed" }, "spec": { "replicas": 2 } });
    let patched = merge_patch(subject, &change).expect(200).await?;
    ensure!(patched["status"]["phase"] == "Ready" && patched["spec"]["replicas"] == 2, "{patched}");
    let read = subject.get(format!("{}/status", subject.widget("a"))).expect(200).await?;
    ensure!(read == patched, "{read}");
    Ok(())
}

async fn sized(subject: &Subject<'_>, replicas: u32) -> Result<Value> {
    subject.create("a", &json!({ "replicas": replicas, "colour": "red" })).await
}

fn scale_of(subject: &Subject<'_>) -> String {
    format!("{}/scale", subject.widget("a"))
}

fn scale_patch(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(scale_of(subject), Patch::Json, body)
}

async fn replicas(subject: &Subject<'_>) -> Result<Value> {
    Ok(subject.get(subject.widget("a")).expect(200).await?["spec"]["replicas"].clone())
}

async fn a_scale_shows_replicas_status_and_selector(subject: &Subject<'_>) -> Result<()> {
    let created = sized(subject, 3).await?;
    let scale = subject.get(scale_of(subject)).expect(200).await?;
    ensure!(scale["kind"] == "Scale" && scale["apiVersion"] == "autoscaling/v1", "{scale}");
    for part in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        ensure!(scale["metadata"][part] == created["metadata"][part], "{part} of {scale}");
    }
    ensure!(scale["spec"] == json!({ "replicas": 3 }) && scale["status"] == json!({ "replicas": 0 }), "{scale}");
    let status = json!({ "status": { "replicas": 2, "selector": "app=x" } });
    subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &status).expect(200).await?;
    let scale = subject.get(scale_of(subject)).expect(200).await?;
    ensure!(scale["status"] == json!({ "replicas": 2, "selector": "app=x" }), "{scale}");
    Ok(())
}

async fn replicas_that_were_never_set_can_be_set_but_not_read(subject: &Subject<'_>) -> Result<()> {
    subject.create("a", &json!({})).await?;
    subject.get(scale_of(subject)).refused(500, "InternalError").await?;
    let change = json!({ "spec": { "replicas": 2 } });
    let scaled = subject.patch(scale_of(subject), Patch::Merge, &change).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    Ok(())
}

async fn an_update_sets_the_replicas(subject: &Subject<'_>) -> Result<()> {
    let created = sized(subject, 3).await?;
    let mut scale = subject.get(scale_of(subject)).expect(200).await?;
    scale["spec"]["replicas"] = json!(5);
    let scaled = subject.put(scale_of(subject), &scale).expect(200).await?;
    ensure!(scaled["kind"] == "Scale" && scaled["spec"]["replicas"] == 5, "{scaled}");
    ensure!(version(&scaled)? > version(&created)?, "{scaled}");
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(object["spec"] == json!({ "replicas": 5, "colour": "red" }), "{object}");
    ensure!(object["metadata"]["generation"] == 2 && version(&object)? == version(&scaled)?, "{object}");
    Ok(())
}

async fn an_old_version_is_a_conflict(subject: &Subject<'_>) -> Result<()> {
    sized(subject, 3).await?;
    let mut scale = subject.get(scale_of(subject)).expect(200).await?;
    scale["spec"]["replicas"] = json!(5);
    subject.put(scale_of(subject), &scale).expect(200).await?;
    scale["spec"]["replicas"] = json!(6);
    subject.put(scale_of(subject), &scale).refused(409, "Conflict").await?;
    let old = json!({
        "metadata": { "resourceVersion": scale["metadata"]["resourceVersion"] },
        "spec": { "replicas": 7 },
    });
    subject.patch(scale_of(subject), Patch::Merge, &old).refused(409, "Conflict").await?;
    ensure!(replicas(subject).await? == 5, "{}", replicas(subject).await?);
    Ok(())
}

async fn a_merge_patch_sets_the_replicas_and_zero_too(subject: &Subject<'_>) -> Result<()> {
    sized(subject, 3).await?;
    for (size, shown) in [(5, json!({ "replicas": 5 })), (0, json!({})), (1, json!({ "replicas": 1 }))] {
        let change = json!({ "spec": { "replicas": size } });
        let scaled = subject.patch(scale_of(subject), Patch::Merge, &change).expect(200).await?;
        ensure!(scaled["spec"] == shown, "{size}: {scaled}");
        ensure!(replicas(subject).await? == size, "{size}: {scaled}");
    }
    Ok(())
}

async fn from_zero_a_json_patch_tests_an_empty_spec_and_adds(subject: &Subject<'_>) -> Result<()> {
    sized(subject, 0).await?;
    let change = json!([
        { "op": "test", "path": "/spec", "value": {} },
        { "op": "add", "path": "/spec/replicas", "value": 2 },
    ]);
    let scaled = scale_patch(subject, &change).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    scale_patch(subject, &change).refused(422, "Invalid").await?;
    // The size returns to its first value.
    let change = json!([
        { "op": "test", "path": "/spec/replicas", "value": 2 },
        { "op": "replace", "path": "/spec/replicas", "value": 0 },
    ]);
    let scaled = scale_patch(subject, &change).expect(200).await?;
    ensure!(scaled["spec"] == json!({}) && replicas(subject).await? == 0, "{scaled}");
    Ok(())
}

async fn a_test_that_fails_changes_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = sized(subject, 3).await?;
    let change = |tested: &Value| json!([tested, { "op": "replace", "path": "/spec/replicas", "value": 4 }]);
    for tested in [
        json!({ "op": "test", "path": "/spec/replicas", "value": 2 }),
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "1" }),
    ] {
        scale_patch(subject, &change(&tested)).refused(422, "Invalid").await?;
    }
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
    Ok(())
}

async fn a_dry_run_scales_nothing(subject: &Subject<'_>) -> Result<()> {
    sized(subject, 3).await?;
    let change = json!({ "spec": { "replicas": 4 } });
    let scaled = subject.patch(scale_of(subject), Patch::Merge, &change).query("dryRun", "All").expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 4 && replicas(subject).await? == 3, "{scaled}");
    Ok(())
}

/// Returns the managers of the size: manager, operation and subresource of each entry of `managedFields` that has it.
fn managers_of_the_size(object: &Value) -> Vec<[&str; 3]> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let of_the_size = entries.filter(|entry| entry["fieldsV1"].pointer("/f:spec/f:replicas").is_some());
    of_the_size
        .map(|entry| ["manager", "operation", "subresource"].map(|part| entry[part].as_str().unwrap_or_default()))
        .collect()
}

async fn the_manager_of_the_size_is_who_changed_it_last(subject: &Subject<'_>) -> Result<()> {
    let maker = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3, "colour": "red" })));
    let object = maker.query("fieldManager", "maker").expect(201).await?;
    ensure!(managers_of_the_size(&object) == [["maker", "Update", ""]], "{object}");

    let read = async || subject.get(subject.widget("a")).expect(200).await;
    let scale = |from: u32, to: u32| {
        let change = json!([
            { "op": "test", "path": "/spec/replicas", "value": from },
            { "op": "replace", "path": "/spec/replicas", "value": to },
        ]);
        scale_patch(subject, &change)
    };
    scale(3, 4).query("fieldManager", "one").expect(200).await?;
    let object = read().await?;
    ensure!(managers_of_the_size(&object) == [["one", "Update", "scale"]], "{object}");
    scale(4, 5).query("fieldManager", "two").expect(200).await?;
    let object = read().await?;
    ensure!(managers_of_the_size(&object) == [["two", "Update", "scale"]], "{object}");

    // A write of the current value changes nothing.
    scale(5, 5).query("fieldManager", "three").expect(200).await?;
    let other = json!({ "spec": { "colour": "blue" }, "metadata": { "annotations": { "a": "b" } } });
    let change = subject.patch(subject.widget("a"), Patch::Merge, &other);
    let object = change.query("fieldManager", "painter").expect(200).await?;
    ensure!(managers_of_the_size(&object) == [["two", "Update", "scale"]], "{object}");

    // The size can also be written through the object itself.
    let change = json!([
        { "op": "add", "path": "/spec/replicas", "value": 2 },
        { "op": "add", "path": "/metadata/annotations/c", "value": "d" },
    ]);
    let change = subject.patch(subject.widget("a"), Patch::Json, &change);
    let object = change.query("fieldManager", "one").expect(200).await?;
    ensure!(managers_of_the_size(&object) == [["one", "Update", ""]], "{object}");
    Ok(())
}

async fn a_size_of_zero_written_as_a_scale_has_no_manager(subject: &Subject<'_>) -> Result<()> {
    sized(subject, 1).await?;
    let change = json!([
        { "op": "test", "path": "/spec/replicas", "value": 1 },
        { "op": "replace", "path": "/spec/replicas", "value": 0 },
    ]);
    scale_patch(subject, &change).query("fieldManager", "one").expect(200).await?;
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(managers_of_the_size(&object).is_empty() && object["spec"]["replicas"] == 0, "{object}");

    // The next size that is written like this has no manager either.
    let change = json!([
        { "op": "test", "path": "/spec", "value": {} },
        { "op": "add", "path": "/spec/replicas", "value": 2 },
    ]);
    scale_patch(subject, &change).query("fieldManager", "two").expect(200).await?;
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(managers_of_the_size(&object).is_empty() && object["spec"]["replicas"] == 2, "{object}");

    // A write of the object itself sets a manager again.
    let change = subject.patch(subject.widget("a"), Patch::Merge, &json!({ "spec": { "replicas": 3 } }));
    let object = change.query("fieldManager", "three").expect(200).await?;
    ensure!(managers_of_the_size(&object) == [["three", "Update", ""]], "{object}");
    Ok(())
}

async fn a_size_is_written_only_to_the_object_of_this_uid(subject: &Subject<'_>) -> Result<()> {
    let created = sized(subject, 0).await?;
    let change = |uid: &Value| {
        json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": "/spec", "value": {} },
            { "op": "add", "path": "/spec/replicas", "value": 2 },
        ])
    };
    scale_patch(subject, &change(&json!("another"))).refused(422, "Invalid").await?;
    let scaled = scale_patch(subject, &change(&created["metadata"]["uid"])).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    Ok(())
}
