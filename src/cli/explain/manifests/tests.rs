use std::{fs, path::Path};

use rstest::rstest;
use rules::capi::{InfrastructureRef, Keys, ObjectKey, SpecDigest};
use rules::remembered::{Bootstrap, Key, Templates};
use rules::{Rules, Scope};
use tempfile::TempDir;

use super::*;
use index::Detail;
use rules::{Exclusion, FromZero};

/// Creates a directory with these files.
fn directory(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn read_path(path: &Path) -> anyhow::Result<Manifests> {
    read(&[ManifestSource::Path(path.to_owned())], "default")
}

/// Returns the manifests of a directory, without its name in their texts.
fn manifests(files: &[(&str, &str)]) -> Manifests {
    let directory = directory(files);
    let mut manifests = read_path(directory.path()).unwrap();
    let prefix = format!("{}/", directory.path().display());
    for said in [&mut manifests.skipped, &mut manifests.warnings, &mut manifests.broken] {
        for text in said {
            *text = text.replace(&prefix, "");
        }
    }
    manifests
}

fn ids(manifests: &Manifests) -> Vec<String> {
    manifests.objects.keys().map(|identity| format!("{} {}", identity.kind, identity.key)).collect()
}

fn rules(group: &str) -> Rules {
    Rules { keys: Keys::new(group), ..Rules::new(Scope::All) }
}

fn object(kind: &str, name: &str) -> String {
    format!("apiVersion: cluster.x-k8s.io/v1beta2\nkind: {kind}\nmetadata: {{name: {name}, namespace: team-a}}\n")
}

#[test]
fn a_directory_is_read_with_all_below_it_but_what_is_hidden() {
    let files = [
        ("b/c.yml", &*object("MachineDeployment", "c")),
        ("a.yaml", &object("MachineDeployment", "a")),
        ("d.JSON", r#"{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}"#),
        ("notes.txt", "kind: [broken"),
        (".git/e.yaml", &object("MachineDeployment", "e")),
        (".hidden.yaml", &object("MachineDeployment", "f")),
    ];
    let manifests = manifests(&files);
    assert_eq!(ids(&manifests), ["Node n", "MachineDeployment team-a/a", "MachineDeployment team-a/c"]);
    assert_eq!(manifests.skipped, [""; 0]);
}

/// There are 30 directories with two links each to the next: 2 to the 30th ways to the last.
#[cfg(unix)]
#[test]
fn a_directory_that_many_links_lead_to_is_read_once() {
    let last = format!("{:02}/a.yaml", 30);
    let directory = directory(&[(&last, &object("MachineDeployment", "a"))]);
    for n in 0..30 {
        let from = directory.path().join(format!("{n:02}"));
        fs::create_dir_all(&from).unwrap();
        for link in ["one", "other"] {
            std::os::unix::fs::symlink(directory.path().join(format!("{:02}", n + 1)), from.join(link)).unwrap();
        }
    }
    let manifests = read_path(directory.path()).unwrap();
    assert_eq!(ids(&manifests), ["MachineDeployment team-a/a"]);
    assert_eq!(manifests.warnings, [""; 0]);
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_back_is_no_loop() {
    let directory = directory(&[("a.yaml", &object("MachineDeployment", "a"))]);
    std::os::unix::fs::symlink(directory.path(), directory.path().join("again")).unwrap();
    let manifests = read_path(directory.path()).unwrap();
    assert_eq!(ids(&manifests), ["MachineDeployment team-a/a"]);
    assert_eq!(manifests.warnings, [""; 0]);
}

#[rstest]
#[case::of_kubectl(
    "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: cluster.x-k8s.io/v1beta1, kind: MachineSet, metadata: {name: a}}\n\
     - {apiVersion: v1, kind: Node, metadata: {name: n}}\n"
)]
#[case::of_an_api_server(
    "apiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineSetList\nitems:\n- {metadata: {name: a}}\n---\n\
     {apiVersion: v1, kind: NodeList, items: [{metadata: {name: n}}]}\n"
)]
#[case::a_list_in_a_list(
    "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{apiVersion: cluster.x-k8s.io/v1beta1, \
     kind: MachineSet, metadata: {name: a}}]}\n- {apiVersion: v1, kind: Node, metadata: {name: n}}\n"
)]
fn the_items_of_a_list_are_objects(#[case] text: &str) {
    assert_eq!(ids(&manifests(&[("dump.yaml", text)])), ["Node n", "MachineSet default/a"]);
}

