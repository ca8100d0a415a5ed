//! Loading of manifests.

use super::*;

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

#[test]
fn a_document_that_is_no_object_is_named() {
    let error = api().load("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: ConfigMap\n").unwrap_err();
    assert_eq!(error.to_string(), "object 2 of the manifests is no Kubernetes object: it needs apiVersion");
}

#[test]
fn an_object_that_cannot_be_stored_is_named() {
    let error = api().load("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: A, namespace: default}").unwrap_err();
    assert!(error.to_string().starts_with("ConfigMap A: "), "{error}");
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

#[test]
fn an_object_that_is_loaded_again_keeps_its_creation_timestamp() {
    let clock = Clock::driven(Timestamp::UNIX_EPOCH);
    let api = Api::new(clock.clone());
    let secret = || json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": "a"}});
    let created =
        || api.get(&Resource::core("secrets"), "default", "a").unwrap()["metadata"]["creationTimestamp"].clone();
    api.load_values(vec![secret()]).unwrap();
    let first = created();
    assert!(first.is_string(), "{first}");
    clock.advance(std::time::Duration::from_secs(60));
    api.load_values(vec![secret()]).unwrap();
    assert_eq!(created(), first);
}
