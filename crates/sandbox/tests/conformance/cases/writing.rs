//! Cases of creating, replacing and deleting objects, and of kinds that come, change and go while the server runs.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{CRDS, GROUP, Patch, VERSION, config_map, definition, eventually, names, node, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(writing::the_server_fills_in_namespace_generation_uid_and_creation_timestamp),
        case!(writing::a_name_can_be_taken_once),
        case!(writing::the_namespace_must_be_there),
        case!(writing::a_dry_run_creates_nothing),
        case!(writing::a_status_is_not_created_with_a_kind_that_has_the_subresource),
        case!(writing::the_manager_is_the_parameter_or_the_user_agent),
        case!(writing::an_update_with_an_old_version_is_a_conflict),
        case!(writing::an_update_without_a_version_is_refused_for_custom_kinds_only),
        case!(writing::the_generation_follows_the_spec_only),
        case!(writing::an_object_is_gone_and_its_name_free),
        case!(writing::preconditions_must_hold),
        case!(writing::a_dry_run_deletes_nothing),
        case!(writing::finalizers_keep_an_object_until_the_last_one_goes),
        case!(writing::an_object_that_is_going_takes_changes_but_no_finalizer),
        case!(writing::a_bound_pod_is_given_time_to_end),
        case!(writing::a_kind_is_served_once_it_is_established),
        case!(writing::a_kind_that_is_deleted_takes_its_objects_along),
        case!(writing::a_watch_ends_with_its_kind),
        case!(writing::a_version_can_be_withdrawn),
    ]
}

async fn the_server_fills_in_namespace_generation_uid_and_creation_timestamp(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({ "replicas": 1 })).await?;
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
    let created = subject.create("a", &json!({})).await?;
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

async fn an_update_with_an_old_version_is_a_conflict(subject: &Subject<'_>) -> Result<()> {
    let mut object = subject.create("a", &json!({ "replicas": 1 })).await?;
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
    subject.create("a", &json!({})).await?;
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
    let mut object = subject.create("a", &json!({ "replicas": 1 })).await?;
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

async fn create_held(subject: &Subject<'_>, name: &str, finalizers: &[&str]) -> Result<Value> {
    let mut object = widget(name, &json!({ "replicas": 1 }));
    object["metadata"]["finalizers"] = json!(finalizers);
    subject.post(subject.widgets(), &object).expect(201).await
}

async fn an_object_is_gone_and_its_name_free(subject: &Subject<'_>) -> Result<()> {
    let first = subject.create("a", &json!({})).await?;
    let status = subject.delete(subject.widget("a")).expect(200).await?;
    ensure!(status["kind"] == "Status" && status["status"] == "Success", "{status}");
    let details = &status["details"];
    ensure!(details["name"] == "a" && details["group"] == GROUP && details["kind"] == "widgets", "{status}");
    ensure!(details["uid"] == first["metadata"]["uid"], "{status}");
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    let second = subject.create("a", &json!({})).await?;
    ensure!(second["metadata"]["uid"] != first["metadata"]["uid"], "{second}");
    Ok(())
}

fn delete_options(part: &str, value: &Value) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    options[part] = value.clone();
    options
}

