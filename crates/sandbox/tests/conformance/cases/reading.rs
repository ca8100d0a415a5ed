//! Cases of reading and listing objects: in pages, at a version, by selectors, as tables; and of discovery.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{GROUP, OLD_VERSION, Patch, VERSION, config_map, event, labelled, names, pod, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(reading::an_object_that_is_not_there_is_not_found),
        case!(reading::every_served_version_shows_the_same_object),
        case!(reading::a_list_names_its_kind_and_version_and_has_its_items_in_order),
        case!(reading::lists_are_of_one_namespace_or_of_all),
        case!(reading::pages_together_are_the_list),
        case!(reading::pages_show_one_state_while_objects_change),
        case!(reading::a_token_whose_state_is_forgotten_has_expired).forgets(),
        case!(reading::a_list_not_older_than_a_version_is_at_least_that_new),
        case!(reading::labels_select),
        case!(reading::a_wrong_label_selector_is_refused),
        case!(reading::fields_select_by_name_and_namespace),
        case!(reading::pods_are_selected_by_node_and_phase),
        case!(reading::a_field_that_is_not_selectable_is_refused),
        case!(reading::a_group_is_listed_with_its_versions_the_preferred_one_first),
        case!(reading::aggregated_discovery_holds_groups_versions_and_resources),
        case!(reading::an_unknown_group_version_or_kind_is_not_found),
        case!(reading::a_list_becomes_a_table_with_the_columns_of_its_kind),
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
    let mut created = subject.create("a", &json!({ "replicas": 3 })).await?;
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
        newest = version(&subject.create(name, &json!({})).await?)?;
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

async fn fill(subject: &Subject<'_>, count: usize) -> Result<()> {
    for number in 0..count {
        subject.create(&format!("w{number}"), &json!({})).await?;
    }
    Ok(())
}

fn token_of(list: &Value) -> &str {
    list["metadata"]["continue"].as_str().unwrap_or_default()
}

async fn page(subject: &Subject<'_>, limit: &str, token: &str) -> Result<Value> {
    let call = subject.get(subject.widgets()).query("limit", limit);
    let call = if token.is_empty() { call } else { call.query("continue", token) };
    call.expect(200).await
}

async fn pages_together_are_the_list(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 5).await?;
    let first = page(subject, "2", "").await?;
    ensure!(names(&first)? == ["w0", "w1"], "{first}");
    ensure!(first["metadata"]["remainingItemCount"] == 3, "{first}");
    let second = page(subject, "2", token_of(&first)).await?;
    ensure!(names(&second)? == ["w2", "w3"], "{second}");
    ensure!(second["metadata"]["remainingItemCount"] == 1, "{second}");
    ensure!(version(&second)? == version(&first)?, "the pages are of different states: {first} {second}");
    let third = page(subject, "2", token_of(&second)).await?;
    ensure!(names(&third)? == ["w4"] && token_of(&third).is_empty(), "{third}");
    ensure!(version(&third)? == version(&first)?, "the pages are of different states: {first} {third}");
    Ok(())
}

async fn pages_show_one_state_while_objects_change(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 4).await?;
    let first = page(subject, "2", "").await?;
    subject.delete(subject.widget("w2")).expect(200).await?;
    subject.create("w9", &json!({})).await?;
    let second = page(subject, "9", token_of(&first)).await?;
    ensure!(names(&second)? == ["w2", "w3"], "{second}");
    ensure!(version(&second)? == version(&first)?, "the pages are of different states: {first} {second}");
    Ok(())
}

async fn a_token_whose_state_is_forgotten_has_expired(subject: &Subject<'_>) -> Result<()> {
    let events = subject.core("events");
    for name in ["a", "b", "c"] {
        subject.post(events.as_str(), &event(name, subject.namespace())).expect(201).await?;
    }
    let first = subject.get(events.as_str()).query("limit", "1").expect(200).await?;
    // The latest state remains after all history up to it is dropped.
    subject.delete(format!("{events}/b")).expect(200).await?;
    subject.forget_history().await?;
    let second = subject.get(events.as_str()).query("limit", "1").query("continue", token_of(&first));
    let status = second.refused(410, "Expired").await?;
    // This token continues the list in a newer state.
    let rest = subject.get(events.as_str()).query("continue", token_of(&status)).expect(200).await?;
    ensure!(names(&rest)? == ["c"], "{rest}");
    ensure!(version(&rest)? > version(&first)?, "the rest is not newer: {first} {rest}");
    Ok(())
}

