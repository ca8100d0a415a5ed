//! The API as its clients in the same process see it.

use jiff::Timestamp;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

fn api() -> Api {
    let api = Api::new(Clock::driven(Timestamp::UNIX_EPOCH));
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "MachineSet").with_version("v1beta1").with_scale());
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine").with_version("v1beta1"));
    api
}

fn sets() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machinesets")
}

fn machines() -> Resource {
    Resource::new("cluster.x-k8s.io", "v1beta2", "machines")
}

fn set(name: &str, replicas: i64) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {"replicas": replicas}})
}

fn machine(name: &str) -> Value {
    json!({"metadata": {"namespace": "default", "name": name}, "spec": {}})
}

fn owned_by(mut object: Value, owner: &Value) -> Value {
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    }]);
    object
}

fn names(api: &Api, resource: &Resource) -> Vec<String> {
    let list = api.list(resource, &Selection::default()).unwrap();
    list.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn with_finalizer(mut object: Value) -> Value {
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    object
}

#[test]
fn dependents_follow_their_owner_down_all_levels() {
    let api = api();
    let owner = api.create(&sets(), set("a", 1)).unwrap();
    let child = api.create(&machines(), owned_by(machine("child"), &owner)).unwrap();
    let pod = json!({"metadata": {"namespace": "default", "name": "grandchild"}});
    api.create(&Resource::core("pods"), owned_by(pod, &child)).unwrap();
    api.create(&machines(), machine("other")).unwrap();
    api.delete(&sets(), "default", "a", &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api, &machines()), ["other"]);
    assert!(names(&api, &Resource::core("pods")).is_empty());
}

#[test]
fn a_dependent_that_is_created_after_its_owner_is_gone_goes() {
    let api = api();
    let owner = api.create(&sets(), set("a", 1)).unwrap();
    api.delete(&sets(), "default", "a", &DeleteOptions::default()).unwrap();
    api.create(&sets(), set("a", 1)).unwrap();
    let created = api.create(&machines(), owned_by(machine("late"), &owner)).unwrap();
    assert_eq!(created["metadata"]["name"], "late");
    let held = with_finalizer(owned_by(machine("held"), &owner));
    assert_eq!(api.create(&machines(), held).unwrap()["metadata"].get("deletionTimestamp"), None);
    assert_eq!(names(&api, &machines()), ["held"]);
    let held = api.get(&machines(), "default", "held").unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string(), "{held}");
}

#[test]
fn a_namespace_goes_with_all_that_is_in_it() {
    let api = api();
    let namespaces = Resource::core("namespaces");
    api.create(&namespaces, json!({"metadata": {"name": "n"}})).unwrap();
    let held = json!({"metadata": {"namespace": "n", "name": "held", "finalizers": ["example.com/hold"]}});
    api.create(&machines(), held).unwrap();
    api.create(&machines(), json!({"metadata": {"namespace": "n", "name": "free"}})).unwrap();
    api.delete(&namespaces, "", "n", &DeleteOptions::default()).unwrap();
    assert_eq!(names(&api, &machines()), ["held"]);
    assert_eq!(api.get(&namespaces, "", "n").unwrap()["status"]["phase"], "Terminating");
    let refusal = api.create(&machines(), json!({"metadata": {"namespace": "n", "name": "new"}})).unwrap_err();
    assert_eq!(refusal.code, 403);
    let none = json!({"metadata": {"finalizers": null}});
    api.patch(&machines(), "n", "held", PatchKind::Merge, Subresource::Main, none).unwrap();
    assert_eq!(api.get(&namespaces, "", "n").unwrap_err().code, 404);
}

#[test]
fn a_version_that_is_withdrawn_ends_watches_and_keeps_what_has_changed() {
    let api = api();
    api.create(&machines(), machine("a")).unwrap();
    let old = Resource::new("cluster.x-k8s.io", "v1beta1", "machines");
    let (_, watched) = api.history(&old).unwrap();
    let mut kind = KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine").with_version("v1beta1");
    api.define(kind.clone());
    assert!(!watched.after(0).unwrap().ended, "nothing is served otherwise");
    kind.versions[1].served = false;
    api.define(kind);
    assert!(watched.after(0).unwrap().ended);
    assert_eq!(api.get(&old, "default", "a").unwrap_err().code, 404);
    assert_eq!(api.with_unserved().get(&old, "default", "a").unwrap()["apiVersion"], "cluster.x-k8s.io/v1beta1");
    assert_eq!(api.resource_of("cluster.x-k8s.io/v1beta1", "Machine"), None);
    assert_eq!(api.with_unserved().resource_of("cluster.x-k8s.io/v1beta1", "Machine"), Some(old));
    let (_, history) = api.history(&machines()).unwrap();
    let changes = history.after(0).unwrap();
    assert!(!changes.ended && changes.list.len() == 1);
}

