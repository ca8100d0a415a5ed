//! Creates, updates and patches.

use rstest::rstest;

use super::*;

#[test]
fn a_created_object_gets_what_the_api_gives() {
    let api = api().as_manager("tester");
    let created = api.create(&sets(), set("a", 1)).unwrap();
    assert_eq!(created["apiVersion"], "cluster.x-k8s.io/v1beta2");
    assert_eq!(created["kind"], "MachineSet");
    let metadata = &created["metadata"];
    assert_eq!(metadata["creationTimestamp"], "1970-01-01T00:00:00Z");
    assert_eq!(metadata["generation"], 1);
    assert_eq!(metadata["resourceVersion"], api.revision().to_string());
    assert_eq!(metadata["uid"].as_str().unwrap().len(), 36);
    assert_eq!(metadata["managedFields"][0]["manager"], "tester");
    assert_eq!(metadata["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn a_second_object_of_the_same_name_is_refused() {
    let api = api();
    api.create(&sets(), set("a", 1)).unwrap();
    let refusal = api.create(&sets(), set("a", 1)).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "AlreadyExists"));
    assert_eq!(refusal.message, "machinesets.cluster.x-k8s.io \"a\" already exists");
}

#[test]
fn the_generation_counts_changes_of_the_spec_alone() {
    let api = api();
    api.create(&sets(), set("a", 1)).unwrap();
    let patch = |subresource, body| {
        let patched = api.patch(&sets(), "default", "a", PatchKind::Merge, subresource, body).unwrap();
        patched["metadata"]["generation"].as_i64().unwrap()
    };
    assert_eq!(patch(Subresource::Main, json!({"metadata": {"labels": {"a": "b"}}})), 1);
    assert_eq!(patch(Subresource::Main, json!({"spec": {"replicas": 2}})), 2);
    assert_eq!(patch(Subresource::Status, json!({"status": {"replicas": 2}})), 2);
}

#[test]
fn the_status_is_written_by_itself_and_nothing_else_with_it() {
    let api = api();
    api.create(&sets(), set("a", 1)).unwrap();
    let both = json!({"spec": {"replicas": 5}, "status": {"replicas": 7}});
    let main = api.patch(&sets(), "default", "a", PatchKind::Merge, Subresource::Main, both.clone()).unwrap();
    assert_eq!((&main["spec"]["replicas"], &main["status"]), (&json!(5), &Value::Null));
    let both = json!({"spec": {"replicas": 6}, "status": {"replicas": 7}});
    let status = api.patch(&sets(), "default", "a", PatchKind::Merge, Subresource::Status, both).unwrap();
    assert_eq!((&status["spec"]["replicas"], &status["status"]["replicas"]), (&json!(5), &json!(7)));
}

#[test]
fn a_write_that_changes_nothing_is_no_change() {
    let api = api();
    let created = api.create(&sets(), set("a", 1)).unwrap();
    let updated = api.update(&sets(), (*created).clone()).unwrap();
    assert_eq!(updated["metadata"]["resourceVersion"], created["metadata"]["resourceVersion"]);
}

#[test]
fn an_update_of_an_older_state_conflicts() {
    let api = api();
    let created = api.create(&sets(), set("a", 1)).unwrap();
    let mut next = (*created).clone();
    next["spec"]["replicas"] = json!(2);
    api.update(&sets(), next.clone()).unwrap();
    next["spec"]["replicas"] = json!(3);
    let refusal = api.update(&sets(), next).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "Conflict"));
}

#[rstest]
#[case::right(json!([{"op": "test", "path": "/spec/replicas", "value": 2}, {"op": "replace", "path": "/spec/replicas", "value": 3}]), Ok(3))]
#[case::wrong(json!([{"op": "test", "path": "/spec/replicas", "value": 1}, {"op": "replace", "path": "/spec/replicas", "value": 3}]), Err(422))]
#[case::at_zero_but_is_two(json!([{"op": "test", "path": "/spec", "value": {}}, {"op": "add", "path": "/spec/replicas", "value": 1}]), Err(422))]
#[case::not_an_operation(json!([{"op": "guess"}]), Err(422))]
#[case::not_a_patch(json!({"op": "add"}), Err(400))]
#[case::stale(json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}]), Err(409))]
#[case::negative(json!([{"op": "replace", "path": "/spec/replicas", "value": -1}]), Err(422))]
fn a_scale_takes_a_json_patch(#[case] patch: Value, #[case] expected: Result<i64, u16>) {
    let api = api();
    api.create(&sets(), set("a", 2)).unwrap();
    let answer = api.patch(&sets(), "default", "a", PatchKind::Json, Subresource::Scale, patch);
    let found = answer.map(|scale| scale["spec"]["replicas"].as_i64().unwrap()).map_err(|refusal| refusal.code);
    assert_eq!(found, expected);
    let replicas = api.get(&sets(), "default", "a").unwrap()["spec"]["replicas"].as_i64().unwrap();
    assert_eq!(replicas, expected.unwrap_or(2));
}