async fn a_list_not_older_than_a_version_is_at_least_that_new(subject: &Subject<'_>) -> Result<()> {
    fill(subject, 2).await?;
    subject.delete(subject.widget("w0")).expect(200).await?;
    let created = subject.create("w7", &json!({})).await?;
    for rule in ["", "NotOlderThan"] {
        let list = subject.get(subject.widgets()).query("resourceVersion", &version(&created)?.to_string());
        let list = if rule.is_empty() { list } else { list.query("resourceVersionMatch", rule) };
        let list = list.expect(200).await?;
        ensure!(names(&list)? == ["w1", "w7"] && version(&list)? >= version(&created)?, "{list}");
    }
    // Any state is acceptable, including the latest.
    let any = subject.get(subject.widgets()).query("resourceVersion", "0").expect(200).await?;
    // A state that there isn't yet is waited for in vain.
    let future = (version(&any)? + 1_000_000).to_string();
    let status = subject.get(subject.widgets()).query("resourceVersion", &future).refused(504, "Timeout").await?;
    ensure!(status["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge", "{status}");
    Ok(())
}

async fn labels_select(subject: &Subject<'_>) -> Result<()> {
    let rows = [
        ("a", json!({ "app": "x", "tier": "web" })),
        ("b", json!({ "app": "y", "tier": "web" })),
        ("c", json!({ "app": "x" })),
        ("d", json!({})),
        ("e", json!({ "example.com/app": "x", "app": "" })),
    ];
    for (name, labels) in rows {
        subject.post(subject.widgets(), &labelled(name, &labels)).expect(201).await?;
    }
    let rows: [(&str, &[&str]); 18] = [
        ("", &["a", "b", "c", "d", "e"]),
        ("app=x", &["a", "c"]),
        ("app==x", &["a", "c"]),
        ("app = x", &["a", "c"]),
        ("app!=x", &["b", "d", "e"]),
        ("app in (x,y)", &["a", "b", "c"]),
        ("app in (x)", &["a", "c"]),
        ("app notin (x, y)", &["d", "e"]),
        ("app", &["a", "b", "c", "e"]),
        ("!app", &["d"]),
        ("! app", &["d"]),
        ("app=", &["e"]),
        ("app in (x,)", &["a", "c", "e"]),
        ("example.com/app=x", &["e"]),
        ("app=x,tier=web", &["a"]),
        ("app in (x,y),!tier", &["c"]),
        ("tier,app!=x", &["b"]),
        ("app=nobody", &[]),
    ];
    for (selector, expected) in rows {
        let list = subject.get(subject.widgets()).query("labelSelector", selector).expect(200).await?;
        ensure!(names(&list)? == expected, "{selector:?} selects {:?}, expected {expected:?}", names(&list)?);
    }
    Ok(())
}

async fn a_wrong_label_selector_is_refused(subject: &Subject<'_>) -> Result<()> {
    for selector in
        ["app in", "app in x", "=x", "app=x=y", "a b", "app=-x", "-app", "app,,tier", "app in (x", "a/b/c=d"]
    {
        let call = subject.get(subject.widgets()).query("labelSelector", selector);
        call.refused(400, "BadRequest").await.with_context(|| format!("the selector {selector:?}"))?;
    }
    Ok(())
}

async fn fields_select_by_name_and_namespace(subject: &Subject<'_>) -> Result<()> {
    for name in ["a", "b"] {
        subject.create(name, &json!({})).await?;
    }
    let here = format!("metadata.namespace={}", subject.namespace());
    let both = format!("{here},metadata.name=b");
    let rows: [(&str, &[&str]); 7] = [
        ("metadata.name=a", &["a"]),
        ("metadata.name==a", &["a"]),
        ("metadata.name!=a", &["b"]),
        ("metadata.name=nobody", &[]),
        (&here, &["a", "b"]),
        (&both, &["b"]),
        ("metadata.namespace=elsewhere", &[]),
    ];
    for (selector, expected) in rows {
        let list = subject.get(subject.widgets()).query("fieldSelector", selector).expect(200).await?;
        ensure!(names(&list)? == expected, "{selector:?} selects {:?}, expected {expected:?}", names(&list)?);
    }
    Ok(())
}

async fn pods_are_selected_by_node_and_phase(subject: &Subject<'_>) -> Result<()> {
    let pods = subject.core("pods");
    for (name, node) in [("a", Some("left")), ("b", Some("right")), ("c", None)] {
        subject.post(pods.as_str(), &pod(name, node)).expect(201).await?;
    }
    let running = json!({ "status": { "phase": "Running" } });
    subject.patch(format!("{pods}/b/status"), Patch::Merge, &running).expect(200).await?;
    let rows: [(&str, &[&str]); 6] = [
        ("spec.nodeName=left", &["a"]),
        ("spec.nodeName!=left", &["b", "c"]),
        ("spec.nodeName=", &["c"]),
        ("status.phase=Running", &["b"]),
        ("status.phase=Pending,spec.nodeName!=", &["a"]),
        ("spec.nodeName=right,status.phase!=Succeeded,status.phase!=Failed", &["b"]),
    ];
    for (selector, expected) in rows {
        let list = subject.get(pods.as_str()).query("fieldSelector", selector).expect(200).await?;
        ensure!(names(&list)? == expected, "{selector:?} selects {:?}, expected {expected:?}", names(&list)?);
    }
    Ok(())
}

async fn a_field_that_is_not_selectable_is_refused(subject: &Subject<'_>) -> Result<()> {
    for (path, selector) in [
        (subject.widgets(), "spec.replicas=1"),
        (subject.core("configmaps"), "data.a=b"),
        (subject.core("pods"), "spec.hostname=a"),
        (subject.widgets(), "metadata.name"),
        (subject.widgets(), "metadata.name in (a)"),
    ] {
        let call = subject.get(path).query("fieldSelector", selector);
        call.refused(400, "BadRequest").await.with_context(|| format!("the selector {selector:?}"))?;
    }
    Ok(())
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn expected_group() -> Value {
    let version = |name: &str| json!({ "groupVersion": format!("{GROUP}/{name}"), "version": name });
    json!({
        "name": GROUP,
        "versions": [version(VERSION), version(OLD_VERSION)],
        "preferredVersion": version(VERSION),
    })
}

async fn a_group_is_listed_with_its_versions_the_preferred_one_first(subject: &Subject<'_>) -> Result<()> {
    let found = subject.get("/apis").expect(200).await?;
    ensure!(found["kind"] == "APIGroupList" && found["apiVersion"] == "v1", "{found}");
    let groups = found["groups"].as_array().context("no groups")?;
    let group = groups.iter().find(|group| group["name"] == GROUP).context("the suite's group is missing")?;
    ensure!(*group == expected_group(), "{group}");
    ensure!(groups.iter().any(|group| group["name"] == "apiextensions.k8s.io"), "no group of CRDs in {found}");
    ensure!(groups.iter().all(|group| group["name"] != ""), "the core group is among the named ones: {found}");
    Ok(())
}

/// Returns true if a resource has the verbs that clients use here; a server may have more.
fn has_verbs(resource: &Value) -> bool {
    let has = |verb| resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|one| one == verb));
    ["create", "delete", "get", "list", "patch", "update", "watch"].into_iter().all(has)
}

