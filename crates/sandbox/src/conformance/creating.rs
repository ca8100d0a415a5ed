//! Cases of creating objects.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    objects::{GROUP, OLD_VERSION, config_map, names, node, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(creating::the_server_fills_in_namespace_generation_uid_and_creation_timestamp),
        case!(creating::versions_grow_over_all_kinds),
        case!(creating::a_name_can_be_taken_once),
        case!(creating::a_name_can_be_generated),
        case!(creating::a_name_must_be_valid),
        case!(creating::a_name_is_needed),
        case!(creating::the_namespace_must_be_that_of_the_path),
        case!(creating::the_namespace_must_be_there),
        case!(creating::the_body_must_be_an_object_of_the_kind),
        case!(creating::the_body_may_be_yaml),
        case!(creating::a_namespace_has_its_name_as_a_label),
        case!(creating::the_content_type_must_be_known),
        case!(creating::a_resource_version_can_not_be_chosen),
        case!(creating::a_client_cannot_choose_the_uid_the_generation_or_the_timestamps_of_an_object),
        case!(creating::a_dry_run_creates_nothing),
        case!(creating::a_status_is_not_created_with_a_kind_that_has_the_subresource),
        case!(creating::labels_and_annotations_must_be_valid),
        case!(creating::the_manager_is_the_parameter_or_the_user_agent),
        case!(creating::secrets_take_text_for_their_data),
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
    let time: jiff::Timestamp = time.parse().with_context(|| format!("the creationTimestamp is {time:?}"))?;
    ensure!(time.subsec_nanosecond() == 0, "not in whole seconds: {created}");
    ensure!(metadata["deletionTimestamp"].is_null(), "{created}");
    // A kind without spec has no generation.
    let map = subject.post(subject.core("configmaps"), &config_map("a", &json!({}))).expect(201).await?;
    ensure!(map["metadata"]["generation"].is_null(), "{map}");
    ensure!(map["metadata"]["uid"] != metadata["uid"], "{map}");
    ensure!(map["kind"] == "ConfigMap" && map["apiVersion"] == "v1", "{map}");
    Ok(())
}

