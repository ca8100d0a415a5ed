//! Cases of content negotiation: tables, metadata only, and types that aren't supported.

use anyhow::{Context, Result, ensure};
use http::Method;
use serde_json::{Value, json};

use super::{
    Case, Subject,
    call::Patch,
    case,
    objects::{config_map, node, version, widget},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(negotiating::answers_are_json),
        case!(negotiating::a_list_becomes_a_table_with_the_columns_of_its_kind),
        case!(negotiating::an_object_becomes_a_table_with_one_row),
        case!(negotiating::a_table_holds_as_much_of_each_object_as_was_asked_for),
        case!(negotiating::a_table_comes_in_pages),
        case!(negotiating::every_kind_has_a_table),
        case!(negotiating::metadata_can_be_had_alone),
        case!(negotiating::the_first_form_that_is_served_is_taken),
        case!(negotiating::a_form_that_is_not_served_is_refused),
        case!(negotiating::a_method_that_makes_no_sense_is_refused),
    ]
}

async fn answers_are_json(subject: &Subject<'_>) -> Result<()> {
    for accept in
        ["", "*/*", "application/*", "application/json", "application/json; charset=utf-8", "text/x, application/json"]
    {
        let call = subject.get(subject.widgets());
        let call = if accept.is_empty() { call } else { call.accept(accept) };
        let answer = call.answer().await?;
        answer.expect(200).with_context(|| format!("accepting {accept:?}"))?;
        ensure!(answer.header("content-type") == "application/json", "accepting {accept:?}: {answer:?}");
    }
    Ok(())
}

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
    subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3, "colour": "red" }))).expect(201).await?;
    subject.post(subject.widgets(), &widget("b", &json!({}))).expect(201).await?;
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

async fn an_object_becomes_a_table_with_one_row(subject: &Subject<'_>) -> Result<()> {
    let created = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3 }))).expect(201).await?;
    let table = subject.get(subject.widget("a")).accept(TABLE).expect(200).await?;
    let rows = table["rows"].as_array().context("no rows")?;
    ensure!(rows.len() == 1 && rows[0]["cells"][0] == "a", "{table}");
    ensure!(version(&table)? == version(&created)?, "{table}");
    subject.get(subject.widget("b")).accept(TABLE).refused(404, "NotFound").await?;
    Ok(())
}

async fn a_table_holds_as_much_of_each_object_as_was_asked_for(subject: &Subject<'_>) -> Result<()> {
    subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3 }))).expect(201).await?;
    for (include, kind) in [("", "PartialObjectMetadata"), ("Metadata", "PartialObjectMetadata"), ("Object", "Widget")]
    {
        let call = subject.get(subject.widgets()).accept(TABLE);
        let call = if include.is_empty() { call } else { call.query("includeObject", include) };
        let table = call.expect(200).await?;
        let object = &table["rows"][0]["object"];
        ensure!(object["kind"] == kind && object["metadata"]["name"] == "a", "{include:?}: {table}");
        ensure!(object["spec"].is_null() == (kind == "PartialObjectMetadata"), "{include:?}: {table}");
    }
    let table = subject.get(subject.widgets()).accept(TABLE).query("includeObject", "None").expect(200).await?;
    ensure!(table["rows"][0]["object"].is_null(), "{table}");
    Ok(())
}

async fn a_table_comes_in_pages(subject: &Subject<'_>) -> Result<()> {
    for name in ["a", "b", "c"] {
        subject.post(subject.widgets(), &widget(name, &json!({}))).expect(201).await?;
    }
    let page = || subject.get(subject.widgets()).accept(TABLE).query("limit", "2");
    let first = page().expect(200).await?;
    ensure!(first["rows"].as_array().is_some_and(|rows| rows.len() == 2), "{first}");
    ensure!(first["metadata"]["remainingItemCount"] == 1, "{first}");
    let token = first["metadata"]["continue"].as_str().context("no token")?;
    let second = page().query("continue", token).expect(200).await?;
    ensure!(second["rows"][0]["cells"][0] == "c", "{second}");
    Ok(())
}

