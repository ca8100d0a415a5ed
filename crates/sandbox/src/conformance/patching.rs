//! Cases of JSON, merge and strategic merge patches.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{
    Case, Subject,
    call::{Call, Patch},
    case,
    objects::{config_map, node, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(patching::a_merge_patch_sets_replaces_and_removes),
        case!(patching::a_merge_patch_must_be_an_object),
        case!(patching::a_version_in_a_merge_patch_is_a_precondition),
        case!(patching::a_patch_that_changes_nothing_is_no_new_version),
        case!(patching::a_patch_of_a_missing_object_is_not_found),
        case!(patching::names_uid_and_time_of_creation_do_not_change),
        case!(patching::a_json_patch_adds_replaces_and_removes),
        case!(patching::a_json_patch_replaces_what_is_not_there_too),
        case!(patching::a_json_patch_copies_and_moves),
        case!(patching::a_json_patch_is_all_or_nothing),
        case!(patching::a_test_that_holds_lets_the_patch_through),
        case!(patching::a_json_patch_that_can_not_be_applied_is_refused),
        case!(patching::a_json_patch_must_be_a_list_of_known_operations),
        case!(patching::a_json_patch_escapes_slashes),
        case!(patching::a_test_of_the_version_is_a_precondition),
        case!(patching::an_unknown_type_of_patch_is_refused),
        case!(patching::a_strategic_patch_merges_lists_by_key),
        case!(patching::a_merge_patch_replaces_lists),
        case!(patching::a_strategic_patch_removes_by_directive),
        case!(patching::custom_kinds_take_no_strategic_patch),
        case!(patching::a_patch_may_not_make_an_object_invalid),
        case!(patching::a_dry_run_patches_nothing),
        case!(patching::concurrent_patches_all_arrive),
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

async fn a_merge_patch_must_be_an_object(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({})).await?;
    for body in ["{", "", "[]", "7"] {
        let call = subject.call(http::Method::PATCH, subject.widget("a"));
        let call = call.body("application/merge-patch+json", body.to_owned());
        call.refused(400, "BadRequest").await.with_context(|| format!("the body {body:?}"))?;
    }
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

async fn a_patch_of_a_missing_object_is_not_found(subject: &Subject<'_>) -> Result<()> {
    merge(subject, &json!({ "spec": { "replicas": 1 } })).refused(404, "NotFound").await?;
    operations(subject, &json!([])).refused(404, "NotFound").await?;
    Ok(())
}

async fn names_uid_and_time_of_creation_do_not_change(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({})).await?;
    merge(subject, &json!({ "metadata": { "name": "b" } })).refused(400, "BadRequest").await?;
    merge(subject, &json!({ "metadata": { "namespace": "b" } })).refused(400, "BadRequest").await?;
    merge(subject, &json!({ "metadata": { "uid": "b" } })).refused(422, "Invalid").await?;
    let patched = merge(subject, &json!({ "metadata": { "creationTimestamp": null, "generation": 7 } }));
    let patched = patched.expect(200).await?;
    ensure!(patched == created, "it was {created}, and became {patched}");
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
    ]);
    let patched = operations(subject, &change).expect(200).await?;
    // Absence and null are the same to clients, and some servers drop a null.
    let mut spec = patched["spec"].clone();
    if let Some(nested) = spec["nested"].as_object_mut() {
        nested.remove("b");
    }
    ensure!(spec == json!({ "replicas": 2, "parts": [1, 2, 3, 4], "nested": { "a": 1 } }), "{patched}");
    Ok(())
}

/// The RFC requires a refusal here.
async fn a_json_patch_replaces_what_is_not_there_too(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1 })).await?;
    let change = json!([{ "op": "replace", "path": "/spec/colour", "value": "red" }]);
    let patched = operations(subject, &change).expect(200).await?;
    ensure!(patched["spec"] == json!({ "replicas": 1, "colour": "red" }), "{patched}");
    Ok(())
}

