//! Cases of content negotiation: tables, and types that aren't supported.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{Patch, version, widget},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(negotiating::a_list_becomes_a_table_with_the_columns_of_its_kind),
        case!(negotiating::the_first_form_that_is_served_is_taken),
    ]
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
