//! Creates, updates and patches.

use rstest::rstest;

use super::*;

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
#[case::size_no_number(json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": "many"}}), 422)]
#[case::negative_size(json!({"metadata": {"name": "a", "namespace": "default"}, "spec": {"replicas": -1}}), 422)]
#[case::missing_namespace(json!({"metadata": {"name": "a", "namespace": "none"}}), 404)]
#[case::owner_without_uid(json!({"metadata": {"name": "a", "namespace": "default", "ownerReferences": [{"name": "x"}]}}), 422)]
fn an_object_of_a_wrong_form_is_refused(#[case] object: Value, #[case] code: u16) {
    assert_eq!(api().create(&sets(), object).unwrap_err().code, code);
}