async fn a_json_patch_copies_and_moves(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "colour": "red", "nested": { "a": 1 } })).await?;
    let change = json!([
        { "op": "copy", "from": "/spec/nested", "path": "/spec/copy" },
        { "op": "move", "from": "/spec/nested/a", "path": "/spec/moved" },
    ]);
    let patched = operations(subject, &change).expect(200).await?;
    let expected = json!({ "colour": "red", "nested": {}, "copy": { "a": 1 }, "moved": 1 });
    ensure!(patched["spec"] == expected, "{patched}");
    Ok(())
}

async fn a_json_patch_is_all_or_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({ "replicas": 1 })).await?;
    let change = json!([
        { "op": "replace", "path": "/spec/replicas", "value": 2 },
        { "op": "test", "path": "/spec/colour", "value": "red" },
    ]);
    operations(subject, &change).refused(422, "Invalid").await?;
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
    Ok(())
}

async fn a_test_that_holds_lets_the_patch_through(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1, "nested": { "a": [1, { "b": 2 }] } })).await?;
    let change = json!([
        { "op": "test", "path": "/spec/replicas", "value": 1 },
        { "op": "test", "path": "/spec/nested", "value": { "a": [1, { "b": 2 }] } },
        { "op": "test", "path": "/spec/nested/a/1/b", "value": 2 },
        { "op": "test", "path": "/spec/colour", "value": null },
        { "op": "replace", "path": "/spec/replicas", "value": 5 },
    ]);
    let patched = operations(subject, &change).expect(200).await?;
    ensure!(patched["spec"]["replicas"] == 5, "{patched}");
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

async fn a_json_patch_must_be_a_list_of_known_operations(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1 })).await?;
    for body in [json!({}), json!(7), json!([7])] {
        operations(subject, &body).refused(400, "BadRequest").await.with_context(|| format!("{body}"))?;
    }
    for body in [json!([{ "op": "put", "path": "/spec/a", "value": 1 }])] {
        operations(subject, &body).refused(422, "Invalid").await.with_context(|| format!("{body}"))?;
    }
    Ok(())
}

async fn a_json_patch_escapes_slashes(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({ "nested": { "a/~b": 1 } }));
    object["metadata"]["annotations"] = json!({ "example.com/a": "1" });
    subject.post(subject.widgets(), &object).expect(201).await?;
    let change = json!([
        { "op": "replace", "path": "/metadata/annotations/example.com~1a", "value": "2" },
        { "op": "test", "path": "/spec/nested/a~1~0b", "value": 1 },
        { "op": "replace", "path": "/spec/nested/a~1~0b", "value": 2 },
    ]);
    let patched = operations(subject, &change).expect(200).await?;
    ensure!(patched["metadata"]["annotations"] == json!({ "example.com/a": "2" }), "{patched}");
    ensure!(patched["spec"]["nested"] == json!({ "a/~b": 2 }), "{patched}");
    Ok(())
}

async fn a_test_of_the_version_is_a_precondition(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({ "replicas": 1 })).await?;
    let change = |replicas: u8| {
        json!([
            { "op": "test", "path": "/metadata/resourceVersion", "value": created["metadata"]["resourceVersion"] },
            { "op": "replace", "path": "/spec/replicas", "value": replicas },
        ])
    };
    operations(subject, &change(2)).expect(200).await?;
    operations(subject, &change(3)).refused(422, "Invalid").await?;
    Ok(())
}

async fn an_unknown_type_of_patch_is_refused(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({})).await?;
    for kind in ["application/json", "text/plain", "application/merge-patch"] {
        let call = subject.call(http::Method::PATCH, subject.widget("a")).body(kind, "{}".to_owned());
        call.refused(415, "UnsupportedMediaType").await.with_context(|| kind.to_owned())?;
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
    let patched = subject.patch(status, Patch::Strategic, &second).expect(200).await?;
    let found: Vec<_> = patched["status"]["conditions"].as_array().into_iter().flatten().collect();
    let pairs: Vec<_> = found.iter().map(|condition| (&condition["type"], &condition["status"])).collect();
    ensure!(pairs == [(&json!("Ready"), &json!("True")), (&json!("DiskPressure"), &json!("False"))], "{patched}");
    ensure!(found[0]["reason"] == "Up", "{patched}");
    // Taints have no merge key: the list is replaced.
    let taints = json!({ "spec": { "taints": [{ "key": "b", "effect": "NoExecute" }] } });
    let patched = subject.patch(path, Patch::Strategic, &taints).expect(200).await?;
    let taints = patched["spec"]["taints"].as_array().context("no taints")?;
    ensure!(taints.len() == 1 && taints[0]["key"] == "b", "{patched}");
    Ok(())
}

