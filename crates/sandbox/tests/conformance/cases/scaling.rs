//! Cases of the scale subresource, which reads and writes the replicas of any kind.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{Call, Patch, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(scaling::a_scale_shows_replicas_status_and_selector),
        case!(scaling::replicas_that_were_never_set_can_be_set_but_not_read),
        case!(scaling::an_update_sets_the_replicas),
        case!(scaling::an_old_version_is_a_conflict),
        case!(scaling::a_merge_patch_sets_the_replicas_and_zero_too),
        case!(scaling::from_zero_a_json_patch_tests_an_empty_spec_and_adds),
        case!(scaling::a_test_that_fails_changes_nothing),
        case!(scaling::a_dry_run_scales_nothing),
        case!(scaling::the_manager_of_the_size_is_who_changed_it_last),
        case!(scaling::a_size_of_zero_written_as_a_scale_has_no_manager),
        case!(scaling::a_size_is_written_only_to_the_object_of_this_uid),
    ]
}

async fn create(subject: &Subject<'_>, replicas: u32) -> Result<Value> {
    subject.post(subject.widgets(), &widget("a", &json!({ "replicas": replicas, "colour": "red" }))).expect(201).await
}

fn path(subject: &Subject<'_>) -> String {
    format!("{}/scale", subject.widget("a"))
}

fn operations(subject: &Subject<'_>, body: &Value) -> Call {
    subject.patch(path(subject), Patch::Json, body)
}

async fn replicas(subject: &Subject<'_>) -> Result<Value> {
    Ok(subject.get(subject.widget("a")).expect(200).await?["spec"]["replicas"].clone())
}

async fn a_scale_shows_replicas_status_and_selector(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, 3).await?;
    let scale = subject.get(path(subject)).expect(200).await?;
    ensure!(scale["kind"] == "Scale" && scale["apiVersion"] == "autoscaling/v1", "{scale}");
    for part in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        ensure!(scale["metadata"][part] == created["metadata"][part], "{part} of {scale}");
    }
    ensure!(scale["spec"] == json!({ "replicas": 3 }) && scale["status"] == json!({ "replicas": 0 }), "{scale}");
    let status = json!({ "status": { "replicas": 2, "selector": "app=x" } });
    subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &status).expect(200).await?;
    let scale = subject.get(path(subject)).expect(200).await?;
    ensure!(scale["status"] == json!({ "replicas": 2, "selector": "app=x" }), "{scale}");
    Ok(())
}

async fn replicas_that_were_never_set_can_be_set_but_not_read(subject: &Subject<'_>) -> Result<()> {
    subject.post(subject.widgets(), &widget("a", &json!({}))).expect(201).await?;
    subject.get(path(subject)).refused(500, "InternalError").await?;
    let change = json!({ "spec": { "replicas": 2 } });
    let scaled = subject.patch(path(subject), Patch::Merge, &change).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    Ok(())
}

async fn an_update_sets_the_replicas(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, 3).await?;
    let mut scale = subject.get(path(subject)).expect(200).await?;
    scale["spec"]["replicas"] = json!(5);
    let scaled = subject.put(path(subject), &scale).expect(200).await?;
    ensure!(scaled["kind"] == "Scale" && scaled["spec"]["replicas"] == 5, "{scaled}");
    ensure!(version(&scaled)? > version(&created)?, "{scaled}");
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(object["spec"] == json!({ "replicas": 5, "colour": "red" }), "{object}");
    ensure!(object["metadata"]["generation"] == 2 && version(&object)? == version(&scaled)?, "{object}");
    Ok(())
}

async fn an_old_version_is_a_conflict(subject: &Subject<'_>) -> Result<()> {
    create(subject, 3).await?;
    let mut scale = subject.get(path(subject)).expect(200).await?;
    scale["spec"]["replicas"] = json!(5);
    subject.put(path(subject), &scale).expect(200).await?;
    scale["spec"]["replicas"] = json!(6);
    subject.put(path(subject), &scale).refused(409, "Conflict").await?;
    let old = json!({
        "metadata": { "resourceVersion": scale["metadata"]["resourceVersion"] },
        "spec": { "replicas": 7 },
    });
    subject.patch(path(subject), Patch::Merge, &old).refused(409, "Conflict").await?;
    ensure!(replicas(subject).await? == 5, "{}", replicas(subject).await?);
    Ok(())
}

