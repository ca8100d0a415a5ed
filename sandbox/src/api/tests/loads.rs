//! Manifests.

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