#[test]
fn a_scale_of_zero_has_no_number_and_can_still_be_tested() {
    let api = api();
    api.create(&sets(), set("a", 0)).unwrap();
    let scale = api.scale(&sets(), "default", "a").unwrap();
    assert_eq!(scale["spec"], json!({}));
    let patch =
        json!([{"op": "test", "path": "/spec", "value": {}}, {"op": "add", "path": "/spec/replicas", "value": 4}]);
    let scale = api.patch(&sets(), "default", "a", PatchKind::Json, Subresource::Scale, patch).unwrap();
    assert_eq!(scale["spec"]["replicas"], 4);
    let zero = json!({"spec": {"replicas": 0}});
    let scale = api.patch(&sets(), "default", "a", PatchKind::Merge, Subresource::Scale, zero).unwrap();
    assert_eq!(scale["spec"], json!({}));
    let stored = api.get(&sets(), "default", "a").unwrap();
    assert_eq!(stored["spec"]["replicas"], 0);
    assert_eq!(scale["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
}

#[test]
fn every_version_serves_the_same_object() {
    let api = api();
    let created = api.create(&sets(), set("a", 1)).unwrap();
    let older = Resource::new("cluster.x-k8s.io", "v1beta1", "machinesets");
    let read = api.get(&older, "default", "a").unwrap();
    assert_eq!(read["apiVersion"], "cluster.x-k8s.io/v1beta1");
    assert_eq!(read["metadata"]["uid"], created["metadata"]["uid"]);
    let mut next = (*read).clone();
    next["spec"]["replicas"] = json!(2);
    assert_eq!(api.update(&older, next).unwrap()["apiVersion"], "cluster.x-k8s.io/v1beta1");
    assert_eq!(api.get(&sets(), "default", "a").unwrap()["spec"]["replicas"], 2);
}

#[test]
fn applying_keeps_to_what_the_manager_named() {
    let api = api();
    let apply = |manager: &str, force, spec: Value| {
        let body = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": {"name": "a"}, "spec": spec});
        let api = api.as_manager(manager);
        api.patch(&sets(), "default", "a", PatchKind::Apply { force }, Subresource::Main, body)
    };
    apply("one", false, json!({"replicas": 1, "paused": true})).unwrap();
    apply("two", false, json!({"clusterName": "c"})).unwrap();
    let refusal = apply("two", false, json!({"clusterName": "c", "replicas": 2})).unwrap_err();
    assert_eq!((refusal.code, refusal.reason), (409, "Conflict"));
    assert_eq!(refusal.details.unwrap()["causes"][0]["field"], ".spec.replicas");
    let forced = apply("two", true, json!({"clusterName": "c", "replicas": 2})).unwrap();
    assert_eq!(forced["spec"], json!({"replicas": 2, "paused": true, "clusterName": "c"}));
    let given_up = apply("one", false, json!({})).unwrap();
    assert_eq!(given_up["spec"], json!({"replicas": 2, "clusterName": "c"}));
}

#[test]
fn a_dry_run_answers_and_does_nothing() {
    let api = api();
    let before = api.revision();
    assert_eq!(api.dry_run().create(&sets(), set("a", 1)).unwrap()["spec"]["replicas"], 1);
    assert_eq!(api.get(&sets(), "default", "a").unwrap_err().code, 404);
    assert_eq!(api.revision(), before);
}

#[test]
fn the_texts_of_a_secret_become_its_data() {
    let api = api();
    let secret = json!({"metadata": {"namespace": "default", "name": "s"}, "stringData": {"value": "hello"}});
    let created = api.create(&Resource::core("secrets"), secret).unwrap();
    assert_eq!((&created["data"]["value"], &created["stringData"]), (&json!("aGVsbG8="), &Value::Null));
}

#[rstest]
#[case::no_object(json!("x"), 400)]
#[case::metadata_no_object(json!({"metadata": 1}), 400)]
#[case::label_of_a_wrong_type(json!({"metadata": {"name": "a", "namespace": "default", "labels": {"a": 1}}}), 400)]
#[case::no_name(json!({"metadata": {"namespace": "default"}}), 422)]
#[case::bad_name(json!({"metadata": {"name": "A", "namespace": "default"}}), 422)]
#[case::bad_label(json!({"metadata": {"name": "a", "namespace": "default", "labels": {"a": "-"}}}), 422)]
#[case::other_kind(json!({"kind": "Machine", "metadata": {"name": "a", "namespace": "default"}}), 422)]
#[case::missing_namespace(json!({"metadata": {"name": "a", "namespace": "none"}}), 404)]
#[case::owner_without_uid(json!({"metadata": {"name": "a", "namespace": "default", "ownerReferences": [{"name": "x"}]}}), 422)]
fn an_object_of_a_wrong_form_is_refused(#[case] object: Value, #[case] code: u16) {
    assert_eq!(api().create(&sets(), object).unwrap_err().code, code);
}