async fn a_merge_patch_sets_the_replicas_and_zero_too(subject: &Subject<'_>) -> Result<()> {
    create(subject, 3).await?;
    for (size, shown) in [(5, json!({ "replicas": 5 })), (0, json!({})), (1, json!({ "replicas": 1 }))] {
        let change = json!({ "spec": { "replicas": size } });
        let scaled = subject.patch(path(subject), Patch::Merge, &change).expect(200).await?;
        ensure!(scaled["spec"] == shown, "{size}: {scaled}");
        ensure!(replicas(subject).await? == size, "{size}: {scaled}");
    }
    Ok(())
}

async fn from_zero_a_json_patch_tests_an_empty_spec_and_adds(subject: &Subject<'_>) -> Result<()> {
    create(subject, 0).await?;
    let change = json!([
        { "op": "test", "path": "/spec", "value": {} },
        { "op": "add", "path": "/spec/replicas", "value": 2 },
    ]);
    let scaled = operations(subject, &change).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    operations(subject, &change).refused(422, "Invalid").await?;
    // The size returns to its first value.
    let change = json!([
        { "op": "test", "path": "/spec/replicas", "value": 2 },
        { "op": "replace", "path": "/spec/replicas", "value": 0 },
    ]);
    let scaled = operations(subject, &change).expect(200).await?;
    ensure!(scaled["spec"] == json!({}) && replicas(subject).await? == 0, "{scaled}");
    Ok(())
}

async fn a_test_that_fails_changes_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, 3).await?;
    let change = |tested: &Value| json!([tested, { "op": "replace", "path": "/spec/replicas", "value": 4 }]);
    for tested in [
        json!({ "op": "test", "path": "/spec/replicas", "value": 2 }),
        json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "1" }),
    ] {
        operations(subject, &change(&tested)).refused(422, "Invalid").await?;
    }
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
    Ok(())
}

async fn a_dry_run_scales_nothing(subject: &Subject<'_>) -> Result<()> {
    create(subject, 3).await?;
    let change = json!({ "spec": { "replicas": 4 } });
    let scaled = subject.patch(path(subject), Patch::Merge, &change).query("dryRun", "All").expect(200).await?;
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
        operations(subject, &change)
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
    create(subject, 1).await?;
    let change = json!([
        { "op": "test", "path": "/spec/replicas", "value": 1 },
        { "op": "replace", "path": "/spec/replicas", "value": 0 },
    ]);
    operations(subject, &change).query("fieldManager", "one").expect(200).await?;
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(managers_of_the_size(&object).is_empty() && object["spec"]["replicas"] == 0, "{object}");

    // The next size that is written like this has no manager either.
    let change = json!([
        { "op": "test", "path": "/spec", "value": {} },
        { "op": "add", "path": "/spec/replicas", "value": 2 },
    ]);
    operations(subject, &change).query("fieldManager", "two").expect(200).await?;
    let object = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(managers_of_the_size(&object).is_empty() && object["spec"]["replicas"] == 2, "{object}");

    // A write of the object itself sets a manager again.
    let change = subject.patch(subject.widget("a"), Patch::Merge, &json!({ "spec": { "replicas": 3 } }));
    let object = change.query("fieldManager", "three").expect(200).await?;
    ensure!(managers_of_the_size(&object) == [["three", "Update", ""]], "{object}");
    Ok(())
}

async fn a_size_is_written_only_to_the_object_of_this_uid(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, 0).await?;
    let change = |uid: &Value| {
        json!([
            { "op": "test", "path": "/metadata/uid", "value": uid },
            { "op": "test", "path": "/spec", "value": {} },
            { "op": "add", "path": "/spec/replicas", "value": 2 },
        ])
    };
    operations(subject, &change(&json!("another"))).refused(422, "Invalid").await?;
    let scaled = operations(subject, &change(&created["metadata"]["uid"])).expect(200).await?;
    ensure!(scaled["spec"]["replicas"] == 2 && replicas(subject).await? == 2, "{scaled}");
    Ok(())
}
