//! Cases of kinds that are defined, changed and removed while the server runs.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject,
    call::Patch,
    case,
    objects::{CRDS, GROUP, VERSION, definition, names, version, widget},
    subject::eventually,
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(defining::a_kind_is_served_once_it_is_established),
        case!(defining::a_kind_that_is_deleted_takes_its_objects_along),
        case!(defining::a_watch_ends_with_its_kind),
        case!(defining::a_version_can_be_withdrawn),
        case!(defining::a_kind_may_live_in_no_namespace),
        case!(defining::a_kind_may_have_no_subresources),
        case!(defining::columns_can_be_changed),
        case!(defining::a_definition_must_have_the_name_of_its_resource),
        case!(defining::a_definition_is_listed_and_read_like_any_object),
    ]
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

async fn a_kind_may_live_in_no_namespace(subject: &Subject<'_>) -> Result<()> {
    let mut global = definition("Global");
    global["spec"]["scope"] = json!("Cluster");
    subject.post(CRDS, &global).expect(201).await?;
    let path = format!("/apis/{GROUP}/{VERSION}/globals");
    served(subject, &path).await?;
    let created = subject.post(path.as_str(), &object("Global", "a")).expect(201).await?;
    ensure!(created["metadata"]["namespace"].is_null(), "{created}");
    let read = subject.get(format!("{path}/a")).expect(200).await?;
    ensure!(read == created, "{read}");
    let within = subject.get(subject.widgets().replace("widgets", "globals/a")).answer().await?;
    ensure!(within.status == 404, "{} was answered with {}", within.request, within.status);
    subject.delete(format!("{CRDS}/globals.{GROUP}")).expect(200).await?;
    Ok(())
}

async fn a_kind_may_have_no_subresources(subject: &Subject<'_>) -> Result<()> {
    let mut plain = definition("Plain");
    for version in plain["spec"]["versions"].as_array_mut().into_iter().flatten() {
        version["subresources"].take();
        version["additionalPrinterColumns"].take();
    }
    subject.post(CRDS, &plain).expect(201).await?;
    let path = subject.widgets().replace("widgets", "plains");
    served(subject, &path).await?;
    let mut with_status = object("Plain", "a");
    with_status["status"] = json!({ "phase": "Ready" });
    let created = subject.post(path.as_str(), &with_status).expect(201).await?;
    ensure!(created["status"]["phase"] == "Ready", "{created}");
    let status = json!({ "status": { "phase": "Failed" } });
    let patched = subject.patch(format!("{path}/a"), Patch::Merge, &status).expect(200).await?;
    // Without the status subresource, any change outside metadata increments the generation.
    ensure!(patched["status"]["phase"] == "Failed" && patched["metadata"]["generation"] == 2, "{patched}");
    for subresource in ["status", "scale"] {
        let answer = subject.get(format!("{path}/a/{subresource}")).answer().await?;
        ensure!(answer.status == 404, "{} was answered with {}", answer.request, answer.status);
    }
    let table = subject.get(path).accept("application/json;as=Table;v=v1;g=meta.k8s.io").expect(200).await?;
    let columns: Vec<_> = table["columnDefinitions"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
    ensure!(columns == ["Name", "Age"], "{table}");
    subject.delete(format!("{CRDS}/plains.{GROUP}")).expect(200).await?;
    Ok(())
}

async fn columns_can_be_changed(subject: &Subject<'_>) -> Result<()> {
    let (name, path) = define(subject, "Dressed").await?;
    let columns = json!([{ "name": "Size", "type": "integer", "jsonPath": ".spec.replicas" }]);
    let change = json!([{ "op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": columns }]);
    subject.patch(format!("{CRDS}/{name}"), Patch::Json, &change).expect(200).await?;
    eventually("the new columns", async || {
        let call = subject.get(path.as_str()).accept("application/json;as=Table;v=v1;g=meta.k8s.io");
        let table = call.expect(200).await?;
        let columns: Vec<_> = table["columnDefinitions"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
        ensure!(columns == ["Name", "Size"], "{table}");
        Ok(())
    })
    .await?;
    subject.delete(format!("{CRDS}/{name}")).expect(200).await?;
    Ok(())
}

async fn a_definition_must_have_the_name_of_its_resource(subject: &Subject<'_>) -> Result<()> {
    let mut wrong = definition("Wrong");
    wrong["metadata"]["name"] = json!(format!("others.{GROUP}"));
    subject.post(CRDS, &wrong).refused(422, "Invalid").await?;
    Ok(())
}

async fn a_definition_is_listed_and_read_like_any_object(subject: &Subject<'_>) -> Result<()> {
    let name = format!("widgets.{GROUP}");
    let list = subject.get(CRDS).query("fieldSelector", &format!("metadata.name={name}")).expect(200).await?;
    ensure!(list["kind"] == "CustomResourceDefinitionList" && names(&list)? == [name.as_str()], "{list}");
    let read = subject.get(format!("{CRDS}/{name}")).expect(200).await?;
    ensure!(read["spec"]["names"]["listKind"] == "WidgetList", "{read}");
    ensure!(condition_of(&read, "Established") == "True", "{read}");
    subject.post(CRDS, &definition("Widget")).refused(409, "AlreadyExists").await?;
    Ok(())
}
