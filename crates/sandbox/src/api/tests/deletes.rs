//! Deletes and their cascades.

use super::*;

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
fn a_dependent_with_another_owner_stays() {
    let api = api();
    let (one, two) = (api.create(&sets(), set("a", 1)).unwrap(), api.create(&sets(), set("b", 1)).unwrap());
    let mut child = owned_by(machine("child"), &one);
    let second = owned_by(machine("child"), &two)["metadata"]["ownerReferences"][0].clone();
    child["metadata"]["ownerReferences"].as_array_mut().unwrap().push(second);
    api.create(&machines(), child).unwrap();
    api.delete(&sets(), "default", "a", &DeleteOptions::default()).unwrap();
    let left = api.get(&machines(), "default", "child").unwrap();
    let owners = left["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["name"]), (1, &json!("b")));
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
fn a_dependent_of_an_owner_that_never_was_stays() {
    let api = api();
    let metadata = json!({"name": "a", "uid": "0ffe0ffe"});
    let owner = json!({"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "metadata": metadata});
    api.create(&machines(), owned_by(machine("child"), &owner)).unwrap();
    assert_eq!(names(&api, &machines()), ["child"]);
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