async fn a_merge_patch_replaces_lists(subject: &Subject<'_>) -> Result<()> {
    let (_, status) = a_node(subject).await?;
    for kind in ["Ready", "DiskPressure"] {
        let change = json!({ "status": { "conditions": [{ "type": kind, "status": "True" }] } });
        let patched = subject.patch(status.as_str(), Patch::Merge, &change).expect(200).await?;
        let found: Vec<_> =
            patched["status"]["conditions"].as_array().into_iter().flatten().map(|c| &c["type"]).collect();
        ensure!(found == [kind], "{patched}");
    }
    Ok(())
}

async fn a_strategic_patch_removes_by_directive(subject: &Subject<'_>) -> Result<()> {
    let (path, status) = a_node(subject).await?;
    let first =
        json!({ "status": { "conditions": [{ "type": "A", "status": "True" }, { "type": "B", "status": "True" }] } });
    subject.patch(status.as_str(), Patch::Strategic, &first).expect(200).await?;
    let gone = json!({ "status": { "conditions": [{ "type": "A", "$patch": "delete" }] } });
    let patched = subject.patch(status, Patch::Strategic, &gone).expect(200).await?;
    let left = patched["status"]["conditions"].as_array().context("no conditions")?;
    ensure!(left.len() == 1 && left[0]["type"] == "B", "{patched}");
    let labels = json!({ "metadata": { "labels": { "a": "1", "b": "2" } } });
    subject.patch(path.as_str(), Patch::Strategic, &labels).expect(200).await?;
    let labels = json!({ "metadata": { "labels": { "a": null } } });
    let patched = subject.patch(path, Patch::Strategic, &labels).expect(200).await?;
    ensure!(patched["metadata"]["labels"] == json!({ "b": "2" }), "{patched}");
    Ok(())
}

async fn custom_kinds_take_no_strategic_patch(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({})).await?;
    let call = subject.patch(subject.widget("a"), Patch::Strategic, &json!({ "spec": { "replicas": 2 } }));
    call.refused(415, "UnsupportedMediaType").await?;
    Ok(())
}

async fn a_patch_may_not_make_an_object_invalid(subject: &Subject<'_>) -> Result<()> {
    create(subject, &json!({ "replicas": 1 })).await?;
    merge(subject, &json!({ "metadata": { "labels": { "a": "b c" } } })).refused(422, "Invalid").await?;
    merge(subject, &json!({ "spec": { "replicas": "many" } })).refused(422, "Invalid").await?;
    Ok(())
}

async fn a_dry_run_patches_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, &json!({ "replicas": 1 })).await?;
    let patched = merge(subject, &json!({ "spec": { "replicas": 2 } })).query("dryRun", "All").expect(200).await?;
    ensure!(patched["spec"]["replicas"] == 2, "{patched}");
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
    Ok(())
}

async fn concurrent_patches_all_arrive(subject: &Subject<'_>) -> Result<()> {
    const WRITERS: usize = 20;
    subject.post(subject.core("configmaps"), &config_map("a", &json!({}))).expect(201).await?;
    let path = subject.core("configmaps/a");
    let patches = (0..WRITERS).map(|writer| {
        let key = format!("by-{writer}");
        subject.patch(path.as_str(), Patch::Merge, &json!({ "data": { key: "1" } })).answer()
    });
    let answers = try_join_all(patches).await?;
    let mut versions = Vec::new();
    for answer in &answers {
        versions.push(version(&answer.expect(200)?)?);
    }
    versions.sort_unstable();
    versions.dedup();
    ensure!(versions.len() == WRITERS, "{} versions of {WRITERS} patches", versions.len());
    let read = subject.get(path).expect(200).await?;
    let data = read["data"].as_object().context("no data")?;
    ensure!(data.len() == WRITERS, "{read}");
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