#[test]
fn changes_beyond_the_history_have_expired() {
    let api = Api::with_settings(Clock::driven(Timestamp::UNIX_EPOCH), Settings { history: 2 });
    api.define(KindSpec::new("cluster.x-k8s.io", "v1beta2", "Machine"));
    let since = api.revision();
    for name in ["a", "b", "c"] {
        api.create(&machines(), machine(name)).unwrap();
    }
    let changes = |revision| api.changes(&machines(), &Selection::default(), revision);
    assert_eq!(changes(since).unwrap_err().code, 410);
    assert_eq!(changes(since + 1).unwrap().len(), 2);
}

#[test]
fn a_cluster_is_stood_up_again_from_what_was_read_from_one() {
    let api = Api::new(Clock::driven(Timestamp::UNIX_EPOCH));
    let count = api
        .load(
            "
apiVersion: v1
kind: List
items:
- apiVersion: cluster.x-k8s.io/v1beta2
  kind: Machine
  metadata:
    name: a-1
    namespace: team-a
    uid: 11111111-1111-1111-1111-111111111111
    resourceVersion: '99'
    generation: 4
    ownerReferences:
    - {apiVersion: cluster.x-k8s.io/v1beta2, kind: MachineSet, name: a}
  status: {phase: Running}
---
apiVersion: cluster.x-k8s.io/v1beta2
kind: MachineSet
metadata: {name: a, namespace: team-a}
---
",
        )
        .unwrap();
    assert_eq!(count, 2);
    let machine = api.get(&machines(), "team-a", "a-1").unwrap();
    assert_eq!(machine["status"]["phase"], "Running");
    assert_eq!(machine["metadata"]["generation"], 4);
    assert_eq!(machine["metadata"]["uid"], "11111111-1111-1111-1111-111111111111");
    let set = api.get(&sets(), "team-a", "a").unwrap();
    assert_eq!(machine["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
    assert!(api.get(&Resource::core("namespaces"), "", "team-a").is_ok());
}

#[rstest]
#[case::no_object(
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: ConfigMap\n",
    "object 2 of the manifests is no Kubernetes object: it needs apiVersion"
)]
#[case::refused("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A, namespace: default}", "ConfigMap A: ")]
fn a_manifest_that_cannot_be_loaded_is_named(#[case] yaml: &str, #[case] begins: &str) {
    let error = format!("{:#}", api().load(yaml).unwrap_err());
    assert!(error.starts_with(begins), "{error}");
}

/// Returns the `managedFields` of a Machine as a list or watch sends them, and checks that a read returns the same.
fn managed_fields(api: &Api, name: &str) -> Value {
    let (_, object) = api.object(&machines(), "default", name).unwrap();
    let mut sent = bytes::BytesMut::from(&b"{"[..]);
    object.write_tail(&mut sent);
    assert_eq!(sent.len(), 1 + object.tail_len());
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let read = api.get(&machines(), "default", name).unwrap();
    assert_eq!((&read["metadata"], &read["spec"]), (&sent["metadata"], &sent["spec"]));
    sent["metadata"]["managedFields"].clone()
}

#[test]
fn a_loaded_object_has_the_same_managed_fields_alone_and_among_objects_of_its_shape() {
    let api = api();
    let machine = |name: &str, finalizer: &str, spec: Value| {
        json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine", "spec": spec,
            "metadata": {"namespace": "default", "name": name, "finalizers": [finalizer]},
        })
    };
    let loaded = [
        ("one", "example.com/a", json!({"version": "v1"})),
        ("of-its-shape", "example.com/a", json!({"version": "v2"})),
        ("other-set", "example.com/b", json!({"version": "v1"})),
        ("other-fields", "example.com/a", json!({"providerID": "x"})),
        ("nested", "example.com/a", json!({"version": {"providerID": "x"}})),
    ];
    api.load_values(loaded.iter().map(|(name, finalizer, spec)| machine(name, finalizer, spec.clone())).collect())
        .unwrap();
    for (name, finalizer, spec) in loaded {
        // A separate API, so that nothing is shared.
        let alone = self::api();
        alone.load_values(vec![machine(name, finalizer, spec)]).unwrap();
        assert_eq!(managed_fields(&api, name), managed_fields(&alone, name), "{name}");
    }
    let fields = &managed_fields(&api, "of-its-shape")[0]["fieldsV1"];
    assert_eq!(
        *fields,
        json!({"f:metadata": {"f:finalizers": {"v:\"example.com/a\"": {}}}, "f:spec": {"f:version": {}}})
    );
}

#[test]
fn an_object_that_is_loaded_again_keeps_its_uid_and_becomes_a_dependent_of_its_new_owner() {
    let api = api();
    let load = |owner: &str| {
        let mut machine = machine("a");
        machine["apiVersion"] = json!("cluster.x-k8s.io/v1beta2");
        machine["kind"] = json!("Machine");
        machine["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": owner, "uid": owner,
        }]);
        api.load_values(vec![machine]).unwrap();
        api.get(&machines(), "default", "a").unwrap()["metadata"]["uid"].clone()
    };
    assert_eq!(load("first"), load("second"));
    assert_eq!((api.dependents("first").len(), api.dependents("second").len()), (0, 1));
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