async fn every_kind_has_a_table(subject: &Subject<'_>) -> Result<()> {
    let name = subject.unique("node");
    subject.post("/api/v1/nodes", &node(&name)).expect(201).await?;
    subject.post(subject.core("configmaps"), &config_map("a", &json!({ "a": "1" }))).expect(201).await?;
    for (path, name) in [(format!("/api/v1/nodes/{name}"), name.as_str()), (subject.core("configmaps/a"), "a")] {
        let table = subject.get(path).accept(TABLE).expect(200).await?;
        let columns = columns(&table);
        ensure!(columns.first() == Some(&("Name", "string", 0)), "{table}");
        ensure!(columns.iter().any(|(name, ..)| *name == "Age"), "{table}");
        ensure!(table["rows"][0]["cells"][0] == name, "{table}");
        let cells = table["rows"][0]["cells"].as_array().map_or(0, Vec::len);
        ensure!(cells == columns.len(), "{} columns, {cells} cells: {table}", columns.len());
    }
    Ok(())
}

async fn metadata_can_be_had_alone(subject: &Subject<'_>) -> Result<()> {
    let created = subject.post(subject.widgets(), &widget("a", &json!({ "replicas": 3 }))).expect(201).await?;
    let object = subject.get(subject.widget("a")).accept(METADATA).expect(200).await?;
    let expected = json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": created["metadata"],
    });
    ensure!(object == expected, "{object}");
    let list = subject.get(subject.widgets()).accept(METADATA_LIST).expect(200).await?;
    ensure!(list["kind"] == "PartialObjectMetadataList" && list["apiVersion"] == "meta.k8s.io/v1", "{list}");
    ensure!(list["items"] == json!([expected]), "{list}");
    version(&list)?;
    Ok(())
}

async fn the_first_form_that_is_served_is_taken(subject: &Subject<'_>) -> Result<()> {
    let rows = [
        (format!("{TABLE},application/json"), "Table"),
        ("application/json;as=Chart;v=v1;g=meta.k8s.io,application/json".to_owned(), "WidgetList"),
        (format!("application/json;as=Table;v=v7;g=meta.k8s.io,{TABLE},application/json"), "Table"),
    ];
    for (accept, kind) in rows {
        let list = subject.get(subject.widgets()).accept(&accept).expect(200).await?;
        ensure!(list["kind"] == kind, "accepting {accept}: {list}");
    }
    Ok(())
}

async fn a_form_that_is_not_served_is_refused(subject: &Subject<'_>) -> Result<()> {
    for accept in ["text/html", "image/png", "application/json;as=Chart;v=v1;g=meta.k8s.io"] {
        let call = subject.get(subject.widgets()).accept(accept);
        call.refused(406, "NotAcceptable").await.with_context(|| format!("accepting {accept}"))?;
    }
    Ok(())
}

async fn a_method_that_makes_no_sense_is_refused(subject: &Subject<'_>) -> Result<()> {
    for (method, path) in [
        (Method::PUT, subject.core("configmaps")),
        (Method::PATCH, subject.core("configmaps")),
        (Method::POST, subject.core("configmaps/a")),
        (Method::DELETE, "/api/v1/nodes/a/status".to_owned()),
        (Method::DELETE, format!("{}/status", subject.widget("a"))),
        (Method::POST, format!("{}/scale", subject.widget("a"))),
        (Method::OPTIONS, subject.widgets()),
        (Method::OPTIONS, subject.core("configmaps")),
    ] {
        let call = subject.call(method.clone(), path).json(&json!({}));
        call.refused(405, "MethodNotAllowed").await.with_context(|| method.to_string())?;
    }
    let head = subject.call(Method::HEAD, subject.core("configmaps")).answer().await?;
    ensure!(head.status == 405 && head.text.is_empty(), "{head:?}");
    Ok(())
}