async fn aggregated(subject: &Subject<'_>, path: &str) -> Result<Vec<Value>> {
    let answer = subject.get(path).accept(AGGREGATED).answer().await?;
    let found = answer.expect(200)?;
    ensure!(found["kind"] == "APIGroupDiscoveryList", "{found}");
    ensure!(found["apiVersion"] == "apidiscovery.k8s.io/v2", "{found}");
    // A client recognises by this type that its request was understood.
    let kind = answer.header("content-type");
    ensure!(kind.contains("apidiscovery.k8s.io") && kind.contains("APIGroupDiscoveryList"), "the content is {kind:?}");
    Ok(found["items"].as_array().context("no items")?.clone())
}

async fn aggregated_discovery_holds_groups_versions_and_resources(subject: &Subject<'_>) -> Result<()> {
    let groups = aggregated(subject, "/apis").await?;
    let group =
        groups.iter().find(|group| group["metadata"]["name"] == GROUP).context("the suite's group is missing")?;
    let versions = group["versions"].as_array().context("no versions")?;
    let found: Vec<&Value> = versions.iter().map(|version| &version["version"]).collect();
    ensure!(found == [VERSION, OLD_VERSION], "{group}");
    let resources = versions[0]["resources"].as_array().context("no resources")?;
    let [widgets] = resources.as_slice() else { anyhow::bail!("not one resource: {group}") };
    let parts = ["resource", "responseKind", "scope", "singularResource", "shortNames", "categories"];
    let parts = parts.map(|part| widgets[part].clone());
    let kind = json!({ "group": GROUP, "version": VERSION, "kind": "Widget" });
    let expected =
        [json!("widgets"), kind, json!("Namespaced"), json!("widget"), json!(["wix"]), json!(["conformance"])];
    ensure!(parts == expected, "{widgets}");
    ensure!(has_verbs(widgets), "{widgets}");
    let subresources = widgets["subresources"].as_array().context("no subresources")?;
    let mut kinds: Vec<_> =
        subresources.iter().map(|sub| (&sub["subresource"], &sub["responseKind"]["kind"])).collect();
    kinds.sort_unstable_by_key(|(name, _)| name.to_string());
    ensure!(kinds == [(&json!("scale"), &json!("Scale")), (&json!("status"), &json!("Widget"))], "{widgets}");
    Ok(())
}