#[test]
fn a_file_without_a_kubernetes_object_is_named_and_skipped() {
    let files = [
        ("chart/templates/md.yaml", "{{- if .Values.on }}\nkind: MachineDeployment\n{{- end }}\n"),
        ("chart/values.yaml", "replicas: 3\n"),
        (
            "kustomization.yaml",
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [md.yaml]\n",
        ),
        ("md.yaml", &object("MachineDeployment", "a")),
        ("list.json", "[1, 2]"),
    ];
    let manifests = manifests(&files);
    assert_eq!(ids(&manifests), ["MachineDeployment team-a/a"]);
    let expected = [
        ("chart/templates/md.yaml:1", "helm template"),
        ("chart/values.yaml:1", "no apiVersion and kind"),
        ("kustomization.yaml:1", "Kustomization (kustomize.config.k8s.io/v1beta1)"),
        ("list.json:1", "no apiVersion and kind"),
    ];
    assert_eq!(manifests.skipped.len(), expected.len(), "{:?}", manifests.skipped);
    for (said, (place, why)) in manifests.skipped.iter().zip(expected) {
        assert!(said.starts_with(place) && said.contains(why), "{said}");
    }
}

#[test]
fn a_broken_file_of_a_directory_is_named_and_does_not_end_it() {
    let files = [
        ("bad.yaml", "kind: MachineDeployment\n  metadata: [\n---\nkind: x\n"),
        ("md.yaml", &object("MachineDeployment", "a")),
    ];
    let manifests = manifests(&files);
    assert_eq!(ids(&manifests), ["MachineDeployment team-a/a"]);
    let [broken] = manifests.broken.as_slice() else { panic!("{:?}", manifests.broken) };
    assert!(broken.starts_with("bad.yaml:1: it isn't YAML"), "{broken}");
}

#[rstest]
#[case::broken("a.yaml", b"kind: [", "a.yaml:1: it isn't YAML")]
#[case::a_template("a.yaml", b"name: {{ .Values.name }}", "helm template")]
#[case::another_encoding("a.yaml", b"\xff\xfe", "UTF-8")]
#[case::no_object("a.yaml", b"a: 1", "no Kubernetes object is in")]
#[case::nothing("a.yaml", b"", "no Kubernetes object is in")]
fn a_file_that_was_named_must_hold_objects(#[case] name: &str, #[case] bytes: &[u8], #[case] part: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    let error = read_path(&path).unwrap_err().to_string();
    assert!(error.contains(part), "{error}");
}