async fn preconditions_must_hold(subject: &Subject<'_>) -> Result<()> {
    let object = subject.create("a", &json!({})).await?;
    let metadata = &object["metadata"];
    let wrong = [json!({ "uid": "00000000-0000-0000-0000-000000000000" }), json!({ "resourceVersion": "1" })];
    for precondition in wrong {
        let call = subject.delete(subject.widget("a")).json(&delete_options("preconditions", &precondition));
        call.refused(409, "Conflict").await.with_context(|| format!("{precondition}"))?;
    }
    let right = json!({ "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] });
    subject.delete(subject.widget("a")).json(&delete_options("preconditions", &right)).expect(200).await?;
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    Ok(())
}

async fn a_dry_run_deletes_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = subject.create("a", &json!({})).await?;
    subject.delete(subject.widget("a")).query("dryRun", "All").expect(200).await?;
    subject.delete(subject.widget("a")).json(&delete_options("dryRun", &json!(["All"]))).expect(200).await?;
    let read = subject.get(subject.widget("a")).expect(200).await?;
    ensure!(read == created, "it was {created}, and became {read}");
    Ok(())
}

async fn finalizers_keep_an_object_until_the_last_one_goes(subject: &Subject<'_>) -> Result<()> {
    let created = create_held(subject, "a", &["example.com/a", "example.com/b"]).await?;
    let mut watch =
        subject.get(subject.widgets()).query("resourceVersion", &version(&created)?.to_string()).watch().await?;
    let deleting = subject.delete(subject.widget("a")).expect(200).await?;
    ensure!(deleting["kind"] == "Widget", "not the object that stays: {deleting}");
    ensure!(deleting["metadata"]["deletionTimestamp"].is_string(), "{deleting}");
    ensure!(deleting["metadata"]["deletionGracePeriodSeconds"] == 0, "{deleting}");
    ensure!(deleting["metadata"]["generation"] == 2, "{deleting}");
    ensure!(watch.expect("MODIFIED", "a").await? == deleting, "{deleting}");

    let finalizers = |left: &[&str]| json!({ "metadata": { "finalizers": left } });
    let fewer = finalizers(&["example.com/b"]);
    let fewer = subject.merge("a", &fewer).await?;
    ensure!(watch.expect("MODIFIED", "a").await? == fewer, "{fewer}");
    let last = subject.merge("a", &finalizers(&[])).await?;
    ensure!(last["metadata"]["finalizers"].is_null(), "{last}");
    let gone = watch.expect("DELETED", "a").await?;
    ensure!(version(&gone)? > version(&fewer)?, "{gone}");
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    Ok(())
}

async fn an_object_that_is_going_takes_changes_but_no_finalizer(subject: &Subject<'_>) -> Result<()> {
    create_held(subject, "a", &["example.com/a"]).await?;
    subject.delete(subject.widget("a")).expect(200).await?;
    let labels = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "replicas": 2 } });
    let changed = subject.merge("a", &labels).await?;
    ensure!(changed["metadata"]["labels"]["a"] == "b" && changed["spec"]["replicas"] == 2, "{changed}");
    let more = json!({ "metadata": { "finalizers": ["example.com/a", "example.com/b"] } });
    let status = subject.patch(subject.widget("a"), Patch::Merge, &more).refused(422, "Invalid").await?;
    ensure!(status["details"]["causes"][0]["field"] == "metadata.finalizers", "{status}");
    // The deletion time can't be removed either.
    let back = json!({ "metadata": { "deletionTimestamp": null } });
    let kept = subject.merge("a", &back).await?;
    ensure!(kept["metadata"]["deletionTimestamp"] == changed["metadata"]["deletionTimestamp"], "{kept}");
    Ok(())
}

async fn a_bound_pod_is_given_time_to_end(subject: &Subject<'_>) -> Result<()> {
    let pods = subject.core("pods");
    for (name, node) in [("bound", Some("left")), ("free", None)] {
        subject.post(pods.as_str(), &super::subject::pod(name, node)).expect(201).await?;
    }
    subject.delete(format!("{pods}/free")).expect(200).await?;
    subject.get(format!("{pods}/free")).refused(404, "NotFound").await?;
    let going = subject.delete(format!("{pods}/bound")).expect(200).await?;
    ensure!(going["kind"] == "Pod" && going["metadata"]["deletionTimestamp"].is_string(), "{going}");
    ensure!(going["metadata"]["deletionGracePeriodSeconds"] == 30, "{going}");
    subject.delete(format!("{pods}/bound")).query("gracePeriodSeconds", "0").expect(200).await?;
    subject.get(format!("{pods}/bound")).refused(404, "NotFound").await?;
    Ok(())
}

/// Defines a kind that no other case uses. Returns its definition's name and the path of its objects.
async fn define(subject: &Subject<'_>, kind: &str) -> Result<(String, String)> {
    let created = subject.post(CRDS, &definition(kind)).expect(201).await?;
    let name = created["metadata"]["name"].as_str().context("no name")?.to_owned();
    let plural = created["spec"]["names"]["plural"].as_str().context("no plural")?;
    let path = subject.widgets().replace("widgets", plural);
    eventually("the kind established", async || {
        let read = subject.get(format!("{CRDS}/{name}")).expect(200).await?;
        for condition in ["Established", "NamesAccepted"] {
            ensure!(condition_of(&read, condition) == "True", "{condition} isn't True: {read}");
        }
        Ok(())
    })
    .await?;
    served(subject, &path).await?;
    Ok((name, path))
}

