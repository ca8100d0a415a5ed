//! Cases of kinds that are defined, changed and removed while the server runs.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{CRDS, GROUP, Patch, VERSION, definition, eventually, names, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(defining::a_kind_is_served_once_it_is_established),
        case!(defining::a_kind_that_is_deleted_takes_its_objects_along),
        case!(defining::a_watch_ends_with_its_kind),
        case!(defining::a_version_can_be_withdrawn),
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
