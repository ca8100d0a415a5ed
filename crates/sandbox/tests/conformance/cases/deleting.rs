//! Cases of deleting objects: at once, or when the last finalizer is gone.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{
    Case, Subject, case,
    subject::{GROUP, Patch, config_map, eventually, version, widget},
};

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(deleting::an_object_is_gone_and_its_name_free),
        case!(deleting::preconditions_must_hold),
        case!(deleting::a_dry_run_deletes_nothing),
        case!(deleting::finalizers_keep_an_object_until_the_last_one_goes),
        case!(deleting::deleting_twice_is_as_deleting_once),
        case!(deleting::an_object_that_is_going_takes_changes_but_no_finalizer),
        case!(deleting::a_bound_pod_is_given_time_to_end),
        case!(deleting::dependents_follow_their_owner).with_collector(),
    ]
}

async fn create(subject: &Subject<'_>, name: &str) -> Result<Value> {
    subject.post(subject.widgets(), &widget(name, &json!({}))).expect(201).await
}

async fn create_held(subject: &Subject<'_>, name: &str, finalizers: &[&str]) -> Result<Value> {
    let mut object = widget(name, &json!({ "replicas": 1 }));
    object["metadata"]["finalizers"] = json!(finalizers);
    subject.post(subject.widgets(), &object).expect(201).await
}

async fn an_object_is_gone_and_its_name_free(subject: &Subject<'_>) -> Result<()> {
    let first = create(subject, "a").await?;
    let status = subject.delete(subject.widget("a")).expect(200).await?;
    ensure!(status["kind"] == "Status" && status["status"] == "Success", "{status}");
    let details = &status["details"];
    ensure!(details["name"] == "a" && details["group"] == GROUP && details["kind"] == "widgets", "{status}");
    ensure!(details["uid"] == first["metadata"]["uid"], "{status}");
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    let second = create(subject, "a").await?;
    ensure!(second["metadata"]["uid"] != first["metadata"]["uid"], "{second}");
    Ok(())
}

fn options(part: &str, value: &Value) -> Value {
    let mut options = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    options[part] = value.clone();
    options
}

async fn preconditions_must_hold(subject: &Subject<'_>) -> Result<()> {
    let object = create(subject, "a").await?;
    let metadata = &object["metadata"];
    let wrong = [json!({ "uid": "00000000-0000-0000-0000-000000000000" }), json!({ "resourceVersion": "1" })];
    for precondition in wrong {
        let call = subject.delete(subject.widget("a")).json(&options("preconditions", &precondition));
        call.refused(409, "Conflict").await.with_context(|| format!("{precondition}"))?;
    }
    let right = json!({ "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"] });
    subject.delete(subject.widget("a")).json(&options("preconditions", &right)).expect(200).await?;
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    Ok(())
}

async fn a_dry_run_deletes_nothing(subject: &Subject<'_>) -> Result<()> {
    let created = create(subject, "a").await?;
    subject.delete(subject.widget("a")).query("dryRun", "All").expect(200).await?;
    subject.delete(subject.widget("a")).json(&options("dryRun", &json!(["All"]))).expect(200).await?;
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
    let fewer = subject.patch(subject.widget("a"), Patch::Merge, &fewer).expect(200).await?;
    ensure!(watch.expect("MODIFIED", "a").await? == fewer, "{fewer}");
    let last = subject.patch(subject.widget("a"), Patch::Merge, &finalizers(&[])).expect(200).await?;
    ensure!(last["metadata"]["finalizers"].is_null(), "{last}");
    let gone = watch.expect("DELETED", "a").await?;
    ensure!(version(&gone)? > version(&fewer)?, "{gone}");
    subject.get(subject.widget("a")).refused(404, "NotFound").await?;
    Ok(())
}

async fn deleting_twice_is_as_deleting_once(subject: &Subject<'_>) -> Result<()> {
    create_held(subject, "a", &["example.com/a"]).await?;
    let first = subject.delete(subject.widget("a")).expect(200).await?;
    let second = subject.delete(subject.widget("a")).expect(200).await?;
    ensure!(second == first, "first {first}, then {second}");
    Ok(())
}

async fn an_object_that_is_going_takes_changes_but_no_finalizer(subject: &Subject<'_>) -> Result<()> {
    create_held(subject, "a", &["example.com/a"]).await?;
    subject.delete(subject.widget("a")).expect(200).await?;
    let labels = json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "replicas": 2 } });
    let changed = subject.patch(subject.widget("a"), Patch::Merge, &labels).expect(200).await?;
    ensure!(changed["metadata"]["labels"]["a"] == "b" && changed["spec"]["replicas"] == 2, "{changed}");
    let more = json!({ "metadata": { "finalizers": ["example.com/a", "example.com/b"] } });
    let status = subject.patch(subject.widget("a"), Patch::Merge, &more).refused(422, "Invalid").await?;
    ensure!(status["details"]["causes"][0]["field"] == "metadata.finalizers", "{status}");
    // The deletion time can't be removed either.
    let back = json!({ "metadata": { "deletionTimestamp": null } });
    let kept = subject.patch(subject.widget("a"), Patch::Merge, &back).expect(200).await?;
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

/// Creates an owner and a dependent ConfigMap.
async fn family(subject: &Subject<'_>) -> Result<()> {
    let owner = create(subject, "owner").await?;
    let mut child = config_map("child", &json!({}));
    child["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": "owner",
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    }]);
    subject.post(subject.core("configmaps"), &child).expect(201).await?;
    Ok(())
}

async fn gone(subject: &Subject<'_>, path: String) -> Result<()> {
    eventually("deleted with its owner", async || subject.get(path.as_str()).refused(404, "NotFound").await).await?;
    Ok(())
}

async fn dependents_follow_their_owner(subject: &Subject<'_>) -> Result<()> {
    family(subject).await?;
    subject.delete(subject.widget("owner")).expect(200).await?;
    gone(subject, subject.core("configmaps/child")).await
}