#[test]
fn a_path_that_is_not_there_is_an_error() {
    let error = read_path(Path::new("/nowhere/at/all")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/at/all") && error.contains("name a file"), "{error}");
}

#[test]
fn of_an_object_that_is_there_twice_the_last_counts_and_both_places_are_named() {
    let files = [
        ("a.yaml", &*object("MachineDeployment", "a")),
        (
            "b.yaml",
            "# v1beta1\napiVersion: cluster.x-k8s.io/v1beta1\nkind: MachineDeployment\n\
                    metadata: {name: a, namespace: team-a}\nspec: {replicas: 7}\n",
        ),
    ];
    let manifests = manifests(&files);
    assert_eq!(ids(&manifests), ["MachineDeployment team-a/a"]);
    let replicas = manifests.objects.values().map(|object| object.value.pointer("/spec/replicas").cloned());
    assert_eq!(replicas.collect::<Vec<_>>(), [Some(7.into())]);
    assert_eq!(
        manifests.warnings,
        ["MachineDeployment team-a/a is there twice, in a.yaml:1 and b.yaml:2: the latter counts; remove one of them"]
    );
}

/// A group whose capacity comes from an infrastructure template.
const FLEET: &str = r#"
apiVersion: GROUP/v1beta2
kind: MachineDeployment
metadata:
  name: workers
  annotations: {GROUP/cluster-api-autoscaler-node-group-max-size: "3"}
spec:
  replicas: 0
  template:
    spec:
      infrastructureRef: {apiGroup: infrastructure.example.com, kind: DevMachineTemplate, name: workers}
---
apiVersion: infrastructure.example.com/v1
kind: DevMachineTemplate
metadata: {name: workers}
status: {capacity: {cpu: 4, memory: 16Gi}}
"#;

#[rstest]
fn manifests_are_fed_with_the_defaults_of_an_api_server_in_any_cluster_api_group(
    #[values("cluster.x-k8s.io", "cluster.example.com")] group: &str,
) {
    let fed = fed(&manifests(&[("fleet.yaml", &FLEET.replace("GROUP", group))]), rules(group), &[]);
    let snapshot = fed.index.snapshot(None, Detail::Counts);
    let [only] = snapshot.groups.as_slice() else { panic!("{:?}", snapshot.groups) };
    assert_eq!(only.id.to_string(), "MachineDeployment/default/workers");
    let Ok(served) = &only.standing else { panic!("{:?}", only.standing) };
    assert!(served.template.is_some());
    assert_eq!(fed.unreadable, [""; 0]);
}

#[test]
fn an_object_that_cannot_be_read_is_named_with_its_place_and_field() {
    let files = [
        (
            "cluster.yaml",
            "apiVersion: cluster.x-k8s.io/v1beta2\nkind: Cluster\nmetadata: {name: c}\nspec: {paused: maybe}\n",
        ),
        ("fleet.yaml", &FLEET.replace("GROUP", "cluster.x-k8s.io").replace("replicas: 0", "replicas: none")),
    ];
    let fed = fed(&manifests(&files), rules("cluster.x-k8s.io"), &[]);
    let parts = [["cluster.yaml:1", "Cluster default/c", "maybe"], ["fleet.yaml:2", "MachineDeployment", "none"]];
    assert_eq!(fed.unreadable.len(), parts.len(), "{:?}", fed.unreadable);
    for (said, parts) in fed.unreadable.iter().zip(parts) {
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
    }
    let snapshot = fed.index.snapshot(None, Detail::Counts);
    assert!(matches!(&snapshot.groups[0].standing, Err(excluded) if excluded.reason == Exclusion::Undecodable));
}

#[rstest]
#[case::found(None, true)]
#[case::named(Some("remembered"), true)]
#[case::another_is_named(Some("other"), false)]
fn nodes_are_remembered_by_a_config_map_among_the_manifests(#[case] named: Option<&str>, #[case] expected: bool) {
    let reference = InfrastructureRef {
        group: "infrastructure.example.com".into(),
        kind: "DevMachineTemplate".into(),
        name: "workers".into(),
    };
    let templates = Templates::new(&"default".into(), (&reference, SpecDigest::default()), Bootstrap::None);
    let key = Key::new(&templates, "arm64").unwrap();
    let entry = r#"{"node":"n","group":"MachineDeployment/default/old","seen":"2026-01-01T00:00:00Z","capacity":{"cpu":"2","memory":"4Gi"},"allocatable":{"cpu":"1","memory":"3Gi"}}"#;
    let config_map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "remembered"},
        "data": {key.to_string(): entry, "odd": "x"},
    });
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: another}\ndata: {a: b}\n";
    let fleet = FLEET.replace("GROUP", "cluster.x-k8s.io").replace("status: {capacity: {cpu: 4, memory: 16Gi}}", "");
    let files = [("a.json", &*config_map.to_string()), ("b.yaml", other), ("c.yaml", &*fleet)];
    let remember: Vec<_> = named.into_iter().map(|name| ObjectKey::new("default", name)).collect();
    let fed = fed(&manifests(&files), rules("cluster.x-k8s.io"), &remember);
    let snapshot = fed.index.snapshot(None, Detail::Counts);
    let from_zero = snapshot.groups[0].served().and_then(|served| served.definition.from_zero);
    assert_eq!(from_zero, expected.then_some(FromZero::Remembered));
    let said = if expected { "an entry isn't used" } else { "--remember-in default/other: the manifests have no such" };
    let [unreadable] = fed.unreadable.as_slice() else { panic!("{:?}", fed.unreadable) };
    assert!(unreadable.contains(said), "{unreadable}");
}
