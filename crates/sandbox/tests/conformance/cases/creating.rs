//! Cases of creating objects.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{GROUP, config_map, names, node, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(creating::the_server_fills_in_namespace_generation_uid_and_creation_timestamp),
        case!(creating::a_name_can_be_taken_once),
        case!(creating::the_namespace_must_be_there),
        case!(creating::a_dry_run_creates_nothing),
        case!(creating::a_status_is_not_created_with_a_kind_that_has_the_subresource),
        case!(creating::the_manager_is_the_parameter_or_the_user_agent),
    ]
}

async fn the_server_fills_in_namespace_generation_uid_and_creation_timestamp(subject: &Subject<'_>) -> Result<()> {
    let created = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 1 }))).expect(201).await?;
    let metadata = &created["metadata"];
    ensure!(metadata["namespace"] == subject.namespace(), "{created}");
    ensure!(metadata["generation"] == 1, "{created}");
    let uid = metadata["uid"].as_str().unwrap_or_default();
    let groups: Vec<usize> = uid.split('-').map(str::len).collect();
    ensure!(groups == [8, 4, 4, 4, 12], "the uid is {uid:?}");
    let time = metadata["creationTimestamp"].as_str().unwrap_or_default();
    ensure!(time.len() == 20 && time.ends_with('Z'), "not in whole seconds: {created}");
    ensure!(metadata["deletionTimestamp"].is_null(), "{created}");
    // A kind without spec has no generation.
    let map = subject.post(subject.core("configmaps"), &config_map("a", &json!({}))).expect(201).await?;
    ensure!(map["metadata"]["generation"].is_null(), "{map}");
    ensure!(map["metadata"]["uid"] != metadata["uid"], "{map}");
    ensure!(map["kind"] == "ConfigMap" && map["apiVersion"] == "v1", "{map}");
    Ok(())
}

async fn a_name_can_be_taken_once(subject: &Subject<'_>) -> Result<()> {
    let created = subject.post(subject.widgets(), &widget("a", &json!({}))).expect(201).await?;
    let status = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 1 })));
    let status = status.refused(409, "AlreadyExists").await?;
    ensure!(status["details"] == json!({ "name": "a", "group": GROUP, "kind": "widgets" }), "{status}");
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "the refused create changed {created} to {read}");
    // Names are unique per kind and namespace.
    subject.post(subject.core("configmaps"), &config_map("a", &json!({}))).expect(201).await?;
    Ok(())
}

async fn the_namespace_must_be_there(subject: &Subject<'_>) -> Result<()> {
    let path = subject.widgets().replace(subject.namespace(), "nowhere");
    let status = subject.post(path.as_str(), &widget("a", &json!({}))).refused(404, "NotFound").await?;
    ensure!(status["details"] == json!({ "name": "nowhere", "kind": "namespaces" }), "{status}");
    // Reading succeeds: a namespace that doesn't exist is empty.
    let list = subject.get(path).expect(200).await?;
    ensure!(names(&list)?.is_empty(), "{list}");
    Ok(())
}

async fn a_dry_run_creates_nothing(subject: &Subject<'_>) -> Result<()> {
    let create = || subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 1 })));
    let created = create().query("dryRun", "All").expect(201).await?;
    ensure!(created["metadata"]["uid"].is_string() && created["spec"]["replicas"] == 1, "{created}");
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    create().query("dryRun", "Some").refused(422, "Invalid").await?;
    create().expect(201).await?;
    create().query("dryRun", "All").refused(409, "AlreadyExists").await?;
    Ok(())
}

async fn a_status_is_not_created_with_a_kind_that_has_the_subresource(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({}));
    object["status"] = json!({ "phase": "Ready" });
    let created = subject.post(subject.widgets(), &object).expect(201).await?;
    ensure!(created["status"].is_null(), "{created}");
    // Nodes are an exception: a kubelet registers itself with its status.
    let mut own = node(&subject.unique("node"));
    own["status"] = json!({ "capacity": { "cpu": "4" } });
    let created = subject.post("/api/v1/nodes", &own).expect(201).await?;
    ensure!(created["status"]["capacity"]["cpu"] == "4", "{created}");
    Ok(())
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries.map(|entry| entry["manager"].as_str().unwrap_or_default()).collect()
}

async fn the_manager_is_the_parameter_or_the_user_agent(subject: &Subject<'_>) -> Result<()> {
    let create = |name: &str| subject.post(subject.widgets(), &widget(name, &json!({ "replicas": 1 })));
    let named = create("a").query("fieldManager", "me").header("user-agent", "tool/v1").expect(201).await?;
    ensure!(managers(&named) == ["me"], "{named}");
    let entry = &named["metadata"]["managedFields"][0];
    ensure!(entry["operation"] == "Update" && entry["fieldsType"] == "FieldsV1", "{entry}");
    ensure!(entry["apiVersion"] == named["apiVersion"] && entry["time"].is_string(), "{entry}");
    ensure!(entry["fieldsV1"]["f:spec"]["f:replicas"] == json!({}), "{entry}");
    ensure!(entry["subresource"].is_null(), "{entry}");
    let agent = create("b").header("user-agent", "tool/v1 (linux)").expect(201).await?;
    ensure!(managers(&agent) == ["tool"], "{agent}");
    Ok(())
}