fn condition_of<'a>(definition: &'a Value, kind: &str) -> &'a str {
    let mut conditions = definition["status"]["conditions"].as_array().into_iter().flatten();
    let found = conditions.find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

async fn served(subject: &Subject<'_>, path: &str) -> Result<()> {
    eventually("the kind served", async || subject.get(path).expect(200).await).await?;
    Ok(())
}

async fn not_served(subject: &Subject<'_>, path: &str) -> Result<()> {
    eventually("the kind not served", async || {
        let answer = subject.get(path).answer().await?;
        ensure!(answer.status == 404, "{} was answered with {}", answer.request, answer.status);
        Ok(())
    })
    .await
}

fn object(kind: &str, name: &str) -> Value {
    let mut object = widget(name, &json!({ "replicas": 1 }));
    object["kind"] = json!(kind);
    object
}

async fn a_kind_is_served_once_it_is_established(subject: &Subject<'_>) -> Result<()> {
    let (name, path) = define(subject, "Early").await?;
    subject.post(path.as_str(), &object("Early", "a")).expect(201).await?;
    let list = subject.get(path.as_str()).expect(200).await?;
    ensure!(list["kind"] == "EarlyList" && names(&list)? == ["a"], "{list}");
    eventually("the kind discovered", async || {
        let found = subject.get(format!("/apis/{GROUP}/{VERSION}")).expect(200).await?;
        let resources: Vec<_> = found["resources"].as_array().into_iter().flatten().map(|r| &r["name"]).collect();
        for resource in ["earlys", "earlys/status", "earlys/scale"] {
            ensure!(resources.contains(&&json!(resource)), "no {resource} in {resources:?}");
        }
        Ok(())
    })
    .await?;
    let stored = subject.get(format!("{CRDS}/{name}")).expect(200).await?;
    ensure!(stored["status"]["storedVersions"] == json!([VERSION]), "{stored}");
    ensure!(stored["status"]["acceptedNames"]["kind"] == "Early", "{stored}");
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    Ok(())
}

async fn a_kind_that_is_deleted_takes_its_objects_along(subject: &Subject<'_>) -> Result<()> {
    let (name, path) = define(subject, "Brief").await?;
    subject.post(path.as_str(), &object("Brief", "a")).expect(201).await?;
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    not_served(subject, &path).await?;
    eventually("the definition gone", async || subject.get(format!("{CRDS}/{name}")).refused(404, "NotFound").await)
        .await?;
    eventually("the kind no longer discovered", async || {
        let found = subject.get(format!("/apis/{GROUP}/{VERSION}")).expect(200).await?;
        let mut resources = found["resources"].as_array().into_iter().flatten();
        ensure!(resources.all(|resource| resource["kind"] != "Brief"), "{found}");
        Ok(())
    })
    .await?;
    let (name, path) = define(subject, "Brief").await?;
    let list = subject.get(path).expect(200).await?;
    ensure!(names(&list)?.is_empty(), "objects of the deleted kind came back: {list}");
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    Ok(())
}

async fn a_watch_ends_with_its_kind(subject: &Subject<'_>) -> Result<()> {
    let (name, path) = define(subject, "Fleeting").await?;
    let created = subject.post(path.as_str(), &object("Fleeting", "a")).expect(201).await?;
    let mut watch =
        subject.get(path.as_str()).query("resourceVersion", &version(&created)?.to_string()).watch().await?;
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    watch.expect("DELETED", "a").await?;
    watch.ended().await?;
    not_served(subject, &path).await
}

async fn a_version_can_be_withdrawn(subject: &Subject<'_>) -> Result<()> {
    let (name, path) = define(subject, "Changing").await?;
    subject.post(path.as_str(), &object("Changing", "a")).expect(201).await?;
    let old = path.replace("/v1/", "/v1alpha1/");
    served(subject, &old).await?;
    let change = json!([{ "op": "replace", "path": "/spec/versions/1/served", "value": false }]);
    subject.patch(format!("{CRDS}/{name}"), Patch::Json, &change).expect(200).await?;
    not_served(subject, &old).await?;
    let read = subject.get(format!("{path}/a")).expect(200).await?;
    ensure!(read["spec"]["replicas"] == 1, "{read}");
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    Ok(())
}