async fn versions_grow_over_all_kinds(subject: &Subject<'_>) -> Result<()> {
    let a = subject.post(subject.widgets(), &widget("a", &json!({}))).expect(201).await?;
    let b = subject.post(subject.core("configmaps"), &config_map("b", &json!({}))).expect(201).await?;
    let c = subject.post("/api/v1/nodes", &node(&subject.unique("c"))).expect(201).await?;
    let d = subject.post(subject.widgets(), &widget("d", &json!({}))).expect(201).await?;
    let versions = [version(&a)?, version(&b)?, version(&c)?, version(&d)?];
    ensure!(versions.is_sorted_by(|one, next| one < next), "{versions:?}");
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

async fn a_name_can_be_generated(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("", &json!({}));
    object["metadata"] = json!({ "generateName": "made-" });
    let mut made = Vec::new();
    for _ in 0..2 {
        let created = subject.post(subject.widgets(), &object).expect(201).await?;
        ensure!(created["metadata"]["generateName"] == "made-", "{created}");
        made.push(created["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    }
    ensure!(made[0] != made[1], "the same name twice: {made:?}");
    ensure!(made.iter().all(|name| name.len() == 10 && name.starts_with("made-")), "{made:?}");
    // A given name takes precedence.
    object["metadata"]["name"] = json!("given");
    let created = subject.post(subject.widgets(), &object).expect(201).await?;
    ensure!(created["metadata"]["name"] == "given", "{created}");
    Ok(())
}

async fn a_name_must_be_valid(subject: &Subject<'_>) -> Result<()> {
    let long = "a".repeat(254);
    for name in ["A", "a_b", "-a", "a-", "a..b", "a b", "ä", &long] {
        let status = subject.post(subject.widgets(), &widget(name, &json!({})));
        let status = status.refused(422, "Invalid").await.with_context(|| format!("the name {name:?}"))?;
        ensure!(status["details"]["causes"][0]["field"] == "metadata.name", "{status}");
        ensure!(status["details"]["kind"] == "Widget" && status["details"]["group"] == GROUP, "{status}");
    }
    for name in ["a.b", "0", "a-0.b", &long[..253]] {
        subject.post(subject.widgets(), &widget(name, &json!({}))).expect(201).await?;
    }
    Ok(())
}

async fn a_name_is_needed(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("", &json!({}));
    for metadata in [json!({}), json!({ "name": "" })] {
        object["metadata"] = metadata;
        let answer = subject.post(subject.widgets(), &object).refused(422, "Invalid").await?;
        ensure!(answer["details"]["causes"][0]["reason"] == "FieldValueRequired", "{answer}");
    }
    Ok(())
}

async fn the_namespace_must_be_that_of_the_path(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({}));
    object["metadata"]["namespace"] = json!("elsewhere");
    subject.post(subject.widgets(), &object).refused(400, "BadRequest").await?;
    object["metadata"]["namespace"] = json!(subject.namespace());
    subject.post(subject.widgets(), &object).expect(201).await?;
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

async fn the_body_must_be_an_object_of_the_kind(subject: &Subject<'_>) -> Result<()> {
    for body in ["{", "", "[]"] {
        let call = subject.call(http::Method::POST, subject.widgets()).body("application/json", body.to_owned());
        call.refused(400, "BadRequest").await.with_context(|| format!("the body {body:?}"))?;
    }
    let mut version = widget("a", &json!({}));
    version["apiVersion"] = json!(format!("{GROUP}/{OLD_VERSION}"));
    subject.post(subject.widgets(), &version).refused(400, "BadRequest").await?;
    // A custom kind reports a wrong field, a core kind a wrong body.
    let mut kind = widget("a", &json!({}));
    kind["kind"] = json!("Gadget");
    let status = subject.post(subject.widgets(), &kind).refused(422, "Invalid").await?;
    ensure!(status["details"]["causes"][0]["field"] == "kind", "{status}");
    let mut core = config_map("a", &json!({}));
    core["kind"] = json!("Secret");
    subject.post(subject.core("configmaps"), &core).refused(400, "BadRequest").await?;
    // A field of the wrong type is refused.
    let mut typed = config_map("a", &json!({}));
    typed["data"] = json!([]);
    subject.post(subject.core("configmaps"), &typed).refused(400, "BadRequest").await?;
    Ok(())
}

async fn the_body_may_be_yaml(subject: &Subject<'_>) -> Result<()> {
    let text = format!(
        "apiVersion: {GROUP}/v1\nkind: Widget\nmetadata:\n  name: a\n  labels: {{ app: \"1\" }}\nspec:\n  # Two.\n  replicas: 2\n"
    );
    let call = subject.call(http::Method::POST, subject.widgets()).body("application/yaml", text);
    let created = call.expect(201).await?;
    ensure!(created["spec"] == json!({ "replicas": 2 }) && created["metadata"]["labels"]["app"] == "1", "{created}");
    Ok(())
}

async fn a_namespace_has_its_name_as_a_label(subject: &Subject<'_>) -> Result<()> {
    let read = subject.get(format!("/api/v1/namespaces/{}", subject.namespace())).expect(200).await?;
    ensure!(read["metadata"]["labels"] == json!({ "kubernetes.io/metadata.name": subject.namespace() }), "{read}");
    ensure!(read["status"]["phase"] == "Active", "{read}");
    Ok(())
}

async fn the_content_type_must_be_known(subject: &Subject<'_>) -> Result<()> {
    let body = widget("a", &json!({})).to_string();
    let call = subject.call(http::Method::POST, subject.widgets()).body("text/plain", body);
    call.refused(415, "UnsupportedMediaType").await?;
    Ok(())
}

async fn a_resource_version_can_not_be_chosen(subject: &Subject<'_>) -> Result<()> {
    let mut object = widget("a", &json!({}));
    object["metadata"]["resourceVersion"] = json!("7");
    let answer = subject.post(subject.widgets(), &object).answer().await?;
    // The real API server calls this a server error; a client must only rely on the failure.
    ensure!(answer.status >= 400, "{} was answered with {}: {}", answer.request, answer.status, answer.text);
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    Ok(())
}

async fn a_client_cannot_choose_the_uid_the_generation_or_the_timestamps_of_an_object(
    subject: &Subject<'_>,
) -> Result<()> {
    let mut object = widget("a", &json!({}));
    object["metadata"]["uid"] = json!("mine");
    object["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    object["metadata"]["generation"] = json!(7);
    object["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    let created = subject.post(subject.widgets(), &object).expect(201).await?;
    let metadata = &created["metadata"];
    ensure!(metadata["uid"] != "mine" && metadata["generation"] == 1, "{created}");
    ensure!(metadata["creationTimestamp"] != "2001-01-01T00:00:00Z", "{created}");
    ensure!(metadata["deletionTimestamp"].is_null(), "{created}");
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

async fn labels_and_annotations_must_be_valid(subject: &Subject<'_>) -> Result<()> {
    let rows = [
        ("labels", json!({ "-a": "b" })),
        ("labels", json!({ "a": "b c" })),
        ("labels", json!({ "a/b/c": "d" })),
        ("annotations", json!({ "a b": "c" })),
    ];
    for (part, value) in rows {
        let mut object = widget("a", &json!({}));
        object["metadata"][part] = value.clone();
        let call = subject.post(subject.widgets(), &object);
        let status = call.refused(422, "Invalid").await.with_context(|| format!("{part} {value}"))?;
        ensure!(status["details"]["causes"][0]["field"] == format!("metadata.{part}"), "{status}");
    }
    for part in ["labels", "annotations"] {
        let mut object = widget("a", &json!({}));
        object["metadata"][part] = json!({ "a": 1 });
        subject.post(subject.widgets(), &object).refused(400, "BadRequest").await?;
    }
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

async fn secrets_take_text_for_their_data(subject: &Subject<'_>) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "a" },
        "data": { "kept": "a2VwdA==" },
        "stringData": { "text": "text" },
    });
    let created = subject.post(subject.core("secrets"), &secret).expect(201).await?;
    ensure!(created["data"] == json!({ "kept": "a2VwdA==", "text": "dGV4dA==" }), "{created}");
    ensure!(created["stringData"].is_null() && created["type"] == "Opaque", "{created}");
    Ok(())
}
