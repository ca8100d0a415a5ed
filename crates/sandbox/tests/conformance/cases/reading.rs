//! Cases of reading and listing objects.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    Case, Subject, case,
    subject::{GROUP, OLD_VERSION, VERSION, config_map, names, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(reading::an_object_that_is_not_there_is_not_found),
        case!(reading::every_served_version_shows_the_same_object),
        case!(reading::a_list_names_its_kind_and_version_and_has_its_items_in_order),
        case!(reading::lists_are_of_one_namespace_or_of_all),
    ]
}

async fn an_object_that_is_not_there_is_not_found(subject: &Subject<'_>) -> Result<()> {
    let rows = [
        (subject.widget("a"), json!({ "name": "a", "group": GROUP, "kind": "widgets" })),
        (subject.core("configmaps/a"), json!({ "name": "a", "kind": "configmaps" })),
        ("/api/v1/nodes/nobody".to_owned(), json!({ "name": "nobody", "kind": "nodes" })),
    ];
    for (path, details) in rows {
        let status = subject.get(path).refused(404, "NotFound").await?;
        ensure!(status["details"] == details, "{status}");
        ensure!(status["metadata"] == json!({}), "{status}");
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(message.ends_with("not found") && message.contains("\"a\"") | message.contains("nobody"), "{status}");
    }
    Ok(())
}

async fn every_served_version_shows_the_same_object(subject: &Subject<'_>) -> Result<()> {
    let mut created = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3 }))).expect(201).await?;
    let path = format!("/apis/{GROUP}/{OLD_VERSION}/namespaces/{}/widgets", subject.namespace());
    let mut read = subject.get(format!("{path}/a")).expect(200).await?;
    ensure!(read["apiVersion"] == format!("{GROUP}/{OLD_VERSION}"), "{read}");
    for object in [&mut read, &mut created] {
        object["apiVersion"].take();
        object["metadata"]["managedFields"].take();
    }
    ensure!(read == created, "created as {created}, read as {read}");
    let list = subject.get(path).expect(200).await?;
    ensure!(list["apiVersion"] == format!("{GROUP}/{OLD_VERSION}"), "{list}");
    Ok(())
}

async fn a_list_names_its_kind_and_version_and_has_its_items_in_order(subject: &Subject<'_>) -> Result<()> {
    let mut newest = 0;
    for name in ["b", "c", "a"] {
        newest = version(&subject.post(subject.widgets(), &widget(name, &json!({}))).expect(201).await?)?;
    }
    let list = subject.get(subject.widgets()).expect(200).await?;
    ensure!(list["kind"] == "WidgetList" && list["apiVersion"] == format!("{GROUP}/{VERSION}"), "{list}");
    ensure!(names(&list)? == ["a", "b", "c"], "not in the order of names: {list}");
    ensure!(version(&list)? >= newest, "the list is older than what it holds: {list}");
    ensure!(list["metadata"]["continue"].as_str().unwrap_or_default().is_empty(), "{list}");
    ensure!(list["items"][0]["kind"] == "Widget", "{list}");
    // The items of core lists don't repeat their kind.
    subject.post(subject.core("configmaps"), &config_map("a", &json!({}))).expect(201).await?;
    let list = subject.get(subject.core("configmaps")).expect(200).await?;
    ensure!(list["kind"] == "ConfigMapList", "{list}");
    ensure!(list["items"][0]["kind"].is_null() && list["items"][0]["apiVersion"].is_null(), "{list}");
    Ok(())
}

async fn lists_are_of_one_namespace_or_of_all(subject: &Subject<'_>) -> Result<()> {
    let other = subject.unique("other");
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": other } });
    subject.post("/api/v1/namespaces", &namespace).expect(201).await?;
    let label = json!({ "case": subject.namespace() });
    let mut object = widget("a", &json!({}));
    object["metadata"]["labels"] = label;
    subject.post(subject.widgets(), &object).expect(201).await?;
    let theirs = format!("/apis/{GROUP}/{VERSION}/namespaces/{other}/widgets");
    subject.post(theirs.as_str(), &object).expect(201).await?;

    let list = subject.get(theirs).expect(200).await?;
    ensure!(names(&list)? == ["a"] && list["items"][0]["metadata"]["namespace"] == other, "{list}");
    let all = subject.get(format!("/apis/{GROUP}/{VERSION}/widgets"));
    let all = all.query("labelSelector", &format!("case={}", subject.namespace())).expect(200).await?;
    let items = all["items"].as_array().into_iter().flatten();
    let mut namespaces: Vec<_> = items.map(|item| item["metadata"]["namespace"].as_str().unwrap_or_default()).collect();
    namespaces.sort_unstable();
    ensure!(namespaces == [subject.namespace(), &other], "{all}");
    Ok(())
}