async fn an_unknown_group_version_or_kind_is_not_found(subject: &Subject<'_>) -> Result<()> {
    let paths = [
        "/apis/nobody.sandbox.test".to_owned(),
        "/apis/nobody.sandbox.test/v1".to_owned(),
        "/apis/nobody.sandbox.test/v1/things".to_owned(),
        format!("/apis/{GROUP}/v7"),
        format!("/apis/{GROUP}/v7/widgets"),
        format!("/apis/{GROUP}/{VERSION}/namespaces/{}/gadgets", subject.namespace()),
        subject.core("gadgets"),
        format!("{}/a/gadget", subject.widgets()),
    ];
    for path in paths {
        let answer = subject.get(path).answer().await?;
        ensure!(answer.status == 404, "{} was answered with {}: {}", answer.request, answer.status, answer.text);
    }
    Ok(())
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn columns(table: &Value) -> Vec<(&str, &str, i64)> {
    let definitions = table["columnDefinitions"].as_array().into_iter().flatten();
    definitions
        .map(|column| {
            let part = |name: &str| column[name].as_str().unwrap_or_default();
            (part("name"), part("type"), column["priority"].as_i64().unwrap_or_default())
        })
        .collect()
}

async fn a_list_becomes_a_table_with_the_columns_of_its_kind(subject: &Subject<'_>) -> Result<()> {
    subject.create("a", &json!({ "replicas": 3, "colour": "red" })).await?;
    subject.create("b", &json!({})).await?;
    let status = json!({ "status": { "phase": "Ready" } });
    subject.patch(format!("{}/status", subject.widget("a")), Patch::Merge, &status).expect(200).await?;
    let table = subject.get(subject.widgets()).accept(TABLE).expect(200).await?;
    ensure!(table["kind"] == "Table" && table["apiVersion"] == "meta.k8s.io/v1", "{table}");
    version(&table)?;
    let expected = [
        ("Name", "string", 0),
        ("Replicas", "integer", 0),
        ("Phase", "string", 0),
        ("Colour", "string", 1),
        ("Age", "date", 0),
    ];
    ensure!(columns(&table) == expected, "{table}");
    ensure!(table["columnDefinitions"][0]["format"] == "name", "{table}");
    let rows = table["rows"].as_array().context("no rows")?;
    let cells: Vec<&[Value]> =
        rows.iter().map(|row| row["cells"].as_array().map_or(&[][..], |cells| &cells[..4])).collect();
    let first = [json!("a"), json!(3), json!("Ready"), json!("red")];
    // A cell without a value is null, whatever the column's type.
    let second = [json!("b"), Value::Null, Value::Null, Value::Null];
    ensure!(cells == [first.as_slice(), second.as_slice()], "{table}");
    let age = rows[0]["cells"][4].as_str().unwrap_or_default();
    ensure!(age.ends_with('s') && age.len() < 5, "the age is {age:?}");
    Ok(())
}
