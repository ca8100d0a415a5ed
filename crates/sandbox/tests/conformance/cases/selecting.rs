//! Cases of label and field selectors of lists.

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    Case, Subject, case,
    subject::{Patch, labelled, names, pod, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(selecting::labels_select),
        case!(selecting::a_wrong_label_selector_is_refused),
        case!(selecting::fields_select_by_name_and_namespace),
        case!(selecting::pods_are_selected_by_node_and_phase),
        case!(selecting::a_field_that_is_not_selectable_is_refused),
    ]
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
        subject.post(subject.widgets(), &widget(name, &json!({}))).expect(201).await?;
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
